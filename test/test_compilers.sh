#!/bin/bash
# test/test_compilers.sh: the whole tree built by clang, and by $CC (gcc) without optimization, in folders of their own:
# no warning, unit tests pass, generated text and tokens have the bytes of the usual build, and two small models its
# losses up to rounding (compilers fuse different products with sums).
# long: compiles the library and the programs twice more
# limit: 1800 s, for a machine with other work
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
units='test_bpe test_ckpt test_config test_dataset test_formats test_gemm test_base test_metrics test_model
    test_ops test_pipeline_draw test_plan_show test_tools test_tokenizer'

builds() { # FOLDER SETTING: all programs, without a warning (WERROR is the Makefile's own)
    # shellcheck disable=SC2046,SC2086
    ${MAKE:-make} --no-print-directory B="$1" "$2" all $(printf "$1/test/%s " $units)
}

unit_tests() { # FOLDER
    # shellcheck disable=SC2086
    JOBS=1 BUILD=$1 TMPDIR=$work test/run.sh --units $units
}

same_text() { # FOLDER
    local of=$work/$(basename "$1")
    "$1/stories" --bytes 200000 --seed 3 --out "$of.text"
    "$1/prepare" tokens --train "$of.text/train.txt" --val-file "$of.text/val.txt" --vocab 512 --out "$of.data"
    diff -r "$of.text" "$work/text"
    for file in "$work"/data/*; do
        [ "${file##*/}" = manifest.json ] || cmp "$file" "$of.data/${file##*/}" # the manifest names folders
    done
}

same_losses() { # FOLDER FAMILY
    local name step=0 loss
    name=$(basename "$1")-$2
    BUILD=$1 train "$2" "$name" "${short[@]}"
    value train loss "$runs/$name/metrics.jsonl" >"$work/losses"
    [ "$(wc -l <"$work/losses")" = 6 ]
    while read -r loss; do
        step=$((step + 1))
        close_to "$loss" "$(value train loss "$runs/usual-$2/metrics.jsonl" | sed -n ${step}p)" 1e-5
    done <"$work/losses"
}

short=(--run.steps=6 --optim.decay_steps=6 --run.eval_every=0 --run.sample_every=0 --sample.count=0 --eval.tokens=100)
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
for family in gpt llama; do passes "the usual build trains $family" train $family usual-$family "${short[@]}"; done
for build in clang O0; do
    folder=$BUILD/$build
    case $build in
    clang) setting=CC=clang ;;
    O0) setting='CFLAGS=-O0 -g' ;;
    esac
    if [ $build = clang ] && ! command -v clang >/dev/null; then
        echo 'skip clang: not on this machine (Debian: apt install clang libomp-dev)'
        continue
    fi
    was=$failed
    failed=0
    passes "$build: builds" builds "$folder" "$setting"
    if [ $failed = 0 ]; then
        passes "$build: unit tests" unit_tests "$folder"
        passes "$build: the same text and tokens" same_text "$folder"
        passes "$build: gpt's losses" same_losses "$folder" gpt
        passes "$build: llama's losses" same_losses "$folder" llama
    fi
    failed=$((was | failed))
done
exit $failed
