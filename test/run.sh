#!/bin/bash
# test/run.sh: runs every test and counts. One line a program, with its seconds by the clock and of processors; the
# whole output of what failed; last line "N passed, N failed".
#
# Programs: $BUILD/test/test_* (cmocka; BUILD is build unless set), built by `make test`. Scripts: test/check_headers.sh
# and test/test_*.sh, which print a line "ok NAME", "not ok NAME" or "skip NAME (WHY)" per test. All run from the
# repository root, JOBS at a time (default: one a core), scripts first, for they are longer. A program that crashes, runs
# past TEST_TIMEOUT seconds (900), ends without running its tests, or leaves a file in its own TMPDIR counts as one
# failed test more. The exit status is 0 only when something ran and nothing failed.
#
# Lines in a script's head: "# circle: NAME" (docs, course, hosts) takes it out of `make test` and `make test-long`; "# long:
# WHY" out of what runs without --long; "# deeper: WHAT" ("// deeper: WHAT" in a program's head) says that it does more
# where TEST_LONG is set; "# limit: N s" gives it more time, or less. test/README.md has what each circle proves and costs.
#
# usage: test/run.sh [OPTION...] [NAME...]     NAME: test_base, check_headers, ...; none: all of the chosen circle
#   --long           with TEST_LONG; without names: the scripts and programs with "long" or "deeper" in their heads
#   --circle NAME    the scripts of that circle; --long --circle NAME: in all their depth
#   --units          the programs alone
#   --list           prints the names, and runs nothing
#   --seconds N      starts no test after that; says which it did not start, and leaves them uncounted
#   --built FILE     what `times` wrote after the build: its processors' seconds are added to the last lines
#   --steady N       N rounds of the tests, each under one of five conditions in turn: test/steady.sh
set -u
cd "$(dirname "$0")/.." || exit 1
export BUILD=${BUILD:-build}
long='' units='' circle='' list='' until='' built=''
while [ $# != 0 ]; do
    case $1 in
    --long) long=1; export TEST_LONG=1 ;;
    --circle) circle=${2:?--circle NAME}; shift ;;
    --units) units=1 ;;
    --list) list=1 ;;
    --seconds) until=${2:?--seconds N}; shift ;;
    --built) built=${2:?--built FILE}; shift ;;
    --steady) shift; exec test/steady.sh "$@" ;;
    -*) echo "error: test/run.sh: no such option: $1" >&2; exit 1 ;;
    *) break ;;
    esac
    shift
done
# Waiting threads sleep: where several programs share the cores, threads that spin would keep them from those that work,
# and a test of a second would take a minute.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
# shellcheck source=test/lsan.sh
. test/lsan.sh
export OPENBLAS_NUM_THREADS=1 # as programs set it, which restarts them (dev_cpu.c)
limit=${TEST_TIMEOUT:-900} jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
out=$(mktemp -d "${TMPDIR:-/tmp}/tests.XXXXXX") || exit 1
# A test's own folder is in memory where there is room, unless TMPDIR is set, or its head has a line "# disk:".
fast=$out
if [ -z "${TMPDIR:-}$list" ] && [ -w /dev/shm ] && ! grep -q '^[^ ]* /dev/shm .*noexec' /proc/mounts &&
    df -Pk /dev/shm | awk 'END { exit $4 < 8e6 }'; then fast=$(mktemp -d /dev/shm/tests.XXXXXX) || exit 1; fi
trap 'jobs -rp | xargs -r kill 2>/dev/null; wait; rm -rf "$out" "$fast"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0 begun=0 left=()
# Ranks sleep where MPICH would spin (waiting_ranks.c), but not with a sanitizer, which wants to be loaded first, nor
# where the library's name would be cut into two. It is in the build's folder, which the hosts of hosts.sh have too.
waits=$(cd "$BUILD" 2>/dev/null && pwd)/waiting_ranks.so
waiting_ranks() {
    [ "$waits" -nt test/waiting_ranks.c ] ||
        { ${CC:-cc} -shared -fPIC -O1 -o "$waits.$$" test/waiting_ranks.c && mv "$waits.$$" "$waits"; } 2>/dev/null
}
if [ -z "$units$list" ] && [ "${BUILD##*/}" != asan ] && [ "$waits" = "${waits//[ :]/}" ] && waiting_ranks && mkdir "$out/bin"; then
    for name in mpiexec.mpich mpiexec.hydra mpiexec; do
        own=$(command -v $name) || continue
        printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$waits" "$own" >"$out/bin/$name"
        chmod +x "$out/bin/$name"
    done
    PATH=$out/bin:$PATH
fi

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

skips() { # LOG: a line for each test that was skipped, with its reason
    sed -n 's/^skip //p; s/^\[  SKIPPED \] \([^0-9].*\)/\1/p' "$1" | sort -u
}

