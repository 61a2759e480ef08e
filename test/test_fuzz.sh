#!/bin/bash
# test/test_fuzz.sh: every parser of dev/fuzz gets its seeds and 300 inputs made of them (FUZZ_RUNS): no crash, no leak,
# bounded memory, an error in one line. Also: the guard sees what it should.
# deeper: 1000 inputs
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build} runs=${FUZZ_RUNS:-${TEST_LONG:+1000}} failed=0
runs=${runs:-300}
programs=$(cd "$BUILD" && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/fuzz.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1

# What the guard must see: leaks, too much memory at once and step by step, a file or a mapping left open, a wrong status, two
# lines, a control character, no line, no end, a refusal where none is allowed, a broken check, a crash.
seen=''
for letter in l m g f a e 2 t q s w c z; do
    printf %s "$letter" >"$tmp/input"
    { (cd "$tmp" && TMPDIR=$tmp timeout 600 "$programs/fuzz/guard" input) >"$tmp/log" 2>&1 && seen="$seen $letter"; } 2>/dev/null
done
for letter in k d; do
    printf %s "$letter" >"$tmp/input"
    (cd "$tmp" && TMPDIR=$tmp "$programs/fuzz/guard" input input) >"$tmp/log" 2>&1 || seen="$seen $letter"
done
if [ -z "$seen" ]; then echo 'ok the guard sees what it must'
else
    echo 'not ok the guard sees what it must'
    echo "  wrong:$seen"
    failed=1
fi

for name in $(sed -n 's/^FUZZ(\([a-z0-9_]*\),.*/\1/p' dev/fuzz/*.c | grep -vx guard); do
    if timeout 600 "$programs/fuzz/$name" -runs="$runs" >"$tmp/log" 2>&1 &&
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
