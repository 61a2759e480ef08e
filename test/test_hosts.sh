#!/bin/bash
# circle: hosts
# test/test_hosts.sh: several hosts (hosts.sh): namespaces of this machine that share a folder and nothing else, so that
# ranks of two of them talk by TCP. The same losses and checkpoints, to the bit, as one process, also over a slow
# network that loses packets; a rank that is killed, a host that loses power and a pulled cable end the job everywhere.
# disk: a /dev/shm of its own
# deeper: more layouts, slow networks, four hosts, everything that fails
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. test/ranks_common.sh
# shellcheck source=test/hosts.sh
. test/hosts.sh
trap 'hosts_down; rm -rf "$work"' EXIT

if why=$(hosts_missing); then
    echo "skip several hosts ($why)"
    exit 0
fi
options=(--run.steps=6 --run.eval_every=3 --sample.count=0 --numerics.deterministic=true)
experts=(--model.experts=4 --model.experts_ffn=40)

network() { # N [DELAY RATE [LOSS]]
    hosts_down
    hosts_up "$@" || { echo 'not ok hosts'; exit 1; }
}

on_hosts() { # PER-HOST RANKS CONFIG NAME [OPTION...]: build/train on all hosts
    local per=$1 n=$2 config=$3 name=$4
    shift 4
    hosts_run -n "$n" -ppn "$per" "$BUILD/train" "$work/$config.toml" --run.name="$name" "${options[@]}" "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null
}

layout() { # LIKE PER-HOST RANKS CONFIG NAME [OPTION...]: a run whose bits are those of the run LIKE
    local like=$1 per=$2 n=$3 name=$5 status=0
    on_hosts "${@:2}" || status=$?
    cat "$work/$name.err"
    [ $status = 0 ]
    [ -z "$(sed '/^warning: tp group/d' "$work/$name.err")" ]
    same_state "$like" "$name" 6
    history "$name" | cmp - <(history "$like")
    grep -qE "^rank $((n - 1)): process [0-9]+ on h$(((n - 1) / per + 1))\$" "$work/$name.out"
    [ -z "$(hosts_left)" ]
}

calls() { # every call of comm.h and every algorithm, in groups on a host and across hosts
    hosts_run -n 4 -ppn 2 "$BUILD/test/mpi_comm" everything | grep -q '^4 ranks: 0 failed$'
}

# MPI_Finalize, called by ranks as they come, has hung after one run in four.
ends_well() {
    local i hosts_limit=20
    for ((i = 0; i < 10; i++)); do on_hosts 2 4 gpt "well$i" --parallel.zero=3 --run.stop_at=1; done
}

# Within hosts, between them, within them: the order of a sum, and so the bits, are those of nodes of two, and not those
# of a ring. In deterministic mode they are the bits of one process.
by_hosts() {
    local name
    layout one 2 4 gpt hier --comm.all_reduce=hierarchical
    for name in nodes=0 nodes=2 nodes=4; do
        on_hosts 2 4 gpt "$name" --numerics.deterministic=false --comm.all_reduce=hierarchical --comm.node="${name#*=}"
    done
    same_state nodes=0 nodes=2 6
    if same_state nodes=0 nodes=4 6; then return 1; fi
}

uneven() { # two ranks on the first host, one on the second
    local status=0
    on_hosts 2 3 gpt uneven --numerics.deterministic=false --comm.all_reduce=hierarchical --batch.tokens=384 --batch.micro=4 || status=$?
    cat "$work/uneven.err"
    [ $status != 0 ]
    grep -q '^rank 0: error: comm.all_reduce=hierarchical: hosts do not have equal numbers .* of 3 the first has 2' \
        "$work/uneven.err"
}

