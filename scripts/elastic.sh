#!/bin/bash
# scripts/elastic.sh: runs a training command until it is done, on those of its hosts that are healthy.
#
#     scripts/elastic.sh --hosts a,b,c,d --ppn 8 build/train stories --run.name=long --run.save_every=200
#     scripts/elastic.sh --local --hosts a,b,c,d build/train stories --run.name=long --run.save_every=200
#
# Hosts that answer take part: mpiexec -hosts HOSTS -ppn N -n RANKS, with the largest number of ranks that the batch
# divides by (build/plan memory CONFIG --ranks N says so); tensor, pipeline and context parallelism stay as they are.
# When the job ends with a failure, RUN/failure.jsonl names the rank (supervisor.c), and rank / ppn is its host. That
# host rests: REST seconds after its first failure, twice as long after each further one until it has been part of a
# checkpoint. The others go on from the newest checkpoint. A host that does not answer is left out without being
# blamed. While hosts are missing they are asked every EVERY seconds; when more ranks fit again, SIGUSR1 lets the job
# save and end, and it starts again with them. batch.tokens is the whole batch on any number of ranks, so the run computes the same.
#
#     options           --local: the hosts are names for ranks of this machine
#                       --ppn N: ranks a host (1);  --min N: ranks that are worth a start (1)
#                       --mpiexec 'COMMAND': the launcher with options of its own; it must know -hosts, -ppn and -n
#                       --probe 'COMMAND': succeeds when the host, its last word, is healthy (ssh HOST true)
#     environment       EVERY=10 REST=60 PAUSE=1: seconds;  TRIES=5
#                       LEAVE=600: seconds for a job that is asked to save and end; then it is killed
#
# Before another start it waits PAUSE seconds, twice as long after each failure that brought no new checkpoint. TRIES
# of those in a row end it, with the status of the last: a mistake in the program would fail for ever. Status 0 is the
# end of the run, and so is a signal to this script, which is passed on: the job saves and ends. What happened is in
# RUN/elastic.jsonl, a line an event.
#
# Rejected: ranks that stay alive when one is lost (doc/supervisor.md: the group's memory is cut for all its ranks);
# another learning rate for fewer ranks (the batch is the same).
set -u
export LC_ALL=C # awk and bash write 0.5, not 0,5
usage="error: usage: $0 --hosts A,B,... [--local] [--ppn N] [--min N] [--mpiexec COMMAND] [--probe COMMAND] build/train CONFIG \
[--key=value ...]"
every=${EVERY:-10} rest=${REST:-60} pause=${PAUSE:-1} tries=${TRIES:-5} patience=${LEAVE:-600}
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends
hosts=() ppn=1 min=1 mpiexec=mpiexec probe='' here=
refuse() { echo "error: elastic.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in --local) ;; --hosts | --ppn | --min | --mpiexec | --probe) [ $# -gt 1 ] || refuse "$1: no value" ;; esac
    case $1 in
    --help) echo "${usage#error: }"; exit 0 ;;
    --hosts) IFS=, read -ra hosts <<<"${2:-}" ;;
    --ppn) ppn=${2:-} ;;
    --min) min=${2:-} ;;
    --mpiexec) mpiexec=${2:-} ;;
    --probe) probe=${2:-} ;;
    --local) here=1; shift; continue ;;
    -*) refuse "$1: no such option ($usage)" ;;
    *) break ;;
    esac
    shift; [ $# -gt 0 ] && shift
done
if [ ${#hosts[@]} = 0 ] || [ $# = 0 ] || ! [ "$ppn" -gt 0 ] 2>/dev/null || ! [ "$min" -gt 0 ] 2>/dev/null; then
    echo "$usage" >&2
    exit 2
fi

for setting in EVERY=$every REST=$rest PAUSE=$pause TRIES=$tries LEAVE=$patience; do
    [[ ${setting#*=} =~ ^[0-9]+(\.[0-9]+)?$ ]] || refuse "$setting: a number is wanted"
done
[ -z "$(printf '%s\n' "${hosts[@]}" | sort | uniq -d)" ] && [[ " ${hosts[*]} " != *"  "* ]] ||
    refuse "--hosts ${hosts[*]}: a name is empty or there twice"
command -v "$1" >/dev/null || refuse "$1: no such program"

{ IFS= read -r dir && IFS= read -r name; } < <("$@" --print run.dir,run.name) || exit 2 # it has said why
run=$dir/$name
mkdir -p "$run" || exit 1

declare -A fit=() resting=() strikes=()
active=() ranks=0 size=0 job='' asked='' idle=0 attempt=0

say() { # EVENT JSON WORDS: to the screen, and to RUN/elastic.jsonl
    echo "elastic: $run: $3" >&2
    printf '{"event":"%s","t":%s%s}\n' "$1" "$EPOCHREALTIME" "${2:+,$2}" >>"$run/elastic.jsonl"
}

field() { # KEY: of the first supervisor's report
    sed -n "1s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$run/failure.jsonl" 2>/dev/null
}

newest() { # the step of the newest checkpoint, -1: none
    local path last=-1
    for path in "$run/checkpoints"/step_*; do
        case $path in *.tmp | *'*') ;; *) last=$((10#${path##*_})) ;; esac
    done
    echo "$last"
}

doze() { # SECONDS: a signal ends it
    sleep "$1" &
    wait $!
}

fits() { # RANKS: whether the run can be divided among so many
    if [ -z "${fit[$1]:-}" ]; then
        "${command%/*}/plan" memory "${words[@]}" --ranks "$1" >/dev/null 2>&1 && fit[$1]=yes || fit[$1]=no
    fi
    [ "${fit[$1]}" = yes ]
}

most() { # HOST...: sets `size`, the largest number of ranks that fit on them; 0: none
    for ((size = $# * ppn; size >= min; size--)); do
        fits $size && return
    done
    size=0
}

answers() { # HOST
    # shellcheck disable=SC2086 # words of a command
    if [ -n "$probe" ]; then timeout 10 $probe "$1"
    elif [ -z "$here" ]; then timeout 10 ssh -o BatchMode=yes -o ConnectTimeout=5 "$1" true
    fi </dev/null >/dev/null 2>&1
}

# Sets `up`, the hosts that answer, and `fresh`, those of them that do not rest.
ask_hosts() {
    local host asks=() i=0
    up=() fresh=()
    for host in "${hosts[@]}"; do answers "$host" & asks+=($!); done
    for host in "${hosts[@]}"; do
        wait "${asks[i++]}" || continue
        up+=("$host")
        [ "${resting[$host]:-0}" -gt "$SECONDS" ] || fresh+=("$host")
    done
}

# Sets `active` and `ranks`. When there are too few hosts otherwise, those that rest take part too; or it waits.
choose() {
    local said='' from
    while [ -z "$asked" ]; do
        ask_hosts
        from=("${fresh[@]}")
        most "${from[@]}"
        [ $size -gt 0 ] || { from=("${up[@]}"); most "${from[@]}"; }
        ranks=$size active=("${from[@]:0:(size + ppn - 1) / ppn}")
        [ $size -gt 0 ] && return
        [ -n "$said" ] || say wait "\"up\":\"${up[*]}\"" "waits for hosts; of ${hosts[*]} these answer: ${up[*]:-none}"
        said=1
        doze "$every"
    done
}

start() {
    local where=(-n "$ranks") IFS=,
    [ -n "$here" ] || where=(-hosts "${active[*]}" -ppn "$ppn" -n "$ranks")
    IFS=' '
    rm -f "$run/failure.jsonl"
    attempt=$((attempt + 1)) before=$(newest)
    say start "\"attempt\":$attempt,\"ranks\":$ranks,\"hosts\":\"${active[*]}\",\"step\":$before" \
        "$ranks ranks on ${active[*]}, from $([ "$before" -lt 0 ] && echo the start || echo "step $before")"
    touch "$run/elastic.started"
    # shellcheck disable=SC2086 # words of the launcher
    "${with[@]}" setsid $mpiexec "${where[@]}" "$command" "${words[@]}" --ckpt.resume=auto &
    job=$!
}

# A rank that is not yet in training would be killed by a signal.
trains() {
    [ "$run/metrics.jsonl" -nt "$run/elastic.started" ] &&
        ! tail -n 1 "$run/metrics.jsonl" | grep -qE '"event":"(start|resume)"'
}

# Until the job has ended: sets `status`, and `grows` (the second) when it was asked to end because more ranks fit. A launcher that
# is still there long after the report waits for a host that does not answer, and is ended.
watch() {
    local timer who reported=''
    grows=''
    while :; do
        sleep "$every" &
        timer=$! who=
        wait -n -p who "$job" "$timer" 2>/dev/null # without the shell's own words about a job that was killed
        status=$?
        [ "${who:-}" = "$job" ] && break # a signal to this script ends the wait, too
        if [ -n "$reported" ]; then kill -KILL -- "-$job" 2>/dev/null; fi
        if [ -n "$grows" ] && [ $((SECONDS - grows)) -ge "$patience" ]; then kill -KILL -- "-$job" 2>/dev/null; fi
        if [ -e "$run/failure.jsonl" ]; then reported=1; continue; fi
        if [ -n "$asked$grows" ] || [ ${#active[@]} = ${#hosts[@]} ] || ! trains; then continue; fi
        ask_hosts
        most "${fresh[@]}"
        [ $size -gt "$ranks" ] || continue
        grows=$SECONDS
        say grow "\"hosts\":\"${fresh[*]}\"" "${fresh[*]} answer: saves, and starts again with them"
        kill -USR1 "$job"
    done
    job=
    kill "$timer" 2>/dev/null
    wait "$timer" 2>/dev/null
}

# After a failure: whether there was progress, and whose it was.
judge() {
    local rank why host='' after reached away=0 who='no rank is named'
    rank=$(field rank) why=$(field why) after=$(newest) reached=$after
    trains && reached=$(sed -n '/"event":"train"/s/.*"step":\([0-9]*\).*/\1/p' "$run/metrics.jsonl" | tail -n 1)
    if [ "$after" = "$before" ]; then idle=$((idle + 1)); else idle=0; fi
    for host in "${active[@]}"; do
        [ $idle -gt 0 ] || strikes[$host]=0
    done
    host=''
    case $why in
    signal | exit | error | hang)
        host=${active[rank / ppn]}
        away=$((rest * 2 ** ${strikes[$host]:=0}))
        resting[$host]=$((SECONDS + away))
        [ "${strikes[$host]}" -ge 10 ] || strikes[$host]=$((strikes[$host] + 1))
        who="rank $rank, $host: $why" ;;
    esac
    say failure "\"status\":$status,\"why\":\"${why:-unknown}\",\"rank\":${rank:--1},\"host\":\"$host\",\"rest\":$away,\
\"step\":${reached:-0},\"saved\":$after" "ended with status $status at step ${reached:-0} ($who)"
}

heard() { # a signal for us is for the job; SIGTERM, because what a script has in the background ignores SIGINT
    asked=1
    [ -z "$job" ] || kill -TERM "$job"
}
trap heard HUP INT TERM USR1

command=$1 words=("${@:2}")
most "${hosts[@]}"
if [ $size = 0 ]; then
    echo "error: elastic.sh: no number of ranks from $min to $((${#hosts[@]} * ppn)) will do; what is wrong with $min:" >&2
    "${command%/*}/plan" memory "${words[@]}" --ranks "$min" >/dev/null
    exit 2
fi
while :; do
    choose
    [ -z "$asked" ] || exit 130
    start
    watch
    [ "$status" = 0 ] && [ -z "$grows" ] && exit 0
    [ -n "$asked" ] && exit "$status"
    [ "$status" = 0 ] && continue
    judge
    [ "$status" = 2 ] && exit 2
    if [ $idle -ge "$tries" ]; then
        say end "\"status\":$status" "$tries attempts brought no new checkpoint: given up"
        exit "$status"
    fi
    doze "$(awk -v p="$pause" -v n=$idle 'BEGIN { s = p * 2 ^ n; print s < 300 ? s : 300 }')"
done
