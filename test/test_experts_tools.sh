#!/bin/bash
# test/test_experts_tools.sh: experts that begin as the one network of a dense model (ckpt.init), on any layout; and the
# biases of moe.balance=bias, with which build/eval, build/sample and build/export choose as training did.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

experts=(--model.experts=4 --model.experts_ffn=192 --ckpt.init="$runs/dense") # 192: the dense model's, 8 C / 3 rounded up

# What a model says of the validation set: a run of one step whose learning rate is 0. (Deterministic, a dense network
# sums its products in the parts that tensor-parallel ranks have, and experts do not.)
says() { # NAME [OPTION...]: the loss, from metrics.jsonl
    train llama "$1" --run.steps=1 --optim.lr=0 --optim.warmup=0 --run.sample_every=0 --sample.count=0 "${@:2}"
    value end val_loss "$runs/$1/metrics.jsonl"
}

# One expert, of weight 1, is the dense network, bit for bit; several, whose weights sum to 1, are it but for rounding.
begins_dense() {
    train llama dense --run.steps=20 --sample.count=0
    local loss
    loss=$(says same --ckpt.init="$runs/dense")
    [ "$(says one "${experts[@]}" --model.experts=1 --model.experts_active=1)" = "$loss" ]
    grep -q "^weights: those of $runs/dense, step 20; each expert begins as its layer's one network" "$runs/one/log.txt"
    if grep -q 'each expert begins' "$runs/same/log.txt"; then return 1; fi
    close_to "$(says three "${experts[@]}" --model.experts_active=3)" "$loss" 1e-6
    close_to "$(says some "${experts[@]}" --model.experts_dense=1)" "$loss" 1e-6
    "$BUILD/export" "$runs/dense" --to safetensors --out "$work/dense.safetensors"
    [ "$(says file "${experts[@]}" --model.experts=1 --model.experts_active=1 --ckpt.init="$work/dense.safetensors")" = "$loss" ]
    # Without it the weights of two of four do not sum to 1: another model.
    if close_to "$(says plain "${experts[@]}" --model.experts_renorm=false)" "$loss" 1e-3; then return 1; fi
}

# It learns, experts part, and all layouts do the same. A second run begins with its experts.
on_any_layout() {
    local options=("${experts[@]}" --run.steps=4 --sample.count=0 --numerics.deterministic=true)
    train llama alone "${options[@]}"
    [ "$(value train loss "$runs/alone/metrics.jsonl" | sort -u | wc -l)" = 4 ]
    ranks 2 llama zero "${options[@]}" --parallel.zero=3 --batch.micro=4
    same_state alone zero 4
    ranks 2 llama pp "${options[@]}" --parallel.pp=2 --batch.micro=4
    same_state alone pp 4
    [ "$(says next "${experts[@]}" --numerics.deterministic=true --ckpt.init="$runs/alone")" = "$(value end val_loss "$runs/alone/metrics.jsonl")" ]
    if grep -q 'each expert begins' "$runs/next/log.txt"; then return 1; fi
}

# With the biases that training has, the tools choose the experts that training chose; and so does a run that begins
# with these weights.
with_biases() {
    local biased=(--model.experts=4 --model.experts_ffn=40 --moe.balance=bias)
    train llama biased "${biased[@]}" --moe.bias_rate=0.02 --run.steps=25 --sample.count=0
    local loss
    loss=$(value end val_loss "$runs/biased/metrics.jsonl")
    "$BUILD/eval" "$runs/biased" --json | grep -q "\"loss\":$loss,"
    biased+=(--ckpt.init="$runs/biased" --moe.bias_rate=0)
    [ "$(says begun "${biased[@]}")" = "$loss" ]
    says unbiased "${biased[@]:0:2}" --moe.balance=none --ckpt.init="$runs/biased"
    [ "$(value train loss "$runs/begun/metrics.jsonl")" != "$(value train loss "$runs/unbiased/metrics.jsonl")" ] # from step 1 on
    # Neither class of Transformers has biases.
    fails_with 1 'moe.balance = bias: experts are chosen with biases' "$BUILD/export" "$runs/biased" --to hf --out "$work/hf"
    fails_with 1 'moe.balance = bias: experts are chosen with biases' "$BUILD/export" "$runs/biased" --to gguf --out "$work/g"
}

refusals() {
    local train=("$BUILD/train" "$work/llama.toml" --run.name=bad)
    fails_with 1 'layers.0.ffn.gate.weight: stored with shape .192,64., an expert of this run has .40,64.* model.experts_ffn' \
        "${train[@]}" "${experts[@]}" --model.experts_ffn=40
    fails_with 1 'no tensor layers.0.shared.gate.weight' "${train[@]}" "${experts[@]}" --model.experts_shared=16
    fails_with 1 'holds tensor layers.0.router.weight' "${train[@]}" --ckpt.init="$runs/alone"
    fails_with 1 'model.experts_active: the checkpoint was trained with 2, this run has 1' "${train[@]}" \
        "${experts[@]}" --ckpt.init="$runs/alone" --model.experts_active=1
    # A run itself may not lose its network: only another one's weights become experts.
    fails_with 1 'holds tensor layers.0.ffn.gate.weight, which this run.s model lacks' "$BUILD/train" "$work/llama.toml" \
        --run.name=dense --ckpt.resume=true --run.steps=30 --model.experts=4
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'experts begin as the network of a dense model' begins_dense
passes 'on any layout' on_any_layout
passes 'tools choose with the biases of training' with_biases
passes 'what is refused' refusals
exit $failed
