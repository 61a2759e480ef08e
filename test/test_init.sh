#!/bin/bash
# test/test_init.sh: build/train beginning with the weights of another run (ckpt.init), from end to end and on any layout, and
# with rotary positions that are stretched to a longer context (model.rope_scaling).
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# What a model says of the validation set: a run of one step whose learning rate is 0.
says() { # CONFIG NAME [OPTION...]: the loss, from metrics.jsonl
    train "$1" "$2" --run.steps=1 --optim.lr=0 --optim.warmup=0 --run.sample_every=0 --sample.count=0 "${@:3}"
    value end val_loss "$runs/$2/metrics.jsonl"
}

begins_where_the_other_ended() { # CONFIG
    train "$1" "$1"
    local loss
    loss=$(value end val_loss "$runs/$1/metrics.jsonl")
    [ "$(says "$1" "$1-next" --ckpt.init="$runs/$1")" = "$loss" ]
    grep -q "^weights: those of $runs/$1, step 40" "$runs/$1-next/log.txt"
    [ "$(says "$1" "$1-dir" --ckpt.init="$(checkpoint "$1" 40)")" = "$loss" ]
    grep -q '"adam_step":1,' "$(checkpoint "$1-next" 1)/manifest.json" # its own state and data, from the start
    grep -q '"sample":16,' "$(checkpoint "$1-next" 1)/manifest.json"
}

# Weights alone are taken, so another optimizer is no obstacle; ranks take their parts.
on_any_layout() {
    local loss
    loss=$(value end val_loss "$runs/llama/metrics.jsonl")
    [ "$(says llama muon --ckpt.init="$runs/llama" --optim.name=muon)" = "$loss" ]
    train llama one --run.steps=3 --ckpt.init="$runs/llama" --numerics.deterministic=true
    for layout in '2 --parallel.zero=3' '4 --parallel.tp=2 --parallel.pp=2' '2 --parallel.cp=2 --parallel.zero=1'; do
        read -r -a words <<<"$layout"
        rm -rf "${runs:?}/many"
        "$launcher" -n "${words[0]}" "$BUILD/train" "$work/llama.toml" --run.name=many --run.steps=3 --batch.micro=4 \
            --ckpt.init="$runs/llama" --numerics.deterministic=true "${words[@]:1}" >"$work/many.out" 2>&1 </dev/null
        same_state one many 3
    done
}

# A file of weights, as build/export writes it, or a dump, whose weights are those before its update.
from_a_file() {
    local loss file=$work/llama.safetensors
    loss=$(value end val_loss "$runs/llama/metrics.jsonl")
    "$BUILD/export" "$runs/llama" --to safetensors --out "$file"
    [ "$(says llama file --ckpt.init="$file")" = "$loss" ]
    train llama dumped --run.steps=1 --run.dump=1 --ckpt.init="$runs/llama"
    [ "$(says llama dump --ckpt.init="$runs/dumped/dump/step_00000001/rank_00000.safetensors")" = "$loss" ]
    "$launcher" -n 4 "$BUILD/train" "$work/llama.toml" --run.name=file-grid --run.steps=3 --batch.micro=4 \
        --ckpt.init="$file" --numerics.deterministic=true --parallel.tp=2 --parallel.pp=2 >"$work/grid.out" 2>&1 </dev/null
    same_state one file-grid 3
    fails_with 1 'llama.safetensors: holds tensor head.weight, which this run.s model lacks' "$BUILD/train" "$work/gpt.toml" --run.name=r \
        --ckpt.init="$file"
}

# Without a tokenizer: the same losses, and no bits per byte; what needs one says so.
without_a_tokenizer() {
    local options=(--data.tokenizer= --model.vocab=512)
    train llama mute --run.steps=3 --numerics.deterministic=true --ckpt.init="$runs/llama" --sample.count=0 "${options[@]}"
    same_state one mute 3
    [ "$(value end val_bpb "$runs/mute/metrics.jsonl")" = null ]
    fails_with 1 'sample.count needs it' "$BUILD/train" "$work/llama.toml" --run.name=r "${options[@]}"
    fails_with 1 'data.document_mask needs it' "$BUILD/train" "$work/llama.toml" --run.name=r --sample.count=0 \
        --data.document_mask=true "${options[@]}"
    fails_with 1 'token 511, but the vocabulary has 100' "$BUILD/train" "$work/llama.toml" --run.name=r \
        --sample.count=0 --data.tokenizer= --model.vocab=100
}

# The new run is a run: what was stopped goes on from its own checkpoint, not from the other run's weights.
resumes_as_itself() {
    train llama straight --run.steps=8 --ckpt.init="$runs/llama" --run.save_every=4
    train llama stopped --run.steps=8 --ckpt.init="$runs/llama" --run.save_every=4 --run.stop_at=4
    train llama stopped --run.steps=8 --ckpt.init="$runs/llama" --run.save_every=4 --ckpt.resume=true
    same_state straight stopped 8
    if grep -q '^weights: those' <(tail -n +2 "$work/stopped.out"); then return 1; fi
}

