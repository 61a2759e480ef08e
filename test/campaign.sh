#!/bin/bash
# test/campaign.sh: harm by chance. Runs under scripts/run_forever.sh, on one layout after the other, are harmed at
# random instants by means drawn at random: signals of all kinds to random sets of their processes, NaN and flipped bits
# at random steps and tensors, a full disk, damaged checkpoints. (`make campaign`, doc/reliability.md)
#
# What must hold, whatever was done:
#   - no good checkpoint is lost: the newest one that equals the undisturbed run's never goes back, unless it was the
#     one that was damaged here;
#   - status 0 means that the run is done and its weights are the undisturbed run's, bit for bit, or that it was
#     asked to stop and its last step is saved;
#   - a checkpoint that loads is the undisturbed run's of that step;
#   - everything ends in time, and no process is left; once the harm ends, the run gets to its end.
#
# MINUTES=120 how long; SEED=1 which harm; LIVES=N ends after so many runs; LIFE=K only that one; VERBOSE=1 says what is
# done. A full disk needs the right to mount.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
# shellcheck source=test/crash_common.sh
. "$(dirname "$0")/crash_common.sh"
minutes=${MINUTES:-120} lives=${LIVES:-100000} first=0 seed=${SEED:-1}
[ -z "${LIFE:-}" ] || first=$LIFE lives=$((LIFE + 1))
patience=300 # seconds for one attempt of run_forever.sh that nothing disturbs
steps=120
for ((i = 0; i < ${#common[@]}; i++)); do
    case ${common[i]} in --run.steps=* | --optim.decay_steps=*) common[i]=${common[i]%=*}=$steps ;; esac
done
layouts+=(dp4)
tensors=(embed.tokens.weight layers.0.attn.q.weight layers.1.attn.out.bias layers.2.ffn.up.weight
    layers.3.ffn.down.bias final_norm.weight layers.1.ffn_norm.bias)

pick() { # WORD...: sets picked to one of them
    below $#
    shift "$random"
    picked=$1
}

marked() { # pids of the processes of this life: they inherit a variable. Without the shell that harms them
    local file
    for file in /proc/[0-9]*/environ; do
        tr '\0' '\n' <"$file" 2>/dev/null | grep -qx "CAMPAIGN=$mark" || continue
        file=${file#/proc/}
        echo "${file%/environ}"
    done 2>/dev/null
}

# Which checkpoints are good: they load, and are the undisturbed run's. Sets good to the newest one's step, 0: none.
# One that loads and differs ends the life.
look() {
    local dir step
    good=0
    for dir in "$runs/$name"/checkpoints/step_*[0-9]; do
        [ -d "$dir" ] || continue
        step=$((10#${dir##*step_}))
        if ! "$BUILD/export" "$dir" --to state --out "$work/look" >/dev/null 2>"$work/look.err"; then
            echo "  step $step does not load: $(cat "$work/look.err")"
        elif [ -n "$other" ] || cmp -s "$work/look" "$work/state-$step"; then good=$step
        else
            echo "step $step is not the undisturbed run's"
            return 1
        fi
    done
}

start() { # runs run_forever.sh in the background
    local n options
    layout "$on"
    (
        trap - INT TERM
        export CAMPAIGN=$mark PAUSE=0 LAUNCH="$launcher -n $n"
        exec setsid scripts/run_forever.sh "$BUILD/train" "$work/gpt.toml" --run.name="$name" "${common[@]}" \
            "${options[@]}" "${extra[@]}" "$@" >>"$work/$name.out" 2>>"$work/$name.err" </dev/null
    ) &
    job=$!
}

draw_fault() { # sets fault to a setting or nothing, and other when the run may then differ from the undisturbed one
    local step of tensor rank bit
    fault=() other=
    below $((steps - 1)) && step=$((random + 1))
    below "$1" && rank=$random
    below 31 && bit=$random
    pick "${tensors[@]}" && tensor=$picked
    pick weight weight exp_avg exp_avg_sq gradient && of=$picked
    case $on in
    *zero* | *tp* | *pp* | *cp*) pick none none none nan enospc slowdisk kill hang exit ;; # no replica to compare with
    one) pick none none nan nan enospc slowdisk kill ;;
    *) pick none nan flip flip enospc kill hang exit ;;
    esac
    case $picked in
    nan) fault=(--run.fault="nan:rank=$rank,step=$step,tensor=$tensor,of=$of") ;;
    flip) [ $of = gradient ] && of=weight
        fault=(--run.fault="flip:rank=$rank,step=$step,tensor=$tensor,bit=$bit,of=$of" --monitor.agree_every=1) ;;
    enospc) fault=(--run.fault="enospc:step=$step,steps=$((bit + 1)),bytes=$((bit * 3000 + 1))") ;;
    slowdisk) fault=(--run.fault="slowdisk:step=$step,seconds=3") ;;
    kill) fault=(--run.fault="kill:rank=$rank,step=$step,signal=$((bit % 15 + 1))") ;;
    hang | exit) fault=(--run.fault="$picked:rank=$rank,step=$step") ;;
    esac
    [ "$picked$of" != nangradient ] || other=yes # the update is skipped
}

