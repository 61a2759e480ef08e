#!/bin/bash
# scripts/scaling.sh: measures a scaling law on this machine: L(N, D) = E + A / N^alpha + B / D^beta of generated
# gossip, whose entropy is known, so that the fitted E can be compared with it. `make scaling`; SMALL=1: some
# minutes.
#   text        facts about people who appear as often as Zipf's law says (data/stories/gossip.h): the part not yet
#               learned is the tail of a power law, whether too few facts were seen or too few fit into the parameters
#   ladder      5 widths C of 2 layers, 13 to 108 thousand parameters (N, all of them), each on 5 numbers of tokens (D);
#               every run has a learning-rate schedule of its own length and reads no token twice
#   held out    one larger model on more tokens: its loss is predicted from the ladder, and printed, before the training
#   rates       1.5 / C for the embeddings, 0.024 for Muon's matrices, at all widths: twice and half as much of either
#               were tried before the ladder on widths 12 and 48, on a text without numbers, and made little difference
#   arithmetic  6 N D of all runs: 4e13 FLOPs, and 2e13 held out, which is little, but slow with such small matrices:
#               some 60 minutes of one core. SMALL: an eighth
#
# Runs share nothing, so JOBS of them (one for each core) run at the same time, with a thread each. Everything is in
# runs/scaling (SMALL: runs/scaling_small): ladder.txt has a line for each run, predicted.txt the fit before the
# held-out run and fit.txt the one with it, isoflop.svg the curves. A run that is in ladder.txt is not trained again,
# so an interrupted ladder continues; `rm -r` its directory to start anew.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=${BUILD:-build} small=${SMALL:-} jobs=${JOBS:-$(nproc)}
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends
V=704 batch=2048
runs=() # CHANNELS STEPS of each, the longest first, so that the jobs end together
for s in 8000 4000 2000 1000 500; do
    for C in 48 32 24 16 12; do runs+=("$C $s"); done
done
held=64 held_steps=10000 dir=runs/scaling mb=110 part=1
if [ "$small" ]; then dir=runs/scaling_small mb=14 part=8; fi
data=$dir/data ladder=$dir/ladder.txt
mkdir -p "$dir"

if [ ! -s "$data/manifest.json" ]; then
    echo "corpus: $mb MB of gossip"
    "$build/stories" --gossip --bytes ${mb}000000 --val-bytes 1000000 --seed 1 --out "$data" >"$dir/log"
    "$build/prepare" tokens --train "$data/train.txt" --val-file "$data/val.txt" --vocab $V --out "$data" >>"$dir/log"
fi

value() { # EVENT KEY NAME: the number, or nothing
    sed -n "/\"event\":\"$1\"/s/.*\"$2\":\([0-9][^,}]*\).*/\1/p" "$dir/$3/metrics.jsonl" | tail -n 1
}

# run NAME CHANNELS STEPS THREADS: trains, and adds "NAME PARAMETERS TOKENS LOSS" to the ladder
run() {
    local name=$1 C=$2 tokens=$(($3 * batch)) began=$SECONDS N loss
    "${with[@]}" "$build/train" scripts/scaling.toml --run.dir="$dir" --run.name="$name" --run.steps="$3" --run.threads="$4" \
        --data.train="$data/train_*.bin" --data.val="$data/val_*.bin" --data.tokenizer="$data" \
        --data.floor="$data/floor.json" --model.channels="$C" --model.ffn=$((4 * C)) --batch.tokens=$batch \
        --optim.lr="$(awk "BEGIN { print 1.5 / $C }")" --optim.matrix_lr="$(awk "BEGIN { print 0.016 * $C }")" \
        --optim.warmup=$((60 < $3 / 10 ? 60 : $3 / 10)) >"$dir/$name.log" 2>&1 </dev/null ||
        { echo "error: $name ended with status $? (see $dir/$name.log)" >&2; return 1; }
    N=$(value start params "$name") loss=$(value end val_loss "$name")
    if ! [ "$N" ] || ! [ "$loss" ]; then
        echo "error: $dir/$name/metrics.jsonl has no end (see $dir/$name.log)" >&2
        return 1
    fi
    echo "$name $N $tokens $loss" >>"$ladder"
    echo "$name: $N parameters, $tokens tokens: loss $loss, $((SECONDS - began)) s"
}
done_already() { grep -q "^$1 " "$ladder" 2>/dev/null; }

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT # Ctrl-C does not reach what runs in the background
trap 'exit 130' HUP INT TERM
running=0
for model in "${runs[@]}"; do
    read -r C s <<<"$model"
    s=$((s / part))
    done_already "c$C-$s" && continue
    if [ $running -ge "$jobs" ]; then wait -n; running=$((running - 1)); fi
    run "c$C-$s" "$C" "$s" 1 &
    running=$((running + 1))
done
while [ $running -gt 0 ]; do wait -n; running=$((running - 1)); done

# Before the held-out run: the sorted ladder, and the prediction.
sort -V -o "$ladder" "$ladder"
held_steps=$((held_steps / part)) held_tokens=$((held_steps * batch))
floor=$(value start floor_loss "c$C-$s") # of any run
N=$("$build/plan" params scripts/scaling.toml --model.vocab=$V --model.channels=$held --model.ffn=$((4 * held)) |
    awk '$2 == "parameters" { print $1 }')
fit() {
    "$build/show" scaling "$ladder" --floor "$floor" --held-out held --predict "$N" $held_tokens \
        --svg "$dir/isoflop.svg" "$@"
}
stamp() {
    echo
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)," \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1), $jobs at a time"
}
[ -s "$dir/predicted.txt" ] || { { fit; stamp; } >"$dir/predicted.new" && mv "$dir/predicted.new" "$dir/predicted.txt"; }
cat "$dir/predicted.txt"
done_already held || { run held $held $held_steps 1 & wait $!; } # a second thread gains nothing at this size
{ fit --measured "$(awk '/^held/ { print $4 }' "$ladder")"; stamp; } >"$dir/fit.new"
mv "$dir/fit.new" "$dir/fit.txt"
tail -n 5 "$dir/fit.txt"
