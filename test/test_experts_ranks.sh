#!/bin/bash
# test/test_experts_ranks.sh: a model with experts trains the same bits on one rank and on several layouts, with
# recomputation, and resumed in the middle; its loads are in the metrics; what does not fit is refused in one line.
# deeper: more layouts
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# Everything that has a state or couples tokens: biases, capacity, a shared expert, a first dense layer.
experts=(--model.experts=4 --model.experts_ffn=40 --model.experts_shared=24 --model.experts_dense=1 --moe.balance=bias
    --moe.bias_rate=0.01 --moe.z_coef=0.001 --moe.capacity=1.25)
options=(--run.steps=6 --sample.count=0 --model.layers=4 --numerics.deterministic=true "${experts[@]}")
loads() { grep '"event":"experts"' "$runs/$1/metrics.jsonl" | sed 's/,"t":.*//'; } # RUN

alone() {
    train llama one "${options[@]}" --run.save_every=3
    well_formed one 6
    [ "$(loads one | wc -l)" = 3 ] # at the end, one line for each layer with experts
    [ "$(value experts name "$runs/one/metrics.jsonl" | tr '\n' ' ')" = '"layers.1" "layers.2" "layers.3" ' ]
    grep -qE '^experts +step 6: loads of experts between [0-9.]+ and [0-9.]+ of the even one, entropy 0\.[0-9]+, [0-9.]+%' \
        "$runs/one/log.txt"
    # 512 tokens of a step have 1024 slots, of which capacity drops some
    loads one | grep -o '"text":"[0-9 ]*"' | tr -dc '0-9 \n' |
        awk '{ n = 0; for (i = 1; i <= NF; i++) n += $i; if (n != 1024) exit 1 }'
    [ "$(value experts dropped "$runs/one/metrics.jsonl" | awk '$1 > 0 && $1 < 0.5' | wc -l)" = 3 ]
}

same() { # NAME: its weights, its optimizer's state and its loads are those of the run `one`
    "$BUILD/diff" "$runs/one" "$runs/$1" --exact | tail -n 1 | grep -q '^identical'
    loads "$1" | cmp - <(loads one)
}

layout() { # NAME RANKS OPTION...
    local name=$1 n=$2
    shift 2
    ranks "$n" llama "$name" "${options[@]}" "$@"
    same "$name"
}

again() { # NAME OPTION...: on one rank
    local name=$1
    shift
    train llama "$name" "${options[@]}" "$@"
    same "$name"
}

# The biases are state: a run that goes on without them would choose other experts.
resumed() {
    train llama half "${options[@]}" --run.stop_at=3
    train llama half "${options[@]}" --ckpt.resume=true
    "$BUILD/diff" "$runs/one" "$runs/half" --exact | tail -n 1 | grep -q '^identical'
    grep -q '"experts"' "$runs/half/checkpoints/step_00000006/"*.json
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

refused() { # WORDS OPTION...
    local words=$1
    shift
    fails_with 1 "$words" "$BUILD/train" "$work/llama.toml" --run.name=bad "$@"
}

mistakes() {
    refused 'SwiGLU' --model.experts=4 --model.activation=gelu
    refused 'experts_active 5 of model.experts 4' --model.experts=4 --model.experts_active=5
    refused 'no layer has experts' --model.experts=4 --model.experts_dense=2
    refused 'not a multiple of model.experts_groups 3' --model.experts=4 --model.experts_groups=3
    refused 'a token uses 3' --model.experts=4 --model.experts_active=3 --model.experts_groups=2
    refused 'has no effect|no effect' --moe.capacity=1
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'one rank' alone
passes 'two copies' layout ddp 2
passes 'sharded weights' layout zero3 2 --parallel.zero=3
passes 'a pipeline' layout pp 2 --parallel.pp=2
deeper passes 'a pipeline that defers gradients of weights' layout zb 2 --parallel.pp=2 --parallel.schedule=zb-h1
deeper passes 'two copies of an interleaved pipeline, ZeRO-1' layout four 4 --parallel.pp=2 \
    --parallel.schedule=interleaved --parallel.chunks=2 --parallel.zero=1
deeper passes 'ZeRO-2' layout zero2 4 --parallel.zero=2
passes 'recomputation' again full --memory.recompute=full
deeper passes 'selective recomputation' again selective --memory.recompute=selective
deeper passes 'offload' again offload --memory.offload=cpu
deeper passes 'other micro-batches' again micro --batch.micro=4
passes 'resumed' resumed
passes 'the loss scale' loss_scale
passes 'mistakes' mistakes
exit $failed
