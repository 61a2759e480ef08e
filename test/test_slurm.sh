#!/bin/bash
# circle: hosts
# test/test_slurm.sh: srun in a SLURM of two nodes on this machine: the weights of one process, to the bit, with PMI-2 (and
# PMIx, where test_launchers.sh has built with Open MPI); a killed rank ends the job; scripts/slurm_example.sh saves at
# SIGUSR1, queues itself again, and resumes.
# long: starts munged, slurmctld and two slurmd of its own; skipped where they are not installed, or not as root
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

missing=$(for p in munged slurmctld slurmd srun; do PATH=$PATH:/usr/sbin command -v $p >/dev/null || echo $p; done)
if [ -n "$missing" ] || [ "$(id -u)" != 0 ]; then
    echo "skip SLURM (wants root, and munge, slurmctld, slurmd, slurm-client)"
    exit 0
fi
PATH=$PATH:/usr/sbin
box=$work/box
export SLURM_CONF=$box/slurm.conf
options=(--run.steps=12 --run.eval_every=0 --sample.count=0 --numerics.deterministic=true)

# Two nodes that are this machine, with four processors each by name, on ports that are free.
start_box() {
    local host port=16800
    host=$(hostname -s)
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 10)); done
    mkdir -p "$box/state" "$box"/spool-box{1,2}
    (umask 077 && head -c 1024 /dev/urandom >"$box/munge.key")
    cat >"$SLURM_CONF" <<END
