#!/bin/bash
# test/test_cp.sh: ring attention over real ranks, 2 and 4 of them under mpiexec: the bits of one.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/cp.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
launcher=$(command -v mpiexec.mpich || command -v mpiexec || ls /usr/lib64/mpich/bin/mpiexec)
export OMP_NUM_THREADS=1
# MPICH keeps some memory until the process ends.
. test/lsan.sh

for n in 2 4; do
    timeout 600 "$launcher" -n $n "$BUILD/test/mpi_cp" >"$work/log" 2>&1 </dev/null
    status=$?
    if [ $status = 0 ] && [ "$(cat "$work/log")" = "$n ranks give the bits of one" ]; then
        echo "ok attention over $n ranks is that of one, bit for bit"
    else
        echo "not ok attention over $n ranks is that of one, bit for bit (status $status)"
        tail -n 30 "$work/log" | sed 's/^/  /'
        failed=1
    fi
done
exit $failed
