#!/bin/bash
# scripts/gpu_check.sh: the one command for a machine with a GPU: are the kernels right on it, do they mean there what
# the emulation says, and how fast are they? Under ten minutes; doc/gpu.md explains it.
#
# usage: gpu_check.sh      NVCC: the compiler; else nvcc of the PATH, else of /usr/local/cuda*
#
# Each step prints PASS, FAIL or SKIP; the table comes again at the end, and the exit status is 0 only without a FAIL.
# It writes dev/cuda_on_cpu/tests/conformance_gpu.txt (commit it: from then on `make test` compares the emulation with
# it) and $BUILD/gpu_check/ (BUILD is build unless set): the table as report.txt, one log a step, the programs.
# Without a GPU, or without nvcc: one line, exit status 1.
set -u
cd "$(dirname "$0")/.." || exit 1
tests=dev/cuda_on_cpu/tests
nvidia-smi -L >/dev/null 2>&1 || { echo 'error: gpu_check.sh: no GPU here (nvidia-smi -L finds none)' >&2; exit 1; }
for nvcc in "${NVCC:-nvcc}" /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc; do
    nvcc=$(command -v "$nvcc") && break
done
[ -n "$nvcc" ] || { echo "error: gpu_check.sh: no nvcc (install CUDA's toolkit, or set NVCC)" >&2; exit 1; }
toolkit=$(dirname "$(dirname "$nvcc")")
arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
out=${BUILD:-build}/gpu_check
rm -rf "$out"
mkdir -p "$out" || exit 1
began=$SECONDS failed=0 steps=0

report() { # PASS|FAIL|SKIP SECONDS NAME
    printf '%s  %4s s  %s\n' "$1" "$2" "$3" | tee -a "$out/report.txt"
    [ "$1" != FAIL ] || failed=$((failed + 1))
}
step() { # SECONDS NAME COMMAND...: a step that may take so long
    local limit=$1 name=$2 since=$SECONDS log left=$((began + 590 - SECONDS))
    shift 2
    if [ $left -lt 5 ]; then report SKIP 0 "$name (ten minutes are over)"; return 1; fi
    [ $limit -lt $left ] || limit=$left
    log=$out/$(printf %02d $((++steps))).log
    printf '== %s\n' "$name: $*" >"$log"
    if timeout -k 5 "$limit" "$@" >>"$log" 2>&1 && ! grep -q '^not ok' "$log"; then
        report PASS $((SECONDS - since)) "$name"
    else
        report FAIL $((SECONDS - since)) "$name"
        tail -n +2 "$log" | grep -v '^ok ' | sed 's/^/    /' | head -n 12
        return 1
    fi
}

