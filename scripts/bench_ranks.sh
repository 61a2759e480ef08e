#!/bin/bash
# scripts/bench_ranks.sh [MODEL ...]: what dividing a step among more ranks than cores costs (make bench-ranks). One
# process with a thread a core is 100%; the ranks compute the same batch. MODEL: tiny, stories, demo (the model of
# build/bench); none: all.
#
#   RANKS="4 8"  ROUNDS=1  LAYOUTS="ddp ddp/mpi zero1 zero2 zero3 tp pp 3d"    /mpi: with PRETRAIN_COMM=mpi
#
# tp: 4 ranks a model, the rest data parallel. pp: 2 stages, 2 micro-batches, the rest data parallel. 3d: tp 2, pp 2, the
# rest data parallel with ZeRO 1. Time is what passes between two lines of a run's log, so everything is in it. Where
# other programs use the cores, it means little; so the table has the time of cores too, of all processes together: what
# a run takes beyond a run of a quarter of its steps. Its 100% is one process with one thread, which waits for nobody.
# All layouts take turns, ROUNDS times, because machines drift; the table has the medians.
set -euo pipefail
export LC_ALL=C # awk and bash write 0.5, not 0,5
cd "$(dirname "$0")/.."
build=${BUILD:-build} rounds=${ROUNDS:-1} ranks=${RANKS:-4 8} layouts=${LAYOUTS:-ddp ddp/mpi zero1 zero2 zero3 tp pp 3d}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
models=("$@")
[ $# -gt 0 ] || models=(tiny stories demo)

"$build/stories" --bytes 2000000 --val-bytes 50000 --seed 1 --out "$dir" >"$dir/log" 2>&1
"$build/prepare" tokens --train "$dir/train.txt" --val-file "$dir/val.txt" --vocab 3000 --out "$dir" >"$dir/log" 2>&1
demo="tiny --model.layers=6 --model.channels=256 --model.context=256 --batch.tokens=4096"

# run_model STEPS LAUNCH SETTINGS: its log, and in $dir/cores user and system time of all its processes.
run_model() {
    local steps=$1 launch=$2 TIMEFORMAT='%U %S'
    shift 2
    rm -rf "$dir/run"
    { time timeout 600 $launch "$build/train" "$@" --run.dir="$dir" --run.name=run --run.eval_every=0 --run.peak=100 \
        --data.train="$dir/train_*.bin" --data.val="$dir/val_*.bin" --data.tokenizer="$dir" --eval.tokens=2048 \
        --run.steps="$steps" --sample.tokens=1 --sample.count=1 2>&1; } 2>"$dir/cores" | tee "$dir/log"
}

# time_run FILE STEPS LAUNCH SETTINGS: seconds a step, one line for each interval between two log lines, appended to
# FILE, and seconds of cores a step, to FILE.cores.
time_run() {
    local file=$1 steps=$2 line last= step=0 short
    shift 2
    run_model $((steps / 4)) "$@" >/dev/null
    short=$(cat "$dir/cores")
    while read -r line; do
        case $line in step\ *) ;; *) continue ;; esac
        local now=$EPOCHREALTIME at=${line#step}
        at=${at%%/*}
        [ -z "$last" ] || awk "BEGIN { print ($now - $last) / ($at - $step) }" >>"$file"
        last=$now step=$at
    done < <(run_model "$steps" "$@")
    [ -n "$last" ] || { cat "$dir/log" >&2; exit 1; }
    echo "$short $(cat "$dir/cores")" |
        awk -v n=$((steps - steps / 4)) '{ print ($3 + $4 - $1 - $2) / n }' >>"$file.cores"
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
        tiny) echo "tiny --run.log_every=10" ;;
        stories) echo "stories --run.log_every=4" ;;
        demo) echo "$demo --run.log_every=1" ;;
        *) echo "error: MODEL: $1 (tiny, stories, demo)" >&2; exit 1 ;;
    esac
}

steps_of() {
    case $1 in tiny) echo 80 ;; stories) echo 40 ;; demo) echo 8 ;; esac
}

median() { sort -g "$1" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

for model in "${models[@]}"; do
    common=$(model_settings "$model") steps=$(steps_of "$model")
    for ((round = 0; round < rounds; round++)); do
        time_run "$dir/$model.one" "$steps" "" $common
        time_run "$dir/$model.thread" "$steps" "" $common --run.threads=1
        for layout in $layouts; do
            for n in $ranks; do
                file=$dir/$model.${layout/\//-}.$n
                launch="mpiexec -n $n"
                [ "$layout" = "${layout%/mpi}" ] || launch="env PRETRAIN_COMM=mpi $launch"
                time_run "$file" "$steps" "$launch" $common $(settings "${layout%/mpi}" "$n" "$model")
            done
        done
    done
done
echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 |
    sed 's/^ *//'), $(nproc) cores"
echo
echo '| model | layout | ranks | ms a step | tokens/s of 1 process | ms of cores | tokens of 1 thread in a second of cores |'
echo '|---|---|---:|---:|---:|---:|---:|'
for model in "${models[@]}"; do
    row() { # LAYOUT RANKS FILE
        local one thread time cores
        one=$(median "$dir/$model.one") thread=$(median "$dir/$model.thread.cores")
        time=$(median "$3") cores=$(median "$3.cores")
        awk "BEGIN { printf \"| %s | %s | %s | %.1f | %.0f%% | %.1f | %.0f%% |\\n\", \"$model\", \"$1\", \"$2\", 1e3 * $time,
            100 * $one / $time, 1e3 * $cores, 100 * $thread / $cores }"
    }
    row '1 process' 1 "$dir/$model.one"
    row '1 process, 1 thread' 1 "$dir/$model.thread"
    for layout in $layouts; do
        for n in $ranks; do row "$layout" "$n" "$dir/$model.${layout/\//-}.$n"; done
    done
done
