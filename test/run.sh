#!/bin/bash
# test/run.sh: runs every test and counts. One line a program, with its seconds by the clock and of processors; the
# whole output of what failed; last line "N passed, N failed".
#
# Programs: $BUILD/test/test_* (cmocka; BUILD is build unless set), built by `make test`. Scripts:
# test/check_headers.sh and test/test_*.sh, which print a line "ok NAME", "not ok NAME" or "skip NAME" per
# test. All run from the repository root, JOBS at a time (default: one a core), scripts first, for they are longer. A
# program that crashes, runs past TEST_TIMEOUT seconds (900), ends without running its tests, or leaves a file in its
# own TMPDIR counts as one failed test more. The exit status is 0 only when something ran and nothing failed.
#
# A script with a line "# long: ..." in its head runs only with --long, or when it is named; one with "# deeper: ..." does
# more where TEST_LONG is set. --long sets it, and runs the scripts of both kinds. --units: the programs alone. A line
# "# limit: N s" gives a script more time, or less.
#
# usage: test/run.sh [--long | --units] [NAME...]     NAME: test_rng, check_headers, ...; none: all
set -u
cd "$(dirname "$0")/.." || exit 1
export BUILD=${BUILD:-build}
# Waiting threads sleep: where several programs share the cores, threads that spin would keep them from those that work,
# and a test of a second would take a minute.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
# shellcheck source=test/lsan.sh
. test/lsan.sh
export OPENBLAS_NUM_THREADS=1 # as programs set it, which restarts them (dev_cpu.c)
limit=${TEST_TIMEOUT:-900} jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
out=$(mktemp -d "${TMPDIR:-/tmp}/tests.XXXXXX") || exit 1
trap 'jobs -rp | xargs -r kill 2>/dev/null; wait; rm -rf "$out"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0 begun=0
long='' units=''
[ "${1:-}" = --long ] && { long=1; shift; export TEST_LONG=1; }
[ "${1:-}" = --units ] && { units=1; shift; }

# The sum of the numbers in lines like "[  PASSED  ] 3 test(s)." of one cmocka program (it may run several
# groups).
cmocka_sum() {
    awk -v mark="$1" 'index($0, mark) == 1 && match($0, /[0-9]+ test\(s\)/) { n += substr($0, RSTART) } END { print n + 0 }' "$2"
}

count_cmocka() { # LOG: sets p f s and total (the tests announced)
    p=$(cmocka_sum '[  PASSED  ]' "$1") f=$(cmocka_sum '[  FAILED  ]' "$1") s=$(cmocka_sum '[  SKIPPED ]' "$1")
    total=$(cmocka_sum '[==========] Running' "$1")
}

count_script() {
    p=$(grep -c '^ok ' "$1") f=$(grep -c '^not ok ' "$1") s=$(grep -c '^skip ' "$1")
    total=$((p + f + s))
}

cpu_seconds() { # FILE: what `times` wrote; of the processes that this shell started
    awk 'NR == 2 { gsub(/[ms]/, " "); $0 = $0; printf "%.1f", 60 * ($1 + $3) + $2 + $4 }' "$1"
}

run_one() { # PROGRAM KIND: writes its lines, and into the file "count" how many passed, failed and were skipped
    local name log=$work/log status began=$SECONDS why='' own p f s total limit=$limit
    name=$(basename "$1" .sh)
    mkdir "$work/tmp"
    [ "$2" = script ] && own=$(sed -n '2,25s/^# limit: \([0-9]*\) s.*/\1/p' "$1") && [ -n "$own" ] && limit=$own
    { TMPDIR=$work/tmp timeout -k 10 "$limit" "$1" >"$log" 2>&1 </dev/null; } 2>/dev/null # not the shell's own "Aborted"
    status=$?
    times >"$work/times"
    "count_$2" "$log"
    if [ $status = 124 ] || [ $status = 137 ]; then why="stopped after $limit s"
    elif [ $status != 0 ] && [ "$f" = 0 ]; then why="exit status $status"
    elif [ $((p + f + s)) = 0 ]; then why='ran no test'
    elif [ $((p + f + s)) != "$total" ]; then why="ran $((p + f + s)) of $total tests"
    elif [ "$f" = 0 ] && [ -n "$(ls -A "$work/tmp")" ]; then why="left behind: $(ls -A "$work/tmp" | paste -sd ' ')"
    fi
    [ -n "$why" ] && f=$((f + 1))
    echo "$p $f $s" >"$work/count"
    if [ "$f" = 0 ]; then
        printf 'ok    %-28s %4d passed%s %5d s %7s s of processors\n' "$name" "$p" \
            "$([ "$s" = 0 ] || printf ', %d skipped' "$s")" $((SECONDS - began)) "$(cpu_seconds "$work/times")"
        grep '^warn ' "$log"
    else
        printf 'FAIL  %-28s %4d passed, %d failed%s\n' "$name" "$p" "$f" "${why:+ ($why)}"
        # For a script that ran to its end, print only the failures: "not ok" and the indented lines under it.
        if [ "$2" = script ] && [ -z "$why" ]; then awk '/^not ok/ { show = 1 } /^(ok|skip|warn) / { show = 0 } show' "$log"
        else cat "$log"
        fi | sed 's/^/      | /' | tail -n 400
    fi
}

# Prints and counts what has ended since the last call.
collect() {
    local done p f s
    for done in "$out"/*/done; do
        [ -f "$done" ] || continue
        cat "$done"
        read -r p f s <"${done%done}count"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        rm -r "${done%/done}"
    done
}

start() { # PROGRAM KIND
    if [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; then wait -n; fi
    collect
    work=$out/$((++begun))
    mkdir "$work"
    (
        trap - EXIT
        run_one "$@" >"$work/said"
        mv "$work/said" "$work/done"
    ) &
}

wanted() { # NAME [NAME...]: is the first among the others, or are there no others?
    local name=$1 other
    shift
    [ $# = 0 ] && return 0
    for other; do [ "$name" = "$other" ] && return 0; done
    return 1
}

[ $# = 0 ] || for name; do
    [ -f "test/$name.c" ] || [ -f "test/$name.sh" ] && continue
    echo "error: test/run.sh: no such test: $name (they are in test/)" >&2
    exit 1
done
# Whether a script belongs to this run: one of those that were named, or of its kind.
chosen() { # SCRIPT [NAME...]
    local kind
    [ -z "$units" ] || return 1
    [ $# = 1 ] || { wanted "$(basename "$1" .sh)" "${@:2}"; return; }
    kind=$(sed -n '2,25s/^# \(long\|deeper\):.*/\1/p' "$1" | head -n 1)
    if [ -n "$long" ]; then [ -n "$kind" ]; else [ "$kind" != long ]; fi
}
for script in test/check_headers.sh test/test_*.sh; do
    [ -f "$script" ] && chosen "$script" "$@" && start "$script" script
done
for source in test/test_*.c; do
    [ -f "$source" ] || continue
    name=$(basename "$source" .c)
    if [ $# = 0 ]; then [ -z "$long" ] || continue; else wanted "$name" "$@" || continue; fi
    if [ -x "$BUILD/test/$name" ]; then start "$BUILD/test/$name" cmocka
    else
        echo "FAIL  $name: $BUILD/test/$name is not built (run make test)"
        failed=$((failed + 1))
    fi
done
wait
collect

[ $((passed + failed)) = 0 ] && echo 'no test was run'
[ $skipped != 0 ] && echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
