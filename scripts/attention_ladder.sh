#!/bin/bash
# scripts/attention_ladder.sh: builds dev/attention and prints its table: attention's forward pass, kernel by kernel, on
# the first GPU. Arguments go to the program: --B N --T N --H N --D 64|128. For doc/attention_ladder.md:
# scripts/attention_ladder.sh >runs/attention_ladder.txt, then make docs.
#
# Without a GPU the kernels are built for the emulation (dev/cuda_on_cpu) and checked. Their times would mean nothing,
# so nothing goes to standard output.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
mkdir -p "$build"
. dev/cuda_on_cpu/twins.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/ladder.XXXXXX")
trap 'rm -rf "$work"' EXIT
compile_twins "$work" ladder
mapfile -t files < <(printf '%s\n' dev/attention/*.cu; kernels_of ladder; twin_objects "$work" ladder)
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo 'no GPU here: every rung is checked in the emulation, none is timed' >&2
    BUILD=$build dev/cuda_on_cpu/build.sh plain "$build/attention_ladder_on_cpu" "${files[@]}"
    "$build/attention_ladder_on_cpu" check >&2
    exit
fi
nvcc=$(command -v "${NVCC:-nvcc}" || ls /usr/local/cuda/bin/nvcc 2>/dev/null) ||
    { echo 'error: attention_ladder.sh: no nvcc (install the CUDA toolkit, or set NVCC)' >&2; exit 1; }
arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
"$nvcc" -std=c++17 -O3 -lineinfo -Isrc -I. "-arch=$arch" -Werror all-warnings -Xcompiler -Wall,-Wextra \
    -o "$build/attention_ladder" "${files[@]}"
"$build/attention_ladder" check >&2
echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)," \
    "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"
echo
"$build/attention_ladder" "$@" | grep -v '^ok '
