#!/bin/bash
# test/test_ckpt_memory.sh: ckpt.memory_every: a host that is lost with its memory costs the steps since the last
# checkpoint in memory, not since the last file; lost neighbours, damage, and another run's memory cost no more than
# those. The hosts are folders of this machine, one a rank.
# deeper: more ways to lose it
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# on HOSTS NAME [OPTION...]: a rank on each host, whose memory is the folder $work/HOST
on() {
    local hosts=$1 name=$2 host all=()
    shift 2
    for host in $hosts; do
        all+=(-n 1 "$BUILD/train" "$work/sixteen.toml" --run.name="$name" --ckpt.memory_every=5 --ckpt.resume=auto "$@"
            --ckpt.memory_dir="$work/$host" :)
    done
    timeout -k 10 120 "$launcher" "${all[@]:0:${#all[@]} - 1}" >"$work/$name.out" 2>"$work/$name.err" </dev/null
}

# A run on four hosts that was killed at update 38: files of step 20, memory of step 35.
killed() { # NAME [OPTION] [HOST...]: whose memory is lost
    local name=$1 host option=--run.stop_at=40
    rm -rf "${work:?}"/{a,b,c,d}
    case ${2:-} in --*) option=$2; shift ;; esac
    if on 'a b c d' "$name" "$option" --run.fault=kill:rank=2,step=38; then return 1; fi
    [ "$(ls "$runs/$name/checkpoints")" = "$(printf 'latest\nstep_00000020')" ]
    shift
    for host; do rm -r "${work:?}/$host"; done
}

resumed_from() { # NAME STEP: and then the same bytes as without a failure
    cat "$work/$1.err"
    [ "$(value resume step "$runs/$1/metrics.jsonl")" = "$2" ]
    same_state straight "$1" 40
    well_formed "$1" 40
}

# c's own part is on d, and c had b's copy. Three hosts go on, with two ranks on d.
one_host_is_lost() {
    killed one c
    on 'a b d d' one
    grep -q '^the checkpoint of step 35 was in the memory of the hosts$' "$work/one.out"
    resumed_from one 35
    [ "$(find "$work"/[abd] -type f | wc -l)" = 0 ] # the end is in files: nothing stays in memory
}

no_host_is_lost() {
    local planned held
    killed none
    planned=$("$BUILD/plan" memory "$work/sixteen.toml" --ckpt.memory_every=5 --ranks 4 | sed -n 's/^ckpt.memory_every: \([0-9]*\) .*/\1/p')
    held=$(find "$work/a" -name '*.safetensors' -printf '%s\n' | awk '{ n += $1 } END { print n }')
    close_to "$held" "$planned" 0.1 # files have headers
    [ "$(find "$work/a" -name 'step_*' | sed 's/.*pretrain-[0-9a-f]*.//' | sort | tr '\n' ' ')" = \
        "$(printf '%s ' rank_0000{0,3}_of_00004/checkpoints/step_000000{30,35})" ]
    on 'a b c d' none
    resumed_from none 35
}

neighbours_are_lost() {
    killed two b c # c had the copy of b's part
    on 'a b c d' two
    resumed_from two 20
}

# One byte of the only copy: the checkpoint is put together, found damaged, and the one in files is taken.
a_damaged_copy() {
    local file
    killed damaged c
    file=$(find "$work/d" -path '*rank_00002*step_00000035/optim_*')
    printf '\377\377' | dd of="$file" bs=1 seek=9000 conv=notrunc status=none
    on 'a b d d' damaged
    grep -q 'warning: .*step_00000035' "$work/damaged.err"
    resumed_from damaged 20
}

# A new run of the same name begins anew.
another_run() {
    killed other
    rm -r "$runs/other"
    on 'a b c d' other
    [ "$(value start step "$runs/other/metrics.jsonl")" = 0 ]
    same_state straight other 40
}

# A host holds the same step of another attempt, and offers it first: parts with other manifests are not mixed.
another_attempt() {
    local id
    killed before --optim.lr=2e-3
    mv "$work/c" "$work/c.before"
    killed after
    id=$(cat "$runs/after/memory.id")
    rm -r "$work/c/pretrain-$id"
    mv "$work/c.before"/pretrain-* "$work/c/pretrain-$id"
    on 'a b c d' after
    [ ! -s "$work/after.err" ]
    resumed_from after 35
}

# One process has no other host; its memory survives it all the same.
alone() {
    local status=0
    "$BUILD/train" "$work/sixteen.toml" --run.name=alone --ckpt.memory_every=5 --ckpt.memory_dir="$work/m" \
        --run.fault=kill:rank=0,step=38 >"$work/alone.out" 2>"$work/alone.err" </dev/null || status=$?
    [ $status = 137 ]
    "$BUILD/train" "$work/sixteen.toml" --run.name=alone --ckpt.memory_every=5 --ckpt.memory_dir="$work/m" \
        --ckpt.resume=auto >"$work/alone.out" 2>"$work/alone.err" </dev/null
    resumed_from alone 35
}

# What is saved in memory of steps that are undone is removed. (Until step 190 comes again there is time for a kill.)
rolled_back() {
    local pid
    (exec "$launcher" -n 2 "$BUILD/train" "$work/sixteen.toml" --run.name=rolled --run.steps=400 --ckpt.keep=0 --ckpt.memory_every=190 \
        --ckpt.memory_dir="$work/m" --monitor.rollback_at=195 --monitor.rollback_steps=150 >"$work/rolled.out" 2>&1 </dev/null) &
    pid=$!
    until [ -n "$(find "$work/m" -name step_00000190 2>/dev/null)" ]; do sleep 0.02; done
    until grep -qs '"event":"rollback"' "$runs/rolled/metrics.jsonl"; do sleep 0.02; done
    until tail -n 1 "$runs/rolled/metrics.jsonl" | grep -q '"event":"train"'; do sleep 0.02; done
    kill -KILL "$pid"
    wait "$pid" || true
    [ "$(value train step "$runs/rolled/metrics.jsonl" | tail -n 1)" -lt 190 ]
    [ -z "$(find "$work/m" -name 'step_*')" ]
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
{
    sed 's/^tokens = 512/tokens = 128/; s/^context = 32/context = 8/; s/^micro = 8/micro = 1/; s/^eval_every.*/eval_every = 0/; s/^sample_every.*/save_every = 20/' \
        "$work/gpt.toml"
    printf '%s\n' '[sample]' 'count = 0' '[numerics]' 'deterministic = true'
} >"$work/sixteen.toml"
train sixteen straight
passes 'one host is lost' one_host_is_lost
deeper passes 'no host is lost' no_host_is_lost
deeper passes 'neighbours are lost' neighbours_are_lost
deeper passes 'a damaged copy' a_damaged_copy
deeper passes 'another run' another_run
deeper passes 'another attempt' another_attempt
passes 'one process' alone
passes 'after a rollback' rolled_back
exit $failed