spans() { # the matrices of a layer across hosts are worth a line, within a host none
    on_hosts 2 4 gpt spans --parallel.tp=4 --run.stop_at=1
    [ "$(grep -c . "$work/spans.err")" = 1 ]
    grep -qE '^warning: tp group of ranks 0 to 3 spans hosts \(ranks 1 and 2\): .*parallel.tp' "$work/spans.err"
    on_hosts 2 4 gpt within --parallel.tp=2 --run.stop_at=1
    [ ! -s "$work/within.err" ]
}

measured() { # DELAY RATE: comm.measure finds what the network was given, within a factor of 2
    local links=$runs/measured/links.json
    [ ! -e "$runs/slow/links.json" ]
    on_hosts 2 4 gpt measured --comm.measure=true --run.stop_at=1
    cat "$work/measured.err" "$links"
    grep '^link ' "$work/measured.out"
    grep -qE '^link inside a host: [0-9.]+ us a message, [0-9.e+-]+ GB/s$' "$work/measured.out"
    grep -qE '^link between hosts: [0-9.]+ us a message, [0-9.e+-]+ GB/s$' "$work/measured.out"
    awk -F '[:,}]' -v delay="$1" -v rate="$2" '
        function near(x, y) { return x > y / 2 && x < 2 * y }
        /"inside"/ { alpha = $3; bandwidth = $5 }
        /"between"/ { if (near($3, delay) && near($5, rate) && alpha < $3 && bandwidth > $5) right = 1 }
        END { exit !right }' "$links"
}

# ends SECONDS WORDS HOST...: what is running ends within the time, on every host; mpiexec fails; on each of these hosts
# a line of one error with the words, and no other
ends() {
    local began=${EPOCHREALTIME/./} status=0 i words=$2 limit=$1
    shift 2
    wait "$pid" || status=$?
    for ((i = 0; i < 20 * limit; i++)); do [ -z "$(hosts_left)" ] && break; sleep 0.05; done
    echo "status $status after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
    cat "$work/end.err"
    hosts_left
    [ -z "$(hosts_left)" ]
    [ $status != 0 ]
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -le $((1000 * limit)) ]
    [ "$({ grep 'error: ' "$work/end.err" || true; } | wc -l)" = $# ]
    for i; do grep -qE "^rank [0-9]+: error: process [0-9]+ on $i $words" "$work/end.err"; done
}

# Starts an endless run of two hosts, which end with their test; returns in training.
endless() {
    hosts_up 2
    rm -rf "${runs:?}/end"
    options=(--run.steps=1000000 --optim.decay_steps=1000000 --run.eval_every=0 --run.sample_every=0 --batch.micro=4
        --sample.count=0)
    on_hosts 2 4 gpt end --run.hang_timeout=3 "$@" &
    pid=$!
    wait_for_step end 3 "$pid"
}

signal_rank() { # HOST SIGNAL: one of its ranks, whose number in the host is in what the run said
    local p
    p=$(sed -n "s/^rank [0-9]*: process \([0-9]*\) on h$1\b.*/\1/p" "$work/end.out" | head -n 1)
    [ -n "$p" ]
    hosts_in "$1" kill "-$2" "$p"
}

# MPICH's launcher ends ranks of other hosts only when a process of its own has died by a signal: then at once.
killed() { # HOST
    endless --run.hang_timeout=60
    signal_rank "$1" KILL
    ends 5 'was killed by signal 9 \(Killed\), at step [0-9]+ \([a-z ]+\)$' "h$1"
}

# A neighbour is to read from a rank that is killed, and is aborted before the supervisor of that one has looked.
read_from() {
    local rank
    endless --run.hang_timeout=60
    mapfile -t rank < <(sed -n "s/^rank [0-9]*: process \([0-9]*\) on h2\b.*/\1/p" "$work/end.out")
    hosts_in 2 bash -ec "kill -STOP ${rank[1]} && sleep 0.4; read -r _ _ _ parent _ </proc/${rank[0]}/stat
        kill -STOP \$parent && kill -KILL ${rank[0]} && kill -CONT ${rank[1]} && sleep 0.2; kill -CONT \$parent || true"
    ends 5 'was killed by signal 9 \(Killed\), at step [0-9]+ \([a-z ]+\)$' h2
    if grep backtrace "$work/end.err"; then return 1; fi
}

