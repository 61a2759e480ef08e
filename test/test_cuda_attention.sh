#!/bin/bash
# test/test_cuda_attention.sh: the attention kernels (src/ops/attention.cu, src/ops/flash.cu) on the CUDA emulation: right,
# and without a report in every mode. Skipped where there is no C++ compiler; where nvcc is installed, it compiles
# the files too, again only when one of the sources changes.
# long: the attention kernels alone, in all modes of the emulation (test_dev_cuda and test_train_gpu run them too)
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1

compile_twins "$work" attention_kernels || exit 1
mapfile -t parts < <(kernels_of attention_kernels; twin_objects "$work" attention_kernels)
build() { # MODE
    $here/build.sh "$1" "$work/$1" $here/tests/attention_kernels.cu "${parts[@]}" -- -ljansson # which check.c guards
}
for mode in "${modes[@]}"; do step "the attention kernels build: $mode" build $mode; done
all_built

# -O0: only whether they compile.
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
compiled=$BUILD/cuda_on_cpu/nvcc.compiled
compiles() {
    [ -f "$compiled" ] && [ -z "$(find src \( -name "*.cu" -o -name "*.h" \) -newer "$compiled")" ] && return
    for part in attention flash; do
        "$nvcc" -std=c++17 -arch=sm_80 --Werror all-warnings -Xptxas -O0 -Isrc -I. -cubin src/ops/$part.cu \
            -o "$work/$part.cubin" >"$log" 2>&1 && [ ! -s "$log" ] || return 1
    done
    touch "$compiled"
}
name='the attention kernels compile with nvcc, -arch=sm_80, without a warning'
if [ -n "$nvcc" ]; then step "$name" compiles; else skip "$name (no nvcc)"; fi

quiet() { # MODE [SETTING...]: all of its tests pass, and nobody reports anything
    env "${@:2}" timeout 600 "$work/$1" >"$log" 2>&1 &&
        ! grep -q -e '^not ok' -e cuda_on_cpu: -e 'runtime error' "$log"
}
silent() { # MODE [SETTING...]
    step "attention, $1${2:+: ${*:2}}" quiet "$@"
}
deeper silent plain
silent plain EMU_ORDER=reverse EMU_STREAMS=late EMU_GUARD=1
for seed in 1 2 3; do deeper silent plain EMU_ORDER=random EMU_STREAMS=random EMU_SEED=$seed; done
deeper silent asan EMU_ORDER=random EMU_SEED=4
deeper silent checker EMU_STREAMS=late
deeper silent checker EMU_ORDER=random EMU_STREAMS=random EMU_SEED=5

refused() { # a shape that the tensor-core kernel does not take
    "$work/plain" stops >"$log" 2>&1
    [ $? = 1 ] && [ "$(grep -c '^error: .*no kernel on tensor cores for head size 20' "$log")" = 1 ]
}
step 'a shape that no kernel takes stops with a message' refused
finish
