#!/bin/bash
# test/test_attention_ladder.sh: every rung of dev/attention is right on the CUDA emulation, in all of its modes; the
# table has a row a rung; a shape that a rung does not take is reported. Where nvcc is installed, the rungs compile for
# sm_80 and sm_90 without a warning and without a spilled register; this is done again only when a source changes.
# Skipped where there is no C++ compiler.
# long: every rung of the ladder, in all modes of the emulation
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1

compile_twins "$work" ladder || exit 1
mapfile -t parts < <(kernels_of ladder; twin_objects "$work" ladder)
build() { # MODE
    $here/build.sh "$1" "$work/$1" dev/attention/*.cu "${parts[@]}"
}
for mode in "${modes[@]}"; do step "the ladder builds: $mode" build $mode; done
all_built

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
compiled=$BUILD/cuda_on_cpu/attention_ladder.compiled
compiles() {
    local rung arch
    [ -f "$compiled" ] && [ -z "$(find dev/attention src/base/gpu.h -newer "$compiled")" ] && return
    for rung in dev/attention/[1-5]_*.cu; do
        for arch in sm_80 sm_90; do
            "$nvcc" -std=c++17 -O2 -arch=$arch --Werror all-warnings -Xptxas -v -Isrc -I. -cubin "$rung" \
                -o "$work/rung.cubin" >"$log" 2>&1 || return 1
            ! grep -qi warning "$log" || return 1
            ! grep -E '[1-9][0-9]* bytes spill' "$log" || return 1
        done
    done
    touch "$compiled"
}
name='the rungs compile with nvcc for sm_80 and sm_90, without a warning or a spill'
if [ -n "$nvcc" ]; then step "$name" compiles; else skip "$name (no nvcc)"; fi

quiet() { # MODE [SETTING...]: all rungs are right, and nobody reports anything
    env "${@:2}" timeout 600 "$work/$1" check >"$log" 2>&1 && [ "$(grep -c '^ok [1-6] ' "$log")" = 6 ] &&
        ! grep -q -e '^not ok' -e cuda_on_cpu: -e 'runtime error' "$log"
}
silent() { # MODE [SETTING...]
    step "the rungs, $1${2:+: ${*:2}}" quiet "$@"
}
silent plain
deeper silent plain EMU_ORDER=reverse EMU_STREAMS=late EMU_GUARD=1
deeper silent plain EMU_ORDER=random EMU_STREAMS=random EMU_SEED=1
deeper silent asan EMU_ORDER=random EMU_SEED=2
deeper silent checker EMU_STREAMS=late
deeper silent checker EMU_ORDER=random EMU_SEED=3

table() { # six rows with numbers; rows of the timed shape are checked too
    "$work/plain" --B 1 --T 40 --H 2 --D 64 >"$log" 2>&1 &&
        [ "$(grep -cE '^\| [1-6] [a-z]+ \|[^|]+\| [0-9]+ \| [0-9.]+ \| [0-9.]+ \| [0-9]+ \| [0-9.]+ \|$' "$log")" = 6 ]
}
step 'the table' table
too_long() { # the emulation has the shared memory of an H100: rung 2 ends below 4 * 4 * 20000 bytes
    EMU_MEMORY=64 timeout 300 "$work/plain" --B 1 --T 20000 --H 1 --D 64 >"$log" 2>&1 &
    local pid=$!
    while kill -0 $pid 2>/dev/null && ! grep -q '2 fused .*do not fit' "$log"; do sleep 0.1; done
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    grep -q '^| 1 naive .*do not fit' "$log" && grep -q '^| 2 fused .*do not fit' "$log"
}
step 'scores that fit neither memory nor shared memory are said' too_long
wrong() { # OPTION...: one line, status 2
    local status=0
    "$work/plain" "$@" >"$log" 2>&1 || status=$?
    [ $status = 2 ] && [ "$(grep -c '^error: attention_ladder: ' "$log")" = 1 ] && [ "$(wc -l <"$log")" = 1 ]
}
step 'a head size that no rung has' wrong --D 48
step 'an option without a number' wrong --T
helps() {
    "$work/plain" --help >"$log" && grep -q '^usage: attention_ladder' "$log" && ! "$work/plain" --help >/dev/full 2>"$log" &&
        grep -q '^error: standard output: ' "$log"
}
step 'help, and nowhere to write it' helps
without_a_gpu() {
    TMPDIR=$work scripts/attention_ladder.sh 2>"$log" >"$log.out" && [ ! -s "$log.out" ] && grep -q '^no GPU here' "$log" &&
        [ "$(grep -c '^ok ' "$log")" = 6 ]
}
nvidia-smi -L >/dev/null 2>&1 || step 'the script without a GPU: checked, and not timed' without_a_gpu
finish
