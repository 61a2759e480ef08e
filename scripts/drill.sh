#!/bin/bash
# scripts/drill.sh: kills ranks and hosts of a small run again and again, and compares its goodput with the prediction.
#
#     scripts/drill.sh               # 30 failures, about 5 minutes
#     scripts/drill.sh 3             # so many;  [SEED=1] [MEAN=4: seconds of training between failures] [WORK=folder]
#
# The run has four ranks, named as four hosts, under scripts/elastic.sh. The time to the next failure is exponential,
# counted while the run trains. By turns of chance a rank is killed (kill -9); or it is stopped, which is a hang until
# the supervisor ends the job; or a host dies, rank and supervisor, and does not answer for 2 seconds.
#
# After the last failure the run is asked to stop, at step s. It has passed when
#
#     the weights, moments and numbers of step s are byte for byte those of a run of s steps without a failure
#     metrics.jsonl has each step from 1 to s once, with the tokens that belong to it
#
# and goodput = (steps that were kept x seconds of a step) / seconds. The prediction is that of build/plan cluster, for
# the measured seconds of a save and of kept steps between two (a stop to grow saves, too), of a failure (from the kill
# to the first new step, and the stop when the host comes back), and between failures.
set -u
export LC_ALL=C # awk and bash write 0.5, not 0,5
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build} launcher=${LAUNCHER:-mpiexec} kills=${1:-30} mean=${MEAN:-4} down=2 save_every=20
work=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/drill.XXXXXX")} || exit 1
RANDOM=${SEED:-1}
export OMP_WAIT_POLICY=passive EVERY=0.5 REST=1 PAUSE=0.1 TRIES=20 LEAVE=20
loop='' watcher=''
leave() {
    [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
    [ -z "$loop" ] || { kill -TERM "$loop" 2>/dev/null && wait "$loop"; }
    [ -n "${WORK:-}" ] || rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM

prepare() {
    "$BUILD/stories" --bytes 200000 --seed 3 --out "$work/text" &&
        "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 512 --out "$work/data" &&
        mkdir -p "$work/down" &&
        printf '%s\n' '[run]' "dir = \"$work/runs\"" 'steps = 1000000' 'eval_every = 0' "save_every = $save_every" \
            'threads = 1' 'peak = 100' 'hang_timeout = 2' '[data]' "train = \"$work/data/train_*.bin\"" \
            "val = \"$work/data/val_*.bin\"" "tokenizer = \"$work/data\"" '[model]' 'layers = 2' 'channels = 64' 'heads = 4' \
            'context = 32' '[batch]' 'tokens = 512' 'micro = 1' '[optim]' 'lr = 1e-3' 'warmup = 10' 'decay_steps = 1000000' \
            '[eval]' 'tokens = 100' '[sample]' 'count = 0' '[numerics]' 'deterministic = true' >"$work/drill.toml"
}

# The last line of an event of the loop, in which KEY has this value.
event() { # EVENT KEY
    sed -n "/\"event\":\"$1\"/s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$run/elastic.jsonl" 2>/dev/null | tail -n 1
}

# Notes when each attempt has made its first step: a line with the time of its start and of that.
watch() {
    local start noted=''
    while sleep 0.03; do
        start=$(event start t)
        if [ "$start" != "$noted" ] && [ "$run/metrics.jsonl" -nt "$run/elastic.started" ] &&
            tail -n 1 "$run/metrics.jsonl" | grep -q '"event":"train"'; then
            echo "$start $EPOCHREALTIME" >>"$work/resumed"
            noted=$start
        fi
    done
}

training() { # waits until the last attempt trains
    local i
    for ((i = 0; i < 600; i++)); do
        kill -0 "$loop" 2>/dev/null || break
        tail -n 1 "$run/elastic.jsonl" 2>/dev/null | grep -q '"event":"start"' &&
            grep -q "^$(event start t) " "$work/resumed" 2>/dev/null && return
        sleep 0.1
    done
    echo "drill: the run does not train; its last words:" >&2
    tail -n 3 "$work/err" >&2
    return 1
}

# One failure, of a rank by chance.
fail() {
    local rank process supervisor host what
    rank=$((RANDOM % $(event start ranks)))
    process=$(grep "^rank $rank: process" "$work/out" | tail -n 1 | sed 's/.*process \([0-9]*\) .*/\1/')
    host=$(event start hosts | cut -d' ' -f$((rank + 1)))
    supervisor=$(ps -o ppid= -p "$process" | tr -d ' ')
    [ -n "$supervisor" ] || return 1
    what=${kinds[RANDOM % 3]}
    echo "$EPOCHREALTIME $what $rank $host" >>"$work/kills"
    case $what in
    kill) kill -KILL "$process" ;;
    hang) kill -STOP "$process" ;;
    host)
        touch "$work/down/$host"
        kill -KILL "$supervisor" "$process"
        { sleep $down; rm -f "$work/down/$host"; } & ;;
    esac
}

drill() {
    local i kinds=(kill hang host)
    scripts/elastic.sh --local --hosts a,b,c,d --mpiexec "$launcher" --probe "$work/probe" "$BUILD/train" "$work/drill.toml" --run.name=drill \
        >"$work/out" 2>"$work/err" </dev/null &
    loop=$!
    watch &
    watcher=$!
    for ((i = 1; i <= kills; i++)); do
        training || return 1
        sleep "$(awk -v m="$mean" -v u=$((RANDOM + 1)) 'BEGIN { print -m * log(u / 32769) }')"
        training || return 1 # it may have been stopped meanwhile, to grow
        fail || { i=$((i - 1)); continue; }
        echo "failure $i: $(tail -n 1 "$work/kills" | cut -d' ' -f2-)"
        while [ "$(grep -c '"event":"failure"' "$run/elastic.jsonl")" -lt $i ]; do # until it was noticed
            kill -0 "$loop" || return 1
            sleep 0.1
        done
    done
    for ((i = 0; i < 100; i++)); do # all are back
        training || return 1
        [ "$(event start ranks)" = 4 ] && break
        sleep 0.2
    done
    echo "$EPOCHREALTIME" >"$work/ended"
    kill -TERM "$loop"
    wait "$loop" || return 1
    loop=''
}

