#!/bin/bash
# test/mutate.sh: seeds known bugs, one at a time, and sees that the tests notice. (`make mutate`)
#
# A bug is one file test/mutations/NAME.patch: a unified diff, and in front of it three lines
#
#   bug: what it is, in a line
#   seen: where it really happened
#   tests: test_model test_train.sh        the tests that should fail, as they are called in test/
#
# The tree is copied (tracked files and new ones) and built, and all named tests must pass there: a test that fails
# anyway proves nothing. Then each patch goes into a copy of that copy, which is built, and its tests run until one
# fails. Verdicts: caught; SURVIVED when all pass; BROKEN when the patch does not apply without fuzz, names no test,
# or does not build, because a bug that is not there cannot be caught. A test that runs past MUTATE_TIMEOUT seconds
# (300) has failed. A run of all patches leaves its table in runs/mutate.md.
#
# usage: test/mutate.sh [--check] [NAME...]    NAME: the beginning of a patch's name, M03 or M03_equal; none: all
#        --check: only look whether the patches are well-formed and still apply; "ok NAME" or "not ok NAME" for each
# JOBS mutations run at a time (default: one a core). The exit status is 0 only when there were some and all were
# caught.
# shellcheck disable=SC2046,SC2086 # lists of words are meant to be split
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
tree=$PWD limit=${MUTATE_TIMEOUT:-300} jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)} check=
unset MAKEFLAGS MAKELEVEL BUILD
work=$(mktemp -d "${TMPDIR:-/tmp}/mutate.XXXXXX") || exit 1
trap 'jobs -p | xargs -r kill 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

stop() {
    echo "error: $*" >&2
    exit 1
}

name_of() { basename "$1" .patch; }
field() { sed -n "/^--- /q; s/^$2: *//p" "$1"; } # PATCH KEY
files_of() { sed -n 's/^+++ b\/\([^\t]*\).*/\1/p' "$1" | paste -sd ' '; }
apply() { patch -p1 --force --fuzz=0 "$@"; }

copy_tree() { # DIRECTORY
    mkdir -p "$1" || return 1
    if [ -e .git ] && command -v git >/dev/null; then
        git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
            if [ -e "$file" ]; then printf '%s\0' "$file"; fi # a deleted one is listed until the next commit
        done | tar --null -T - -cf -
    else
        tar --exclude=./build --exclude=./runs -cf - .
    fi | tar -C "$1" -xf -
}

# The lines in front of the diff are there, the tests exist, and the diff fits the tree. Says what is wrong.
inspect() { # PATCH
    local key test
    for key in bug seen tests; do
        [ -n "$(field "$1" $key)" ] || { echo "no line \"$key: ...\" before the diff"; return 1; }
    done
    for test in $(field "$1" tests); do
        [ -f "test/$test" ] || [ -f "test/$test.c" ] || { echo "no such test: $test"; return 1; }
    done
    [ -n "$(files_of "$1")" ] || { echo 'no diff (--- a/FILE, +++ b/FILE)'; return 1; }
    apply --dry-run <"$1" 2>&1 && return 0
    echo 'the patch does not apply any more: renew it'
    return 1
}

# What make has to build for some tests. Scripts, and tests that run our programs, need those too.
targets() { # TEST...
    local test
    for test; do
        case $test in
        *.sh) echo all && [ -f test/test_schema.c ] && echo build/test/test_schema
              [ -f "test/${test%.sh}.c" ] && echo "build/test/${test%.sh}" ;; # goes by the same name
        test_comm | test_cp) echo "build/test/$test" "build/test/mpi_${test#test_}" all ;; # so do test_comm.sh, test_cp.sh
        *) echo "build/test/$test" && grep -q '"program.h"' "test/$test.c" && echo all
           [ -f "test/$test.sh" ] && echo all build/test/test_schema ;;
        esac
    done | sort -u
}

# Runs one test up to its first failure. Prints what failed and returns 0 when something did.
fails() { # TEST LOG
    local program=build/test/$1 mark='^not ok \|^\[  FAILED  \] ' what status
    case $1 in *.sh) program=test/$1 ;; esac
    { timeout -k 10 "$limit" "$program" >"$2" 2>&1 </dev/null & } 2>/dev/null
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if grep -q "$mark" "$2"; then kill $pid 2>/dev/null; break; fi
        sleep 0.05
    done
    { wait $pid; } 2>/dev/null
    status=$?
    what=$(grep -m 1 "$mark" "$2" | sed "s/$mark//")
    [ -z "$what" ] && [ $status = 0 ] && return 1
    [ -z "$what" ] && [ $status = 124 ] && what="stopped after $limit s"
    echo "$1: ${what:-exit status $status}"
}

