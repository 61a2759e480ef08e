#!/bin/bash
# test/test_rendezvous.sh: scripts/rendezvous.sh, started once for each of two or three "hosts", as pods and torchrun start
# it: the weights of one process, by address and by file, with the hosts in any order; the program's status on every host;
# hosts that do not come, ports that are taken and nonsense are one line.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK RENDEZVOUS_FILE RENDEZVOUS_PORT
export RENDEZVOUS_TIMEOUT=60 MPIEXEC=$launcher
options=(--run.steps=6 --run.eval_every=0 --sample.count=0 --numerics.deterministic=true)

free_port() { # of this machine, at this moment
    local port
    for ((port = 20000 + RANDOM % 10000; ; port++)); do
        grep -q "$(printf ':%04X ' $port)" /proc/net/tcp /proc/net/tcp6 || { echo $port; return; }
    done
}

# host K COMMAND...: host K's command, whose output and status go to $work/K.*; environment as given. In the background.
host() {
    local k=$1
    shift
    (
        status=0
        RANK=$k timeout -k 5 120 scripts/rendezvous.sh "$@" >"$work/$k.out" 2>"$work/$k.err" </dev/null || status=$?
        echo $status >"$work/$k.status"
    ) &
}
ended() { # K STATUS
    [ "$(cat "$work/$1.status")" = "$2" ] || { echo "host $1: $(cat "$work/$1.status")"; cat "$work/$1.out" "$work/$1.err"; return 1; }
}

by_address() { # two hosts of two ranks; the second comes first
    MASTER_PORT=$(free_port)
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT
    host 1 -n 2 false # what runs is host 0's
    sleep 0.5
    host 0 -n 2 "$BUILD/train" "$work/gpt.toml" --run.name=address "${options[@]}" --parallel.tp=2 --parallel.zero=1
    wait
    ended 0 0 && ended 1 0
    same_state one address 6
    grep -q '^rank 3: process ' "$work/0.out"
    [ ! -s "$work/1.out" ] && [ ! -s "$work/1.err" ]
    if grep HYDRA "$work/0.out"; then return 1; fi
}

by_file() { # three hosts, and the address that an earlier job left
    export WORLD_SIZE=3 RENDEZVOUS_FILE=$work/address
    echo "127.0.0.1:$(free_port)" >"$RENDEZVOUS_FILE"
    host 2 "$BUILD/train"
    sleep 0.5
    host 0 "$BUILD/train" "$work/gpt.toml" --run.name=file "${options[@]}" --batch.tokens=288 --batch.micro=1 --parallel.zero=3
    host 1 "$BUILD/train"
    wait
    ended 0 0 && ended 1 0 && ended 2 0
    train gpt whole "${options[@]}" --batch.tokens=288 --batch.micro=1
    same_state whole file 6
    [ ! -e "$RENDEZVOUS_FILE" ]
}

by_torchrun() { # two processes on a host: the environment that torchrun gives them
    export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT
    MASTER_PORT=$(free_port)
    LOCAL_RANK=0 GROUP_RANK=0 host 0 sh -c 'echo $PMI_RANK of $PMI_SIZE'
    LOCAL_RANK=1 GROUP_RANK=0 host 1 sh -c 'echo $PMI_RANK of $PMI_SIZE'
    LOCAL_RANK=0 GROUP_RANK=1 host 2 sh -c 'echo $PMI_RANK of $PMI_SIZE'
    LOCAL_RANK=1 GROUP_RANK=1 host 3 sh -c 'echo $PMI_RANK of $PMI_SIZE'
    wait
    local k
    for k in 0 1 2 3; do ended $k 0; done
    sort "$work/0.out" | cmp - <(printf '%d of 4\n' 0 1 2 3)
}

