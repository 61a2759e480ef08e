#!/bin/bash
# test/test_comm_nccl.sh: comm on a GPU's memory, in the CUDA emulation, over mpiexec with 1 to 4 ranks: NCCL's groups
# and those staged through the host. Every call, type, cut, split and count of comm_case.h, in every order of streams;
# sums in the bits of comm.h's tree; and every error ends all ranks with one line. Skipped where there is no C++
# compiler.
# long: the emulated NCCL alone; test_train_gpu.sh trains with it
# deeper: more orders of threads and streams, AddressSanitizer, the checker of the emulation
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1
launcher=$(command -v mpiexec.mpich || command -v mpiexec || ls /usr/lib64/mpich/bin/mpiexec)
export EMU_MEMORY=64 OMP_NUM_THREADS=1
. test/lsan.sh

# The CPU's side. A library built for a sanitizer cannot be linked into the other programs.
library=$BUILD/libpretrain.a
if [ ! -f "$library" ] || nm "$library" 2>/dev/null | grep -q __asan_; then
    library=$BUILD/cuda_on_cpu/cpu/libpretrain.a
    ${MAKE:-make} --no-print-directory B="$BUILD/cuda_on_cpu/cpu" EXTRA_CFLAGS= "$library" >"$work/make.log" 2>&1 ||
        { echo 'not ok the library of the CPU builds'; tail -n 20 "$work/make.log"; exit 1; }
fi
${CC:-gcc} -std=gnu11 -g -O1 -Wall -Wextra -Isrc -I. -c test/comm_device.c -o "$work/cases.o" ||
    { echo 'not ok comm_device.c compiles'; exit 1; }
build() { # MODE
    $here/build.sh "$1" "$work/comm-$1" $here/tests/comm.cu src/comm/comm_nccl.cu src/comm/comm_staged.cu "$work/cases.o" "$library" \
        -- -fopenmp -lm
}
for mode in "${modes[@]}"; do step "comm on a GPU's memory builds: $mode" build $mode; done
all_built

# One after the other, because the ranks of one run already fill the machine.
sound() { # RANKS MODE WHICH [SETTING...]: nothing failed, and nobody says anything else
    # shellcheck disable=SC2086
    env "${@:4}" timeout 280 "$launcher" -n "$1" "$work/comm-$2" $3 >"$log" 2>&1 &&
        grep -q "^$1 ranks: 0 failed$" "$log" && [ "$(wc -l <"$log")" = 1 ]
}
right() { # RANKS MODE WHICH [SETTING...]
    step "$3, $1 ranks, $2${4:+: ${*:4}}" sound "$@"
    wait
}
deeper right 1 plain nccl
deeper right 1 plain staged
right 2 plain nccl EMU_STREAMS=late
deeper right 3 plain nccl
right 4 plain 'nccl ordered' EMU_STREAMS=late
deeper right 2 plain nccl EMU_GUARD=1
deeper right 2 plain 'nccl ordered' EMU_STREAMS=random EMU_ORDER=random EMU_SEED=1
deeper right 2 plain 'nccl ordered' EMU_STREAMS=random EMU_ORDER=random EMU_SEED=2
deeper right 3 plain staged
right 4 plain 'staged ordered' EMU_STREAMS=late
deeper right 3 plain 'staged ordered' EMU_STREAMS=random EMU_SEED=3
deeper right 2 plain staged EMU_GUARD=1
deeper right 2 asan 'nccl ordered' EMU_STREAMS=late
deeper right 3 asan 'staged ordered' EMU_STREAMS=random
deeper right 2 checker 'nccl ordered' EMU_STREAMS=random EMU_ORDER=random

# Ends every rank, with one line that says this.
ends() { # RANKS WHICH SETTING WORDS
    local status
    # shellcheck disable=SC2086
    env $3 timeout 600 "$launcher" -n "$1" "$work/comm-plain" $2 >"$log" 2>&1 </dev/null
    status=$?
    [ $status = 1 ] && [ "$(grep -c 'error: ' "$log")" = 1 ] && grep -qE "error: .*$4" "$log"
}
wrong() { # NAME RANKS WHICH SETTING WORDS
    step "$1 ends the job" ends "${@:2}"
    wait
}
wrong 'an error of the network' 3 'nccl fail async' EMU_NCCL_FAIL=2:1 \
    'group world, rank 2 of 3: an earlier call: remote process exited or there was a network error'
wrong 'an error of the network, later' 2 'nccl ordered fail async' EMU_NCCL_FAIL=0:2 \
    'group world, rank 0 of 2: an earlier call: remote process exited'
wrong 'a rank that dies before a call of NCCL' 3 'nccl fail die' EMU_STREAMS=now 'test: the last rank fails'
wrong 'a rank that dies before a staged call' 3 'staged fail die' EMU_STREAMS=now 'test: the last rank fails'
for which in nccl staged; do
    wrong "a message of another length, $which," 2 "$which fail short" EMU_STREAMS=now \
        'rank 1 expected 32 bytes from rank 0 and was sent 12'
    wrong "calls that differ, $which," 3 "$which fail differ" EMU_STREAMS=now \
        'all_reduce of 7 fp32 on rank 2, all_reduce of 8 fp32 on rank 0'
    wrong "a GPU that is not there, $which," 1 "$which fail device" EMU_STREAMS=now 'GPU 1: there are 1 here, from 0'
done
wrong 'an algorithm that NCCL has not' 1 'nccl fail algorithm' EMU_STREAMS=now \
    "all_reduce over nccl has no algorithm 'ring' .native."
finish
