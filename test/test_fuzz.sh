#!/bin/bash
# test/test_fuzz.sh: every parser of dev/fuzz gets its seeds and a few thousand inputs made of them: no crash, no leak,
# bounded memory, an error in one line. Also: what the guard is to see, it sees.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build} runs=${FUZZ_RUNS:-2000} failed=0
programs=$(cd "$BUILD" && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/fuzz.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1

for file in dev/fuzz/*.c; do
    name=$(basename "$file" .c)
    case $name in fuzz | drive) continue ;; esac
    if timeout 120 "$programs/fuzz/$name" -runs="$runs" >"$tmp/log" 2>&1 &&
        grep -q ' [1-9][0-9]* taken' "$tmp/log"; then
        echo "ok fuzz $name"
        sed 's/^/  /' "$tmp/log"
    else
        echo "not ok fuzz $name"
        tail -n 40 "$tmp/log" | sed 's/^/  /'
        failed=1
    fi
    rm -f "crash-$name"
done
exit $failed
