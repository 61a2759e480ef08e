#!/bin/bash
# scripts/rounding_or_bug.sh: the question of doc/diff.md, asked of real runs. One update of a small model in fp32 is the
# reference. `rounding`: the same update in bf16. `bug NAME`: the same update by a program into which test/mutate.sh
# put the bug NAME. Half a minute each. For doc/diff.md:
#
#     scripts/rounding_or_bug.sh rounding >runs/diff_rounding.txt
#     scripts/rounding_or_bug.sh bug gelu_grad >runs/diff_bug.txt
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${BUILD:-build}" && pwd)
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends
tmp=$(mktemp -d "${TMPDIR:-/tmp}/rounding.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

update() { # TRAIN NAME [OPTION...]: the first update of a small model is dumped
    local train=$1 name=$2
    shift 2
    "${with[@]}" "$train" --run.dir="$tmp/runs" --run.name="$name" --run.steps=1 --run.dump=1 --run.threads=1 --eval.tokens=512 \
        --data.train="$tmp/data/train_*.bin" --data.val="$tmp/data/val_*.bin" --data.tokenizer="$tmp/data" \
        --sample.count=0 --model.layers=4 --model.channels=64 --model.heads=4 --model.context=64 --batch.tokens=512 \
        --batch.micro=8 "$@" >"$tmp/$name.out"
}

# Builds the program with a bug: a copy of the tree with the bug, and the objects that exist already.
with_bug() { # NAME
    mkdir "$tmp/tree"
    tar --exclude=./build --exclude=./runs --exclude=./.git -cf - . | tar -C "$tmp/tree" -xf -
    cp -a "$build" "$tmp/tree/build"
    (cd "$tmp/tree" && test/mutate.sh --apply "$1" && make -s -j2 build/train >/dev/null)
}

"$build/stories" --bytes 100000 --seed 3 --out "$tmp/text" >"$tmp/log" 2>&1
"$build/prepare" tokens --train "$tmp/text/train.txt" --val-file "$tmp/text/val.txt" --vocab 512 --out "$tmp/data" \
    >"$tmp/log" 2>&1
update "$build/train" fp32
case ${1:-} in
rounding) other=bf16 && update "$build/train" bf16 --numerics.dtype=bf16 ;;
bug) other=bug && with_bug "$2" && update "$tmp/tree/build/train" bug ;;
*) echo "usage: $0 rounding | bug NAME" >&2 && exit 2 ;;
esac
echo "$ build/diff runs/$other runs/fp32"
(cd "$tmp" && "$build/diff" "runs/$other" runs/fp32) || true # different: status 1