statuses() { # of a program that fails on one rank: on both hosts
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT
    MASTER_PORT=$(free_port)
    # shellcheck disable=SC2016
    host 0 sh -c 'exit $((7 * PMI_RANK))'
    host 1 true
    wait
    ended 0 7 && ended 1 7
    # shellcheck disable=SC2016
    host 0 sh -c 'if [ $PMI_RANK = 0 ]; then kill -9 $$; fi; sleep 60'
    host 1 true
    wait
    ended 0 137 || ended 0 9
    if ended 1 0; then return 1; fi
    MASTER_PORT=$(free_port) # another number of ranks than host 0 says
    host 0 -n 2 true
    host 1 true
    wait
    ended 0 0 && ended 1 1
    grep -qx 'rendezvous: error: of 1 ranks here 2 came to an end (one was killed, or host 0 has another -n)' "$work/1.err"
}

interrupted() { # a signal to any host's command reaches its rank, which saves; then all go
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT
    MASTER_PORT=$(free_port)
    host 0 "$BUILD/train" "$work/gpt.toml" --run.name=interrupted --run.steps=1000000 --optim.decay_steps=1000000 \
        --run.eval_every=0 --sample.count=0
    host 1 true
    local i
    for ((i = 0; i < 600; i++)); do
        [ "$(value train step "$runs/interrupted/metrics.jsonl" 2>/dev/null | wc -l)" -ge 3 ] && break
        sleep 0.1
    done
    pkill -TERM -f "^/bin/bash scripts/rendezvous.sh true" -P "$(pgrep -f 'timeout -k 5 120 scripts/rendezvous.sh true' | head -n 1)"
    wait
    [ "$(cat "$work/0.status")" = "$(cat "$work/1.status")" ]
    [ -n "$(ls "$runs/interrupted/checkpoints")" ]
    grep -q '^save ' "$work/0.out"
}

missing() { # a host that does not come
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT RENDEZVOUS_TIMEOUT=2
    MASTER_PORT=$(free_port)
    host 0 true
    wait
    ended 0 2
    [ "$(cat "$work/0.err")" = 'rendezvous: error: 1 of 2 hosts are here after 2 s (RENDEZVOUS_TIMEOUT)' ]
    host 1 true
    wait
    ended 1 2
    [ "$(cat "$work/1.err")" = "rendezvous: error: host 0 does not answer at '127.0.0.1:$MASTER_PORT' after 2 s (RENDEZVOUS_TIMEOUT)" ]
}

refused() { # LINE [VARIABLE=VALUE...]
    local line=$1
    shift
    if env RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$(free_port)" "$@" timeout 20 scripts/rendezvous.sh \
        ${program-true} >"$work/out" 2>&1; then return 1; fi
    [ "$(cat "$work/out")" = "rendezvous: error: $line" ] || { cat "$work/out"; return 1; }
}
nonsense() {
    refused "RANK is 'one' (a whole number is wanted)" RANK=one
    refused "RANK is '' (a whole number is wanted)" RANK=
    refused 'RANK is 2, WORLD_SIZE 2 (0 to 1)' RANK=2 WORLD_SIZE=2
    refused 'WORLD_SIZE is 0 (1 or more)' WORLD_SIZE=0
    refused 'MASTER_PORT is 99999 (at most 65535)' MASTER_PORT=99999
    program=-m refused '-m: no such option (-n RANKS)'
    refused 'no MASTER_ADDR (host 0, as this one reaches it), and no RENDEZVOUS_FILE' MASTER_ADDR=
    refused "$work/none/file: cannot be written" MASTER_ADDR= RENDEZVOUS_FILE="$work/none/file"
    program='' refused 'no program (usage: scripts/rendezvous.sh [-n RANKS] PROGRAM [ARGUMENT...])'
    refused "/bin/true gives no command for a proxy (is it MPICH's? on host 0: is port 29500 free?)" MPIEXEC=/bin/true MASTER_PORT=29500
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
train gpt one "${options[@]}"
passes 'two hosts by their address' by_address
passes 'three hosts by a file' by_file
passes 'as torchrun starts it' by_torchrun
passes 'the status of the program on every host' statuses
passes 'a signal' interrupted
passes 'a host that does not come' missing
passes 'nonsense is one line' nonsense
exit $failed
