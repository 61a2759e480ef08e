#!/bin/bash
# scripts/bench_save.sh [PAIRS]: what saving every 20 steps beside training costs (make bench-save). Pairs of runs of the same
# 200 steps, one that saves and one that never does, in turns, so that a machine that gets slower slows both; the cost of a
# pair is the ratio of the two times from the first train line to the last, less 1. The median of the pairs is the answer.
# Time on this machine alone: with a load beside it the numbers mean nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build} pairs=${1:-5}
work=$(mktemp -d "${TMPDIR:-/tmp}/bench_save.XXXXXX")
trap 'rm -rf "$work"' EXIT

"$build/stories" --bytes 400000 --seed 3 --out "$work/text" >/dev/null 2>&1
"$build/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 1024 \
    --out "$work/data" >/dev/null 2>&1

# run NAME [OPTION...]: prints the seconds from the start of the first step to the end of the last, saves in between included
run() {
    local name=$1
    shift
    "$build/train" tiny --run.dir="$work" --run.name="$name" --run.steps=200 --run.eval_every=0 --eval.tokens=1024 \
        --sample.count=0 --data.train="$work/data/train_*.bin" --data.val="$work/data/val_*.bin" \
        --data.tokenizer="$work/data" --model.channels=128 --run.log_every=1 "$@" >"$work/$name.out"
    sed -n 's/.*"event":"end".*"seconds":\([0-9.]*\).*/\1/p' "$work/$name/metrics.jsonl"
}

echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg)"
for ((i = 1; i <= pairs; i++)); do
    began=${EPOCHREALTIME/[.,]/}
    run never$i --run.save_every=0 >"$work/seconds"
    middle=${EPOCHREALTIME/[.,]/}
    run saves$i --run.save_every=20 --ckpt.async=true >>"$work/seconds"
    ended=${EPOCHREALTIME/[.,]/}
    stood=$(sed -n 's/.*training stood still for \([0-9.]*\) s.*/\1/p' "$work/saves$i.out" | awk '{ s += $1 } END { printf "%.3f", s }')
    awk -v a=$((middle - began)) -v b=$((ended - middle)) -v stood="$stood" -v i=$i 'BEGIN {
        printf "pair %d: never %.2f s, every 20 steps %.2f s: %+.2f %%; training stood still for %s s\n", i, a / 1e6, b / 1e6, 100 * (b / a - 1), stood }' |
        tee -a "$work/pairs"
    rm -rf "$work/never$i" "$work/saves$i"
done
sed 's/.*: \([-+][0-9.]*\) %.*/\1/' "$work/pairs" | sort -n | awk '
    { v[NR] = $1 }
    END { printf "median of %d pairs: %+.2f %% (%+.2f to %+.2f)\n", NR, NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2, v[1], v[NR] }'
