#!/bin/bash
# test/test_cuda_on_cpu.sh: the CUDA emulation runs correct kernels without a report in every mode, and reports every
# seeded bug of dev/cuda_on_cpu/tests by its kind, with kernel, thread, file and line. Skipped where there is no C++
# compiler.
# long: the emulation itself, in all of its modes and with its seeded bugs
set -u
cd "$(dirname "$0")/.." || exit 1
export DEBUG_INFO=-g # an example steps in gdb
. test/cuda_steps.sh || exit 1

# ---- builds
build() { # MODE PROGRAM [FILE...]
    $here/build.sh "$1" "$work/$2-$1" $here/tests/"$2".cu "${@:3}"
}
for mode in plain asan checker; do step "unit.cu builds: $mode" build $mode unit; done
wait
for mode in plain asan checker; do
    for program in bugs host_bugs; do step "$program.cu builds: $mode" build $mode $program; done
done
step 'settings.cu builds: plain' build plain settings
for mode in plain checker; do step "conformance.cu builds: $mode" build $mode conformance; done
step 'conversions.cu builds: plain' build plain conversions
all_built

# ---- correct kernels: right and silent, whatever the order
quiet() { # PROGRAM [SETTING...]
    env "${@:2}" timeout 600 "$work/$1" >"$log" 2>&1 && ! grep -q -e '^not ok' -e cuda_on_cpu: -e 'runtime error' "$log"
}
silent() { # PROGRAM [SETTING...]
    step "no false report, $1${2:+: ${*:2}}" quiet "$@"
}
deeper silent unit-plain
silent unit-plain EMU_ORDER=reverse EMU_STREAMS=late
deeper silent unit-plain EMU_GUARD=1
for seed in 1 2 3; do deeper silent unit-plain EMU_ORDER=random EMU_STREAMS=random EMU_SEED=$seed; done
silent unit-asan EMU_ORDER=random EMU_SEED=4
silent unit-checker
deeper silent unit-checker EMU_ORDER=reverse EMU_STREAMS=late
silent unit-checker EMU_ORDER=random EMU_STREAMS=random EMU_SEED=5
same_prints() { # two runs with one seed do the same, to the count of waits and switches
    for i in 1 2; do
        EMU_PROF=1 EMU_ORDER=random EMU_STREAMS=random EMU_SEED=9 "$work/unit-plain" >"$log.$i" 2>&1 || return 1
    done
    cmp "$log.1" "$log.2"
}
step 'same seed, same run' same_prints
no_switches() { # a kernel that never waits is a loop of calls: in and out of the launch, and no more
    EMU_PROF=1 "$work/unit-plain" >"$log" 2>&1
    awk '$1 == "add_kernel" { seen = $4 == 0 && $5 == $2 * 2 } END { exit !seen }' "$log"
}
step 'no switch in a kernel that never waits' no_switches

# ---- what operations mean, to the bit
conforms() { # PROGRAM [SETTING...]
    env "${@:2}" "$work/$1" >"$log.text" && diff "$here/tests/conformance.txt" "$log.text" | cut -c 1-150
    return "${PIPESTATUS[0]}"
}
step 'conformance: as stored' conforms conformance-plain
step 'conformance: in random order' conforms conformance-plain EMU_ORDER=random EMU_STREAMS=random
step 'conformance: under the checker' conforms conformance-checker EMU_ORDER=reverse
no_gpu() { # one line, and a failure
    scripts/gpu_check.sh >"$log" 2>&1
    [ $? = 1 ] && [ "$(cat "$log")" = 'error: gpu_check.sh: no GPU here (nvidia-smi -L finds none)' ]
}
nvidia-smi -L >/dev/null 2>&1 || step 'gpu_check.sh says that there is no GPU' no_gpu
step 'conversions give the checksums of the CUDA toolkit' "$work/conversions-plain"

# ---- the chapter's example does what the chapter says
awk '/^```cpp/ { inside = 1; next } /^```/ { inside = 0 } inside' doc/cuda_on_cpu.md >"$work/reverse.cu"
edited() { # NAME SED: the example after an edit, which must change it, as NAME-plain and NAME-checker
    sed "$2" "$work/reverse.cu" >"$work/$1.cu"
    [ -z "$2" ] || ! cmp -s "$work/reverse.cu" "$work/$1.cu" || return 1
    for mode in plain checker; do $here/build.sh $mode "$work/$1-$mode" "$work/$1.cu" || return 1; done
}
says() { # NAME-MODE TEXT [SETTING...]: TEXT, an extended regular expression, is in the output
    env "${@:3}" "$work/$1" >"$log" 2>&1
    grep -qE "$2" "$log"
}
example_runs() { edited example '' ; says example-plain '^49 0$' && says example-checker '^49 0$'; }
example_1() {
    edited one '/__syncthreads();/d' && says one-plain '^-?nan 0$' &&
        says one-checker 'uninitialised: .*one.cu:8: read of byte 196 .* tile'
}
example_2() {
    edited two '/__syncthreads();/d; s/tile\[n - 1 - t\]/tile[t \/ 2]/' && says two-plain '^0 24$' &&
        says two-plain 'nan' EMU_ORDER=reverse &&
        says two-checker 'race: .*two.cu:8: read .* after the write at .*two.cu:7 by block'
}
example_3() {
    edited three 's/__syncthreads();/if (t < n) { __syncthreads(); }/' && says three-plain '^49 0$' &&
        says three-plain 'divergent-barrier: .*three.cu:8' EMU_STRICT=2
}
example_4() {
    edited four 's/if (t < n) tile/tile/' &&
        says four-checker 'out-of-bounds: .*four.cu:7: read of 0 bytes behind the 200'
}
example_5() {
    edited five '' && gdb -q -batch -ex 'break reverse if threadIdx.x == 5' -ex run -ex next -ex next -ex next \
        -ex next -ex next -ex 'print threadIdx.x' -ex 'print t' -ex backtrace "$work/five-plain" >"$log" 2>&1 </dev/null
    # after the barrier it is still thread 5; of the emulator there are only the two frames that call the kernel
    grep -q '^\$1 = 5$' "$log" && grep -q '^\$2 = 5$' "$log" && grep -q '^#2 .*emu::' "$log" && ! grep -q '^#3 ' "$log"
}
step 'the example of doc/cuda_on_cpu.md' example_runs
step 'the example, edit 1: no barrier' example_1
step 'the example, edit 2: a race that is right in one order' example_2
step 'the example, edit 3: a barrier in a branch' example_3
step 'the example, edit 4: no bounds test' example_4
if command -v gdb >/dev/null 2>&1; then step 'the example, edit 5: gdb stays in thread 5' example_5; fi

