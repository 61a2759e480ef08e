#!/bin/bash
# test/test_cuda_blas.sh: cuBLAS's calls in the CUDA emulation, on OpenBLAS and on loops: right in every order of
# streams, and every seeded bug of dev/cuda_on_cpu/tests/blas_bugs.cu reported by its kind. Skipped where there is no
# C++ compiler.
# deeper: all of it on loops too, more orders of threads and streams, AddressSanitizer, the checker of the emulation
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1

build() { # PROGRAM MODE FILE [SETTING...]
    env "${@:4}" $here/build.sh "$2" "$work/$1" "$here/tests/$3"
}
builds() {
    step "$3 builds: $2${4:+, ${*:4}}" build "$@"
}
builds plain plain blas.cu
wait # its objects are those of loops, and of bugs
deeper builds loops plain blas.cu OPENBLAS=no
deeper builds asan asan blas.cu
deeper builds checker checker blas.cu
builds bugs plain blas_bugs.cu
wait
deeper builds bugs-loops plain blas_bugs.cu OPENBLAS=no
all_built
on_openblas() { ldd "$work/$1" | grep -q openblas; }
apart() { on_openblas plain && ! on_openblas loops; }
deeper step 'one on OpenBLAS, one on loops' apart

sound() { # PROGRAM [SETTING...]
    env "${@:2}" timeout 600 "$work/$1" >"$log" 2>&1 &&
        grep -q '^ok [1-9][0-9]* products, 0 skipped$' "$log" && [ "$(wc -l <"$log")" = 1 ]
}
right() { # PROGRAM [SETTING...]
    step "cuBLAS calls, $1${2:+: ${*:2}}" sound "$@"
}
right plain
right plain EMU_STREAMS=late
for seed in 1 2 3; do deeper right plain EMU_STREAMS=random EMU_SEED=$seed; done
deeper right plain EMU_GUARD=1
deeper right loops EMU_STREAMS=late
deeper right asan EMU_STREAMS=random
deeper right checker EMU_STREAMS=late

bug() { # PROGRAM NAME KIND SETTINGS SAYS
    # shellcheck disable=SC2086
    env $4 timeout 600 "$work/$1" "$2" >"$log" 2>&1 </dev/null
    local status=$?
    case $3 in
    nothing) [ $status = 0 ] && [ ! -s "$log" ] ;;
    wrong-result | cublas-error) [ $status = 3 ] && grep -q "^$3" "$log" ;;
    *) [ $status = 134 ] && grep -q "^cuda_on_cpu: $3: .*:[0-9]*: " "$log" ;;
    esac && { [ -z "$5" ] || grep -qE -- "$5" "$log"; }
}
"$work/bugs" list >"$work/list"
[ -s "$work/list" ] || step 'the list of bugs' false
while IFS='|' read -r name kind settings says; do
    for program in bugs ${TEST_LONG:+bugs-loops}; do
        step "seeded bug $name: $kind ($program${settings:+, $settings})" \
            bug $program "$name" "$kind" "$settings" "$says"
    done
done <"$work/list"
finish
