#!/bin/bash
# test/test_experts_tools.sh: experts that begin as the one network of a dense model (ckpt.init), on any layout; the biases
# of moe.balance=bias, with which build/eval, build/sample and build/export choose as training did; and what a run says of
# its experts: loads, losses, warnings. (test_layouts.sh: that all layouts train the same ones.)
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

# Everything that has a state or couples tokens: biases, capacity, a shared expert, a first dense layer.
biased=(--model.experts=4 --model.experts_ffn=40 --model.experts_shared=24 --model.experts_dense=1 --moe.balance=bias
    --moe.bias_rate=0.01 --moe.z_coef=0.001 --moe.capacity=1.25)
loads() { grep '"event":"experts"' "$runs/$1/metrics.jsonl" | sed 's/,"t":.*//'; } # RUN

metrics_of_experts() {
    train llama metrics --run.steps=6 --sample.count=0 --model.layers=4 "${biased[@]}"
    well_formed metrics 6
    [ "$(loads metrics | wc -l)" = 3 ] # at the end, one line for each layer with experts
    [ "$(value experts name "$runs/metrics/metrics.jsonl" | tr '\n' ' ')" = '"layers.1" "layers.2" "layers.3" ' ]
    grep -qE '^experts +step 6: loads of experts between [0-9.]+ and [0-9.]+ of the even one, entropy 0\.[0-9]+, [0-9.]+%' \
        "$runs/metrics/log.txt"
    # 512 tokens of a step have 1024 slots, of which capacity drops some
    loads metrics | grep -o '"text":"[0-9 ]*"' | tr -dc '0-9 \n' |
        awk '{ n = 0; for (i = 1; i <= NF; i++) n += $i; if (n != 1024) exit 1 }'
    [ "$(value experts dropped "$runs/metrics/metrics.jsonl" | awk '$1 > 0 && $1 < 0.5' | wc -l)" = 3 ]
    # Of two renormalised weights the larger one is at least 1/2; log sum exp of 4 outputs near 0 is near ln 4.
    [ "$(value experts gate_max "$runs/metrics/metrics.jsonl" | awk '$1 > 0.5 && $1 < 0.9' | wc -l)" = 3 ]
    [ "$(value experts z_loss "$runs/metrics/metrics.jsonl" | awk '$1 > 0.0014 && $1 < 0.0022' | wc -l)" = 3 ]
    [ "$(value experts bias_max "$runs/metrics/metrics.jsonl" | awk '$1 > 0.009 && $1 < 0.061' | wc -l)" = 3 ]
    if loads metrics | grep -q balance_loss; then return 1; fi # moe.balance=bias has none
}

# The balance loss of nearly even loads is its coefficient. Thresholds that any loads are below make warnings, once.
watched() {
    local name options=(--run.steps=6 --sample.count=0 --model.experts=4 --run.eval_every=3)
    for name in sequence batch; do
        train llama "$name" "${options[@]}" --moe.balance_coef=0.5 --moe.balance=$name --monitor.experts_steps=2 --monitor.experts_entropy=0.9999
        [ "$(value experts balance_loss "$runs/$name/metrics.jsonl" | awk '$1 > 0.49 && $1 < 0.75' | wc -l)" = 4 ]
        if loads $name | grep -q bias_max; then return 1; fi # what no choice reads
        [ "$(value warn step "$runs/$name/metrics.jsonl" | tr '\n' ' ')" = '2 2 ' ] # two layers
        grep -qE 'step 2: experts of layers.1: for 2 steps the entropy of their loads .*; raise moe' "$runs/$name/log.txt"
    done
    train llama many "${options[@]}" --run.steps=3 --model.experts=64 --model.experts_active=1 --moe.balance=none --monitor.experts_steps=2
    grep -qE 'experts of layers.0: for 2 steps .*no token has used [0-9]+ of them: [0-9]+' "$runs/many/log.txt"
    train llama quiet "${options[@]}" --run.steps=3 --model.experts=64 --model.experts_active=1 --moe.balance=none --monitor.experts_steps=0
    [ -z "$(value warn step "$runs/quiet/metrics.jsonl")" ]
}

# In fp16 the losses of routers are scaled as the main loss is: the norm of a gradient that they make is that of fp32.
loss_scale() {
    local options=(--run.steps=1 --sample.count=0 --model.experts=4)
    train llama plain "${options[@]}"
    train llama fp32 "${options[@]}" --moe.z_coef=1
    train llama fp16 "${options[@]}" --moe.z_coef=1 --numerics.dtype=fp16 --numerics.loss_scale=1024
    for name in plain fp32 fp16; do value train grad_norm "$runs/$name/metrics.jsonl"; done >"$work/norms"
    paste -s "$work/norms" | awk '{ exit !($2 > 2 * $1 && $2 / $3 > 0.98 && $2 / $3 < 1.02) }'
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'experts begin as the network of a dense model' begins_dense
passes 'on any layout' on_any_layout
passes 'tools choose with the biases of training' with_biases
passes 'what is refused' refusals
passes 'the metrics of experts' metrics_of_experts
passes 'what is watched' watched
passes 'the loss scale' loss_scale
exit $failed
