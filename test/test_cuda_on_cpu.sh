#!/bin/bash
# test/test_cuda_on_cpu.sh: the CUDA emulation runs correct kernels without a report in every mode, and reports every seeded
# bug of dev/cuda_on_cpu/tests/bugs.cu by its kind. Skipped where there is no C++ compiler.
set -u
cd "$(dirname "$0")/.." || exit 1
here=dev/cuda_on_cpu
command -v "${CXX:-g++}" >/dev/null 2>&1 || { echo 'skip the CUDA emulation (no C++ compiler)'; exit 0; }
export BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/cuda.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
unset "${!EMU_@}"
ulimit -c 0
export EMU_MEMORY=256 # MiB; address space is scarce in containers

verdict() { # STATUS NAME: 0 is ok; otherwise $work/log says why
    if [ "$1" = 0 ]; then echo "ok $2"
    else
        echo "not ok $2"
        sed 's/^/  /' "$work/log" | head -n 20
        failed=1
    fi
}

# The kernels' twins of dev_cpu.
twins=()
for op in norm ffn loss adamw; do
    ${CC:-gcc} -std=gnu11 -O1 -fopenmp-simd -Isrc -c src/$op.c -o "$work/$op.o" || failed=1
    twins+=("$work/$op.o")
done
for mode in plain asan checker; do
    for program in unit bugs kernels; do
        files=("$here/tests/$program.cu")
        [ $program = kernels ] && files+=(src/norm.cu src/ffn.cu src/loss.cu src/adamw.cu "${twins[@]}")
        $here/build.sh $mode "$work/$program-$mode" "${files[@]}" >"$work/log" 2>&1
        verdict $? "$program.cu builds: $mode"
    done
done

$here/build.sh plain "$work/conversions" $here/tests/conversions.cu >"$work/log" 2>&1 && "$work/conversions" >"$work/log" 2>&1
verdict $? 'conversions give the checksums of the CUDA toolkit'

# ---- the chapter's example does what the chapter says
awk '/^```cpp/ { inside = 1; next } /^```/ { inside = 0 } inside' doc/cuda_on_cpu.md >"$work/reverse.cu"
sed '/__syncthreads();/d' "$work/reverse.cu" >"$work/broken.cu"
{ $here/build.sh plain "$work/reverse" "$work/reverse.cu" && [ "$("$work/reverse")" = '49 0' ]; } >"$work/log" 2>&1
verdict $? 'the example of doc/cuda_on_cpu.md runs'
{ $here/build.sh plain "$work/broken" "$work/broken.cu" && "$work/broken" | grep -q 'nan 0'; } >"$work/log" 2>&1
verdict $? 'the example without its barrier gives NaN'

# ---- correct kernels: right and silent, whatever the order
quiet() { # NAME PROGRAM [SETTING...]
    local name=$1 program=$2
    shift 2
    [ -x "$work/$program" ] || return
    env "$@" timeout 120 "$work/$program" >"$work/log" 2>&1 && ! grep -q -e '^not ok' -e cuda_on_cpu: -e 'runtime error' "$work/log"
    verdict $? "$name, $program${1:+: $*}"
}
for program in unit kernels; do
    quiet 'no false report' $program-plain
    quiet 'no false report' $program-plain EMU_ORDER=reverse EMU_STREAMS=late
    quiet 'no false report' $program-plain EMU_GUARD=1
    for seed in 1 2 3; do quiet 'no false report' $program-plain EMU_ORDER=random EMU_STREAMS=random EMU_SEED=$seed; done
    quiet 'no false report' $program-asan EMU_ORDER=random EMU_SEED=4
    quiet 'no false report' $program-checker
    quiet 'no false report' $program-checker EMU_ORDER=reverse EMU_STREAMS=late
    quiet 'no false report' $program-checker EMU_ORDER=random EMU_STREAMS=random EMU_SEED=5
done

# ---- seeded bugs: each reported by its kind
"$work/bugs-plain" list >"$work/list" || failed=1
while IFS='|' read -r name kind build settings; do
    case ${CXX:-g++}-$name in *clang*-vector_load*) # clang 14 turns the load into a copy of bytes
        echo "skip seeded bug $name: $kind (${CXX:-g++})"; continue ;;
    esac
    # shellcheck disable=SC2086
    { env $settings timeout 60 "$work/bugs-$build" "$name" >"$work/log" 2>&1; status=$?; } 2>/dev/null # "Aborted" is wanted
    case $kind in
    nothing) [ $status = 0 ] && [ ! -s "$work/log" ] ;;
    wrong-result) [ $status = 3 ] && grep -q '^wrong-result$' "$work/log" ;;
    'nobody waited for') [ $status = 0 ] && grep -q "$kind" "$work/log" ;;
    AddressSanitizer | 'misaligned address' | index*) [ $status != 0 ] && grep -q "$kind" "$work/log" ;;
    cuda*) [ $status = 1 ] && grep -q "$kind" "$work/log" ;;
    *) [ $status = 134 ] && grep -q "^cuda_on_cpu: $kind: [^?]" "$work/log" ;;
    esac
    verdict $? "seeded bug $name: $kind ($build${settings:+, $settings})"
done <"$work/list"
exit $failed
