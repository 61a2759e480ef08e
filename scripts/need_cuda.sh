#!/bin/bash
# scripts/need_cuda.sh NVCC: checks for what `make gpu` needs. If something is missing, one line says so; exit status 1.
nvcc=$(command -v "$1") || {
    echo "error: make gpu: no nvcc: $1 (install NVIDIA's CUDA toolkit, 12.0 or later, or say make gpu NVCC=/usr/local/cuda/bin/nvcc; build/train needs none)" >&2
    exit 1
}
printf '#include <cublasLt.h>\n' | "$nvcc" -E -x cu - >/dev/null 2>&1 || {
    echo "error: make gpu: $nvcc finds no cublasLt.h (install the toolkit's cuBLAS: libcublas-dev or libcublas-devel)" >&2
    exit 1
}
