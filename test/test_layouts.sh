#!/bin/bash
# test/test_layouts.sh: the layouts of layouts.tsv against one rank, the plan and each other, in one process (layouts.c).
# deeper: all rows of the table, and ten layouts that are drawn at random
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
table=${1:-test/layouts.tsv} circle=core
[ -z "${TEST_LONG:-}" ] || circle=long
{
    "$BUILD/stories" --bytes 200000 --seed 3 --out "$work/text" &&
        "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 509 --out "$work/data" &&
        uneven_corpus && "$BUILD/pipeline" 1f1b --stages 2 --micro 4 --csv "$work/data/mine.csv"
} >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
"$BUILD/test/layouts" "$table" $circle "$work/data" "$work" "${2:-}"