lost='waits in [a-z_]+ [0-9]+ of group [a-z ]+ for a rank that has not come, on another host .*no progress for [56] s'

reported() { # HOST...: exactly these have written why they ended
    local host
    for host; do grep -c "\"host\":\"$host\",\"why\":\"waits\"" "$runs/end/failure.jsonl" | grep -qx 1; done
    [ "$(wc -l <"$runs/end/failure.jsonl")" = $# ]
}

loses_its_cable() { # HOST: the line of the host that mpiexec cannot reach does not come to the screen
    endless
    hosts_cut "$1"
    ends 12 "$lost" h1
    reported h1 h2
}

loses_power() { # HOST; mpiexec is on the first
    endless
    hosts_kill "$1"
    if [ "$1" = 1 ]; then ends 12 "$lost"; else ends 12 "$lost" h1; fi
    reported h$((3 - $1))
}

# A cable that is back before run.hang_timeout: TCP sends again what was lost.
rejoins() {
    endless --run.hang_timeout=30
    hosts_cut 2
    sleep 2
    local step
    step=$(value train step "$runs/end/metrics.jsonl" | tail -n 1)
    hosts_join 2
    wait_for_step end $((step + 4)) "$pid"
    signal_rank 2 TERM
    wait "$pid"
    [ ! -s "$work/end.err" ]
}

# Whoever is killed with hosts up leaves nothing.
no_trace() {
    (
        hosts_up 2
        readlink "/proc/$(<"$hosts/first.2")/ns/net" >"$work/net"
        hosts_in 2 sleep 1000 &
        kill -KILL "$BASHPID"
    ) || true
    for ((i = 0; i < 100; i++)); do
        readlink /proc/[0-9]*/ns/net 2>/dev/null | grep -qF "$(<"$work/net")" || return 0
        sleep 0.05
    done
    return 1
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
train gpt one "${options[@]}"
network 2
passes 'two hosts, two ranks each' layout one 2 4 gpt ddp --comm.measure=true
deeper passes 'every call' calls
deeper passes 'ten runs end' ends_well
deeper passes 'ZeRO' layout one 2 4 gpt zero3 --parallel.zero=3
deeper passes 'ZeRO within a host, copies across' layout one 2 4 gpt hybrid --parallel.zero=3 --parallel.shard=2
deeper passes 'stages across, matrices within a host' layout one 2 4 gpt grid --parallel.tp=2 --parallel.pp=2
deeper passes 'a hierarchical sum' by_hosts
deeper passes 'uneven hosts' uneven
deeper passes 'a group that spans hosts' spans
deeper passes 'by MPI alone' by_mpi layout one 2 4 gpt mpi --parallel.zero=3
if [ -n "${TEST_LONG:-}" ]; then
    train llama moe "${options[@]}" "${experts[@]}"
    passes 'experts across hosts' layout moe 2 4 llama moe4 "${experts[@]}" --parallel.ep=4
    network 2 0.002 20e6
    passes 'a slow network' layout one 2 4 gpt slow
    passes 'links are measured' measured 0.002 20e6
    network 2 0.0005 20e6 0.01
    passes 'a network that loses packets' layout one 2 4 gpt lossy --run.hang_timeout=40
    hosts_down
    passes 'a killed rank' killed 2
    passes 'a killed rank beside mpiexec' killed 1
    passes 'a killed rank that another reads from' read_from
    passes 'a cable is pulled' loses_its_cable 2
    passes "the cable of mpiexec's host" loses_its_cable 1
    passes 'a host loses power' loses_power 2
    passes "mpiexec's host loses power" loses_power 1
    passes 'a cable is pulled and put back' rejoins
    passes 'hosts end with their shell' no_trace
    network 4
    passes 'four hosts' layout one 1 4 gpt four --parallel.zero=2
fi
exit $failed
