#!/bin/bash
# scripts/ablate.sh stories|text [TEXT]: what a setting brings at equal time: trains each variant of scripts/ablations.txt
# with several seeds and prints a table, in markdown.
#
#   task        stories: the model of `make run` on its kind of corpus, with another seed than the one it is judged on.
#               text: the preset text, on the first nine tenths of TEXT, of which the last tenth is the
#               validation text. So nothing is tuned on a text that anything is judged on.
#   equal time  the baseline trains STEPS steps (default: what 4 minutes of an idle machine give). Another variant
#               trains STEPS times (baseline's seconds a step / its own), both measured in turns beforehand, on an idle
#               machine; then no run depends on how busy the machine is.
#   intervals   SEEDS runs each (default 3), with seeds 1, 2, ... of weights and order. The difference to the baseline
#               is taken seed by seed; its interval is mean -+ t s / sqrt(SEEDS), 95 % (Student's t, SEEDS - 1).
#
# ONLY="name name": just these variants and the baseline. JOBS: runs at a time (default: cores), one thread each.
# SETTINGS: of build/train, for all variants.
# Everything is in DIR (runs/ablate_TASK): speed.txt (seconds a step), results.txt (a line for each run), table.md. What is in
# speed.txt and results.txt is not done again, so an interrupted table continues; `rm -r` the directory to start anew.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=${BUILD:-build} seeds=${SEEDS:-3} jobs=${JOBS:-$(nproc)} only=${ONLY:-}
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends
task=${1:-} text=${2:-}
case $task in
    stories) unit='nats a token' key=val_loss ;;
    text) unit='bits a byte' key=val_bpb
        [ -f "$text" ] || { echo "error: TEXT: no such file: '$text' (try: scripts/ablate.sh text FILE)" >&2; exit 1; } ;;
    *) echo "usage: [STEPS=N] [SEEDS=N] [JOBS=N] [ONLY='name name'] scripts/ablate.sh stories | text FILE" >&2; exit 1 ;;
esac
dir=${DIR:-runs/ablate_$task}
data=$dir/data
mkdir -p "$data"
sed '/^minutes/d; /^sample_every/d; /^eval_every/d' "scripts/presets/$task.toml" >"$dir/base.toml"

if [ ! -s "$data/manifest.json" ]; then
    if [ "$task" = stories ]; then
        "$build/stories" --bytes 28000000 --primer 7000000 --val-bytes 500000 --seed 2 --out "$data" >"$dir/log"
        "$build/prepare" tokens --train "$data/train.txt" --val-file "$data/val.txt" --vocab 3000 --out "$data" >>"$dir/log"
    else
        head -c $(($(wc -c <"$text") * 9 / 10)) "$text" >"$dir/text.txt"
        "$build/prepare" tokens --input "$dir/text.txt" --val 0.1 --vocab 1024 --max-document 1024 --out "$data" >"$dir/log"
    fi
fi

# variant NAME: its settings, from the table's line "task | name | settings"
variant() { awk -F' *[|] *' -v t="$task" -v n="$1" '$1 == t && $2 == n { print $3; found = 1 } END { exit !found }' scripts/ablations.txt; }
names() { awk -F' *[|] *' -v t="$task" '$1 == t { print $2 }' scripts/ablations.txt; }
value() { # FILE EVENT KEY: the last one
    sed -n "/\"event\":\"$2\"/s/.*\"$3\":\([0-9][^,}]*\).*/\1/p" "$1" | tail -n 1
}

# train RUN NAME STEPS SEED THREADS [more]
train() {
    local run=$1 settings
    settings=$(variant "$2")
    # shellcheck disable=SC2086
    "${with[@]}" "$build/train" "$dir/base.toml" --run.dir="$dir" --run.name="$run" --run.steps="$3" --run.seed="$4" --run.threads="$5" \
        --run.eval_every=0 --run.sample_every=0 --data.train="$data/train_*.bin" --data.val="$data/val_*.bin" \
        --data.tokenizer="$data" ${SETTINGS:-} $settings "${@:6}" >"$dir/$run.log" 2>&1 </dev/null ||
        { echo "error: $run ended with status $? (see $dir/$run.log)" >&2; return 1; }
}

