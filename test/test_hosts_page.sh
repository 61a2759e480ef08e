#!/bin/bash
# circle: hosts
# disk: its hosts have a /dev/shm of their own
# test/test_hosts_page.sh: every block of commands of doc/hosts.md runs as it stands, in the order written, in a copy of
# the tree, and shows what the page says of it.
# long: the whole way takes minutes
# limit: 1800 s, for a machine with other work
cd "$(dirname "$0")/.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
failed=0
work=$(mktemp -d "${TMPDIR:-/tmp}/page.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/tree"
git ls-files -z | tar -c --null -T - --ignore-failed-read 2>/dev/null | tar -x -C "$work/tree"
ln -s "$BUILD" "$work/tree/build"
export OMP_WAIT_POLICY=passive
if ! command -v mpiexec >/dev/null; then mpiexec() { "$(command -v mpiexec.mpich || ls /usr/lib64/mpich/bin/mpiexec)" "$@"; }; export -f mpiexec; fi
# The text that the page trains on is written by `make run`; here a smaller one.
(cd "$work/tree" && build/stories --bytes 2000000 --out runs/stories/text &&
    build/prepare tokens --train runs/stories/text/train.txt --val-file runs/stories/text/val.txt --vocab 512 --out runs/stories/data) \
    >"$work/log" 2>&1 || { echo 'not ok a text'; sed 's/^/  /' "$work/log"; exit 1; }

awk -v to="$work/block" '/^```sh$/ { on = 1; file = to (++k); printf "" >file; next } /^```/ { on = 0 } on { print >file }' doc/hosts.md
n=0
while [ -e "$work/block$((n + 1))" ]; do
    n=$((n + 1))
    name="block $n: $(tail -n 1 "$work/block$n" | cut -c 1-60)"
    if (cd "$work/tree" && bash -e -o pipefail "$work/block$n") >"$work/$n" 2>&1 </dev/null; then echo "ok $name"
    else
        echo "not ok $name"
        tail -n 20 "$work/$n" | sed 's/^/  /'
        failed=1
    fi
done
says() { # BLOCK WORDS: what the page says that it prints
    if grep -q "$2" "$work/$1"; then echo "ok block $1 prints '$2'"; else echo "not ok block $1 prints '$2'"; failed=1; fi
}
if [ $n = 9 ]; then echo 'ok the page has nine blocks'; else echo "not ok the page has nine blocks: $n"; failed=1; fi
says 2 '^identical'
says 5 'measured inside, '
says 6 'ranks on a b d, from step 20'
says 7 '^near: 2 ranks took'
says 8 'fit into 256 GB'
says 9 '^| 16384 |'
exit $failed
