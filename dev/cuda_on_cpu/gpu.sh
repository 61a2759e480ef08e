#!/bin/bash
# dev/cuda_on_cpu/gpu.sh: compiles every CUDA file with nvcc, warnings as errors, and lists registers and spills. Needs
# no GPU; scripts/gpu_check.sh is for a machine that has one.
#
# usage: gpu.sh [ARCHITECTURE...]      sm_80 sm_90, unless given; NVCC is nvcc unless set
#
# Registers, stack and spills of each kernel go to $BUILD/cuda_registers.txt. A spill is a failure.
set -u
cd "$(dirname "$0")/../.." || exit 1
here=dev/cuda_on_cpu
nvcc=${NVCC:-nvcc}
build=${BUILD:-build}
command -v "$nvcc" >/dev/null 2>&1 || { echo 'skip gpu.sh (no nvcc)'; exit 0; }
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
[ $# != 0 ] || set -- sm_80 sm_90
failed=0
mkdir -p "$build"

verdict() { # STATUS NAME: 0 is ok; otherwise $work/log says why
    if [ "$1" = 0 ]; then echo "ok $2"
    else
        echo "not ok $2"
        sed 's/^/  /' "$work/log" | head -n 20
        failed=1
    fi
}
flags=(-std=c++17 -O2 -lineinfo -Isrc -Werror all-warnings -Xcompiler -Wall,-Wextra)
: >"$build/cuda_registers.txt"
for arch; do
    for file in src/*.cu $here/tests/{unit,conformance,conversions,kernels,attention_kernels,table,blas,speed}.cu dev/attention/*.cu; do
        if grep -q '<nccl.h>' "$file" && ! echo '#include <nccl.h>' | "$nvcc" -x cu -E - >/dev/null 2>&1; then
            echo "skip $file (no nccl.h)"
            continue
        fi
        object=$work/$(basename "$file").$arch.o
        "$nvcc" "${flags[@]}" -arch="$arch" -Xptxas -v -x cu -c "$file" -o "$object" >"$work/log" 2>&1
        verdict $? "$file compiles for $arch"
        echo "== $file $arch" >>"$build/cuda_registers.txt"
        grep -e 'Compiling entry' -e registers -e 'stack frame' "$work/log" | c++filt >>"$build/cuda_registers.txt"
    done
done
! grep -E '[1-9][0-9]* bytes spill' "$build/cuda_registers.txt" >"$work/log"
verdict $? "no kernel spills registers ($build/cuda_registers.txt)"

exit $failed
