#!/bin/bash
# test/mutate.sh: seeds known bugs, one at a time, and sees that the tests notice. (`make mutate`)
#
# The bugs are stanzas of test/mutations/*.txt, with a blank line after each:
#
#   bug NAME: what it is, in a line
#   seen: where it really happened; without this line it is a common slip
#   tests: test_model test_train.sh        the tests that should fail, as they are called in test/
#   names: attention_forward               the op that numerics.check blames; only where test_train_gpu.sh asks
#   file: src/model_run.c
#     a line that stays
#   - a line that is taken out
#   + a line that is put in
#
# The lines that stay and those that are taken out form a text, which must occur in the file exactly once. White space
# at the beginning of its lines does not count, and what is put in is indented as the text is. A blank line and a second
# text may follow, and a second `file:` with its texts. mutate.awk reads the tables.
#
# The tree is copied (tracked files and new ones) and built, and all named tests must pass there: a test that fails
# anyway proves nothing. Then each bug goes into a copy of that copy, which is built, and its tests run until one fails.
# Verdicts: caught; SURVIVED when all pass; BROKEN when a text does not occur exactly once, no test is named, or the
# copy does not build, because a bug that is not there cannot be caught. A test that runs past MUTATE_TIMEOUT seconds
# (900) has failed. A run of all bugs leaves its table in runs/mutate.md.
#
# usage: test/mutate.sh [--check | --renew | --list] [NAME...]    NAME: the beginning of a name, M03 or M03_equal;
#                                                                 none: all
#        --check: only look whether the bugs are well-formed and apply; "ok NAME" or "not ok NAME" for each
#        --renew: where a text is gone from its file and exactly one other file has it, writes that file into the table;
#                 then as --check
#        --list:  name, file, tests, bug, seen, names, with tabs between; "-" for what the table does not say
# usage: test/mutate.sh --apply NAME [DIRECTORY]    put the bug NAME into this tree, or into the files of another
# JOBS mutations run at a time (default: one a core). The exit status is 0 only when there were some and all were
# caught.
# shellcheck disable=SC2046,SC2086 # lists of words are meant to be split
set -u -o pipefail
here=$PWD
cd "$(dirname "$0")/.." || exit 1
tree=$PWD limit=${MUTATE_TIMEOUT:-900} jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
unset MAKEFLAGS MAKELEVEL BUILD
export OMP_WAIT_POLICY=passive # as test/run.sh
export TEST_LONG=1 # a bug that the short form of a test does not catch may be caught by the deeper one
work=$(mktemp -d "${TMPDIR:-/tmp}/mutate.XXXXXX") || exit 1
trap 'jobs -p | xargs -r kill 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

stop() {
    echo "error: $*" >&2
    exit 1
}