ClusterName=box
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$box/munge.sock
CredType=cred/munge
SlurmctldPort=$port
StateSaveLocation=$box/state
SlurmdSpoolDir=$box/spool-%n
SlurmctldPidFile=$box/slurmctld.pid
SlurmdPidFile=$box/slurmd-%n.pid
SlurmctldLogFile=$box/slurmctld.log
SlurmdLogFile=$box/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
SwitchType=switch/none
KillWait=5
SlurmdParameters=config_overrides
NodeName=box1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4
NodeName=box2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4
PartitionName=all Nodes=box1,box2 Default=YES MaxTime=INFINITE State=UP
END
    munged --force --key-file="$box/munge.key" --socket="$box/munge.sock" --pid-file="$box/munged.pid" \
        --log-file="$box/munged.log" --seed-file="$box/munge.seed"
    slurmctld -i
    slurmd -N box1
    slurmd -N box2
    for ((i = 0; i < 60; i++)); do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return
        sleep 0.5
    done
    cat "$box"/*.log
    return 1
}
stop_box() {
    scancel --user=root 2>/dev/null
    for ((i = 0; i < 100; i++)); do [ -z "$(squeue -h 2>/dev/null)" ] && break; sleep 0.1; done
    for name in slurmd-box1 slurmd-box2 slurmctld munged; do
        [ -s "$box/$name.pid" ] && kill "$(cat "$box/$name.pid")" 2>/dev/null
    done
    for ((i = 0; i < 50; i++)); do pgrep -f "$box" >/dev/null || break; sleep 0.1; done
    rm -rf "$work"
}
trap stop_box EXIT

launched() { # NAME PROGRAM OPTION-OF-SRUN... -- [OPTION...]
    local name=$1 program=$2 srun=()
    shift 2
    while [ "$1" != -- ]; do srun+=("$1") && shift; done
    shift
    timeout -k 10 120 srun "${srun[@]}" "$program" "$work/gpt.toml" --run.name="$name" "${options[@]}" "$@" \
        >"$work/$name.out" 2>&1 </dev/null || { tail -n 20 "$work/$name.out"; return 1; }
    same_state one "$name" 12
}

alone() { # without MPI each would train by itself
    srun -N 2 -n 4 --mpi=none "$BUILD/train" "$work/gpt.toml" --run.name=alone >"$work/out" 2>&1 </dev/null && return 1
    cat "$work/out"
    [ "$(grep -c 'error: launch: srun started 4 processes' "$work/out")" = 1 ]
    [ ! -e "$runs/alone" ]
}

wait_for_steps() { # NAME STEP
    for ((i = 0; i < 600; i++)); do
        [ "$(value train step "$runs/$1/metrics.jsonl" 2>/dev/null | tail -n 1)" -ge "$2" ] 2>/dev/null && return
        sleep 0.1
    done
    echo "$1 does not reach step $2"
    tail -n 12 "$work/$1"* "$runs/$1/metrics.jsonl"
    grep -h 'JobId=6\|error' "$box"/slurm*.log | tail -n 40
    return 1
}

killed() {
    local job status=0
    srun --mpi=pmi2 --kill-on-bad-exit=1 -N 2 -n 4 "$BUILD/train" "$work/gpt.toml" --run.name=killed --run.steps=1000000 \
        --run.eval_every=0 --sample.count=0 >"$work/killed.out" 2>&1 </dev/null &
    job=$!
    wait_for_steps killed 3
    mapfile -t process < <(sed -n 's/^rank [0-9]*: process \([0-9]*\) on .*/\1/p' "$work/killed.out")
    [ ${#process[@]} = 4 ]
    kill -KILL "${process[3]}"
    wait $job || status=$?
    tail -n 5 "$work/killed.out"
    [ $status != 0 ]
    grep -qE '^rank 3.*(killed|signal 9)' "$work/killed.out"
    for ((i = 0; i < 100; i++)); do kill -0 "${process[@]}" 2>/dev/null || return 0; sleep 0.1; done
    return 1
}

# SIGUSR1 to the job's shell, as SLURM sends it before a job's time is over. SLURM lets a job that was queued again wait
# for two minutes; here it starts at once.
requeued() {
    local id
    id=$(CONFIG=$work/gpt.toml RUN_NAME=requeued sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 \
        --time=10 --output="$work/requeued_%j.out" --export=ALL scripts/slurm_example.sh)
    wait_for_steps requeued 5
    scancel --signal=USR1 --batch "$id"
    for ((i = 0; i < 300; i++)); do
        [ "$(scontrol show job "$id" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p')" = 1 ] && break
        sleep 0.1
    done
    stopped=$(value train step "$runs/requeued/metrics.jsonl" | tail -n 1)
    [ -d "$(checkpoint requeued "$stopped")" ]
    sleep 3 # a node refuses what was queued again in the second in which it ended
    scontrol update JobId="$id" StartTime=now
    wait_for_steps requeued $((stopped + 5))
    scancel "$id"
    value train step "$runs/requeued/metrics.jsonl" | head -n $((stopped + 5)) | cmp - <(seq $((stopped + 5))) # each once
    grep -aqx "resumed: after step $stopped of this run" "$work/requeued_$id.out"
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
train gpt one "${options[@]}"
passes 'a SLURM of two nodes starts' start_box
[ $failed = 0 ] || exit 1
passes 'srun with PMI-2' launched pmi2 "$BUILD/train" --mpi=pmi2 -N 2 -n 4 -- --parallel.zero=3
passes 'tensors and stages' launched grid "$BUILD/train" --mpi=pmi2 -N 2 -n 4 -- --parallel.tp=2 --parallel.pp=2
if [ -x "$BUILD/openmpi/train" ]; then # PMIx wants a folder of its own for each node, so: one node
    passes 'srun with PMIx' launched pmix "$BUILD/openmpi/train" --mpi=pmix -N 1 -n 4 -- --parallel.zero=3
else echo 'skip srun with PMIx (no build/openmpi/train)'
fi
passes 'srun without MPI' alone
passes 'a killed rank is named, and the job ends' killed
sed -i 's/^steps = 40$/steps = 100000/; s/^eval_every.*/eval_every = 0/' "$work/gpt.toml"
passes 'SIGUSR1: saved, queued again, resumed' requeued
exit $failed