# Adds "NAME RATIO SECONDS" to speed.txt: the least of four runs' medians over 20 steps, of which the first 4 do not count,
# against the baseline's; the two take turns, so that a slow minute of the machine is nobody's.
median_step() { # RUN
    sed -n 's/.*"event":"train","step":\([0-9]*\),.*"dt_ms":\([0-9.e+]*\).*/\1 \2/p' "$dir/$1/metrics.jsonl" |
        awk '$1 > 4 { print $2 / 1000 }' | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
measure() {
    local name=$1
    for _ in 1 2 3 4; do
        for v in baseline "$name"; do
            train "speed_$v" "$v" 20 1 0 --eval.tokens=1 --optim.warmup=4
            echo "$v $(median_step "speed_$v")"
            rm -r "$dir/speed_$v"
        done
    done >"$dir/speed.new"
    sort -k 2,2g "$dir/speed.new" | awk -v n="$name" '!($1 in least) { least[$1] = $2 }
        END { print n, least[n] / least["baseline"], least[n] }' >>"$dir/speed.txt"
}
touch "$dir/speed.txt" "$dir/results.txt"
todo=$(names)
[ -z "$only" ] || todo="baseline $only"
for name in $todo; do
    variant "$name" >/dev/null || { echo "error: no variant $name of $task in scripts/ablations.txt" >&2; exit 1; }
    grep -q "^$name " "$dir/speed.txt" || measure "$name"
done
steps=${STEPS:-$(awk '$1 == "baseline" { printf "%d", 240 / $3 }' "$dir/speed.txt")}

one() { # NAME SEED
    local run=$1-$2 n loss
    n=$(awk -v n="$1" -v s="$steps" '$1 == n { printf "%d", s / $2 }' "$dir/speed.txt")
    train "$run" "$1" "$n" "$2" 1
    loss=$(value "$dir/$run/metrics.jsonl" end $key)
    [ "$loss" ] || { echo "error: $dir/$run/metrics.jsonl has no end (see $dir/$run.log)" >&2; return 1; }
    echo "$1 $2 $n $loss" >>"$dir/results.txt"
    echo "$run: $n steps, $loss $unit"
    rm -r "$dir/$run/checkpoints"
}
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT # Ctrl-C does not reach what runs in the background
trap 'exit 130' HUP INT TERM
running=0
for seed in $(seq "$seeds"); do
    for name in $todo; do
        grep -q "^$name $seed " "$dir/results.txt" && continue
        if [ $running -ge "$jobs" ]; then wait -n; running=$((running - 1)); fi
        one "$name" "$seed" &
        running=$((running + 1))
    done
done
while [ $running -gt 0 ]; do wait -n; running=$((running - 1)); done

{
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), baseline: $steps steps, seeds 1 to $seeds, $unit"
    echo
    echo '| variant | settings | time of a step | loss | difference to the baseline | 95 % |'
    echo '|---|---|---|---|---|---|'
    names | while read -r name; do
        awk -v n="$name" -v settings="$(variant "$name")" -v seeds="$seeds" -v speed="$dir/speed.txt" '
            BEGIN {
                split("12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262", t)
                while ((getline line < speed) > 0) { split(line, f); if (f[1] == n) ratio = f[2] }
            }
            $2 <= seeds && $1 == "baseline" { base[$2] = $4 }
            $2 <= seeds && $1 == n { own[$2] = $4 }
            END {
                for (s in own) { k++; sum += own[s]; d[s] = own[s] - base[s]; mean += d[s] }
                if (!k) exit
                mean /= k
                for (s in own) v += (d[s] - mean) ^ 2
                printf "| %s | `%s` | %.2f | %.4f |", n, settings, ratio, sum / k
                if (n == "baseline") printf " | |\n"
                else if (k == 1) printf " %+.4f | one seed |\n", mean
                else printf " %+.4f | -+ %.4f |\n", mean, t[k - 1] * sqrt(v / (k - 1) / k)
            }' "$dir/results.txt"
    done
} | tee "$dir/table.md"
