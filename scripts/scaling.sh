#!/bin/bash
# scripts/scaling.sh: measures a scaling law on this machine: L(N, D) = E + A / N^alpha + B / D^beta of generated
# stories, whose entropy is known, so that the fitted E can be held against it. `make scaling`; SMALL=1: some minutes.
#
#   ladder      5 models of 0.07 to 0.9 million parameters (N, all of them), each on 4 numbers of tokens (D); every run
#               has a learning-rate schedule of its own length and reads no token twice
#   held out    one larger model on more tokens: its loss is predicted from the ladder, and printed, before the training
#
#   arithmetic  6 N D of a run: sum N = 2.0e6 times sum D = 15.7e6 tokens, 1.9e14 FLOPs, and 9e13 held out, at 1e11 a
#               second some 45 minutes; SMALL: 1.2e6 times 2.0e6, 1.4e13, and 7e12 held out, 5 minutes at 7e10 (smaller
#               models are slower)
#
# Everything is in runs/scaling (SMALL: runs/scaling_small): ladder.txt has a line a run, isoflop.svg the curves. A run
# that is in ladder.txt is not trained again, so an interrupted ladder goes on where it was; `rm -r` its directory to
# start anew.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=${BUILD:-build} small=${SMALL:-}
V=1024 batch=1024

# NAME LAYERS CHANNELS
sizes=('xs 2 32' 's 2 64' 'm 2 96' 'l 3 112' 'xl 3 144')
tokens=(1048576 2097152 4194304 8388608) held='held 4 160' held_tokens=10485760 dir=runs/scaling mb=32
if [ "$small" ]; then
    sizes=('xs 2 32' 's 2 48' 'm 2 64' 'l 2 96' 'xl 2 128')
    tokens=(131072 262144 524288 1048576) held='held 3 128' held_tokens=1572864 dir=runs/scaling_small mb=6
fi
data=$dir/data ladder=$dir/ladder.txt
mkdir -p "$dir"

if [ ! -s "$data/manifest.json" ]; then
    echo "corpus: $mb MB of stories"
    "$build/stories" --bytes ${mb}000000 --val-bytes 100000 --seed 1 --out "$data" >"$dir/log"
    "$build/prepare" tokens --train "$data/train.txt" --val-file "$data/val.txt" --vocab $V --out "$data" >>"$dir/log"
fi

value() { # EVENT KEY NAME
    sed -n "/\"event\":\"$1\"/s/.*\"$2\":\([^,}]*\).*/\1/p" "$dir/$3/metrics.jsonl" | tail -n 1
}

# run NAME LAYERS CHANNELS TOKENS: trains, and adds "NAME PARAMETERS TOKENS LOSS" to the ladder
run() {
    local name=$1-$4 steps=$(($4 / batch)) began=$SECONDS
    if grep -q "^$name " "$ladder" 2>/dev/null; then return; fi
    "$build/train" scripts/scaling.toml --run.dir="$dir" --run.name="$name" --run.steps=$steps \
        --data.train="$data/train_*.bin" --data.val="$data/val_*.bin" --data.tokenizer="$data" \
        --data.floor="$data/floor.json" --model.layers="$2" --model.channels="$3" --batch.tokens=$batch \
        --optim.warmup=$((steps / 20 + 1)) >>"$dir/log"
    local N loss
    N=$(value start params "$name") loss=$(value end val_loss "$name")
    [ "$N" ] && [ "$loss" ] || { echo "error: $dir/$name/metrics.jsonl has no end (see $dir/log)" >&2; exit 1; }
    echo "$name $N $4 $loss" >>"$ladder"
    echo "$name: $N parameters, $4 tokens: loss $loss, $((SECONDS - began)) s"
}

for size in "${sizes[@]}"; do
    # shellcheck disable=SC2086
    for D in "${tokens[@]}"; do run $size "$D"; done
done
floor=$(value start floor_loss "xs-${tokens[0]}")
N=$("$build/plan" params scripts/scaling.toml --model.vocab=$V --model.layers="$(cut -d ' ' -f 2 <<<"$held")" \
    --model.channels="$(cut -d ' ' -f 3 <<<"$held")" | awk '$2 == "parameters" { print $1 }')
"$build/scaling" "$ladder" --floor "$floor" --held-out held --predict "$N" $held_tokens --svg "$dir/isoflop.svg" |
    tee "$dir/fit.txt"
# shellcheck disable=SC2086
run $held $held_tokens
"$build/scaling" "$ladder" --floor "$floor" --held-out held --predict "$N" $held_tokens --svg "$dir/isoflop.svg" \
    --measured "$(awk '/^held/ { print $4 }' "$ladder")" >"$dir/fit.txt.new"
mv "$dir/fit.txt.new" "$dir/fit.txt"
tail -n 2 "$dir/fit.txt"