harm() { # one thing, now
    local some all signal p file of
    mapfile -t all < <(marked)
    some=()
    pick one few all
    for p in "${all[@]}"; do
        [ "$p" != "$job" ] || [ "$picked" = all ] || continue
        below ${#all[@]}
        case $picked,$((random % 2)) in all,* | few,1) some+=("$p") ;; esac
    done
    of=$picked
    if [ ${#some[@]} = 0 ] && [ ${#all[@]} != 0 ]; then pick "${all[@]}" && some=("$picked"); fi
    pick signal signal signal signal signal disk damage
    case $picked in
    signal)
        pick KILL KILL KILL TERM TERM INT USR1 HUP QUIT STOP SEGV ABRT PIPE USR2 ALRM BUS
        signal=$picked
        echo "  $signal to $of: ${#some[@]} of ${#all[@]}:" \
            "$(ps -o comm= -p "${some[*]:-1}" | sort | uniq -c | tr -s ' \n' ' ')"
        [ ${#some[@]} = 0 ] || kill -s "$signal" "${some[@]}" 2>/dev/null || true
        if [ $signal = STOP ] && [ ${#some[@]} != 0 ]; then
            below 9000
            pause "$random"
            kill -s CONT "${some[@]}" 2>/dev/null || true
        fi ;;
    disk)
        [ -n "$mounted" ] || return 0
        below 3000
        echo "  the disk is full for $random ms"
        head -c 1000000000 /dev/zero >"$runs/$name/filler" 2>/dev/null || true
        pause "$random"
        rm -f "$runs/$name/filler" ;;
    damage) # the newest checkpoint, when there is another one
        mapfile -t some < <(find "$runs/$name/checkpoints" -maxdepth 1 -name 'step_*[0-9]' 2>/dev/null | sort)
        [ ${#some[@]} -ge 2 ] || return 0
        mapfile -t all < <(find "${some[-1]}" -type f)
        [ ${#all[@]} -ge 1 ] || return 0
        pick "${all[@]}" && file=$picked
        pick flip cut remove
        echo "  $picked ${file#"$runs/"}"
        p=$(stat -c %s "$file" 2>/dev/null || echo 0)
        [ "$p" -gt 0 ] || return 0
        below "$p"
        case $picked in
        flip) printf '\377' | dd of="$file" bs=1 seek="$random" conv=notrunc status=none ;;
        cut) truncate -s "$random" "$file" ;;
        remove) rm -f "$file" ;;
        esac 2>/dev/null || true
        best=0 spoiled=$((10#${some[-1]##*step_})) ;;
    esac
}

ended() { # waits for the job; sets status. Fails when it hangs
    local began=$SECONDS
    while kill -0 "$job" 2>/dev/null; do
        sleep 0.1
        [ $((SECONDS - began)) -gt $patience ] || continue
        echo "no end after $patience s"
        ps -eo pid,ppid,stat,wchan:20,args | grep "[ ]$BUILD/train"
        return 1
    done
    status=0
    wait "$job" || status=$?
    for ((began = 0; began < 150; began++)); do # what a killed run_forever.sh has left goes on by itself
        mapfile -t rest < <(marked)
        [ ${#rest[@]} != 0 ] || return 0
        [ "$status" -gt 128 ] && [ $began = 100 ] && kill -KILL "${rest[@]}" 2>/dev/null
        sleep 0.1
    done
    echo "left: $(ps -o pid=,ppid=,stat=,args= -p "${rest[*]}")"
    return 1
}

# What a status says must be so.
honest() {
    look
    if [ "$good" -lt "$best" ]; then echo "step $best was good, now $good is the newest"; return 1; fi
    best=$good
    [ "$status" = 0 ] || return 0
    last=$(value train step "$runs/$name/metrics.jsonl" | tail -n 1)
    [ "$good" = "$last" ] || [ "$spoiled" = "$last" ] || {
        echo "status 0, but the last of $last steps is not saved: $good"
        return 1
    }
}

one_life() { # NUMBER
    local on n options extra fault other job status good=0 best=0 spoiled=0 i harms keep last=0
    name=life-$1 mark="$$-$1" mounted='' # not local: the trap below comes after the function
    RANDOM=$((seed * 1000 + $1))
    on=${layouts[$1 % ${#layouts[@]}]}
    layout "$on"
    draw_fault "$n"
    below 3 && keep=$((random + 2))
    extra=(--ckpt.keep=$keep --run.hang_timeout=5)
    below 4 && extra+=(--run.save_every=$((random * 2 + 1)))
    below 2 && [ $random = 1 ] && extra+=(--ckpt.async=true)
    below 5 && harms=$random
    mkdir -p "$runs/$name"
    below 3
    if [ $random = 0 ] && mount -t tmpfs -o size=12m campaign "$runs/$name" 2>/dev/null; then mounted=yes; fi
    trap 'marked | xargs -r kill -KILL 2>/dev/null || true; [ -z "$mounted" ] || umount -l "$runs/$name"' EXIT
    echo "life $1 on $on: ${extra[*]} ${fault[*]} ${mounted:+tmpfs}, $harms harms"
    start "${fault[@]}"
    for ((i = 0; i < harms; i++)); do
        below 2500
        pause "$random"
        harm
        if ! kill -0 "$job" 2>/dev/null; then
            ended
            echo "  ended with status $status"
            honest
            [ "$last" != $steps ] || [ $status != 0 ] || break
            start # as a person would: without the fault
        fi
    done
    ended
    echo "  ended with status $status"
    honest
    for ((i = 0; i < 3; i++)); do # nothing harms it now
        [ "$last" = $steps ] && [ $status = 0 ] && break
        start
        ended
        echo "  at rest: status $status"
        honest
    done
    [ $status = 0 ] && [ "$last" = $steps ] || { tail -n 5 "$work/$name.err"; return 1; }
    [ -n "$other" ] || [ "$good" = $steps ] || [ "$spoiled" = $steps ]
    well_formed "$name" $steps
    [ -n "$other" ] || cmp <(history "$name" | grep '"\(train\|end\)"') <(history straight | grep '"\(train\|end\)"')
    echo "$on ${fault:--} $harms" >>"$work/lived"
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
at one straight --run.save_every=1 --ckpt.keep=0 || exit 1
for ((i = 1; i <= steps; i++)); do
    "$BUILD/export" "$(checkpoint straight $i)" --to state --out "$work/state-$i" >/dev/null || exit 1
done
: >"$work/lived"
until=$((SECONDS + minutes * 60))
for ((life = first; life < lives && SECONDS < until; life++)); do
    passes "life $life" one_life "$life"
    [ -z "${VERBOSE:-}" ] || sed 's/^/  /' "$work/log"
    rm -rf "${runs:?}/life-$life"
done
awk -v minutes=$((SECONDS / 60)) '{ n += $3; if (!seen[$1]++) layouts++; if ($2 != "-") faults++ } END {
    printf "%d runs on %d layouts lived through %d harms and %d faults, in %d minutes\n", NR, layouts, n,
        faults, minutes
}' "$work/lived"
exit $failed
