#!/bin/bash
# test/test_import.sh: a model that was exported for Transformers and imported again is the one it was: other runs begin
# with it, bit for bit, on any layout; it is exported to the same bytes; and mistakes leave nothing behind.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# The tensors of a file, behind its header, which holds the step too.
data_of() { tail -c +$((9 + $(od -An -t u8 -N 8 "$1"))) "$1"; }

there_and_back() { # CONFIG [OPTION...]
    local config=$1
    shift
    train "$config" "$config" --run.steps=20 --sample.count=0 "$@"
    "$BUILD/export" "$runs/$config" --to hf --out "$work/$config.hf"
    "$BUILD/import" "$work/$config.hf" --out "$runs/$config-back"
    [ "$(find "$runs/$config-back" -type f | wc -l)" = 4 ] # config.toml, latest, manifest.json, model.safetensors
    "$BUILD/export" "$runs/$config-back" --to hf --out "$work/$config.again"
    [ "$(data_of "$work/$config.hf/model.safetensors" | wc -c)" -gt 100000 ]
    cmp <(data_of "$work/$config.again/model.safetensors") <(data_of "$work/$config.hf/model.safetensors")
    "$BUILD/sample" "$runs/$config-back" --prompt Once --temperature 0 --tokens 20 2>/dev/null </dev/null |
        cmp - <("$BUILD/sample" "$runs/$config" --prompt Once --temperature 0 --tokens 20 2>/dev/null </dev/null)
}

runs_begin_with_it() {
    local options=(--run.steps=3 --sample.count=0 --numerics.deterministic=true --model.qk_norm=true)
    train llama one "${options[@]}" --ckpt.init="$runs/llama"
    train llama two "${options[@]}" --ckpt.init="$runs/llama-back"
    same_state one two 3
    ranks 2 llama zero3 "${options[@]}" --ckpt.init="$runs/llama-back" --parallel.zero=3
    same_state one zero3 3
    ranks 4 llama grid "${options[@]}" --ckpt.init="$runs/llama-back" --parallel.tp=2 --parallel.pp=2 --batch.micro=4
    same_state one grid 3
}

# Its settings are a configuration: shape and tokenizer.
settings() {
    "$BUILD/train" "$runs/gpt-back/config.toml" --run.dir="$runs" --run.name=tuned --ckpt.init="$runs/gpt-back" \
        --data.train="$work/data/train_*.bin" --data.val="$work/data/val_*.bin" --run.steps=2 --sample.count=0 \
        --optim.lr=0 --optim.warmup=0 --eval.tokens=1000 >"$work/out" 2>"$work/err" </dev/null
    [ "$(value end val_loss "$runs/tuned/metrics.jsonl")" = "$(value end val_loss "$runs/gpt/metrics.jsonl")" ]
}

refuses() { program_refuses import "$@"; } # STATUS WORDS ARGUMENT...

mistakes() {
    refuses 2 'usage: import FOLDER' "$work/gpt.hf"
    refuses 1 'has no config\.json' "$work/data" --out "$runs/no"
    refuses 1 'cannot create' "$work/gpt.hf" --out "$runs/gpt"
    cp -r "$work/gpt.hf" "$work/short"
    head -c 9000 "$work/gpt.hf/model.safetensors" >"$work/short/model.safetensors"
    refuses 1 'short/model\.safetensors' "$work/short" --out "$runs/no"
    cp -r "$work/gpt.hf" "$work/mute"
    rm "$work/mute/tokenizer.json"
    refuses 1 'mute: no tokenizer\.json' "$work/mute" --out "$runs/no"
    [ ! -e "$runs/no" ]
    "$BUILD/import" "$work/mute" --out "$runs/mute" --tokenizer "$work/data"
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'gpt: there and back' there_and_back gpt
passes 'llama with QK-norm: there and back' there_and_back llama --model.qk_norm=true
passes 'runs begin with it, on any layout' runs_begin_with_it
passes 'its settings are a configuration' settings
passes 'mistakes' mistakes
exit $failed