# The same steps without a failure.
compare() {
    local s name
    s=$(sed -n '/"event":"train"/s/.*"step":\([0-9]*\).*/\1/p' "$run/metrics.jsonl" | tail -n 1)
    "$launcher" -n 4 "$BUILD/train" "$work/drill.toml" --run.name=straight --run.stop_at="$s" >"$work/straight.out" 2>&1 </dev/null ||
        return 1
    for name in drill straight; do
        "$BUILD/export" "$work/runs/$name/checkpoints/$(printf 'step_%08d' "$s")" --to state --out "$work/$name.state" \
            >/dev/null || return 1
    done
    cmp "$work/drill.state" "$work/straight.state" || return 1
    sed -n '/"event":"train"/s/.*"step":\([0-9]*\),"tokens":\([0-9]*\),.*/\1 \2/p' "$run/metrics.jsonl" |
        awk -v s="$s" '$1 != NR || $2 != NR * 512 { print "line " NR " is step and tokens " $0; bad = 1; exit }
            END { exit bad || NR != s }' || return 1
    echo "step $s: the bytes of the run without a failure; each step and its samples once"
}

# Prints what build/plan wants, a line "NAME VALUE" each. Time is either that of an attempt, from its first step on, or
# lost to a failure or to a stop in order to grow, up to the next first step.
measure() {
    awk '
        function number(key) {
            return match($0, "\"" key "\":-?[0-9.e+-]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0
        }
        FILENAME ~ /kills$/ { killed[++kills] = $1; kind[$2]++; next }
        FILENAME ~ /resumed$/ { resumed[++attempts] = $2; next }
        FILENAME ~ /ended$/ { ended = $1; next }
        /"event":"start"/ { runs = 1 }
        /"event":"(failure|grow)"/ {
            t = number("t")
            grown += /grow/
            if (/failure/) { seen += t - killed[++failures]; t = killed[failures]; lost += number("step") - number("saved") }
            if (runs) stop[++stops] = t # else it failed while it stopped to grow
            runs = 0
        }
        /"event":"save"/ { saves++; saved = 1 } # the next step says how long it took; the last of an attempt is a stop
        /"event":"train"/ { kept++; if (saved) saving += number("save_ms") / 1000; saved = 0 }
        END {
            if (failures != kills || attempts != stops + 1) {
                print "drill: " kills " failures made, " failures " seen; " stops " stops, " attempts " attempts" >"/dev/stderr"
                exit 1
            }
            for (i = 1; i <= attempts; i++) {
                trains += (i > stops ? ended : stop[i]) - resumed[i]
                if (i > 1) down += resumed[i] - stop[i - 1]
            }
            step = (trains - saving) / (kept + lost)
            OFMT = "%.4g"
            print "kills", kind["kill"] + 0
            print "hangs", kind["hang"] + 0
            print "hosts", kind["host"] + 0
            print "grown", grown
            print "seconds", trains + down
            print "kept", kept
            print "lost", lost
            print "step", step
            print "save", saving / saves
            print "interval", kept * step / saves
            print "detection", seen / kills
            print "restart", down / kills
            print "between", trains / kills
            print "goodput", 100 * kept * step / (trains + down)
        }' "$work/kills" "$work/resumed" "$work/ended" "$run/elastic.jsonl" "$run/metrics.jsonl"
}

of() { # NAME: a measured value
    sed -n "s/^$1 //p" "$work/measured"
}

report() {
    local predicted
    plan=("$BUILD/plan" cluster tiny --model.vocab=512 --gpus 1 --jitter 0 --days 0.1 --interval "$(of interval)"
        --save "$(of save)" --restart "$(of restart)" --mtbf "$(awk -v m="$(of between)" 'BEGIN { print m / 3600 }')")
    predicted=$("${plan[@]}" --json | awk 'match($0, /"by formula": *"?[0-9.]*/) { sub(/.*: *"?/, "", $0); printf "%.2f", $0 }')
    printf '%s\n' '' "| failures | ranks killed | hangs | hosts | stops to grow | seconds | steps kept | steps lost |" \
        "|---|---|---|---|---|---|---|---|" \
        "| $(($(of kills) + $(of hangs) + $(of hosts))) | $(of kills) | $(of hangs) | $(of hosts) | $(of grown) | $(of seconds) | $(of kept) | $(of lost) |"
    printf '%s\n' '' "| a step | between saves | a save | noticed after | trains again after | between failures | goodput, measured | plan |" \
        "|---|---|---|---|---|---|---|---|" \
        "| $(of step) s | $(of interval) s | $(of save) s | $(of detection) s | $(of restart) s | $(of between) s | $(of goodput)% | $predicted% |"
    printf '%s\n' '' "${plan[*]}"
}

run=$work/runs/drill
prepare >"$work/log" 2>&1 || { echo 'drill: no corpus:' >&2; tail "$work/log" >&2; exit 1; }
printf '%s\n' '#!/bin/sh' "[ ! -e \"$work/down/\$1\" ]" >"$work/probe"
chmod +x "$work/probe"
drill || { echo "drill: the run under scripts/elastic.sh failed" >&2; exit 1; }
kill $watcher
compare || { echo "drill: the run is not the one without failures" >&2; exit 1; }
measure >"$work/measured" || exit 1
report
