#!/bin/bash
# scripts/bench_save.sh [PAIRS [STEPS]]: what saving every 20 steps beside training costs (make bench-save). It makes
# pairs of runs of the same STEPS steps, one that saves and one that never does. They take turns in being first, so that
# a machine that becomes slower slows both; both write the checkpoint of their end. The cost of a pair is the ratio of
# the two times minus 1, program start included, and the result is the median of the pairs.
#
# The model is that of presets/stories.toml. What counts is the number of bytes that a rank writes for each second of
# its training, which the first line gives. With all cores training, the writing thread has no core of its own: its work
# (copies to the kernel, hashes) takes time from training. This time and the time for which training stood still,
# divided by the time of all steps, are the most that saving can cost ("at most"). This number is also valid on a busy
# machine, and so, roughly, is the ratio of processor times; the ratio of the times means nothing there.
set -euo pipefail
export LC_ALL=C # awk and bash write 0.5, not 0,5
cd "$(dirname "$0")/.."
build=${BUILD:-build} pairs=${1:-5} steps=${2:-200}
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends
work=$(mktemp -d "${TMPDIR:-/tmp}/bench_save.XXXXXX")
trap 'rm -rf "$work"' EXIT

"$build/stories" --bytes 3000000 --val-bytes 30000 --seed 3 --out "$work/text" >/dev/null 2>&1
"$build/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 3000 \
    --out "$work/data" >/dev/null 2>&1

sed '/^minutes/d' scripts/presets/stories.toml >"$work/stories.toml" # steps are given here

run() { # NAME SAVE_EVERY
    local began=${EPOCHREALTIME/[.,]/} TIMEFORMAT='%U %S'
    { time "${with[@]}" "$build/train" "$work/stories.toml" --run.dir="$work" --run.name="$1" --run.steps="$steps" \
        --run.eval_every=0 --eval.tokens=2048 --run.sample_every=0 --sample.count=0 \
        --data.train="$work/data/train_*.bin" --data.val="$work/data/val_*.bin" --data.tokenizer="$work/data" \
        --run.save_every="$2" --ckpt.async=true >"$work/$1.out" 2>"$work/$1.err"; } \
        2>"$work/$1.cpu" || { cat "$work/$1.err" >&2; exit 1; }
    took=$((${EPOCHREALTIME/[.,]/} - began))
}

sum() { # PATTERN FILE: of the numbers that it catches
    sed -n "s/$1/\\1/p" "$2" | awk '{ s += $1 } END { printf "%.3f", s }'
}

commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
echo "commit $commit, $(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg)"
for ((i = 1; i <= pairs; i++)); do
    if [ $((i % 2)) = 1 ]; then run never 0; never=$took; run saves 20; saves=$took
    else run saves 20; saves=$took; run never 0; never=$took
    fi
    if [ $i = 1 ]; then
        awk -v n="$steps" -v s="$(sum '.*"event":"train".*"dt_ms":\([0-9.]*\).*' "$work/never/metrics.jsonl")" \
            -v mb="$(sed -n 's/^ *\([0-9.]*\) MB in .*/\1/p' "$work/never.out" | tail -n 1)" 'BEGIN { printf \
            "a step takes %.0f ms, a checkpoint is %.1f MB: every 20 steps %.1f MB for each second of training\n",
            s / n, mb, mb / (20 * s / n / 1e3) }'
    fi
    read -r user system <"$work/never.cpu"
    cpu="$user $system $(cat "$work/saves.cpu")"
    awk -v a=$never -v b=$saves -v i=$i -v cpu="$cpu" -v n="$(grep -c '^save ' "$work/saves.out")" \
        -v stood="$(sum '.*training stood still for \([0-9.]*\) s.*' "$work/saves.out")" \
        -v busy="$(sum '.*the thread computed for \([0-9.]*\) s.*' "$work/saves.out")" \
        -v steps="$(sum '.*"event":"train".*"dt_ms":\([0-9.]*\).*' "$work/saves/metrics.jsonl")" 'BEGIN {
        split(cpu, s, " ")
        printf "pair %d: never %.2f s, every 20 steps %.2f s: %+.2f %%; processors %+.2f %%; %d saves: training " \
            "stood still for %s s, the thread computed for %s s, at most %+.2f %%\n", i, a / 1e6, b / 1e6,
            100 * (b / a - 1), 100 * ((s[3] + s[4]) / (s[1] + s[2]) - 1), n, stood, busy, 1e5 * (stood + busy) / steps
    }' | tee -a "$work/pairs"
    rm -rf "$work/never" "$work/saves"
done
median() { # WORDS PATTERN
    sed "s/.*$2 +*\([-0-9.]*\) %.*/\\1/" "$work/pairs" | sort -n | awk -v words="$1" '
        { v[NR] = $1 }
        END { printf "median of %d pairs%s: %+.2f %% (%+.2f to %+.2f)\n", NR, words,
              NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2, v[1], v[NR] }'
}
median '' ' s:'
median ', time of the processors' 'processors'
median ', at most' 'at most'
