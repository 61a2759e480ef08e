#!/bin/bash
# scripts/window.sh: trains a small LLaMA with windows of several widths and patterns (doc/window.md).
#
# presets/tiny-llama.toml at a context of 2048 tokens, 400 steps of 2048 tokens, on stories; the same text, weights at
# the start and order of data in every row. A row's FLOPs are those of build/plan flops; its time is that of the
# processors, which other programs disturb less than the clock's, with evaluation and checkpoint.
#
# It writes runs/windows.md, the table of the chapter, and runs/windows/. It takes some minutes on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=${BUILD:-build} dir=runs/windows
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends
rm -rf "$dir"
mkdir -p "$dir/data"
"$build/stories" --bytes 6000000 --val-bytes 200000 --seed 1 --out "$dir/data" >"$dir/log"
"$build/prepare" tokens --train "$dir/data/train.txt" --val-file "$dir/data/val.txt" --vocab 2048 --out "$dir/data" >>"$dir/log"

settings() { # WINDOW PATTERN
    printf '%s\n' scripts/presets/tiny-llama.toml --model.vocab=2048 --model.context=2048 --batch.tokens=2048 --batch.micro=1
    [ "$1" = 0 ] || printf '%s\n' --model.window="$1" --model.window_pattern="$2"
}
row() { # WINDOW PATTERN REACH: of the four layers together
    local name=w$1$2 flops loss seconds TIMEFORMAT='%U %S'
    mapfile -t set < <(settings "$1" "$2")
    { time "${with[@]}" "$build/train" "${set[@]}" --run.dir="$dir" --run.name="$name" --run.steps=400 --run.log_every=10 \
        --run.eval_every=0 --run.peak=100 --data.train="$dir/data/train_*.bin" --data.val="$dir/data/val_*.bin" \
        --data.tokenizer="$dir/data" --sample.count=0 --eval.tokens=32768 >>"$dir/log" 2>&1; } 2>"$dir/seconds"
    flops=$("$build/plan" flops "${set[@]}" | awk '/^a token / { print $NF / 1e6 }')
    loss=$(sed -n '/"event":"end"/s/.*"val_loss":\([0-9.]*\).*/\1/p' "$dir/$name/metrics.jsonl")
    seconds=$(awk '{ print $1 + $2 }' "$dir/seconds")
    printf '| %s | %s | %s | %.2f | %.0f | %.3f |\n' "$([ "$1" = 0 ] && echo none || echo "$1")" "${2:--}" "$3" "$flops" \
        "$seconds" "$loss"
}

{
    echo "| window | pattern | tokens that the last layer sees | million FLOPs a token | processor seconds | nats a token |"
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
mv "$dir/table.md" runs/windows.md
cat runs/windows.md