# ---- seeded bugs: each reported by its kind, with the kernel, the thread, the file and the line (tests/bugs.h)
named() { # PROGRAM NAME KERNEL THREAD: the log names them
    local source=$here/tests/$1.cu lines
    if [ -n "$3" ] && ! grep -q "^ *in $3<<<.* launched at .*$1.cu:[0-9]" "$log"; then
        echo "kernel $3 is not named"
        return 1
    fi
    if [ -n "$4" ]; then
        local at="block (${4%/*},0,0) thread (${4#*/}"
        [ "${4#*/}" = '' ] || at="$at,0,0)"
        grep -qF "$at" "$log" || { echo "$at is not named"; return 1; }
    fi
    lines=$(grep -nE "@$2( |\$)" "$source" | cut -d: -f1)
    [ -n "$lines" ] || lines=$(grep -nE "@$3( |\$)" "$source" | cut -d: -f1)
    for line in $lines; do
        grep -qE "(^cuda_on_cpu: [a-z-]*: |#0 .* |^|\[)[^ ]*$1\.cu:$line(:|\]|$)" "$log" && return
    done
    echo "no line of \"${lines//$'\n'/ }\" is named"
    return 1
}
bug() { # PROGRAM NAME KIND BUILD SETTINGS KERNEL THREAD
    local status
    # shellcheck disable=SC2086
    env $5 timeout 600 "$work/$1-$4" "$2" >"$log" 2>&1
    status=$?
    case $3 in
    nothing) [ $status = 0 ] && [ ! -s "$log" ]; return ;;
    wrong-result) [ $status = 3 ] && grep -q '^wrong-result$' "$log"; return ;;
    'prints '*) [ $status = 0 ] && grep -qE "${3#prints }" "$log"; return ;;
    error:*) [ $status = 1 ] && grep -qF "$3" "$log"; return ;;
    AddressSanitizer | 'misaligned address' | index*) [ $status != 0 ] && grep -q "$3" "$log" ;;
    cuda*) [ $status = 1 ] && grep -q "$3" "$log" ;;
    *) [ $status = 134 ] && grep -q "^cuda_on_cpu: $3: [^?]" "$log" ;;
    esac && named "$1" "$2" "$6" "$7"
}
declare -A seeded=()
for program in bugs host_bugs settings; do
    "$work/$program-plain" list >"$work/list" || echo "not ok $program list"
    while IFS='|' read -r name kind mode settings kernel thread; do
        case $cxx-$name in *clang*-vector_load*) # clang 14 turns the load into a copy of bytes
            skip "$program $name: $kind ($cxx)"
            continue ;;
        esac
        case $program-$kind in settings-* | *-nothing) ;; *) seeded[$mode]=$((${seeded[$mode]:-0} + 1)) ;; esac
        step "$program $name: $kind ($mode${settings:+, $settings})" \
            bug $program "$name" "$kind" "$mode" "$settings" "$kernel" "$thread"
    done <"$work/list"
done

# ---- the mutation script's list (the script itself takes minutes: make mutate)
step 'mutants.txt names mistakes that mutate.sh makes' $here/mutate.sh --check

# ---- another processor, where a cross compiler and an emulator for it are installed
aarch64() {
    CXX=aarch64-linux-gnu-g++ $here/build.sh plain "$work/unit-aarch64" $here/tests/unit.cu &&
        EMU_ORDER=random qemu-aarch64 -L /usr/aarch64-linux-gnu "$work/unit-aarch64" >"$log" &&
        ! grep -q '^not ok' "$log"
}
if [ "$(uname -m)" = x86_64 ] && command -v aarch64-linux-gnu-g++ >/dev/null 2>&1 &&
    command -v qemu-aarch64 >/dev/null 2>&1; then
    step 'aarch64: unit.cu under qemu' aarch64
fi
wait
missed=$(said | grep -cE '^not ok (bugs|host_bugs) ')
all=$((${seeded[plain]:-0} + ${seeded[asan]:-0} + ${seeded[checker]:-0}))
step "$all seeded bugs: $((all - missed)) reported as they should be, ${seeded[plain]:-0} by a plain build, \
${seeded[asan]:-0} by the sanitizers, ${seeded[checker]:-0} by the checker" [ $all -ge 28 -a "$missed" = 0 ]
finish
