#!/bin/bash
# test/test_supervisor.sh: a rank of build/train that is killed, crashes, leaves without a word, or hangs ends the job
# within 2 seconds (a hang: the limit and 5 s), is named with host, cause and step, and leaves no process running.
# Signals that ask a run to stop; two runs in one directory. (test_supervisor.c: the words, and who is to blame.)
# deeper: every signal that asks, to the launcher and to a rank
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
host=$(uname -n)

# ended NAME MILLISECONDS WORDS: the job that in_the_middle started is over in time, has failed, and said so once
ended() {
    local status=0
    wait "$pid" || status=$?
    local took=$(((${EPOCHREALTIME/./} - began) / 1000))
    echo "status $status after $took ms"
    cat "$work/$1.err"
    [ $status != 0 ]
    [ $took -le "$2" ]
    [ "$(grep -c 'error: ' "$work/$1.err")" = 1 ]
    grep -qE "^rank 2: error: process ${process[2]} on $host $3" "$work/$1.err"
    nobody_left
}

signalled() { # SIGNAL WORDS
    in_the_middle 4 "signal-$1"
    began=${EPOCHREALTIME/./}
    kill "-$1" "${process[2]}"
    ended "signal-$1" 60000 "$2, at step [0-9]+ \\((training|checkpoint)\\)\$"
}

leaves() { # FAULT WORDS: by itself, at step 30
    local began=${EPOCHREALTIME/./} status=0 name=leaves-${1//[^a-z0-9]/-}
    ranks 3 twelve "$name" --run.fault="$1" || status=$?
    cat "$work/$name.err"
    [ $status != 0 ]
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -le 60000 ]
    [ "$(grep -c 'error: ' "$work/$name.err")" = 1 ]
    grep -qE "^rank 2: error: process [0-9]+ on $host $2" "$work/$name.err"
    [ "$(value train step "$runs/$name/metrics.jsonl" | tail -n 1)" = 29 ]
}

# A stopped rank sends no heartbeat; the ranks that wait for it do. Its supervisor reports it when the time is over.
stopped() {
    in_the_middle 4 stopped --run.hang_timeout=2
    began=${EPOCHREALTIME/./}
    kill -STOP "${process[2]}"
    ended stopped 60000 'is stopped by a signal (in|and did not reach) [a-z_]+ [0-9]+ (of group|in which).*no progress for [23] s, at step [0-9]+'
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -ge 1800 ]
}

# An endless loop between two calls: the call that the others wait in is named.
loops() {
    local status=0 began=${EPOCHREALTIME/./}
    ranks 3 twelve loops --run.fault=hang:rank=2,step=30 --run.hang_timeout=2 || status=$?
    cat "$work/loops.err"
    [ $status != 0 ]
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -le 60000 ]
    [ "$(grep -c 'error: ' "$work/loops.err")" = 1 ]
    grep -qE "^rank 2: error: process [0-9]+ on $host hangs and did not reach all_reduce [0-9]+ of group [a-z ]+, in which rank [01] waits; no progress for 2 s, at step 30 \\(training\\)" "$work/loops.err"
}

# Rank 0 writes for longer than the limit, a tensor now and then, and the other waits for it: no hang.
writes_slowly() {
    ranks 2 gpt slow --batch.micro=4 --run.fault=slowdisk:step=2,seconds=4 --run.save_every=2 --run.stop_at=3 \
        --run.hang_timeout=1 || { cat "$work/slow.err"; return 1; }
}

# Rank and supervisor are both stopped, as when a machine swaps: another supervisor reports it.
stopped_with_its_supervisor() {
    in_the_middle 3 frozen --run.hang_timeout=1 --batch.tokens=384
    began=${EPOCHREALTIME/./}
    kill -STOP "$(ps -o ppid= -p "${process[2]}" | tr -d ' ')" "${process[2]}"
    ended frozen 60000 'hangs'
}

# A run without supervisors: a file cannot ask for it, the command line can.
without_supervisors() {
    local status=0
    { cat "$work/gpt.toml"; printf '[run]\nsupervisor = false\n'; } >"$work/bare.toml"
    ranks 2 bare bare --batch.micro=4 || status=$?
    [ $status = 1 ]
    grep -q '^rank 0: error: run.supervisor = false: in a file it comes too late' "$work/bare.err"
    ranks 2 gpt bare --run.supervisor=false --batch.micro=4 --run.stop_at=1 --eval.tokens=64 --sample.count=0
    [ ! -s "$work/bare.err" ]
}

# A signal to the launcher, to a supervisor or to a rank reaches the ranks once: they save and end with status 0.
asked_to_stop() { # SIGNAL launcher|supervisor|rank
    local name=asked-$1-$2 whom
    in_the_middle 2 "$name"
    case $2 in
    launcher) whom=$pid ;;
    supervisor) whom=$(ps -o ppid= -p "${process[1]}" | tr -d ' ') ;;
    rank) whom=${process[1]} ;;
    esac
    kill "-$1" "$whom"
    wait "$pid"
    grep -q 'stopped by a signal after step' "$work/$name.out"
    [ -f "$(checkpoint "$name" "$(value train step "$runs/$name/metrics.jsonl" | tail -n 1)")/manifest.json" ]
    nobody_left
}

