# test/crash_common.sh: jobs that are killed or told to stop at random instants, and what must hold afterwards. Sourced
# after test/train_common.sh and test/ranks_common.sh by test/crash.sh.

# The run of all these tests, with the same bits on any layout: 4 layers and 4 heads can be cut in 4.
steps=14
common=(--numerics.deterministic=true --model.layers=4 --model.channels=32 --model.context=16 --batch.tokens=256
    --run.steps=$steps --optim.decay_steps=$steps --run.eval_every=5 --eval.tokens=100 --sample.count=0 --run.sample_every=0 --ckpt.keep=2)

layout() { # NAME: sets n (ranks) and options
    options=()
    case $1 in
    one) n=1 ;;
    dp4) n=4 options=(--batch.micro=4) ;;
    dp2) n=2 options=(--batch.micro=4) ;;
    dp4-zero1) n=4 options=(--batch.micro=2 --parallel.zero=1) ;;
    dp4-zero2) n=4 options=(--batch.micro=4 --parallel.zero=2) ;;
    dp2-zero3) n=2 options=(--batch.micro=4 --parallel.zero=3) ;;
    tp2) n=2 options=(--parallel.tp=2) ;;
    tp4-sp) n=4 options=(--parallel.tp=4 --parallel.sp=true) ;;
    pp2) n=2 options=(--batch.micro=4 --parallel.pp=2) ;;
    pp4) n=4 options=(--batch.micro=2 --parallel.pp=4 --parallel.schedule=zb-h1) ;;
    cp2-zero3) n=2 options=(--batch.micro=4 --parallel.cp=2 --parallel.zero=3) ;;
    tp2-pp2) n=4 options=(--batch.micro=4 --parallel.tp=2 --parallel.pp=2) ;;
    dp2-tp2-pp2-zero1) n=8 options=(--batch.micro=2 --parallel.tp=2 --parallel.pp=2 --parallel.zero=1) ;;
    tp2-cp2-pp2) n=8 options=(--batch.micro=4 --parallel.tp=2 --parallel.cp=2 --parallel.pp=2) ;;
    *) echo "no layout $1"; return 1 ;;
    esac
}
layouts=(one dp2 dp4-zero1 dp4-zero2 dp2-zero3 tp2 tp4-sp pp2 pp4 cp2-zero3 tp2-pp2 dp2-tp2-pp2-zero1 tp2-cp2-pp2)

# at LAYOUT NAME [OPTION...]: a run, to its end
at() {
    local n options status=0 layout=$1 name=$2
    shift 2
    layout "$layout"
    ranks "$n" gpt "$name" "${common[@]}" "${options[@]}" "$@" || status=$?
    [ $status = 0 ] || sed 's/^/  /' "$work/$name.err"
    return $status
}

milliseconds() {
    echo $((${EPOCHREALTIME/[.,]/} / 1000))
}

below() { # NUMBER: a random one in [0, NUMBER)
    random=$(((RANDOM * 32768 + RANDOM) % $1))
}

pause() { # MILLISECONDS
    sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
}

