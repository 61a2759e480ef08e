#!/bin/bash
# test/test_cuda_nccl.sh: NCCL's calls in the CUDA emulation, over mpiexec with 1 to 4 ranks: right in every order of
# streams, and every seeded bug of dev/cuda_on_cpu/tests/nccl_bugs.cu reported by its kind, with the calls of both
# ranks. Skipped where there is no C++ compiler.
# long: the emulation of NCCL, with its seeded bugs (test_comm_nccl and test_train_gpu run on it too)
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1
launcher=$(command -v mpiexec.mpich || command -v mpiexec || ls /usr/lib64/mpich/bin/mpiexec)
mpicc=$(for m in mpicc.mpich mpicc /usr/lib64/mpich/bin/mpicc; do command -v $m && break; done)
mapfile -t include < <("$mpicc" -show | tr ' ' '\n' | grep '^-I')
export EMU_MEMORY=64 OMP_NUM_THREADS=1
. test/lsan.sh

build() { # MODE PROGRAM
    $here/build.sh "$1" "$work/$2-$1" "$here/tests/$2.cu" -- "${include[@]}"
}
for mode in "${modes[@]}"; do step "nccl.cu builds: $mode" build $mode nccl; done
wait
step 'nccl_bugs.cu builds' build plain nccl_bugs
all_built

# One after the other, because the ranks of one run already fill the machine.
sound() { # RANKS MODE [SETTING...]: each rank says ok, and nobody says anything else
    env "${@:3}" timeout 600 "$launcher" -n "$1" "$work/nccl-$2" >"$log" 2>&1 &&
        [ "$(grep -c "^ok rank . of $1$" "$log")" = "$1" ] && [ "$(wc -l <"$log")" = "$1" ]
}
right() { # RANKS MODE [SETTING...]
    step "NCCL calls, $1 ranks, $2${3:+: ${*:3}}" sound "$@"
    wait
}
deeper right 1 plain
right 2 plain
deeper right 4 plain
deeper right 3 plain EMU_STREAMS=late
right 4 plain EMU_STREAMS=late
for seed in 1 2 3; do deeper right 2 plain EMU_STREAMS=random EMU_ORDER=random EMU_SEED=$seed; done
deeper right 2 plain EMU_GUARD=1
deeper right 2 asan EMU_STREAMS=late
deeper right 2 checker EMU_STREAMS=random

bug() { # NAME KIND SETTINGS SAYS: says are extended regular expressions with & between them
    local status pattern patterns
    # shellcheck disable=SC2086
    env $3 timeout 600 "$launcher" -n 2 "$work/nccl_bugs-plain" "$1" >"$log" 2>&1 </dev/null
    status=$?
    case $2 in
    wrong-result) [ $status != 0 ] && grep -q "$2" "$log" ;; # not at the start of a line: ranks and launcher share it
    nccl-error) [ $status != 0 ] && [ $status != 124 ] && grep -q "$2: " "$log" ;;
    between*) [ $status = 0 ] && grep -q "cuda_on_cpu: warning: .*$2" "$log" ;;
    *) [ $status != 0 ] && [ $status != 124 ] && grep -q "cuda_on_cpu: $2: .*:[0-9]*: " "$log" ;;
    esac || return
    IFS='&' read -r -a patterns <<<"$4"
    for pattern in "${patterns[@]}"; do grep -qE -- "$pattern" "$log" || { echo "lacks: $pattern"; return 1; }; done
}
"$work/nccl_bugs-plain" list >"$work/list"
[ -s "$work/list" ] || step 'the list of bugs' false
while IFS='|' read -r name kind settings says; do
    step "seeded bug $name: $kind${settings:+ ($settings)}" bug "$name" "$kind" "$settings" "$says"
done <"$work/list"
finish
