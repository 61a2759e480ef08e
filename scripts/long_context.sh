#!/bin/bash
# scripts/long_context.sh: evaluates a small LLaMA that was trained on short sequences on longer ones (doc/rope.md).
#
#   trained     presets/tiny-llama.toml at a context of 64 tokens, 1200 steps of 4096 tokens, on stories
#   asked       evaluated on the same validation text at 128, 256 and 512 tokens: unchanged, and stretched in each way
#   tuned       at 256, each of them trained for 60 more steps (a twentieth); and a model trained from nothing for as
#               many steps as both together
#
# It writes runs/long_context.md, the table of the chapter, and runs/long_context/. All rows but the last use the
# weights of one run. It takes some minutes on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=${BUILD:-build} dir=runs/long_context trained=1200 more=60
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends
rm -rf "$dir"
mkdir -p "$dir/data"
"$build/stories" --bytes 12000000 --val-bytes 200000 --seed 1 --out "$dir/data" >"$dir/log"
"$build/prepare" tokens --train "$dir/data/train.txt" --val-file "$dir/data/val.txt" --vocab 2048 --out "$dir/data" >>"$dir/log"

train() { # NAME STEPS CONTEXT [OPTION...]: sets loss, of validation
    local name=$1 steps=$2 context=$3
    shift 3
    "${with[@]}" "$build/train" scripts/presets/tiny-llama.toml --run.dir="$dir" --run.name="$name" --run.steps="$steps" \
        --data.train="$dir/data/train_*.bin" --data.val="$dir/data/val_*.bin" --data.tokenizer="$dir/data" \
        --model.context="$context" --batch.tokens=4096 --batch.micro=$((4096 / context)) --run.eval_every=0 \
        --run.log_every=100 --sample.count=0 --eval.tokens=65536 "$@" >>"$dir/log" 2>&1
    loss=$(sed -n '/"event":"end"/s/.*"val_loss":\([0-9.]*\).*/\1/p' "$dir/$name/metrics.jsonl")
}
stretched() { # KIND
    [ "$1" = none ] || echo "--model.rope_scaling=$1 --model.rope_original=64"
}
asked() { # KIND CONTEXT
    # shellcheck disable=SC2046
    train "$1-$2" 1 "$2" --ckpt.init="$dir/short" --optim.lr=0 --optim.warmup=0 $(stretched "$1")
}
tuned() { # KIND
    # shellcheck disable=SC2046
    train "$1-tuned" $more 256 --ckpt.init="$dir/short" --optim.lr=5e-4 --optim.warmup=6 $(stretched "$1")
}

echo "training at 64 tokens" >&2
train short $trained 64
short=$loss
{
    echo "| nats a token | at 64 | at 128 | at 256 | at 512 | at 256, after $more more steps |"
    echo "|---|---:|---:|---:|---:|---:|"
    for kind in none linear ntk yarn llama3; do
        echo "$kind" >&2
        printf '| %s | %.3f' "$kind" "$short"
        for context in 128 256 512; do asked $kind $context && printf ' | %.3f' "$loss"; done
        tuned $kind && printf ' | %.3f |\n' "$loss"
    done
    echo "trained at 256 from nothing" >&2
    train long $((trained + more)) 256
    printf '| trained at 256 from nothing | | | | | %.3f |\n' "$loss"
    echo
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)," \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)"
} >"$dir/table.md"
mv "$dir/table.md" runs/long_context.md
cat runs/long_context.md
