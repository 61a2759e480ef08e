#!/bin/bash
# scripts/run_forever.sh: runs a training command again and again, from its newest checkpoint, until it is done.
#
#     scripts/run_forever.sh build/train stories --run.name=long --run.save_every=200
#     LAUNCH="mpiexec -n 4" scripts/run_forever.sh build/train stories --run.name=long --run.save_every=200
#
# Done is exit status 0. A run that a signal stopped has it too: a person stopped it, and it stays stopped. Status 2,
# and status 1 before there is a checkpoint, mean a mistake in the command, which is not tried again. After any other
# status (a killed rank, a hang, a lost machine) the command runs again after PAUSE seconds, with --ckpt.resume=auto.
# Three attempts in a row without a new checkpoint end this, because they would die at the same place for ever. How
# often to save: every sqrt(2 x seconds of a checkpoint x mean seconds between failures) seconds (Young).
set -u
[ $# -gt 0 ] || { echo "usage: [LAUNCH='mpiexec -n N'] [PAUSE=10] $0 build/train CONFIG [--key=value ...]" >&2; exit 2; }
pause=${PAUSE:-10} dir=runs name=run attempt=0 idle=0 newest='' before=
child=
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends

{ IFS= read -r dir && IFS= read -r name; } < <("$@" --print run.dir,run.name 2>/dev/null) # a mistake is reported below

newest_checkpoint() {
    local path last=
    for path in "$dir/$name/checkpoints"/step_*; do
        case $path in *.tmp | *'*') ;; *) last=${path##*/} ;; esac
    done
    echo "$last"
}

stop() { # a signal for us is one for the run; SIGTERM, because what a script has in the background ignores SIGINT
    trap - HUP INT TERM USR1
    kill -TERM "$child" 2>/dev/null
    wait "$child"
    exit $?
}
trap stop HUP INT TERM USR1

while :; do
    attempt=$((attempt + 1)) before=$(newest_checkpoint)
    [ $attempt -gt 1 ] && echo "run_forever: $dir/$name: attempt $attempt, from ${before:-the start}" >&2
    # shellcheck disable=SC2086 # words of the launcher
    "${with[@]}" ${LAUNCH:-} "$@" --ckpt.resume=auto &
    child=$!
    wait $child
    status=$?
    [ $status = 0 ] && exit 0
    newest=$(newest_checkpoint)
    [ $status = 2 ] && exit 2
    [ $status = 1 ] && [ -z "$newest" ] && exit 1
    if [ "$newest" = "$before" ]; then idle=$((idle + 1)); else idle=0; fi
    if [ $idle -ge 3 ]; then
        echo "run_forever: 3 attempts of $dir/$name ended with status $status and no new checkpoint: given up" >&2
        exit $status
    fi
    sleep "$pause"
done
