#!/bin/bash
# test/test_gpu_check.sh: scripts/gpu_check.sh, run without a GPU: nvidia-smi, nvcc, compute-sanitizer, gcc and make are
# scripts that note how they were called and leave a program that says "ok". What the programs do is tested elsewhere,
# on the emulation. Here: every part runs what it should; parts may be run one call at a time; a failed test, a warning,
# a missing tool and a timeout are reported and counted; and doc/gpu.md gets a section per commit and machine, the
# newest first.
# long: every kernel compiled twice for a stand-in GPU
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu_check.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0 log=$work/log
verdict() { # STATUS NAME
    if [ "$1" = 0 ]; then echo "ok $2"; return; fi
    echo "not ok $2"
    sed 's/^/  /' "$log" | tail -n 30
    failed=1
}

# ---- a tree and a machine
tree=$work/tree bin=$work/cuda/bin
mkdir -p "$tree/build" "$tree/test" "$tree/doc" "$tree/dev" "$bin" "$work/cuda/include"
cp -r scripts src "$tree/" && cp -r dev/cuda_on_cpu dev/check "$tree/dev/" && cp doc/gpu.md "$tree/doc/" || exit 1
touch "$work/cuda/include/cublasLt.h"
tool() { # PATH, its lines on stdin
    { echo '#!/bin/bash'; cat; } >"$1" && chmod +x "$1"
}
tool "$bin/nvidia-smi" <<'END'
case $* in
*compute_cap*) echo 9.0 ;;
*driver_version*) echo 570.00 ;;
*memory.total*) echo '81559 MiB' ;;
*=name*) echo "${FAKE_GPU:-Fake H100}" ;;
*) echo 'GPU 0' ;;
esac
END
# -o FILE: a program; -c FILE -odir DIR: an object. FAKE_BROKEN names what does not compile.
cat >"$work/compiler" <<'END'
output='' directory='' file=''
echo "$*" >>"$FAKE_LOG"
[ "$1" != --version ] || { echo 'Cuda compilation tools, release 13.0, V13.0.88'; exit; }
while [ $# != 0 ]; do
    case $1 in -o) output=$2; shift ;; -odir) directory=$2; shift ;; -c) file=$2; shift ;; esac
    shift
done
case $file in "${FAKE_BROKEN:-none}") echo "$file: warning: unused"; exit 1 ;; esac
[ -z "$directory" ] || output=$directory/$(basename "${file%.*}").o
case $(basename "$output") in
conformance) printf '#!/bin/bash\ncat dev/cuda_on_cpu/tests/conformance.txt\n' >"$output" ;;
*) printf '#!/bin/bash\necho "${FAKE_SAYS:-ok} $(basename "$0")"\n' >"$output" ;;
esac
chmod +x "$output"
END
tool "$bin/nvcc" <"$work/compiler"
tool "$work/gcc" <"$work/compiler"
tool "$bin/compute-sanitizer" <<'END'
echo "sanitizer $*" >>"$FAKE_LOG"
case $* in *"${FAKE_RACE:-none}"*) echo '========= Error: Race reported'; exit 9 ;; esac
END
tool "$work/make" <<'END'
echo "make $*" >>"$FAKE_LOG"
echo '#!/bin/bash' >build/train_gpu && chmod +x build/train_gpu
END
tool "$tree/test/test_train_gpu.sh" <<'END'
echo "train_gpu $TRAIN_GPU" >>"$FAKE_LOG"
echo 'ok losses'
END
tool "$tree/scripts/attention_ladder.sh" <<<'echo ok rungs'
tool "$tree/scripts/bench_gpu.sh" <<'END'
echo "bench $*" >>"$FAKE_LOG"
printf '| %s | 1 |\n\n- PASS  %s: 1.2\n' "$1" "$1"
END
touch "$tree/build/train" && chmod +x "$tree/build/train"
export FAKE_LOG=$work/calls
check() { # ARGUMENT...: in the tree, with the tools
    : >"$FAKE_LOG"
    (cd "$tree" && PATH=$bin:$PATH NVCC= CC=$work/gcc MAKE=$work/make BUILD=build scripts/gpu_check.sh "$@") \
        >"$log" 2>&1
}
sections() { sed -n '/^<!-- gpu-check -->$/,/^<!-- \/gpu-check -->$/s/^### //p' "$tree/doc/gpu.md"; }
last() { tail -n 1 "$log" | grep -qE "^$1 failed, $2 passed, $3 skipped, [0-9]+ s$"; }

