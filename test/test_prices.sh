#!/bin/bash
# test/test_prices.sh: what a change costs. Each patch of test/prices applies, touches at most as many files as it says, and
# the tree with all of them builds, passes the tests that they name, and trains with what they add. (CONTRIBUTING.md)
# long: it builds a copy of the tree
# limit: 1800 s
set -u
cd "$(dirname "$0")/.." || exit 1
unset BUILD
command -v git >/dev/null || { echo 'skip prices (no git, whose apply reads patches)'; exit 0; }
work=$(mktemp -d "${TMPDIR:-/tmp}/prices.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
tree=$work/tree
mkdir "$tree"
{ git -c safe.directory='*' ls-files -z 2>/dev/null || find . -type f -not -path './.git/*' -not -path './build/*' -not -path './runs/*' -print0; } |
    tar -c --null -T - --ignore-failed-read 2>/dev/null | tar -x -C "$tree"
case ${MAKEFLAGS:-} in *'-- '*) MAKEFLAGS="-- ${MAKEFLAGS#*-- }" ;; *) unset MAKEFLAGS ;; esac # CC=..., not -j of another make
unset MAKELEVEL MFLAGS

# shellcheck source=test/passes_common.sh
. test/passes_common.sh

said() { sed -n "s/^$1//p" "$2" | head -n 1; } # WORDS PATCH: what follows them

applies() { # PATCH
    local touched most
    touched=$(grep -c '^+++ ' "$1") most=$(said 'at most ' "$1")
    echo "$touched files"
    [ "$touched" -le "${most% files}" ]
    (cd "$tree" && GIT_CEILING_DIRECTORIES=$work git apply) <"$1"
}

builds() {
    local tests
    tests=$(sed -n 's/^tests: //p' test/prices/*.patch | tr ' ' '\n' | sort -u | sed 's|^|build/test/|')
    # shellcheck disable=SC2086 # a list of targets
    make -C "$tree" B=build -s -j2 build/train build/plan build/stories build/prepare $tests
    "$tree/build/stories" --bytes 200000 --val-bytes 20000 --seed 1 --out "$work/data"
    "$tree/build/prepare" tokens --train "$work/data/train.txt" --val-file "$work/data/val.txt" \
        --vocab 300 --out "$work/data"
}

tested() { # PATCH
    local name
    for name in $(said 'tests: ' "$1"); do
        (cd "$tree" && "build/test/$name")
    done
}

trains() { # PATCH: the loss falls, in the bytes that the plan's formulas say
    local first last
    # shellcheck disable=SC2046 # a list of settings
    (cd "$tree" && build/plan memory tiny --model.vocab=300 $(said 'run: ' "$1"))
    # shellcheck disable=SC2046 # a list of settings
    (cd "$tree" && build/train tiny --run.name=price --run.dir="$work/runs" --run.steps=30 --run.eval_every=0 --sample.count=0 \
        --data.tokenizer="$work/data" --data.train="$work/data/train_*.bin" --data.val="$work/data/val_*.bin" \
        $(said 'run: ' "$1"))
    read -r first last < <(sed -n 's/.*"event":"train".*"loss":\([0-9.]*\).*/\1/p' "$work"/runs/price/metrics.jsonl |
        sed -n '1p;$p' | paste -sd ' ')
    rm -rf "$work/runs"
    echo "loss $first, then $last"
    awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a - 0.3) }'
}

for patch in test/prices/*.patch; do passes "$(basename "$patch" .patch) applies" applies "$patch"; done
passes 'the tree with them builds' builds
for patch in test/prices/*.patch; do
    passes "$(basename "$patch" .patch): its tests" tested "$patch"
    passes "$(basename "$patch" .patch): it trains" trains "$patch"
done
exit $failed