# One mutation, in a directory of its own: its verdict, and a line about it.
mutate() { # PATCH
    local name dir test tests what verdict=SURVIVED by='' began=$SECONDS pid=
    name=$(name_of "$1") dir=$work/$(name_of "$1") tests=$(field "$1" tests)
    trap '[ -z "$pid" ] || kill $pid 2>/dev/null; exit 130' TERM
    cp -a "$work/base" "$dir" && cd "$dir" || exit 1
    if ! inspect "$1" >"$dir.log" 2>&1; then verdict=BROKEN by=$(tail -n 1 "$dir.log")
    elif ! apply <"$1" >"$dir.log" 2>&1; then verdict=BROKEN by='the patch does not apply'
    elif ! make -j1 $(targets $tests) >"$dir.log" 2>&1; then verdict=BROKEN by='does not build'
    else
        for test in $tests; do
            fails "$test" "$dir.log" >"$dir.what" || continue
            verdict=caught by=$(cat "$dir.what")
            break
        done
    fi
    cd "$tree" && rm -rf "$dir"
    printf '%-8s  %-32s %-22s %4d s  %s\n' "$verdict" "$name" "$(files_of "$1")" $((SECONDS - began)) "${by:-$tests}"
    [ $verdict = BROKEN ] && sed 's/^/          | /' "$dir.log" | tail -n 20
    echo "$verdict" >"$dir.verdict"
    echo "| $name | $(field "$1" bug) | $(field "$1" seen) | $(files_of "$1") | ${by:-**survived**} |" >"$dir.row"
}

select_patches() { # NAME...
    local name found
    [ $# = 0 ] && set -- ''
    for name; do
        found=$(compgen -G "test/mutations/$name*.patch") || stop "test/mutate.sh: no patch called $name*"
        echo "$found"
    done | sort -u
}

[ "${1:-}" = --check ] && check=1 && shift
command -v patch >/dev/null || stop 'test/mutate.sh: patch: not found (install it: apt install patch)'
patches=$(select_patches "$@") || exit 1

if [ $check ]; then
    status=0
    for patch in $patches; do
        if inspect "$patch" >"$work/log" 2>&1; then echo "ok $(name_of "$patch") applies"
        else
            echo "not ok $(name_of "$patch") applies"
            sed 's/^/  /' "$work/log"
            status=1
        fi
    done
    exit $status
fi

# ---- the copy without a bug: builds, and passes all that is going to be asked
tests=$(for patch in $patches; do field "$patch" tests; done | tr ' ' '\n' | sort -u)
copy_tree "$work/base" || stop 'test/mutate.sh: the tree cannot be copied'
cd "$work/base" || exit 1
if ! make $(targets $tests) >"$work/log" 2>&1; then
    tail -n 40 "$work/log"
    stop 'test/mutate.sh: the tree itself does not build'
fi
if ! TEST_TIMEOUT=$limit test/run.sh $(for test in $tests; do basename "$test" .sh; done) >"$work/log" 2>&1; then
    grep -E '^FAIL|\| (not ok|ERROR|\[  FAILED)|passed, ' "$work/log"
    stop 'test/mutate.sh: without any bug these tests must pass'
fi
cd "$tree" || exit 1
echo "without a bug: $(tail -n 1 "$work/log")"

# ---- and each with one
for patch in $patches; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    mutate "$tree/$patch" &
done
wait
count() { cat "$work"/*.verdict 2>/dev/null | grep -c "^$1$"; }
caught=$(count caught) survived=$(count SURVIVED) all=$(echo "$patches" | wc -l)
if [ $# = 0 ]; then
    mkdir -p runs && {
        printf '%s\n' '| mutation | the bug | seen in | file | caught by |' '|---|---|---|---|---|'
        cat "$work"/*.row
    } >runs/mutate.md
fi
echo "$caught caught, $survived survived, $((all - caught - survived)) broken"
[ "$caught" = "$all" ]