# ---- the script
says() { # STATUS LINE ARGUMENT...: one line
    local status=0
    check "${@:3}" || status=$?
    [ $status = "$1" ] && [ "$(cat "$log")" = "$2" ]
}
says 1 'error: gpu_check.sh: no part speed (there are build kernels check sanitizer bench)' speed
verdict $? 'a part that does not exist'
says 1 'error: gpu_check.sh: nothing is built (try: gpu_check.sh build kernels)' kernels
verdict $? 'the build comes first'

check && last 0 '[0-9]+' 0 && [ "$(sections)" = 'Fake H100, commit unknown' ] &&
    grep -q '^| bench-gpt2-1.5b | 1 |$' "$tree/doc/gpu.md" &&
    grep -q 'driver 570.00, 81559 MiB, sm_90' "$tree/doc/gpu.md"
verdict $? 'all parts'
passed=$(tail -n 1 "$log" | sed 's/.*failed, \([0-9]*\) passed.*/\1/')
every() { # every kernel file is compiled, with warnings as errors; the tools are called for every program
    local file
    for file in src/ops/*.cu dev/cuda_on_cpu/tests/{unit,attention_kernels,table}.cu; do
        grep -q -- "-arch=sm_90 -Werror all-warnings .*-c $file " "$FAKE_LOG" || { echo "$file" >>"$log"; return 1; }
    done
    [ "$(grep -c '^sanitizer ' "$FAKE_LOG")" = 12 ] && [ "$(grep -c '^bench ' "$FAKE_LOG")" = 4 ] &&
        grep -q '^train_gpu build/train_gpu$' "$FAKE_LOG" && grep -q '^make .*GPU_ARCH=sm_90 gpu$' "$FAKE_LOG"
}
every
verdict $? 'every kernel, program and tool has its turn'

one_by_one() {
    local part
    for part in build kernels check sanitizer bench; do check $part || return 1; done
    last 0 "$passed" 0 && [ "$(sections)" = 'Fake H100, commit unknown' ]
}
one_by_one
verdict $? 'one part a call: the same in the end, and one section'
FAKE_GPU='Fake A100' check bench &&
    [ "$(sections | paste -sd ';')" = 'Fake A100, commit unknown;Fake H100, commit unknown' ]
verdict $? 'another machine: a section of its own, above'
check bench && [ "$(sections | paste -sd ';')" = 'Fake H100, commit unknown;Fake A100, commit unknown' ] &&
    [ "$(grep -c '^<!-- /*gpu-check -->$' "$tree/doc/gpu.md")" = 2 ] &&
    diff <(sed '/^<!-- gpu-check -->/,/^<!-- .gpu-check -->/d' doc/gpu.md) \
        <(sed '/^<!-- gpu-check -->/,/^<!-- .gpu-check -->/d' "$tree/doc/gpu.md") >>"$log"
verdict $? 'the rest of the chapter stays'

fails() { # NAME WORDS ARGUMENT...: counted, said, status 1
    local status=0
    check "${@:3}" || status=$?
    [ $status = 1 ] && last "$1" '[0-9]+' '[0-9]+' && grep -q "$2" "$log" && grep -q '  FAIL' "$tree/doc/gpu.md"
}
FAKE_SAYS='not ok' fails 5 '^FAIL .*unit on the GPU' kernels
verdict $? 'a test that fails'
check kernels && FAKE_RACE='build/gpu_check/unit' fails 4 'Race reported' sanitizer
verdict $? 'a race'
check sanitizer && FAKE_BROKEN=src/ops/norm.cu fails 1 'src/ops/norm.cu: warning' build kernels &&
    ! grep -q 'unit on the GPU' "$log"
verdict $? 'a warning of the compiler ends it'
check build && GPU_CHECK_LIMIT=0 check kernels && last 0 '[0-9]+' '[1-9]' &&
    grep -q '^SKIP .*ten minutes are over' "$log"
verdict $? 'what has not begun in time is skipped'
rm "$bin/compute-sanitizer" "$tree/build/train_gpu" && check sanitizer check bench && last 0 '[0-9]+' '[0-9]+' &&
    grep -q '^SKIP .*compute-sanitizer, racecheck (not installed)' "$log" &&
    grep -q '^SKIP .*train_gpu (not built)' "$log"
verdict $? 'what is not there is skipped'
exit $failed
