#!/bin/bash
# test/test_help.sh: every program prints its help on request, says in one line what is wrong with a bad command line,
# and fails when its output cannot be written.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/help.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 n=0

ask() { # COMMAND...: sets status; what it says is in $work/out and $work/err
    status=0
    timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
}
helps() { # PROGRAM [PART]
    local word
    for word in --help -h; do
        ask "$@" $word
        [ $status = 0 ] && [ ! -s "$work/err" ] && head -n 1 "$work/out" | grep -q "^usage: .*${1##*/}${2:+ $2}" || return 1
        [ "$(wc -l <"$work/out")" -ge 2 ] || return 1
    done
}
refuses() { # PROGRAM [PART]: a word that is no option
    ask "$@" --nonsense
    [ $status = 2 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q '^error: ' "$work/err"
}
misses_its_output() { # PROGRAM [PART]
    status=0
    timeout 60 "$@" --help >/dev/full 2>"$work/err" </dev/null || status=$?
    [ $status = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q '^error: standard output: ' "$work/err"
}

checked() { # PROGRAM [PART]
    n=$((n + 1))
    for what in helps refuses misses_its_output; do
        if $what "$@"; then continue; fi
        echo "not ok ${*##*/} $what"
        head -n 5 "$work/out" "$work/err" | sed 's/^/  /'
        failed=1
    done
}
for source in train.c data/*.c dev/*.c; do checked "$BUILD/$(basename "$source" .c)"; done
for source in dev/show/show_*.c data/commands/prepare_*.c; do
    name=$(basename "$source" .c)
    checked "$BUILD/${name%%_*}" "${name#*_}"
done
checked "$BUILD/grades"
"$BUILD/zero" holds >"$work/out" 2>&1
[ $? = 2 ] && [ "$(cat "$work/out")" = "error: zero: it is a command of another program now: $BUILD/show zero holds" ] || { echo 'not ok an earlier name'; failed=1; }
launcher=$(command -v mpiexec.hydra || command -v mpiexec)
if ! "$launcher" -n 2 "$BUILD/train" --help >"$work/out" 2>"$work/err" </dev/null || [ -s "$work/err" ]; then
    echo 'not ok ranks that are asked for help'
    sed 's/^/  /' "$work/err"
    failed=1
fi
[ $n -ge 20 ] || { echo "not ok there are programs: $n"; exit 1; }
[ $failed = 1 ] || echo "ok $n programs"
exit $failed
