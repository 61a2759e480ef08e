#!/bin/bash
# scripts/example.sh [NAME] [--section.key=value...]: trains three steps of scripts/examples/NAME.toml, a configuration of
# another program in our settings, on ranks of this machine. Without NAME: lists them.
#
#   full NAME   the command that plans it as it stands, on as many accelerators as it says (build/plan time)
#
# The file has two lines that this reads:
#   # full:  512 ranks                  as many as the configuration is for
#   # small: 8 ranks --key=value...     as many as here, and what is smaller then: the layout and the batch
# The model is smaller for all of them in the same way: 4 layers of 64 channels, a context of 64. All else holds as it is
# in the file, the schedule too. Text, tokens and runs are in runs/examples, or in $DIR.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build} dir=${DIR:-runs/examples}
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends

if [ $# = 0 ]; then
    for file in scripts/examples/*.toml; do sed -n '1s/^# //p' "$file"; done
    exit
fi
full=
if [ "$1" = full ]; then full=1; shift; fi
name=${1:-} file=scripts/examples/${1:-}.toml
[ -n "$name" ] && [ -f "$file" ] || { echo "error: scripts/example.sh: no example '$name' (try: without a name, which lists them)" >&2; exit 2; }
shift
if [ -n "$full" ]; then
    ranks=$(sed -n 's/^# full:  *\([0-9]*\) ranks$/\1/p' "$file")
    exec "$build/plan" time "$file" --gpus "$ranks" --gpu A100-80 "$@"
fi

train() { # RANKS OPTION...: shows the command, what was given and derived, and the steps
    local ranks=$1
    shift
    rm -rf "$dir/$name.run"
    echo "mpiexec -n $ranks $build/train $*"
    if ! "${with[@]}" "$(command -v mpiexec.mpich || command -v mpiexec)" -n "$ranks" "$build/train" "$@" --run.dir="$dir" --run.name="$name.run" \
        >"$dir/$name.log" 2>"$dir/$name.err" </dev/null; then
        cat "$dir/$name.err" >&2
        exit 1
    fi
    awk '/^settings that were given/ { table = 1; next } table && /^([a-z]+ +[a-z_0-9]+=|[a-z]+ +derived: |          )/ { print; next } { table = 0 }
        /^(step|memory|account:|trained|validation) / || /^  (bytes|para|grad|opti|model)/' "$dir/$name.log"
    sed -n 's/.*"event":"train","step":\([0-9]*\).*"loss":\([^,]*\).*"lr":\([^,]*\).*/step \1 of 3: loss \2, lr \3/p' "$dir/$name.run/metrics.jsonl"
    cat "$dir/$name.err" >&2
}
small=(--model.context=64 --run.stop_at=3 --run.log_every=1 --run.save_every=0 --run.eval_every=0 --run.peak=100 --run.threads=1
    --run.account=true --eval.tokens=512 --sample.count=0)
mkdir -p "$dir"

if grep -q '^\[recipe\]' "$file"; then # seven small folders stand in for its sources
    rm -rf "${dir:?}/$name" && mkdir -p "$dir/$name"
    cp "$file" "$dir/$name/"
    seed=0
    for path in $(sed -n 's/^path = "\(.*\)"/\1/p' "$file"); do
        mkdir "$dir/$name/$path"
        "$build/stories" --count 60 --seed $((++seed)) >"$dir/$name/$path/part.txt"
    done
    "$build/prepare" "$dir/$name/$name.toml" "$@"
    train 2 tiny "${small[@]}" --batch.tokens=1024 --data.tokenizer="$dir/$name/data/tokenizer" \
        --data.train="$dir/$name/data/train.toml" --data.val="$dir/$name/data/shards/*/val_*.bin"
    exit
fi

if [ ! -f "$dir/data/tokenizer.json" ]; then
    "$build/stories" --bytes 200000 --seed 3 --out "$dir/text" >"$dir/log" 2>&1
    "$build/prepare" tokens --train "$dir/text/train.txt" --val-file "$dir/text/val.txt" --vocab 512 --out "$dir/data" >"$dir/log" 2>&1
fi
read -r ranks options <<<"$(sed -n 's/^# small: \([0-9]*\) ranks *\(.*\)/\1 \2/p' "$file")"
read -ra options <<<"$options"
train "$ranks" "$file" --model.layers=4 --model.channels=64 --model.heads=4 --model.kv_heads=0 --model.ffn=0 --model.vocab=0 \
    "${small[@]}" --data.train="$dir/data/train_*.bin" --data.val="$dir/data/val_*.bin" --data.tokenizer="$dir/data" "${options[@]}" "$@"
