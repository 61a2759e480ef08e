#!/bin/bash
# test/test_comm.sh: comm and mesh over real ranks: mpiexec with 1 to 4 of them, and a process alone. Every call and
# algorithm; a rank that fails or is killed ends the whole job, with one line that names it.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/comm.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0 program=$BUILD/test/mpi_comm
launcher=$(command -v mpiexec.mpich || command -v mpiexec || ls /usr/lib64/mpich/bin/mpiexec)
cores=$(env -u OMP_NUM_THREADS nproc)
export OMP_NUM_THREADS=1 LC_ALL=C
# MPICH keeps some memory until the process ends.
. test/lsan.sh

deeper() { [ -z "${TEST_LONG:-}" ] || "$@"; }

# shellcheck source=test/passes_common.sh
. test/passes_common.sh

# ranks N COMMAND...: its output in $work/out and $work/err, its status in $status, its seconds in $took
ranks() {
    local n=$1 began=${EPOCHREALTIME/./}
    shift
    status=0
    timeout 600 "$launcher" -n "$n" "$program" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    cat "$work/out" "$work/err"
    echo "status $status after $took ms"
}

all_is_well() { # N COMMAND...
    local n=$1
    ranks "$@"
    [ $status = 0 ]
    grep -q "^$n ranks: 0 failed$" "$work/out"
    [ ! -s "$work/err" ]
}