# begin LAYOUT NAME [OPTION...]: starts or resumes a run in the background; sets job, the launcher's process
begin() {
    local n options layout=$1 name=$2
    shift 2
    layout "$layout"
    (exec "$launcher" -n "$n" "$BUILD/train" "$work/gpt.toml" --run.name="$name" "${common[@]}" "${options[@]}" \
        --ckpt.resume=auto "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null) &
    job=$!
}

running() {
    kill -0 "$job" 2>/dev/null
}

# What a kill leaves: every line of metrics.jsonl is whole, except perhaps the last, and every checkpoint under its
# final name loads, with all its hashes right.
sound() { # NAME
    local dir file=$runs/$1/metrics.jsonl
    if [ -s "$file" ]; then
        awk '{ if (NR > 1) print line; line = $0 }' "$file" >"$work/whole"
        [ -n "$(tail -c 1 "$file")" ] || tail -n 1 "$file" >>"$work/whole" # where the last line is whole
        [ ! -s "$work/whole" ] || "$BUILD/test/test_schema" "$work/whole"
    fi
    for dir in "$runs/$1"/checkpoints/step_*[0-9]; do
        [ ! -d "$dir" ] || "$BUILD/export" "$dir" --to state --out "$work/export"
    done
}

lines() { # NAME: train lines in the log
    value train step "$runs/$1/metrics.jsonl" 2>/dev/null | wc -l
}

# life NAME AGAINST SPAN KILLS LAYOUTS [OPTION...]: the run is killed, all its processes at once, KILLS times at random
# instants within SPAN milliseconds of its start, resumed each time on the next of the layouts, and at last allowed to
# finish. It must then equal the run AGAINST, which nothing disturbed. Sets killed to the number of kills that met a
# running job.
life() {
    local name=$1 against=$2 span=$3 kills=$4 i random job tree on
    read -ra on <<<"$5"
    shift 5
    killed=0
    for ((i = 0; i < kills; i++)); do
        begin "${on[i % ${#on[@]}]}" "$name" "$@"
        below "$span"
        pause "$random"
        mapfile -t tree < <(family "$job")
        if running; then killed=$((killed + 1)); fi
        kill -KILL "${tree[@]}" 2>/dev/null || true
        wait "$job" 2>/dev/null || true
        nobody_left "${tree[@]}"
        echo "killed after $random ms on ${on[i % ${#on[@]}]}: $(lines "$name") steps; $(ls "$runs/$name/checkpoints" 2>/dev/null | tr '\n' ' ')"
        sound "$name"
    done
    at "${on[0]}" "$name" "$@" --ckpt.resume=auto
    finished "$name" "$against"
}

finished() { # NAME AGAINST [EVENTS]: the same weights, state and metrics; nothing left over
    local events=${3:-.}
    [ ! -s "$work/$1.err" ]
    same_state "$1" "$2" $steps
    well_formed "$1" $steps
    cmp <(history "$1" | grep "$events") <(history "$2" | grep "$events")
    [ -z "$(find "$runs/$1" -name '*.tmp')" ]
}

# asked NAME AGAINST SPAN TIMES LAYOUT [OPTION...]: as life, but asked to stop, by SIGTERM, SIGUSR1 or SIGINT to the
# launcher or to one of the ranks. Once the first step is done that always ends with status 0 within 30 s, and a
# checkpoint of the last step. Before that no handler may be installed: the launcher ends the job, or ignores the
# signal.
asked() {
    local name=$1 against=$2 span=$3 times=$4 layout=$5 i random job tree status signal whom before began trains
    shift 5
    for ((i = 0; i < times; i++)); do
        before=$(lines "$name") status=0
        rm -f "$work/$name.out"
        begin "$layout" "$name" "$@"
        below "$span"
        pause "$random"
        signal=$(printf '%s\n' TERM USR1 INT | sed -n $((i % 3 + 1))p)
        mapfile -t tree < <(sed -n 's/^\(rank [0-9]*: \)\{0,1\}process \([0-9]*\) on .*/\2/p' "$work/$name.out" 2>/dev/null)
        whom=$job
        below 2
        if [ ${#tree[@]} != 0 ] && { [ $random = 1 ] || [ $signal = INT ]; }; then # the shell lets no background job have INT
            below ${#tree[@]}
            whom=${tree[random]}
        elif [ $signal = INT ]; then signal=TERM
        fi
        trains=$(grep -cs 'loss [0-9]' "$work/$name.out") || true
        began=$(milliseconds)
        kill -s $signal "$whom" 2>/dev/null || true
        wait "$job" || status=$?
        echo "$signal: status $status, $before + $(($(lines "$name") - before)) steps, $(tail -n 1 "$work/$name.out" 2>/dev/null)"
        [ "${trains:-0}" = 0 ] || [ $(($(milliseconds) - began)) -le 30000 ]
        if [ $status != 0 ]; then # before it could be heard
            cat "$work/$name.err"
            if grep -q 'loss [0-9]' "$work/$name.out"; then return 1; fi
        elif [ "$(lines "$name")" -gt 0 ]; then
            [ -f "$(checkpoint "$name" "$(value train step "$runs/$name/metrics.jsonl" | tail -n 1)")/manifest.json" ]
        fi
        sound "$name"
    done
    at "$layout" "$name" "$@" --ckpt.resume=auto
    finished "$name" "$against" '"\(train\|end\)"' # a resumed run drops the `end` line of a stop
}