# systemd, and SLURM with proctrack/linuxproc, signal every process of a job at once: one request all the same. Later a
# second one ends it at once.
all_asked_to_stop() { # SIGNAL
    local name=all-$1 everybody status=0
    in_the_middle 2 "$name"
    everybody=$(family "$pid")
    [ "$(wc -w <<<"$everybody")" -ge 6 ] # the launcher, its proxy, two supervisors, two ranks
    # shellcheck disable=SC2086
    kill "-$1" $everybody
    wait "$pid" || status=$?
    cat "$work/$name.err"
    echo "status $status"
    grep -q 'stopped by a signal after step' "$work/$name.out"
    [ -f "$(checkpoint "$name" "$(value train step "$runs/$name/metrics.jsonl" | tail -n 1)")/manifest.json" ]
    nobody_left
}

# Before the first update nothing can be saved: the job ends at once, whatever MPI's library does with a signal.
asked_too_early() { # SIGNAL launcher|rank
    local name=early-$1-$2 i
    mkfifo "$work/$name" # where the ranks stand meanwhile
    (exec "$launcher" -n 2 "$BUILD/train" "$work/gpt.toml" --run.name="$name" --data.floor="$work/$name" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null) &
    pid=$!
    exec 3>"$work/$name"
    mapfile -t process < <(pgrep -f "run.name=$name ")
    [ "$2" = launcher ] && kill "-$1" "$pid" || kill "-$1" "${process[-1]}"
    for ((i = 0; i < 400; i++)); do
        case $(ps -o stat= -p "$pid" || true) in '' | Z*) break ;; esac
        sleep 0.05
    done
    exec 3>&- # a run that goes on ends here
    wait "$pid" || true # 0 too: of a job that was asked to stop it is the launcher's choice
    cat "$work/$name.err"
    grep -qE "^rank [01]: error: process [0-9]+ on $host was killed by signal $(kill -l "$1") .*, at the start" "$work/$name.err"
    [ ! -e "$runs/$name" ]
    nobody_left
}

# The second run is refused within a second and names the first; after a kill the lock is free.
two_runs_in_a_directory() {
    local began
    launch gpt locked --run.steps=1000000 --optim.decay_steps=1000000 --run.eval_every=0
    wait_for_step locked 1 "$pid"
    began=${EPOCHREALTIME/./}
    fails_with 1 "locked/lock: another run is in this directory: $host, process $pid, since 20[0-9-]+ [0-9:]+ " \
        "$BUILD/train" "$work/gpt.toml" --run.name=locked --ckpt.resume=auto
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -le 60000 ]
    "$BUILD/train" "$work/gpt.toml" --run.name=locked --run.stop_at=1 --sample.count=0 >"$work/beside.out" </dev/null
    head -n 1 "$work/beside.out" | grep -q "this new one is $runs/locked-2\$"
    rm "$runs/locked/lock" # a person's mistake
    fails_with 1 'another run is in this directory: it has not said which' \
        "$BUILD/train" "$work/gpt.toml" --run.name=locked --ckpt.resume=auto
    : >"$runs/locked/metrics.jsonl" # emptied meanwhile: what follows stands at its beginning
    until [ -s "$runs/locked/metrics.jsonl" ]; do sleep 0.05; done
    kill -KILL "$pid"
    wait "$pid" || true
    head -c 1 "$runs/locked/metrics.jsonl" | grep -q '{'
    train gpt locked --run.steps=2 --sample.count=0 --ckpt.resume=auto
    [ ! -s "$runs/locked/lock" ]
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
sed 's/^tokens = 512/tokens = 384/; s/^micro = 8/micro = 4/; s/^eval_every.*/eval_every = 0/' "$work/gpt.toml" >"$work/twelve.toml"
passes 'SIGKILL' signalled KILL 'was killed by signal 9 \(Killed\)'
[ "${BUILD##*/}" = asan ] || passes 'SIGSEGV' signalled SEGV 'was killed by signal 11 \(Segmentation fault\)'
passes 'exit(3)' leaves exit:rank=2,step=30,status=3 'ended with exit status 3 before the run did, at step 30'
passes 'exit(0)' leaves exit:rank=2,step=30,status=0 'ended with exit status 0 before the run did, at step 30'
passes 'abort' leaves kill:rank=2,step=30,signal=6 'was killed by signal 6 \(Aborted\), at step 30 \(training\)'
passes 'SIGSTOP' stopped
passes 'an endless loop' loops
passes 'a slow disk' writes_slowly
passes 'SIGSTOP of a rank and its supervisor' stopped_with_its_supervisor
passes 'SIGTERM to the launcher' asked_to_stop TERM launcher
passes 'SIGUSR1 to a supervisor' asked_to_stop USR1 supervisor
passes 'SIGTERM to everybody' all_asked_to_stop TERM
passes 'SIGINT to everybody' all_asked_to_stop INT
for name in INT QUIT ALRM; do deeper passes "SIG$name to the launcher" asked_to_stop $name launcher; done
for name in HUP INT QUIT TERM USR1 USR2 PIPE ALRM STKFLT XCPU VTALRM PROF IO PWR; do
    deeper passes "SIG$name to a rank" asked_to_stop $name rank
done
passes 'SIGUSR1 to the launcher before the first update' asked_too_early USR1 launcher
deeper passes 'SIGTERM to the launcher before the first update' asked_too_early TERM launcher
for name in HUP INT USR1; do deeper passes "SIG$name to a rank before the first update" asked_too_early $name rank; done
passes 'no supervisors' without_supervisors
rm -rf "${runs:?}"/* # of the same names
passes 'SIGKILL, by MPI' by_mpi signalled KILL 'was killed by signal 9 \(Killed\)'
passes 'SIGSTOP, by MPI' by_mpi stopped
passes 'two runs in one directory' two_runs_in_a_directory
exit $failed
