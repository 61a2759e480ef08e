#!/bin/bash
# scripts/gpu_check.sh: the one command for a machine with a GPU: are the kernels right on it, do they behave there as
# in the emulation, does training agree with the CPU's, and how fast is it? doc/gpu.md explains it.
#
# usage: gpu_check.sh [PART...]     build kernels check sanitizer bench; none: all, one after another
#                                   NVCC: the compiler; else nvcc of the PATH, else of /usr/local/cuda*
#
#   build      every kernel and its test, the CPU's counterparts, and train_gpu if the CPU's build exists
#   kernels    the tests that the emulation runs, and its bits
#   check      train_gpu: losses, every op of live training against the CPU in every precision, ranks, errors
#   sanitizer  NVIDIA's own checker on the kernels' tests: memcheck, racecheck, initcheck, synccheck
#   bench      scripts/bench_gpu.sh: ops, GPT-2 124M and 1.5B, a LLaMA of 1.1B, beside PyTorch
#
# A part takes less than ten minutes: steps that have not begun by then are skipped. `build` comes first and deletes
# earlier results; the other parts may run in separate calls, on a machine that is available for minutes at a time.
# Each step prints PASS, FAIL or SKIP; at the end the lines of all parts so far are printed again, and the exit status
# is 0 only when none of them is a FAIL. They are in $BUILD/gpu_check (BUILD is build unless set), with a log for each
# step, and with date, commit and machine in doc/gpu.md: one section for each commit and machine, the newest first.
# Without a GPU, or without nvcc: one line, exit status 1.
set -u
cd "$(dirname "$0")/.." || exit 1
tests=dev/cuda_on_cpu/tests
. dev/cuda_on_cpu/twins.sh || exit 1
stop() { echo "error: gpu_check.sh: $*" >&2; exit 1; }
all=(build kernels check sanitizer bench)
[ $# != 0 ] || set -- "${all[@]}"
for part; do
    [[ " ${all[*]} " == *" $part "* ]] || stop "no part $part (there are ${all[*]})"
done
nvidia-smi -L >/dev/null 2>&1 || stop 'no GPU here (nvidia-smi -L finds none)'
for nvcc in "${NVCC:-nvcc}" /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc; do
    nvcc=$(command -v "$nvcc") && break
done
[ -n "$nvcc" ] || stop "no nvcc (install CUDA's toolkit, or set NVCC)"
toolkit=$(dirname "$(dirname "$nvcc")")
gpu() { nvidia-smi "--query-gpu=$1" --format=csv,noheader | head -n 1; }
arch=sm_$(gpu compute_cap | tr -d '. ')
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
build=${BUILD:-build}
out=$build/gpu_check
[ "$1" = build ] || [ -f "$out/build.report" ] || stop "nothing is built (try: gpu_check.sh build $*)"
[ "$1" != build ] || rm -rf "$out"
mkdir -p "$out" || exit 1
part='' began=0 steps=0 broken=''

begin() { # PART
    part=$1 began=$SECONDS steps=0
    rm -f "$out/$part."*
    echo "== $part"
}
report() { # PASS|FAIL|SKIP SECONDS NAME
    printf '%s  %4s s  %s\n' "$1" "$2" "$3" | tee -a "$out/$part.report"
}
step() { # SECONDS NAME COMMAND...: a step that may take so long
    local limit=$1 name=$2 since=$SECONDS log left=$((began + ${GPU_CHECK_LIMIT:-590} - SECONDS))
    shift 2
    if [ $left -lt 5 ]; then report SKIP 0 "$name (the part's ten minutes are over)"; return 1; fi
    [ "$limit" -lt $left ] || limit=$left
    log=$out/$part.$(printf %02d $((++steps))).log
    printf '== %s\n' "$name: $*" >"$log"
    if timeout -k 5 "$limit" "$@" >>"$log" 2>&1 && ! grep -q '^not ok' "$log"; then
        report PASS $((SECONDS - since)) "$name"
    else
        report FAIL $((SECONDS - since)) "$name"
        tail -n +2 "$log" | grep -v '^ok ' | sed 's/^/    /' | head -n 12
        return 1
    fi
}
count() { cat "$out"/*.report | grep -c "^$1"; }

# ---- build. The names of objects in src/ and in tests differ: nvcc calls them after the file.
flags=(-std=c++17 -O3 -lineinfo -Isrc -I. "-arch=$arch" -Werror all-warnings -Xcompiler -Wall,-Wextra)
objects() { for name; do echo "$out/$name.o"; done; }
link() { # PROGRAM
    step 60 "$1 links" "$nvcc" "-arch=$arch" -o "$out/$1" $(objects "$1" $(kernels_of "$1" | sed 's|.*/||; s|[.]cu||')) \
        $(twin_objects "$out" "$1") -ljansson # which check.c guards
}
compile_c() { # NAME PREFIX FLAG... -- FILE...: side by side, to PREFIXfile.o
    local name=$1 prefix=$2 options=()
    shift 2
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    step 120 "$name" xargs -P "$(nproc)" -I{} sh -c "${CC:-gcc} -std=gnu11 ${options[*]} -Isrc -I. -c {} \
        -o '$out/$prefix'\$(basename {} .c).o" < <(printf '%s\n' "${@:2}")
}
run_build() {
    local twins device blas
    twins=($(twins_of attention_kernels)) # the CPU's side
    device=($(twins_of table))
    step 300 "all kernels and tests compile for $arch, warnings as errors" xargs -P "$(nproc)" -I{} \
        "$nvcc" "${flags[@]}" -x cu -c {} -odir "$out" < <(
        printf '%s\n' src/ops/flash.cu $tests/{attention_kernels,unit,conformance,conversions,table}.cu src/ops/*.cu |
            awk '!seen[$0]++'
    ) || { broken=1; return; }
    compile_c 'their twins on the CPU compile' twin_ -O1 -fopenmp-simd -- "${twins[@]}" || { broken=1; return; }
    link unit
    link conformance
    link conversions
    link attention_kernels
    # The whole op table against the whole device of the CPU, which stands on OpenBLAS.
    blas=/usr/include/openblas
    if printf '#include <cblas.h>\nint main(void) { return 0; }\n' |
        ${CC:-gcc} -I$blas -x c - -lopenblas -o "$out/openblas" 2>/dev/null &&
        [ -f "$toolkit/include/cublasLt.h" ]; then
        compile_c "the CPU's device compiles" cpu_ -O2 -fopenmp -I$blas -- "${device[@]}" &&
            step 60 'table links' "$nvcc" "-arch=$arch" -Xcompiler -fopenmp -o "$out/table" $(objects table \
                $(for file in src/ops/*.cu; do basename "$file" .cu; done) \
                $(for file in "${device[@]}"; do echo "cpu_$(basename "$file" .c)"; done)) \
                -lopenblas -lcublasLt -lcublas -ljansson -lm
    else report SKIP 0 'the op table against the CPU (OpenBLAS and cuBLAS are needed)'
    fi
    if [ -f "$toolkit/include/cublasLt.h" ]; then
        step 120 "blas.cu compiles with NVIDIA's cuBLAS" \
            "$nvcc" "${flags[@]}" -o "$out/blas" $tests/blas.cu -lcublas -lcublasLt
    else report SKIP 0 'cuBLAS (not installed)'
    fi
    if [ -x "$build/train" ]; then
        step 300 "train_gpu builds for $arch" ${MAKE:-make} "B=$build" NVCC="$nvcc" GPU_ARCH="$arch" gpu
    else report SKIP 0 'train_gpu (the CPU programs are needed: make)'
    fi
}

# ---- right, within the bounds of the emulation's tests
run_kernels() {
    local program
    for program in unit conversions; do step 60 "$program on the GPU" "$out/$program"; done
    step 60 'attention_kernels on the GPU, against the CPU and against sums in double' "$out/attention_kernels"
    if [ -x "$out/table" ]; then
        step 180 "every op of the table on the GPU, within its bound of the CPU's, the same bytes twice" "$out/table" ||
            "$out/table" fp32 '' -v | grep '^[a-z_0-9]* *[0-9]' # how far off each is
    else report SKIP 0 'the op table (not built)'
    fi
    if step 60 'conformance runs' bash -c '"$1" >"$2"' - "$out/conformance" "$out/conformance.txt"; then
        step 10 'conformance: the GPU and the emulation agree to the bit' diff $tests/conformance.txt "$out/conformance.txt"
    fi
    if [ -x "$out/blas" ]; then step 60 'cuBLAS: its calls mean what the emulation says' "$out/blas"
    else report SKIP 0 'cuBLAS (not built)'
    fi
    step 120 'the rungs of dev/attention on the GPU, against sums in double' \
        env NVCC="$nvcc" BUILD="$build" scripts/attention_ladder.sh
}

# ---- the whole program: every op of live training checked, losses, ranks, the same bytes
run_check() {
    if [ -x "$build/train_gpu" ]; then
        step 580 'train_gpu: losses, every op against the CPU, ranks, the same bytes, errors' \
            env TRAIN_GPU="$build/train_gpu" BUILD="$build" test/test_train_gpu.sh
    else report SKIP 0 'train_gpu (not built)'
    fi
}

# ---- NVIDIA's own checker
run_sanitizer() {
    local sanitizer tool program
    sanitizer=$(command -v compute-sanitizer || ls "$toolkit"/bin/compute-sanitizer 2>/dev/null)
    for tool in memcheck racecheck initcheck synccheck; do
        if [ -z "$sanitizer" ]; then report SKIP 0 "compute-sanitizer, $tool (not installed)"; continue; fi
        for program in unit attention_kernels 'table fp32'; do
            [ -x "$out/${program% *}" ] || continue
            # shellcheck disable=SC2086
            step 120 "$tool, $program" "$sanitizer" --tool $tool --error-exitcode 9 "$out/"$program
        done
    done
}

# ---- how fast, beside PyTorch where a python3 has it
run_bench() {
    local what
    if [ ! -x "$build/train_gpu" ]; then report SKIP 0 'speed (train_gpu is not built)'; return; fi
    for what in ops bench-gpt2-124m bench-gpt2-1.5b bench-llama-1b; do
        step 560 "speed: $what" bash -c '"$1" "$2" >"$3"' - scripts/bench_gpu.sh "$what" "$out/bench.$what.md"
        [ ! -s "$out/bench.$what.md" ] || cat "$out/bench.$what.md"
    done
}

# ---- what is kept: the section of this commit and machine in doc/gpu.md
section() {
    local file name
    echo
    echo "### $title"
    echo
    echo "$(date -u +%Y-%m-%d), driver $(gpu driver_version), $(gpu memory.total), $arch, CUDA" \
        "$("$nvcc" --version | grep -o 'release [0-9.]*'): $(count PASS) passed, $(count FAIL) failed," \
        "$(count SKIP) skipped."
    echo
    echo '```text'
    for name in "${all[@]}"; do
        [ ! -f "$out/$name.report" ] || { echo "$name"; sed 's/^/  /' "$out/$name.report"; }
    done
    echo '```'
    for file in "$out"/bench.*.md; do
        [ ! -s "$file" ] || { echo; cat "$file"; }
    done
    echo
}
write_section() { # into doc/gpu.md, in place of an older one of the same title
    section >"$out/section.md"
    awk -v title="### $title" -v section="$out/section.md" '
        /^<!-- \/gpu-check -->$/ { inside = old = 0 }
        inside && /^### / { old = $0 == title }
        inside && !old && (/^### / || any) { any = 1; print } # a line before the first section goes
        !inside { print }
        /^<!-- gpu-check -->$/ { inside = 1; while ((getline line < section) > 0) print line }
        ' doc/gpu.md >"$out/gpu.md" && grep -q '^<!-- /gpu-check -->$' "$out/gpu.md" && cat "$out/gpu.md" >doc/gpu.md
}

title="$(gpu name), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
[ -z "$(git status --porcelain -- src dev train_gpu.cu Makefile 2>/dev/null)" ] ||
    title+=' with changes'
echo "$title, $arch"
for name; do
    begin "$name"
    "run_$name"
    write_section || echo 'error: gpu_check.sh: doc/gpu.md was not written' >&2
    [ -z "$broken" ] || break
done
echo
for name in "${all[@]}"; do [ ! -f "$out/$name.report" ] || cat "$out/$name.report"; done
echo "$(count FAIL) failed, $(count PASS) passed, $(count SKIP) skipped, $SECONDS s"
[ "$(count FAIL)" = 0 ]