tables=("$tree"/test/mutations/*.txt)
table() { awk -v mode="$1" -f "$tree/test/mutate.awk" "${@:2}" "${tables[@]}"; } # MODE [-v ...]
list() { table list -v pick="$*" | LC_ALL=C sort; }                              # NAME...
put() { table apply -v exact=1 -v pick="$1" -v root="${2:+$2/}"; }               # NAME [DIRECTORY]

tree_files() { # the files of the tree, tracked and new, with a zero byte after each
    if [ -e .git ] && command -v git >/dev/null; then
        git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
            if [ -e "$file" ]; then printf '%s\0' "$file"; fi # a deleted one is listed until the next commit
        done
    else
        find . -path ./build -prune -o -path ./runs -prune -o ! -type d -printf '%P\0'
    fi
}
copy_tree() { # DIRECTORY
    mkdir -p "$1" && tree_files | tar --null -T - -cf - | tar -C "$1" -xf -
}

# What make has to build for some tests. Scripts, and tests that run our programs, need those too.
targets() { # TEST...
    local test
    for test; do
        case $test in
        test_layouts.sh) echo build/test/layouts build/stories build/prepare build/show pipeline ;;
        *.sh) echo all && [ -f test/test_schema.c ] && echo build/test/test_schema
              [ -f "test/${test%.sh}.c" ] && echo "build/test/${test%.sh}" # has the same name
              test=${test%.sh} && [ -f "test/mpi_${test#test_}.c" ] && echo "build/test/mpi_${test#test_}" ;;
        test_comm | test_cp) echo "build/test/$test" "build/test/mpi_${test#test_}" all ;; # a script has the same name
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

deeper() { # TEST: whether TEST_LONG may make it do more, which a script need not say
    [ "$1" != "${1%.sh}" ] || sed -n '2,25p' "test/$1.c" | grep -q '^// deeper:'
}

# One mutation, in a directory of its own: its verdict, and a line about it.
mutate() { # NAME FILE TESTS BUG SEEN
    local name=$1 dir=$work/$1 tests=$3 test verdict=SURVIVED by='' began=$SECONDS pid=
    trap '[ -z "$pid" ] || kill $pid 2>/dev/null; exit 130' TERM
    cp -a "$work/base" "$dir" && cd "$dir" || exit 1
    if ! put "$name" >"$dir.log" 2>&1; then verdict=BROKEN by=$(head -n 1 "$dir.log")
    elif ! make -j1 $(targets $tests) >"$dir.log" 2>&1; then verdict=BROKEN by='does not build'
    else
        for test in $tests; do
            TEST_LONG='' fails "$test" "$dir.log" >"$dir.what" ||
                { deeper "$test" && fails "$test" "$dir.log" >"$dir.what"; } || continue
            verdict=caught by=$(cat "$dir.what")
            break
        done
    fi
    cd "$tree" && rm -rf "$dir"
    printf '%-8s  %-32s %-22s %4d s  %s\n' "$verdict" "$name" "$2" $((SECONDS - began)) "${by:-$tests}"
    [ $verdict = BROKEN ] && sed 's/^/          | /' "$dir.log" | tail -n 20
    echo "$verdict" >"$dir.verdict"
    echo "| $name | $4 | $5 | $2 | ${by:-**survived**} |" >"$dir.row"
}

option=
case ${1:-} in
--check | --renew | --list | --apply) option=${1#--} && shift ;;
--*) stop "test/mutate.sh: $1: no such option" ;;
esac
case $option in
apply)
    [ $# -ge 1 ] || stop 'test/mutate.sh: --apply: which bug?'
    put "$1" "${2:+$(cd "$here" && cd "$2" && pwd)}"
    exit ;;
list)
    list "$@"
    exit ;;
check | renew)
    tree_files | tr '\0' '\n' | grep -E '[.](c|h|cu|cuh|cc|sh|py|awk)$' | grep -v '^test/' >"$work/sources"
    table $option -v pick="$*" -v sources="$work/sources"
    exit ;;
esac
bugs=$(list "$@") || exit 1

# ---- the copy without a bug: builds, and passes all that is going to be asked
tests=$(cut -f 3 <<<"$bugs" | tr ' ' '\n' | sort -u | while read -r test; do
    if [ -f "test/$test" ] || [ -f "test/$test.c" ]; then echo "$test"; fi # a bug that names another one is BROKEN
done)
[ -n "$tests" ] || stop 'test/mutate.sh: no tests are named'
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
while IFS=$'\t' read -r name file tests bug seen _; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    mutate "$name" "$file" "$tests" "$bug" "$seen" &
done <<<"$bugs"
wait
count() { cat "$work"/*.verdict 2>/dev/null | grep -c "^$1$"; }
caught=$(count caught) survived=$(count SURVIVED) all=$(wc -l <<<"$bugs")
if [ $# = 0 ]; then
    mkdir -p runs && {
        printf '%s\n' '| mutation | the bug | seen in | file | caught by |' '|---|---|---|---|---|'
        cat "$work"/*.row
    } >runs/mutate.md
fi
echo "$caught caught, $survived survived, $((all - caught - survived)) broken"
[ "$caught" = "$all" ]