alone() { # the same binary without a launcher
    "$program" everything >"$work/out" 2>"$work/err"
    cat "$work/out" "$work/err"
    grep -q '^1 ranks: 0 failed$' "$work/out"
    [ ! -s "$work/err" ]
    local status=0
    "$program" die >"$work/out" 2>"$work/err" || status=$?
    [ $status = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q '^error: test: the last rank fails' "$work/err"
}

# How long a job that only starts and fails may take on a busy machine, in ms: ranks that are not ended wait for ever.
budget=60000

ends_at_once() { # HOW STATUS WORDS [bare]
    ranks 3 "$1" ${4:+"$4"}
    [ $status = "$2" ]
    [ $took -le $budget ]
    [ "$(grep -c 'error: ' "$work/err")" = 1 ]
    grep -qE "^rank 2: error: .*$3" "$work/err"
}

leaves() { # a plain exit, without a message: the others must not wait forever, and the supervisor reports it
    ranks 3 exit
    [ $status = 5 ] && [ $took -le $budget ]
    [ "$(grep -c "error: " "$work/err")" = 1 ]
    grep -q "^rank 2: error: process [0-9]* on [^ ]* ended with exit status 5 before the run did, at the start$" "$work/err"
}

says_it_once() {
    ranks 3 all
    [ $status = 1 ] && [ $took -le $budget ]
    [ "$(grep -c 'error: ' "$work/err")" = 1 ]
    grep -q '^rank 0: error: test: every rank fails' "$work/err"
}

rank_0_is_late() { # then another one says it, and once
    ranks 3 late
    [ $status = 1 ]
    [ "$(grep -c 'error: ' "$work/err")" = 1 ]
    grep -q '^rank [12]: error: test: every rank fails' "$work/err"
}

is_killed() { # one line names the rank, whichever the launcher reports; the list of places has its process
    ranks 3 places kill
    [ $status != 0 ] && [ $took -le $budget ]
    local process
    process=$(sed -n 's/^rank 2: process \([0-9]*\) on .*/\1/p' "$work/out")
    [ "$(grep -c 'error: ' "$work/err")" = 1 ]
    grep -q "^rank 2: error: process $process on [^ ]* was killed by signal 9 (Killed), at the start$" "$work/err"
}

threads_are_shared() { # N ranks on these cores
    ranks 2 places
    grep -q "^2 on the same cores, $((cores > 1 ? cores / 2 : 1)) threads each" "$work/out"
    ranks 1 places
    grep -q "^1 on the same cores, $cores threads each" "$work/out"
}

# Shared memory alone where all ranks are on this machine, unless the user says; any where some are on another.
transport() {
    ranks 2 places
    grep -q '^transport: \(sysv\|posix\),self$' "$work/out"
    UCX_TLS=all ranks 2 places
    grep -q '^transport: all$' "$work/out"
    "$launcher" -n 2 env MPI_LOCALNRANKS=1 "$program" places >"$work/out" 2>&1
    grep -q '^transport: any$' "$work/out"
}

# The other transport: the same calls, errors and ends by MPI alone.
by_mpi() {
    export PRETRAIN_COMM=mpi
    ranks 2 places
    grep -q '^calls: MPI$' "$work/out"
    for n in 2 3; do all_is_well $n everything || return; done
    all_is_well 4 mesh 1 1 1 2
    ends_at_once short 1 'expected 32 bytes from rank 0 and was sent 12'
    leaves
    is_killed
}

by_something() { # no other word is taken for one of the two
    PRETRAIN_COMM=shared ranks 2 places
    [ $status = 1 ] && grep -q 'error: PRETRAIN_COMM = shared: ' "$work/err"
}

# Calls that differ are seen without a check of each, where memory is shared.
seen_to_differ() {
    ranks 3 unlike
    [ $status = 1 ] && grep -q "all_reduce of 2800 bytes on rank [0-2], all_reduce of 3200 bytes on rank\|all_reduce of 3200 bytes on rank [0-2], all_reduce of 2800" "$work/err"
}

# Twice as many ranks as cores must not crawl. 100 all_reduces of 4 KB are some 600 messages one after the other
# on each rank; with MPI's own spinning waits they cost seconds of processor time, with sleeping ones
# milliseconds. Processor time is compared, since the machine may be busy.
no_spinning() {
    local n=$((2 * cores))
    [ $n -le 8 ] || n=8
    cpu() { # MODE: hundredths of a second of all ranks together
        local before after
        before=$(awk '{ print $16 + $17 }' "/proc/$BASHPID/stat")
        program=env
        ranks $n -u LD_PRELOAD "$BUILD/test/mpi_comm" "$1" >/dev/null # without waiting_ranks.c
        [ $status = 0 ]
        after=$(awk '{ print $16 + $17 }' "/proc/$BASHPID/stat")
        echo $((after - before))
    }
    local start loop
    start=$(cpu places)
    loop=$(cpu loop)
    echo "starting: $start, with the loop: $loop hundredths of a second"
    [ $((loop - start)) -le $((20 * n)) ] # 2 ms a call and rank; spinning takes 10 and more
}

programs_without_mpi() { # what needs no communication does not load it
    local name
    for name in diff plan; do
        if ldd "$BUILD/$name" | grep -q libmpi; then echo "$name is linked to MPI"; return 1; fi
    done
    ldd "$program" | grep -q libmpi
}

passes 'one process alone' alone
for n in 1 2 3 4; do passes "every call over $n ranks" all_is_well $n everything; done
passes 'mesh: dp 2 x tp 2' all_is_well 4 mesh 1 1 1 2
passes 'mesh: pp 2 x cp 2' all_is_well 4 mesh 2 2 1 1
passes 'mesh: dp 4, ep 2' all_is_well 4 mesh 1 1 2 1
passes 'mesh: pp 3' all_is_well 3 mesh 3 1 1 1
if [ "$(awk '/MemAvailable/ { print int($2 / 1e6) }' /proc/meminfo)" -ge 8 ]; then
    deeper passes 'messages of more than 2^31 bytes' all_is_well 2 large
fi
passes 'a rank that dies ends the job' ends_at_once die 1 'test: the last rank fails: 3'
passes 'a rank that dies without a supervisor ends the job' ends_at_once die 1 'test: the last rank fails: 3' bare
passes 'a wrong option ends the job' ends_at_once usage 2 'no such option'
passes 'a message of another length ends the job' ends_at_once short 1 'expected 32 bytes from rank 0 and was sent 12'
passes 'calls that differ end the job' ends_at_once differ 1 \
    'all_reduce of 7 fp32 on rank 2, all_reduce of 8 fp32 on rank 0'
passes 'a rank that leaves ends the job' leaves
passes 'what fails on every rank is said once' says_it_once
passes 'where rank 0 comes late, another one says it, once' rank_0_is_late
passes 'a killed rank ends the job' is_killed
passes 'ranks share the cores' threads_are_shared
[ -z "${UCX_TLS:-}" ] && passes 'ranks of one machine use its memory' transport
passes 'MPI alone (PRETRAIN_COMM=mpi)' by_mpi
passes 'an unknown transport' by_something
if ranks 2 places >/dev/null && grep -q '^calls: shared' "$work/out"; then
    passes 'calls of other lengths end the job' seen_to_differ
else
    echo 'skip the kernel lets no rank read another'
fi
[ -r /proc/self/stat ] && passes 'waiting ranks sleep' no_spinning
passes 'programs without ranks load no MPI' programs_without_mpi
exit $failed
