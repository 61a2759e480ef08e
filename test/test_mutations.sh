#!/bin/bash
# test/test_mutations.sh: every patch of test/mutations still fits the tree, and test/mutate.sh tells caught from
# survived from broken. The second part runs it on a project of one file and one test, in a directory of its own.
# (Whether the mutations are caught is `make mutate`, which builds the tree once per mutation.)
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/mutations.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0
unset MAKEFLAGS MAKELEVEL

test/mutate.sh --check || failed=1

# ---- a small project: answer() in src/answer.sh, and a test of it
mkdir -p "$work/tree/src" "$work/tree/test/mutations"
cp test/mutate.sh test/run.sh "$work/tree/test/"
printf 'all: ; @sh -n src/answer.sh && mkdir -p build\n' >"$work/tree/Makefile"
printf '%s\n' '# What is asked for.' 'answer() {' '    echo 42' '}' >"$work/tree/src/answer.sh"
cat >"$work/tree/test/test_answer.sh" <<'END'
#!/bin/sh
cd "$(dirname "$0")/.." && . src/answer.sh
if [ "$(answer)" = 42 ]; then echo 'ok the answer'; else echo 'not ok the answer'; fi
END
chmod +x "$work/tree/test/test_answer.sh"

patch_of() { # NAME LINE OLD NEW: a mutation of one line
    printf '%s\n' "bug: $1" 'seen: here' 'tests: test_answer.sh' '' '--- a/src/answer.sh' '+++ b/src/answer.sh' \
        "@@ -$2 +$2 @@" "-$3" "+$4" >"$work/tree/test/mutations/$1.patch"
}

# gives NAME VERDICT DETAIL STATUS: what the runner says about the patches NAME*
gives() {
    local status=0
    MUTATE_TIMEOUT=2 "$work/tree/test/mutate.sh" "$1" >"$work/log" 2>&1 || status=$?
    if grep -q "^$2 *$1 .*$3" "$work/log" && [ $status = "$4" ]; then
        echo "ok the runner: $1: $2"
    else
        echo "not ok the runner: $1: $2"
        sed "s/^/  status $status: /" "$work/log"
        failed=1
    fi
}

patch_of wrong 3 '    echo 42' '    echo 41'
patch_of hangs 3 '    echo 42' '    sleep 30'
patch_of comment 1 '# What is asked for.' '# What was asked for.'
patch_of syntax 2 'answer() {' 'answer( {'
patch_of rotten 3 '    echo 43' '    echo 41'
gives wrong caught 'test_answer.sh: the answer' 0
gives hangs caught 'test_answer.sh: stopped after 2 s' 0
gives comment SURVIVED test_answer.sh 1
gives syntax BROKEN 'does not build' 1
gives rotten BROKEN 'does not apply' 1

# All together: the counts, and the table of a whole run.
MUTATE_TIMEOUT=2 "$work/tree/test/mutate.sh" >"$work/log" 2>&1 && failed=1
if [ "$(tail -n 1 "$work/log")" = '2 caught, 1 survived, 2 broken' ] &&
    [ "$(grep -c '^| [a-z]* | [a-z]* | here | src/answer.sh |' "$work/tree/runs/mutate.md")" = 5 ]; then
    echo 'ok the runner: counts and table'
else
    echo 'not ok the runner: counts and table'
    sed 's/^/  /' "$work/log"
    failed=1
fi

# --check finds a patch that has rotted, and one without its lines; a project whose test fails anyway proves nothing.
sed -i /^tests:/d "$work/tree/test/mutations/wrong.patch"
"$work/tree/test/mutate.sh" --check >"$work/log" 2>&1
if grep -q '^not ok rotten applies' "$work/log" && grep -q '^not ok wrong applies' "$work/log" &&
    [ "$(grep -c '^ok ' "$work/log")" = 3 ]; then
    echo 'ok the check finds what has rotted'
else
    echo 'not ok the check finds what has rotted'
    sed 's/^/  /' "$work/log"
    failed=1
fi
sed -i 's/42/40/' "$work/tree/src/answer.sh"
patch_of comment 1 '# What is asked for.' '# What was asked for.'
if "$work/tree/test/mutate.sh" comment >"$work/log" 2>&1 || ! grep -q 'without any bug' "$work/log"; then
    echo 'not ok the runner: a test that fails anyway'
    sed 's/^/  /' "$work/log"
    failed=1
else
    echo 'ok the runner: a test that fails anyway'
fi
exit $failed
