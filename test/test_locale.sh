#!/bin/bash
# test/test_locale.sh: the user's language changes no byte of what the programs write. German and Turkish write 0,5; Turkish
# has a dotless i, so that the capital of i is not I. The two locales are generated here, where localedef has their
# sources; a locale that is not there and odd time zones are tried in any case.
# long: generates two locales
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
unset LANG LANGUAGE LC_NUMERIC LC_CTYPE TZ
export LC_ALL=C

# What is written into FOLDER. Clock times, speeds and the folder's own name are taken out.
outputs() { # FOLDER
    mkdir "$1"
    runs=$1 short=(--run.steps=2 --optim.decay_steps=2 --run.eval_every=1 --run.norms_every=1 --sample.count=1 --sample.tokens=5)
    "$BUILD/stories" --bytes 20000 --seed 3 --out "$1/text" >"$1/stories.out"
    "$BUILD/prepare" tokens --train "$1/text/train.txt" --val-file "$1/text/val.txt" --vocab 300 --out "$1/data" >"$1/prepare.out"
    "$BUILD/plan" memory tiny --model.vocab=512 --optim.lr=0.00025 >"$1/memory"
    "$BUILD/plan" flops gpt2-124m --explain >"$1/flops"
    "$BUILD/plan" time gpt2-124m --gpus 8 --json >"$1/time"
    "$BUILD/plan" schedule tiny --model.vocab=512 --svg "$1/schedule.svg" >"$1/schedule"
    "$BUILD/train" --help >"$1/help"
    train gpt one "${short[@]}" --run.dir="$1" --optim.lr=1.25e-3
    ranks 2 gpt two "${short[@]}" --run.dir="$1" --batch.micro=4 || { cat "$work/two.err"; return 1; }
    "$BUILD/export" "$1/one" --to state --out "$1/one.state" >"$1/export.out"
    history one >"$1/one.history"
    history two >"$1/two.history"
    sed 's/:[^,{}]*[,}]/:/g' "$1/one/metrics.jsonl" >"$1/one.keys"
    value train dt_ms "$1/one/metrics.jsonl" | grep -qvE '^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$' && return 1
    grep -q '^lr = 0.00125' "$1/one/config.toml"
    cp "$1/one/samples.txt" "$1/one/norms.csv" "$1/"
    sed -n '/^\[/p; / = /p' "$1/one/config.toml" >"$1/one.toml"
    rm -r "$1/one" "$1/two"
    grep -rlF "$1" "$1" | xargs -r sed -i "s|$1|FOLDER|g"
    grep -lE '[0-9] s\b|ms\b|tokens/s' "$1"/*.out | xargs -r sed -i -E 's/[0-9.]+ s\b/T s/g'
}

same() { # NAME [VARIABLE=VALUE...]
    local name=$1
    shift
    export "$@"
    outputs "$work/$name"
    diff -r "$work/C" "$work/$name"
}

# The locale is there, and C's own library writes a comma in it.
comma() { # LOCALE
    [ "$(LOCPATH=$work/locales LC_ALL=$1 /usr/bin/printf '%.1f' 0,5)" = 0,5 ]
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'in the locale C' outputs "$work/C"
[ $failed = 0 ] || exit 1
mkdir "$work/locales"
for language in de_DE tr_TR; do
    if ! localedef -i $language -f UTF-8 "$work/locales/$language.UTF-8" 2>"$work/log"; then
        echo "skip $language.UTF-8: localedef does not make it here ($(head -n 1 "$work/log"))"
        continue
    fi
    passes "$language.UTF-8 writes a comma" comma $language.UTF-8
    passes "in the locale $language.UTF-8" same $language LOCPATH="$work/locales" LC_ALL=$language.UTF-8 LANGUAGE=${language%_*}
done
passes 'in a locale that is not there' same none LC_ALL=xx_XX.UTF-8
passes 'in odd time zones' same zone TZ=Pacific/Chatham
passes 'in no time zone' same nozone TZ=:/nowhere/at/all
exit $failed
