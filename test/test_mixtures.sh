#!/bin/bash
# test/test_mixtures.sh: scripts/recipes/llama.toml, redpajama.toml and pile.toml run: small stand-ins for their sources are
# prepared, and two steps are trained on the mixture that comes out, whose shares are those of the file.
. "$(dirname "$0")/data_common.sh"

mixture_runs() { # NAME SOURCES SHARE...: shares in percent
    local name=$1 sources=$2 dir=$work/$1 path i=0 share
    mkdir "$dir"
    cp "scripts/recipes/$name.toml" "$dir/"
    for path in $(sed -n 's/^path = "\([a-z_0-9]*\)".*/\1/p' "$dir/$name.toml"); do
        i=$((i + 1))
        mkdir "$dir/$path"
        "$BUILD/stories" --count 60 --seed $i >"$dir/$path/part.txt"
    done
    [ $i = "$sources" ]
    "$BUILD/prepare" "$dir/$name.toml" --tokenizer.vocab=300 --tokenizer.sample=1 --shards.val=0.1 --recipe.unit=1 \
        --recipe.memory=8 >"$dir/report"
    shift 2
    for share; do grep -q " $share% " "$dir/report"; done
    [ "$(grep -c '%  *[0-9]' "$dir/report")" = "$sources" ]
    "$BUILD/train" tiny --run.dir="$dir" --run.name=run --run.steps=2 --run.eval_every=0 --sample.count=0 --batch.tokens=1024 \
        --batch.micro=2 --data.tokenizer="$dir/$name/tokenizer" --data.train="$dir/$name/train.toml" \
        "--data.val=$dir/$name/shards/*/val_*.bin" --data.floor=
    grep -q '"step":2,' "$dir/run/metrics.jsonl"
}

passes "LLaMA's mixture" mixture_runs llama 7 67.00 15.00 4.50 2.50 2.00
passes "RedPajama's mixture" mixture_runs redpajama 7 72.56 14.46 4.88 2.15 2.31 1.98 1.65
passes "the Pile's mixture" mixture_runs pile 22 18.11 14.40 12.07 10.01 8.96 0.14
exit $failed
