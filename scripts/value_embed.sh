#!/bin/bash
# scripts/value_embed.sh: trains a small LLaMA with value embeddings in different layers (doc/value_embed.md).
#
# presets/tiny-llama.toml at a context of 128 tokens, 400 steps of 2048 tokens, on stories; in every row the same text,
# order of data and other weights at the start. Two seeds. Parameters and FLOPs are those of build/plan.
#
# It writes runs/value_embeddings.md, the table of the chapter, and runs/value_embeddings/. Minutes on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=${BUILD:-build} dir=runs/value_embeddings
rm -rf "$dir"
mkdir -p "$dir/data"
"$build/stories" --bytes 6000000 --val-bytes 200000 --seed 1 --out "$dir/data" >"$dir/log"
"$build/prepare" tokens --train "$dir/data/train.txt" --val-file "$dir/data/val.txt" --vocab 2048 --out "$dir/data" >>"$dir/log"

row() { # PATTERN
    local seed loss=() params flops name
    local set=(scripts/presets/tiny-llama.toml --model.vocab=2048 --model.context=128 --batch.tokens=2048
               --batch.micro=16 --model.value_embeddings="$1")
    params=$("$build/plan" params "${set[@]}" | awk '$2 == "parameters" { print $1 }')
    flops=$("$build/plan" flops "${set[@]}" | awk '/^a token / { print $NF / 1e6 }')
    for seed in 1 2; do
        name=${1:-none}-$seed
        "$build/train" "${set[@]}" --run.dir="$dir" --run.name="$name" --run.seed="$seed" --run.steps=400 \
            --run.log_every=10 --run.eval_every=0 --run.peak=100 --data.train="$dir/data/train_*.bin" \
            --data.val="$dir/data/val_*.bin" --data.tokenizer="$dir/data" --sample.count=0 --eval.tokens=65536 \
            >>"$dir/log" 2>&1
        loss+=("$(sed -n '/"event":"end"/s/.*"val_loss":\([0-9.]*\).*/\1/p' "$dir/$name/metrics.jsonl")")
    done
    printf '| %s | %s | %.2f | %.3f | %.3f |\n' "$([ "$1" ] && echo "\`$1\`" || echo none)" "$params" "$flops" "${loss[@]}"
}

{
    echo "| pattern | parameters | million FLOPs a token | nats a token, seed 1 | seed 2 |"
    echo "|---|---:|---:|---:|---:|"
    for pattern in '' v--- v-v- ---v v; do row "$pattern"; done
    echo
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)," \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)"
} >"$dir/table.md"
mv "$dir/table.md" runs/value_embeddings.md
cat runs/value_embeddings.md
