#!/bin/bash
# scripts/bench_ranks.sh [MODEL ...]: what dividing a step among more ranks than cores costs (make bench-ranks). One
# process with a thread a core is 100%; the ranks compute the same batch. MODEL: tiny, stories, demo (the model of
# build/bench); none: all.
#
#   RANKS="4 8"  ROUNDS=1  LAYOUTS="ddp ddp/mpi zero1 zero2 zero3 tp pp 3d"    /mpi: without PRETRAIN_COMM=shared
#
# tp: 4 ranks a model, the rest data parallel. pp: 2 stages, 2 micro-batches, the rest data parallel. 3d: tp 2, pp 2, the
# rest data parallel with ZeRO 1. Time is what
# passes between two lines of a run's log, so everything is in it. All layouts take turns, ROUNDS times, because
# machines drift; the table has the medians.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build} rounds=${ROUNDS:-1} ranks=${RANKS:-4 8} layouts=${LAYOUTS:-ddp ddp/mpi zero1 zero2 zero3 tp pp 3d}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
models=("$@")
[ $# -gt 0 ] || models=(tiny stories demo)

"$build/stories" --bytes 2000000 --val-bytes 50000 --seed 1 --out "$dir" >"$dir/log" 2>&1
"$build/prepare" tokens --train "$dir/train.txt" --val-file "$dir/val.txt" --vocab 3000 --out "$dir" >"$dir/log" 2>&1
demo="tiny --model.layers=6 --model.channels=256 --model.context=256 --batch.tokens=4096"

# time_run FILE LAUNCH SETTINGS: seconds a step, one line for each interval between two log lines, appended to FILE.
time_run() {
    local file=$1 launch=$2 line last= step=0
    shift 2
    rm -rf "$dir/run"
    while read -r line; do
        case $line in step\ *) ;; *) continue ;; esac
        local now=$EPOCHREALTIME at=${line#step}
        at=${at%%/*}
        [ -z "$last" ] || awk "BEGIN { print ($now - $last) / ($at - $step) }" >>"$file"
        last=$now step=$at
    done < <(timeout 100 $launch "$build/train" "$@" --run.dir="$dir" --run.name=run --run.eval_every=0 --run.peak=100 \
        --data.train="$dir/train_*.bin" --data.val="$dir/val_*.bin" --data.tokenizer="$dir" --eval.tokens=2048 \
        --sample.tokens=1 --sample.count=1 2>&1 | tee "$dir/log")
    [ -n "$last" ] || { cat "$dir/log" >&2; exit 1; }
}

settings() { # LAYOUT RANKS MODEL
    local sequences=16
    [ "$3" = stories ] && sequences=8
    case $1 in
        zero*) echo "--parallel.zero=${1#zero}" ;;
        tp) echo "--parallel.tp=4" ;;
        pp) echo "--parallel.pp=2 --batch.micro=$((sequences / $2))" ;;
        3d) echo "--parallel.tp=2 --parallel.pp=2 --parallel.zero=1 --batch.micro=$((2 * sequences / $2))" ;;
    esac
}

model_settings() {
    case $1 in
        tiny) echo "tiny --run.steps=60 --run.log_every=10" ;;
        stories) echo "stories --run.steps=20 --run.log_every=4" ;;
        demo) echo "$demo --run.steps=4 --run.log_every=1" ;;
        *) echo "error: MODEL: $1 (tiny, stories, demo)" >&2; exit 1 ;;
    esac
}

median() { sort -g "$1" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

for model in "${models[@]}"; do
    common=$(model_settings "$model")
    for ((round = 0; round < rounds; round++)); do
        time_run "$dir/$model.one" "" $common
        for layout in $layouts; do
            for n in $ranks; do
                file=$dir/$model.${layout/\//-}.$n
                launch="mpiexec -n $n"
                [ "$layout" != "${layout%/mpi}" ] || launch="env PRETRAIN_COMM=shared $launch"
                time_run "$file" "$launch" $common $(settings "${layout%/mpi}" "$n" "$model")
            done
        done
    done
done
echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 |
    sed 's/^ *//'), $(nproc) cores"
echo
printf '| model | layout | 1 process: ms a step |'
for n in $ranks; do printf ' %s ranks: ms | tokens/s of 1 process |' "$n"; done
printf '\n|---|---|---:|'
for n in $ranks; do printf -- '---:|---:|'; done
echo
for model in "${models[@]}"; do
    one=$(median "$dir/$model.one")
    for layout in $layouts; do
        awk "BEGIN { printf \"| %s | %s | %.2f |\", \"$model\", \"$layout\", 1e3 * $one }"
        for n in $ranks; do
            file=$dir/$model.${layout/\//-}.$n
            awk "BEGIN { t = $(median "$file"); printf \" %.2f | %.0f%% |\", 1e3 * t, 100 * $one / t }"
        done
        echo
    done
done
