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
    # config.toml, latest, manifest.json, model.safetensors, and two of the tokenizer
    [ "$(find "$runs/$config-back" -type f | wc -l)" = 6 ]
    "$BUILD/export" "$runs/$config-back" --to hf --out "$work/$config.again"
    [ "$(data_of "$work/$config.hf/model.safetensors" | wc -c)" -gt 100000 ]
    cmp <(data_of "$work/$config.again/model.safetensors") <(data_of "$work/$config.hf/model.safetensors")
    "$BUILD/sample" "$runs/$config-back" --prompt Once --temperature 0 --tokens 20 2>/dev/null </dev/null |
        cmp - <("$BUILD/sample" "$runs/$config" --prompt Once --temperature 0 --tokens 20 2>/dev/null </dev/null)
}

# A model file keeps everything but the settings: the same weights and ids, and so the same bytes again.
by_file() { # FORMAT CONFIG FILE [OPTION...]
    local format=$1 config=$2 file=$work/$3
    shift 3
    "$BUILD/export" "$runs/$config" --to "$format" --out "$file"
    "$BUILD/import" "$file" --out "$runs/$config.$format" "$@"
    cmp "$runs/$config.$format/checkpoints/step_00000000/model.safetensors" \
        "$runs/$config-back/checkpoints/step_00000000/model.safetensors"
    cmp "$runs/$config.$format/tokenizer/tokenizer.json" "$runs/$config-back/tokenizer/tokenizer.json"
    "$BUILD/export" "$file" --to "$format" --out "$file.again" "$@"
    cmp "$file" "$file.again" || [ "$format" = gguf ] # whose name is not the run's
    "$BUILD/sample" "$file" "$@" --prompt Once --temperature 0 --tokens 20 2>/dev/null </dev/null |
        cmp - <("$BUILD/sample" "$runs/$config" --prompt Once --temperature 0 --tokens 20 2>/dev/null </dev/null)
}

# As many files as --shard makes necessary, and their index; an index of before does not hide one file.
shards() {
    train gpt wide --run.steps=1 --sample.count=0 --model.ffn=2048 --model.layers=2
    "$BUILD/export" "$runs/wide" --to hf --out "$work/shards" --shard 1
    [ "$(find "$work/shards" -name 'model-0000?-of-0000*.safetensors' | wc -l)" -gt 1 ]
    "$BUILD/export" "$work/shards" --to safetensors --out "$work/no" 2>&1 | grep -q '^error: '
    "$BUILD/export" "$runs/wide" --to hf --out "$work/whole"
    "$BUILD/export" "$work/shards" --to hf --out "$work/joined"
    cmp "$work/joined/model.safetensors" "$work/whole/model.safetensors"
    "$BUILD/export" "$runs/wide" --to hf --out "$work/shards"
    [ ! -e "$work/shards/model.safetensors.index.json" ]
}

# Half the bits: the loss changes, by less than 0.01 nats. That is chosen, not derived: a scale that is wrong changes it
# by tenths.
fewer_bits() {
    local kind loss
    loss=$("$BUILD/eval" "$runs/llama" "$work/data/val_*.bin" --tokens 4000 --json | sed 's/.*"loss":\([0-9.]*\).*/\1/')
    for kind in BF16 F16 Q8_0; do
        "$BUILD/export" "$runs/llama" --to gguf --type $kind --out "$work/$kind.gguf"
        "$BUILD/eval" "$work/$kind.gguf" "$work/data/val_*.bin" --tokens 4000 --json |
            awk -v loss="$loss" -F '"loss":' '{ split($2, x, ","); d = x[1] - loss; exit !(d * d < 1e-4 && d != 0) }'
    done
    [ "$(wc -c <"$work/Q8_0.gguf")" -lt "$(wc -c <"$work/BF16.gguf")" ]
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
    refuses 2 'usage: import MODEL' "$work/gpt.hf"
    refuses 1 'data' "$work/data" --out "$runs/no"
    refuses 1 'is a run already' "$runs/gpt" --out "$runs/no"
    refuses 1 'cannot create' "$work/gpt.hf" --out "$runs/gpt"
    cp -r "$work/gpt.hf" "$work/short"
    head -c 9000 "$work/gpt.hf/model.safetensors" >"$work/short/model.safetensors"
    refuses 1 'short/model\.safetensors' "$work/short" --out "$runs/no"
    cp -r "$work/gpt.hf" "$work/mute"
    cp -r "$work/gpt.hf" "$work/nan" # its last number is no number
    printf '\0\0\300\177' | dd of="$work/nan/model.safetensors" bs=1 seek=$(($(wc -c <"$work/nan/model.safetensors") - 4)) \
        conv=notrunc status=none
    refuses 1 'nan: .* holds a number that is not finite' "$work/nan" --out "$runs/no"
    program_refuses export 1 'nan: .* holds a number that is not finite' "$work/nan" --to gguf --out "$work/nan.gguf"
    rm "$work/mute/tokenizer.json"
    refuses 1 'mute: no tokenizer\.json' "$work/mute" --out "$runs/no"
    [ ! -e "$runs/no" ]
    "$BUILD/import" "$work/mute" --out "$runs/mute" --tokenizer "$work/data"
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'gpt: there and back' there_and_back gpt
passes 'llama with QK-norm: there and back' there_and_back llama --model.qk_norm=true
passes 'GGUF: GPT-2, there and back' by_file gguf gpt gpt.gguf
passes 'GGUF: QK-norm, there and back' by_file gguf llama llama.gguf
passes 'llm.c: there and back' by_file llm.c gpt gpt.bin --tokenizer "$work/data"
passes 'several files' shards
passes 'fewer bits' fewer_bits
passes 'runs begin with it, on any layout' runs_begin_with_it
passes 'its settings are a configuration' settings
passes 'mistakes' mistakes
exit $failed
