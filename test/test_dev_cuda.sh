#!/bin/bash
# test/test_dev_cuda.sh: the CUDA device's whole op table on the CUDA emulation: every entry against the CPU's within
# derived bounds, in fp32, bf16 and fp16, products in tf32 and fp8 too; twice, for the same bytes; without a report in every mode.
# Skipped where there is no C++ compiler.
# deeper: fp16, more orders of threads and streams, AddressSanitizer, the checker of the emulation
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1
export EMU_MEMORY=512 OMP_NUM_THREADS=1

# The CPU's side. A library built for a sanitizer cannot be linked into the other programs.
library=$BUILD/libpretrain.a
if [ ! -f "$library" ] || nm "$library" 2>/dev/null | grep -q __asan_; then
    library=$BUILD/cuda_on_cpu/cpu/libpretrain.a
    ${MAKE:-make} --no-print-directory B="$BUILD/cuda_on_cpu/cpu" EXTRA_CFLAGS= "$library" >"$work/make.log" 2>&1 ||
        { echo 'not ok the library of the CPU builds'; tail -n 20 "$work/make.log"; exit 1; }
fi
build() { # MODE
    # shellcheck disable=SC2046
    $here/build.sh "$1" "$work/$1" $here/tests/table.cu src/ops/*.cu "$library" -- -fopenmp -lm
}
for mode in "${modes[@]}"; do step "the op table builds: $mode" build $mode; done
all_built

right() { # MODE TYPE [SETTING...]: all cases pass, and nobody reports anything
    env "${@:3}" timeout 600 "$work/$1" "$2" >"$log" 2>&1 && grep -q '^ok ' "$log" && ! grep -qv '^ok ' "$log" && return
    grep -v '^ok ' "$log" >"$log.bad" # of the log only what is wrong
    mv "$log.bad" "$log"
    return 1
}
table() { # MODE TYPE [SETTING...]
    step "the op table, $2, $1${3:+: ${*:3}}" right "$@"
}
for type in fp32 tf32 bf16 ${TEST_LONG:+fp16} fp8; do
    table plain $type EMU_ORDER=reverse EMU_STREAMS=late
    deeper table plain $type EMU_ORDER=random EMU_STREAMS=random EMU_SEED=1
done
deeper table plain fp32 EMU_GUARD=1 EMU_STREAMS=late
deeper table plain bf16 EMU_ORDER=random EMU_STREAMS=random EMU_SEED=2
deeper table asan fp32 EMU_ORDER=random EMU_SEED=4
deeper table asan bf16 EMU_STREAMS=random
deeper table checker fp32 EMU_ORDER=random EMU_STREAMS=random EMU_SEED=5
deeper table checker bf16 EMU_STREAMS=late
deeper table asan fp8 EMU_ORDER=random
deeper table checker fp8 EMU_ORDER=random EMU_STREAMS=random EMU_SEED=6
finish
