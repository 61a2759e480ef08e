#!/bin/bash
# test/test_long_context.sh: build/train with rotary positions that are stretched (model.rope_scaling), from end to end.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

# What a model says of the validation set: a run of one step whose learning rate is 0.
says() { # CONFIG NAME [OPTION...]: the loss, from metrics.jsonl
    train "$1" "$2" --run.steps=1 --optim.lr=0 --optim.warmup=0 --run.sample_every=0 --sample.count=0 "${@:3}"
    value end val_loss "$runs/$2/metrics.jsonl"
}

# Four times the context. Without stretching the model is lost; each way keeps it usable, and training goes on.
longer() {
    local short plain loss kind
    train llama llama
    short=$(says llama short --ckpt.init="$runs/llama" --eval.tokens=4000)
    plain=$(says llama plain --ckpt.init="$runs/llama" --eval.tokens=4000 --model.context=128 --batch.micro=4)
    for kind in linear ntk yarn llama3; do
        loss=$(says llama $kind --ckpt.init="$runs/llama" --eval.tokens=4000 --model.context=128 --batch.micro=4 \
            --model.rope_scaling=$kind --model.rope_original=32)
        echo "$kind: $loss (32 tokens: $short; 128, not stretched: $plain)"
        [ "$loss" != "$plain" ]
        grep -q '^rope_factor = 4' "$runs/$kind/config.toml"
    done
    train llama went_on --run.steps=30 --ckpt.init="$runs/llama" --eval.tokens=4000 --model.context=128 --batch.micro=4 \
        --model.rope_scaling=yarn --model.rope_original=32
    less "$(value end val_loss "$runs/went_on/metrics.jsonl")" "$plain"
}

refusals() {
    local train=$BUILD/train file=$work/llama.toml
    fails_with 1 'model.rope_scaling needs model.rope_original' "$train" "$file" --run.name=r --model.rope_scaling=yarn
    fails_with 1 'rope_original 64 is longer than model.context 32' "$train" "$file" --run.name=r \
        --model.rope_scaling=linear --model.rope_original=64
    fails_with 1 'rope_factor 0.5 is below 1' "$train" "$file" --run.name=r --model.rope_scaling=ntk --model.rope_factor=0.5
    fails_with 1 'rope_slow 5 is not less than model.rope_fast 4' "$train" "$file" --run.name=r \
        --model.rope_scaling=llama3 --model.rope_factor=2 --model.rope_slow=5
    fails_with 1 'model.rope_factor has no effect when model.rope_scaling is none' "$train" "$file" --run.name=r \
        --model.rope_factor=2
    fails_with 1 'model.rope_slow has no effect when model.rope_scaling is linear' "$train" "$file" --run.name=r \
        --model.rope_scaling=linear --model.rope_factor=2 --model.rope_slow=2
    # A run that goes on is the same model.
    fails_with 1 'model.rope_scaling: the checkpoint was trained with none, this run has ntk' "$train" "$file" \
        --run.name=llama --ckpt.resume=true --model.rope_scaling=ntk --model.rope_factor=2
}

prepare_corpus
passes 'a longer context, stretched in each way' longer
passes 'what is refused' refusals
exit $failed
