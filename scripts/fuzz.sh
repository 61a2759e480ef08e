#!/bin/bash
# scripts/fuzz.sh: libFuzzer on every parser, under AddressSanitizer and UndefinedBehaviorSanitizer (doc/fuzz.md).
#
#   make fuzz                                  10,000 inputs each
#   make fuzz FUZZ_RUNS=1000000 FUZZ_CMP=0     a million inputs each, two to four times as many a second: comparisons are
#                                              not traced. They lead to constants, so begin with a run that traces them
#   make fuzz FUZZ_SECONDS=60                  a minute each
#   scripts/fuzz.sh safetensors config         these targets alone
#
# FUZZ_SEED=7 draws other inputs than FUZZ_SEED=1, the default. The same seed on the same files in runs/fuzz draws the same.
#
# Needs clang with libFuzzer (Debian: apt install clang). Without it the blind mutations of dev/fuzz/drive.c take its
# place, with gcc's sanitizers: the same checks, fewer paths. Inputs that reach new lines are kept in runs/fuzz/TARGET,
# and the next run starts from them. An input that crashes or hangs is written to runs/fuzz/crash-TARGET-...; run it
# again with: build/fuzz/TARGET FILE. Exit status 0: nothing was found.
set -u
export LC_ALL=C # awk and bash write 0.5, not 0,5
TIMEFORMAT='%U %S'
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build} runs=${FUZZ_RUNS:-10000} seconds=${FUZZ_SECONDS:-0} failed=0
fuzzer=$build/fuzzer untraced=
[ "${FUZZ_CMP:-1}" != 0 ] || { fuzzer=$build/fuzzer_untraced && untraced=-fno-sanitize-coverage=trace-cmp; }

all=$(sed -n 's/^FUZZ(\([a-z0-9_]*\),.*/\1/p' dev/fuzz/*.c | grep -vx guard)
targets=("$@")
[ $# != 0 ] || mapfile -t targets <<<"$all"
for name in "${targets[@]}"; do
    grep -qx "$name" <<<"$all" && continue
    echo "error: scripts/fuzz.sh: no target $name (they are in dev/fuzz)" >&2
    exit 1
done

clang=$(for c in clang clang-20 clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do command -v "$c" && break; done)
probe=$(mktemp -d "${TMPDIR:-/tmp}/fuzz.XXXXXX") || exit 1
trap 'rm -rf "$probe"' EXIT
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d + !n; }' >"$probe/probe.c"
if [ -n "$clang" ] && "$clang" -fsanitize=fuzzer,address -fopenmp "$probe/probe.c" -o "$probe/probe" 2>"$probe/log"; then
    libfuzzer=1
    flags=(B="$fuzzer" CC="$clang" FUZZ_DRIVER=-fsanitize=fuzzer EXTRA_CFLAGS="-O1 -fno-omit-frame-pointer \
        -fsanitize=fuzzer-no-link,address,undefined $untraced -fno-sanitize-recover=undefined")
else
    libfuzzer=0
    echo "no clang with libFuzzer here (Debian: apt install clang): blind mutations under gcc's sanitizers instead"
    flags=(B="$fuzzer" EXTRA_CFLAGS='-O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined')
fi
# The plain programs write the seeds, and run a crash again.
make --no-print-directory "${targets[@]/#/$build/fuzz/}" || exit 1
make --no-print-directory WERROR= "${flags[@]}" "${targets[@]/#/$fuzzer/fuzz/}" || exit 1

# The guard checks that accepted inputs leave no memory; LSan must not count what a jump out of a parser leaves.
export OMP_NUM_THREADS=1
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0
mkdir -p runs/fuzz
for name in "${targets[@]}"; do
    if [ $libfuzzer = 0 ]; then
        limit=(env)
        [ "$seconds" = 0 ] || { limit=(timeout "$seconds") && runs=1000000000; }
        "${limit[@]}" "$fuzzer/fuzz/$name" -runs="$runs"
        status=$?
        [ $status = 124 ] && echo "$name: nothing found in $seconds seconds" # of timeout
        [ $status = 0 ] || [ $status = 124 ] || failed=1
        [ ! -f "crash-$name" ] || mv "crash-$name" runs/fuzz/
        continue
    fi
    mkdir -p "runs/fuzz/$name" "$probe/seeds/$name"
    "$build/fuzz/$name" -seeds="$probe/seeds/$name" || exit 1
    limit=(-runs="$runs")
    [ "$seconds" = 0 ] || limit=(-max_total_time="$seconds")
    # The rate is per second of processor time: it does not depend on what else the machine does.
    if { time "$fuzzer/fuzz/$name" "${limit[@]}" -seed="${FUZZ_SEED:-1}" -timeout=300 -rss_limit_mb=2048 -max_len=16384 -detect_leaks=0 \
        -print_final_stats=1 -artifact_prefix="runs/fuzz/crash-$name-" "runs/fuzz/$name" "$probe/seeds/$name" >"$probe/$name.log" 2>&1
    } 2>"$probe/time"; then
        word=ok
    else
        [ $? = 72 ] && word=ended || word=FOUND # 72: by a signal from outside
        failed=1
    fi
    awk -v name="$name" -v word=$word -v seconds="$(cat "$probe/time")" '
        /^stat::number_of_executed_units/ { n = $2 }
        match($0, /cov: [0-9]+/) { cov = substr($0, RSTART + 5, RLENGTH - 5) }
        END {
            split(seconds, s, " ")
            printf "%-6s %-16s %9d inputs, %6d a second, %5d edges\n", word, name, n, n / (s[1] + s[2] + 0.001), cov
        }' "$probe/$name.log"
    [ $word = ok ] || tail -n 60 "$probe/$name.log" | sed 's/^/      | /'
done
exit $failed
