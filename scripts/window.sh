#!/bin/bash
# scripts/window.sh: trains a small LLaMA with windows of several widths and patterns (doc/window.md).
#
# presets/tiny-llama.toml at a context of 2048 tokens, 300 steps of 4096 tokens, on stories; the same text, weights at
# the start and order of data in every row. A row's FLOPs are those of build/plan flops, its speed is the median of the
# steps.
#
# It writes runs/window.md, the table of the chapter, and runs/window/. It takes some minutes on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=${BUILD:-build} dir=runs/window
rm -rf "$dir"
mkdir -p "$dir/data"
"$build/stories" --bytes 6000000 --val-bytes 200000 --seed 1 --out "$dir/data" >"$dir/log"
"$build/prepare" tokens --train "$dir/data/train.txt" --val-file "$dir/data/val.txt" --vocab 2048 --out "$dir/data" >>"$dir/log"

settings() { # WINDOW PATTERN
    printf '%s\n' scripts/presets/tiny-llama.toml --model.vocab=2048 --model.context=2048 --batch.tokens=4096 --batch.micro=2
    [ "$1" = 0 ] || printf '%s\n' --model.window="$1" --model.window_pattern="$2"
}
row() { # WINDOW PATTERN REACH: of the four layers together
    local name=w$1$2 flops loss speed
    mapfile -t set < <(settings "$1" "$2")
    "$build/train" "${set[@]}" --run.dir="$dir" --run.name="$name" --run.steps=300 --run.log_every=1 --run.eval_every=0 \
        --data.train="$dir/data/train_*.bin" --data.val="$dir/data/val_*.bin" --data.tokenizer="$dir/data" \
        --sample.count=0 --eval.tokens=32768 >>"$dir/log" 2>&1
    flops=$("$build/plan" flops "${set[@]}" | awk '/^a token / { print $NF / 1e6 }')
    loss=$(sed -n '/"event":"end"/s/.*"val_loss":\([0-9.]*\).*/\1/p' "$dir/$name/metrics.jsonl")
    speed=$(sed -n '/"event":"train"/s/.*"tok_s":\([0-9.e+]*\).*/\1/p' "$dir/$name/metrics.jsonl" | sort -g |
        awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] / 1000 }')
    printf '| %s | %s | %s | %.2f | %.1f | %.3f |\n' "$([ "$1" = 0 ] && echo none || echo "$1")" "${2:--}" "$3" "$flops" \
        "$speed" "$loss"
}

{
    echo "| window | pattern | tokens that the last layer sees | million FLOPs a token | thousand tokens/s | nats a token |"
    echo "|---:|---|---:|---:|---:|---:|"
    row 0 '' 2048
    row 512 s 2045
    row 128 s 509
    row 128 sssf 2048
    row 32 s 125
    row 8 s 29
    echo
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)," \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)"
} >"$dir/table.md"
mv "$dir/table.md" runs/window.md
cat runs/window.md