# A further stage: with a constant rate and the same data it is the rest of a run that was not cut, to the bit, on other
# ranks; its data goes on, and it is stopped and resumed itself.
a_stage() { # [OPTION...]
    local same=(--optim.schedule=constant --optim.warmup=0 --numerics.deterministic=true "$@")
    rm -rf "${runs:?}"/{uncut,first,second}
    train llama uncut --run.steps=8 "${same[@]}"
    train llama first --run.steps=4 "${same[@]}"
    same+=(--run.steps=4 --ckpt.init="$runs/first" --ckpt.init_state=true)
    ranks 2 llama second --batch.micro=4 --run.stop_at=2 "${same[@]}"
    grep -q "^weights and optimizer's state: those of $runs/first, step 4" "$runs/second/log.txt"
    train llama second "${same[@]}" --ckpt.resume=true
    grep -q '"adam_step":8,' "$(checkpoint second 4)/manifest.json"
    "$BUILD/diff" "$(checkpoint second 4)" "$(checkpoint uncut 8)" --exact | tail -n 1 | grep '^identical: '
    cmp <(value train loss "$runs/second/metrics.jsonl") <(value train loss "$runs/uncut/metrics.jsonl" | tail -n 4)
}

# Four times the context. Without stretching the model is lost; each way keeps it usable, and training goes on.
longer() {
    local short plain loss kind
    short=$(says llama context-short --ckpt.init="$runs/llama" --eval.tokens=4000)
    plain=$(says llama context-plain --ckpt.init="$runs/llama" --eval.tokens=4000 --model.context=128 --batch.micro=4)
    for kind in linear ntk yarn llama3; do
        loss=$(says llama context-$kind --ckpt.init="$runs/llama" --eval.tokens=4000 --model.context=128 --batch.micro=4 \
            --model.rope_scaling=$kind --model.rope_original=32)
        echo "$kind: $loss (32 tokens: $short; 128, not stretched: $plain)"
        [ "$loss" != "$plain" ]
        grep -q '^rope_factor = 4' "$runs/context-$kind/config.toml"
    done
    train llama context-went-on --run.steps=30 --ckpt.init="$runs/llama" --eval.tokens=4000 --model.context=128 --batch.micro=4 \
        --model.rope_scaling=yarn --model.rope_original=32
    less "$(value end val_loss "$runs/context-went-on/metrics.jsonl")" "$plain"
}

refusals() {
    local train=$BUILD/train file=$work/llama.toml
    fails_with 1 "$runs/none: cannot open|$runs/none/manifest.json" "$train" "$file" --run.name=r --ckpt.init="$runs/none"
    mkdir -p "$runs/empty/checkpoints"
    fails_with 1 'init_state has no effect without ckpt.init' "$train" "$file" --run.name=r --ckpt.init_state=true
    fails_with 1 'a file of weights has no optimizer' "$train" "$file" --run.name=r --ckpt.init_state=true --ckpt.init="$work/llama.safetensors"
    fails_with 1 'optim.name' "$train" "$file" --run.name=r --ckpt.init_state=true --ckpt.init="$runs/llama" --optim.name=lion
    fails_with 1 'empty/checkpoints: no checkpoint in it' "$train" "$file" --run.name=r --ckpt.init="$runs/empty"
    fails_with 1 'model.norm_eps: the checkpoint was trained with 1e-05, this run has 1e-06 .set it so.' "$train" "$file" \
        --run.name=r --ckpt.init="$runs/llama" --model.norm_eps=1e-6
    fails_with 1 'tensor .*stored with shape' "$train" "$file" --run.name=r --ckpt.init="$runs/llama" --model.channels=64 --model.head_size=8
    fails_with 1 'tensor embed.positions.weight: stored with shape \(32,32\), this run.s model has \(64,32\)' \
        "$train" "$work/gpt.toml" --run.name=r --ckpt.init="$runs/gpt" --model.context=64
}

launcher=$(command -v mpiexec.hydra || command -v mpiexec)
channels=32
prepare_corpus
passes 'a run begins with the weights of another: GPT' begins_where_the_other_ended gpt
passes 'a run begins with the weights of another: LLaMA' begins_where_the_other_ended llama
passes 'any optimizer and any layout take them' on_any_layout
passes 'from a file of weights, too' from_a_file
passes 'a run without a tokenizer' without_a_tokenizer
passes 'and is resumed as a run of its own' resumes_as_itself
passes 'a further stage, with the optimizer' a_stage
passes 'in bf16, with experts' a_stage --numerics.dtype=bf16 --model.experts=4 --model.experts_ffn=40
passes 'a longer context, stretched in each way' longer
passes 'what is refused' refusals
exit $failed