# ---- builds, side by side
{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1
    echo "$arch, $("$nvcc" --version | grep -o 'release [0-9.]*'), commit $(git rev-parse --short HEAD 2>/dev/null)"
} | tee "$out/report.txt"
flags=(-std=c++17 -O3 -lineinfo -Isrc "-arch=$arch" -Werror all-warnings -Xcompiler -Wall,-Wextra)
twins=(norm ffn loss adamw rng check $(cd src && echo attention*.c | sed 's/[.]c//g')) # the CPU's side
objects() { for name; do echo "$out/$name.o"; done; }
step 240 "all kernels and tests compile for $arch, warnings as errors" xargs -P "$(nproc)" -I{} \
    "$nvcc" "${flags[@]}" -x cu -c {} -odir "$out" < <(
    printf '%s\n' src/flash.cu $tests/{attention_kernels,unit,conformance,conversions,kernels,table,speed}.cu src/*.cu |
        awk '!seen[$0]++' | grep -v ^src/comm_
) || exit 1
step 120 'their twins on the CPU compile' xargs -P "$(nproc)" -I{} \
    ${CC:-gcc} -std=gnu11 -O1 -fopenmp-simd -Isrc -c src/{}.c -o "$out/twin_{}.o" \
    < <(printf '%s\n' "${twins[@]}") || exit 1
twins=("${twins[@]/#/twin_}")
# The names of objects in src/ and in tests differ: nvcc calls them after the file.
link() { # PROGRAM OBJECT...
    step 60 "$1 links" "$nvcc" "-arch=$arch" -o "$out/$1" $(objects "$@")
}
link unit
link conformance
link conversions
link kernels norm ffn loss adamw sums ops_gpu twin_{norm,ffn,loss,adamw}
link attention_kernels attention flash "${twins[@]}"
link speed norm ffn loss adamw sums ops_gpu attention flash

# The whole op table against the whole device of the CPU, which stands on OpenBLAS.
device=(adafactor adamw adamw8bit agc attention attention_tree check compress dev_check{,_attention,_loss,_matmul}
    dev_check_{optim,rows} dev_cpu embed exact_sum ffn formats fp8 gemm lion loss matmul muon narrow{,_matmul,_ops} norm
    rng rope sgd)
blas=$(echo /usr/include/openblas)
if printf '#include <cblas.h>\nint main(void) { return 0; }\n' |
    ${CC:-gcc} -I"$blas" -x c - -lopenblas -o "$out/openblas" 2>/dev/null && [ -f "$toolkit/include/cublasLt.h" ]; then
    step 120 "the CPU's device compiles" xargs -P "$(nproc)" -I{} \
        ${CC:-gcc} -std=gnu11 -O2 -fopenmp -Isrc -I"$blas" -c src/{}.c -o "$out/cpu_{}.o" \
        < <(printf '%s\n' "${device[@]}") &&
        step 60 'table links' "$nvcc" "-arch=$arch" -Xcompiler -fopenmp -o "$out/table" $(objects table \
            $(for file in src/*.cu; do basename "$file" .cu; done | grep -v ^comm_) "${device[@]/#/cpu_}") -lopenblas -lcublasLt -lcublas -lm
else report SKIP 0 'the op table against the CPU (OpenBLAS and cuBLAS are needed)'
fi

# ---- right, within the bounds of the emulation's tests
for program in unit conversions; do step 60 "$program on the GPU" "$out/$program"; done
for program in kernels attention_kernels; do
    step 60 "$program on the GPU, against the CPU and against sums in double" "$out/$program"
done
if [ -x "$out/table" ]; then
    step 120 "every op of the table on the GPU, within its bound of the CPU's, the same bytes twice" "$out/table" ||
        "$out/table" fp32 '' -v | grep '^[a-z_0-9]* *[0-9]' # how far off each is
fi
if step 60 'conformance runs' bash -c '"$1" >"$2"' - "$out/conformance" "$out/conformance_gpu.txt"; then
    cp "$out/conformance_gpu.txt" $tests/conformance_gpu.txt
    step 10 'conformance: the GPU and the emulation agree to the bit' \
        diff $tests/conformance_cpu.txt "$out/conformance_gpu.txt"
fi
if [ -f "$toolkit/include/cublasLt.h" ]; then
    step 120 "blas.cu compiles with NVIDIA's cuBLAS" \
        "$nvcc" "${flags[@]}" -o "$out/blas" $tests/blas.cu -lcublas -lcublasLt &&
        step 60 'cuBLAS: its calls mean what the emulation says' "$out/blas"
else report SKIP 0 'cuBLAS (not installed)'
fi

# ---- the whole program, where the CPU's build is there: every op of live training checked, losses, ranks, the same bytes
build=${BUILD:-build}
if [ -x "$build/train" ]; then
    step 240 "train_gpu builds for $arch" make NVCC="$nvcc" GPU_ARCH="$arch" gpu &&
        step 200 'train_gpu: losses, every op against the CPU, 4 ranks on one GPU, the same bytes, errors' \
            env TRAIN_GPU="$build/train_gpu" test/test_train_gpu.sh
else report SKIP 0 'train_gpu (the CPU programs are needed: make)'
fi

# ---- NVIDIA's own checker
sanitizer=$(command -v compute-sanitizer || ls "$toolkit"/bin/compute-sanitizer 2>/dev/null)
for tool in memcheck racecheck initcheck synccheck; do
    if [ -z "$sanitizer" ]; then report SKIP 0 "compute-sanitizer, $tool (not installed)"; continue; fi
    for program in unit kernels attention_kernels; do
        step 30 "$tool, $program" "$sanitizer" --tool $tool --error-exitcode 9 "$out/$program"
    done
done

# ---- how fast, and PyTorch beside it where a python3 has it
if step 60 'the benchmark runs' bash -c '"$1" >"$2"' - "$out/speed" "$out/speed.txt"; then
    : >"$out/torch.txt"
    for python in python3 /usr/bin/python3; do
        timeout 90 "$python" dev/reference/bench_gpu.py >"$out/torch.txt" 2>"$out/torch.log" && break
    done
    {
        echo
        echo '| kernel | ms | | PyTorch ms | ours / PyTorch, speed |'
        echo '|---|---|---|---|---|'
        awk -F '|' 'FILENAME == ARGV[1] { torch[$1] = $2; next }
            {
                t = $1 in torch ? sprintf("%.3f | %.2f", torch[$1], torch[$1] / $2) : "- | -"
                printf "| %s | %.3f | %.1f %s | %s |\n", $1, $2, $3, $4, t
            }' "$out/torch.txt" "$out/speed.txt"
        echo
    } | tee -a "$out/report.txt"
    [ -s "$out/torch.txt" ] || report SKIP 0 "PyTorch's times (no python3 with PyTorch for this GPU)"
fi
echo
cat "$out/report.txt"
count() { grep -c "^$1" "$out/report.txt"; }
echo "$failed failed, $(count PASS) passed, $(count SKIP) skipped, $((SECONDS - began)) s"
[ $failed = 0 ]
