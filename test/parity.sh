#!/bin/bash
# test/parity.sh: build/test/parity on a corpus and two configurations of its own. `test/parity.sh --quick` runs an eleventh
# of the layouts; `make parity` runs all. --keep DIR leaves everything in DIR.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# A vocabulary, heads and lengths that few numbers divide; sequences with few targets or none (uneven_corpus).
parity_config() { # FAMILY
    printf '%s\n' '[run]' "dir = \"$runs\"" 'steps = 3' 'dump = 3' 'threads = 1' 'peak = 100' 'eval_every = 0' \
        '[data]' "train = \"$work/data/train_*.bin\"" "val = \"$work/data/val_*.bin\"" "tokenizer = \"$work/data\"" \
        '[model]' 'layers = 5' 'channels = 64' 'heads = 8' 'context = 32' '[batch]' 'tokens = 512' \
        '[optim]' 'name = "sgd"' 'lr = 0.05' 'warmup = 0' 'schedule = "constant"' 'weight_decay = 0' 'clip = 0' \
        '[eval]' 'tokens = 500' '[sample]' 'count = 0'
    [ "$1" != gpt ] && printf '%s\n' '[model]' 'norm = "rmsnorm"' 'activation = "swiglu"' 'position = "rope"' \
        'kv_heads = 2' 'bias = false' 'tie = false' 'qk_norm = true' 'window = 11' 'window_pattern = "ssf"'
    [ "$1" = experts ] && printf '%s\n' 'experts = 8' 'experts_ffn = 40' 'experts_dense = 1' '[moe]' 'balance = "none"'
    return 0
}

options=() keep=
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=$2 && shift ;;
    *) options+=("$1") ;;
    esac
    shift
done
if [ "$keep" ]; then
    rm -rf "$work" && mkdir -p "$keep" && work=$(cd "$keep" && pwd) && runs=$work/runs
    trap - EXIT
fi
{
    "$BUILD/stories" --bytes 200000 --seed 3 --out "$work/text"
    "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 509 --out "$work/data"
} >"$work/prepare.out" 2>&1 || { cat "$work/prepare.out"; exit 1; }
uneven_corpus
mkdir -p "$runs"
parity_config gpt >"$work/gpt.toml"
parity_config llama >"$work/llama.toml"
parity_config experts >"$work/experts.toml"
BUILD=$BUILD MPIEXEC=$launcher "$BUILD/test/parity" "$work" "${options[@]}"
