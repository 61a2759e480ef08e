#!/bin/bash
# test/test_override_cuda.sh: the commands of doc/override.md, as they stand, in a copy of the tree; then CUDA kernels
# from shared libraries in the emulation: the checker names thread and line of each missing barrier.
# FRESH=1: the copy starts without a build, and without ccache.
# shellcheck source=test/train_common.sh
# long: it builds the GPU program for the emulation and for its checker
. "$(dirname "$0")/train_common.sh"
template=dev/override/norm_forward.cu
if [ "${BUILD##*/}" != build ]; then
    echo 'skip the chapter and CUDA (this build has flags of its own)'
    exit $failed
fi

# ---- the commands of the chapter, in a copy of the tree
tree=$work/tree
mkdir "$tree"
{ git ls-files -z 2>/dev/null || find . -type f -not -path './.git/*' -not -path './build/*' -not -path './runs/*' -print0; } |
    tar -c --null -T - --ignore-failed-read 2>/dev/null | tar -x -C "$tree"
[ -n "${FRESH:-}" ] ||
    tar -c --exclude='*/test' --exclude='*/mutants' --exclude='*/fuzz' --exclude='*/asan' \
        --exclude='*/tsan' --exclude='*/journey' -C "$(dirname "$BUILD")" build | tar -x -C "$tree"
case ${MAKEFLAGS:-} in *'-- '*) MAKEFLAGS="-- ${MAKEFLAGS#*-- }" ;; *) unset MAKEFLAGS ;; esac
unset MAKELEVEL MFLAGS BUILD
[ -z "${FRESH:-}" ] || export CCACHE_DISABLE=1
if ! command -v mpiexec >/dev/null; then mpiexec() { "$(command -v mpiexec.mpich || ls /usr/lib64/mpich/bin/mpiexec)" "$@"; }; fi

chapter() {
    local began=$SECONDS
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' doc/override.md >"$work/commands"
    [ "$(wc -l <"$work/commands")" -ge 20 ]
    export -f mpiexec 2>/dev/null || true
    (cd "$tree" && bash -e -o pipefail "$work/commands") >"$work/chapter" 2>&1 </dev/null ||
        { tail -n 30 "$work/chapter"; return 1; }
    times >"$work/times"
    echo "$((SECONDS - began)) s, $(awk 'NR == 2 { sub(/[.].*/, " s", $1); print $1 }' "$work/times") of processors" >"$work/seconds"
    # Right; a bug in C; right on four ranks; right in CUDA; a missing barrier, which threads in reverse order do not
    # show; and the checker's report.
    sed -nE 's/^.* ops, ([0-9]+) beyond their bound.*/\1/p' "$work/chapter" | paste -sd ' ' | cmp - <(echo 0 1 0 0 1 0)
    grep -E '^swiglu_forward .* out\[[0-9]+\] of [0-9]+ in call [0-9]+: ' "$work/chapter"
    grep -E '^cuda_on_cpu: race: .*/mine/norm.cu:[0-9]+: .* the read at .*/mine/norm.cu:[0-9]+ by block .* thread ' "$work/chapter"
    [ "$(grep -c '^status [0-9]*$' "$work/chapter")" = 3 ]
}
passes 'the commands of doc/override.md' chapter
[ ! -f "$work/seconds" ] || echo "warn doc/override.md took $(cat "$work/seconds")${FRESH:+, with everything built}"

# ---- CUDA, with the programs that the chapter has built
emulated() { # PROGRAM [OPTION...]: with mine/barrier.so
    (cd "$tree" && timeout 600 "build/$1" dev/override/small.toml --run.steps=1 --numerics.override=norm_forward:mine/barrier.so "${@:2}") \
        >"$work/emulated" 2>&1 </dev/null
}
kernel() { # [SED SCRIPT [MODE]]
    sed "${1:-}" $template >"$tree/mine/barrier.cu"
    (cd "$tree" && scripts/override.sh mine/barrier.cu ${2:+"$2"})
}
cuda_is_right() {
    local dtype
    kernel
    for dtype in fp32 bf16 fp16; do
        emulated train_gpu_on_cpu --numerics.check=true --numerics.dtype=$dtype
        grep -aqE ' ops, 0 beyond their bound' "$work/emulated"
        grep -aqE '^norm_forward +[0-9]+ ' "$work/emulated"
    done
    kernel '' checker
    emulated train_gpu_checked
}
# Each barrier of `total`, by its comment.
barrier() { # COMMENT
    local line
    grep -q "$1" $template
    kernel "/$1/d" checker
    if emulated train_gpu_checked; then return 1; fi
    line=$(sed -nE 's/^cuda_on_cpu: (race|uninitialised): .*\/mine\/barrier.cu:([0-9]+): (read|write) of byte .*/\2/p' "$work/emulated")
    [ -n "$line" ]
    sed -n "${line}p" "$tree/mine/barrier.cu" | grep 'part\[' # the line that accesses the array
    grep -aE '^    in block \([0-9]+,0,0\) thread \([0-9]+,0,0\)' "$work/emulated"
}
other_target() { # a library of the other mode would run unseen
    kernel
    if emulated train_gpu_checked; then return 1; fi
    grep -a "is for the emulation, this program for the emulation's checker" "$work/emulated"
}
passes 'CUDA: the template is right in fp32, bf16, fp16, and has no race' cuda_is_right
for words in 'other half is written' 'sum is complete' 'everybody has read'; do
    passes "CUDA: the barrier that says '$words' is missing" barrier "$words"
done
passes "CUDA: the checker refuses a library that it cannot see into" other_target
exit $failed