run_one() { # PROGRAM KIND: writes its lines, and what is counted of it into the files "count" and "skips"
    local name log=$work/log tmp status began=$SECONDS why='' own p f s total cpu limit=$limit
    name=$(basename "$1" .sh)
    tmp=$fast/${work##*/}/tmp
    [ "$2" = script ] && sed -n 2,25p "$1" | grep -q "^# disk: " && tmp=$work/tmp
    mkdir -p "$tmp"
    [ "$2" = script ] && own=$(sed -n '2,25s/^# limit: \([0-9]*\) s.*/\1/p' "$1") && [ -n "$own" ] && limit=$own
    { TMPDIR=$tmp timeout -k 10 "$limit" "$1" >"$log" 2>&1 </dev/null; } 2>/dev/null # not the shell's own "Aborted"
    status=$?
    export LC_ALL=C # of what follows: awk and times write 0.5, not 0,5
    times >"$work/times"
    cpu=$(cpu_seconds "$work/times")
    "count_$2" "$log"
    if [ $status = 124 ] || [ $status = 137 ]; then why="stopped after $limit s"
    elif [ $status != 0 ] && [ "$f" = 0 ]; then why="exit status $status"
    elif [ $((p + f + s)) = 0 ]; then why='ran no test'
    elif [ $((p + f + s)) != "$total" ]; then why="ran $((p + f + s)) of $total tests"
    elif [ "$f" = 0 ] && [ -n "$(ls -A "$tmp")" ]; then why="left behind: $(ls -A "$tmp" | paste -sd ' ')"
    fi
    [ -n "$why" ] && f=$((f + 1))
    echo "$p $f $s $cpu $((SECONDS - began)) $name" >"$work/count"
    skips "$log" | sed "s/^/$name: /" >"$work/skips"
    if [ "$f" = 0 ]; then
        printf 'ok    %-28s %4d passed%s %5d s %7s s of processors\n' "$name" "$p" \
            "$([ "$s" = 0 ] || printf ', %d skipped' "$s")" $((SECONDS - began)) "$cpu"
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
    local done p f s rest
    for done in "$out"/*/done; do
        [ -f "$done" ] || continue
        cat "$done"
        read -r p f s rest <"${done%done}count"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        echo "$rest" >>"$out/costs"
        cat "${done%done}skips" >>"$out/skipped"
        rm -r "${done%/done}"
    done
}

start() { # PROGRAM KIND
    if [ -n "$list" ]; then basename "$1" .sh; return; fi
    if [ "$2" = cmocka ] && [ ! -x "$1" ]; then
        echo "FAIL  ${1##*/}: $1 is not built (run make test)"
        failed=$((failed + 1))
        return
    fi
    if [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; then wait -n; fi
    collect
    if [ -n "$until" ] && [ $SECONDS -ge "$until" ]; then left+=("$(basename "$1" .sh)"); return; fi
    work=$out/$((++begun))
    mkdir "$work"
    (
        trap - EXIT
        run_one "$@" >"$work/said"
        mv "$work/said" "$work/done"
    ) &
}

# Whether a script, or a program with this source, belongs to this run, which names none.
chosen() { # FILE
    local of kind
    [ -f "$1" ] && [ -z "$units" -o "${1##*.}" = c ] || return 1
    of=$(sed -n '2,25s/^# circle: *//p' "$1")
    [ "$of" = "$circle" ] || return 1
    kind=$(sed -n '2,25s/^\(#\|\/\/\) \(long\|deeper\):.*/\2/p' "$1" | head -n 1)
    if [ -z "$long" ]; then [ "$kind" != long ]; else [ -n "$circle$kind" ]; fi
}

for name; do
    [ -f "test/$name.c" ] || [ -f "test/$name.sh" ] && continue
    echo "error: test/run.sh: no such test: $name (they are in test/)" >&2
    exit 1
done
for name; do # in the order in which they were named; a name may be a script's and a program's
    [ -f "test/$name.sh" ] && [ -z "$units" ] && start "test/$name.sh" script
    [ -f "test/$name.c" ] && start "$BUILD/test/$name" cmocka
done
if [ $# = 0 ]; then
    for script in test/check_headers.sh test/test_*.sh; do chosen "$script" && start "$script" script; done
    for source in test/test_*.c; do chosen "$source" && start "$BUILD/test/$(basename "$source" .c)" cmocka; done
fi
wait
[ -z "$list" ] || exit 0
export LC_ALL=C
collect

[ $((passed + failed)) = 0 ] && echo 'no test was run'
[ ${#left[@]} = 0 ] || echo "not started, after $until s: ${left[*]}"
[ $skipped = 0 ] || { echo "$skipped skipped:"; sort -u "$out/skipped" | sed 's/^/    /'; }
touch "$out/costs"
echo "slowest, in seconds of processors: $(sort -rn "$out/costs" | awk '$1 >= 0.1 { printf "%s%s %s", n++ ? ", " : "", $3, $1 } n == 4 { exit }')"
awk -v clock=$SECONDS -v build="${built:+$(cpu_seconds "$built")}" '{ sum += $1 } END {
    printf "%d s of the clock, %.0f s of processors%s\n", clock, sum + build, build == "" ? "" : sprintf(" (%.0f of them for building)", build) }' "$out/costs"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
