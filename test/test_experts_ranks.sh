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
    # Of two renormalised weights the larger one is at least 1/2; log sum exp of 4 outputs near 0 is near ln 4.
    [ "$(value experts gate_max "$runs/one/metrics.jsonl" | awk '$1 > 0.5 && $1 < 0.9' | wc -l)" = 3 ]
    [ "$(value experts z_loss "$runs/one/metrics.jsonl" | awk '$1 > 0.0014 && $1 < 0.0022' | wc -l)" = 3 ]
    [ "$(value experts bias_max "$runs/one/metrics.jsonl" | awk '$1 > 0.009 && $1 < 0.061' | wc -l)" = 3 ]
    if loads one | grep -q balance_loss; then return 1; fi # moe.balance=bias has none
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
    train llama many "${options[@]}" --model.experts=64 --model.experts_active=1 --moe.balance=none --monitor.experts_steps=2
    grep -qE 'experts of layers.0: for 2 steps .*no token has used [0-9]+ of them: [0-9]+' "$runs/many/log.txt"
    train llama quiet "${options[@]}" --model.experts=64 --model.experts_active=1 --moe.balance=none --monitor.experts_steps=0
    [ -z "$(value warn step "$runs/quiet/metrics.jsonl")" ]
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

# Of 5 windows the first rank has all, and gets rows of a window that does not count.
evaluated() {
    local options=(--run.steps=1 --sample.count=0 --numerics.deterministic=true "${experts[@]}" --eval.tokens=160)
    train llama windows "${options[@]}"
    ranks 2 llama windows2 "${options[@]}" --parallel.ep=2
    [ "$(value end val_loss "$runs/windows/metrics.jsonl")" = "$(value end val_loss "$runs/windows2/metrics.jsonl")" ]
}

# Adafactor keeps as many numbers for the columns of such a matrix as it has elements; both are (1, C), the state (C).
one_row() {
    train llama row --run.steps=1 --sample.count=0 --numerics.deterministic=true --optim.name=adafactor \
        --model.experts=1 --model.experts_active=1
    "$BUILD/diff" "$runs/row" "$runs/row" --exact | tail -n 1 | grep -q '^identical'
}

# The loss of a sequence, and what an expert takes of it, follow from all its tokens, wherever they are.
of_sequences() {
    local options=(--run.steps=3 --sample.count=0 --numerics.deterministic=true --model.experts=4 --moe.balance_coef=0.1
        --moe.capacity=1.1 --moe.drop=lightest)
    train llama whole "${options[@]}"
    ranks 4 llama shared "${options[@]}" --parallel.cp=2 --parallel.ep=4 --parallel.zero=1
    "$BUILD/diff" "$runs/whole" "$runs/shared" --exact | tail -n 1 | grep -q '^identical'
}

columns() { # NAME RANKS OPTION...: this many ranks of tensor parallelism against one, with these options
    local name=$1 n=$2
    shift 2
    train llama "$name" "${options[@]}" "$@"
    ranks "$n" llama "$name.tp" "${options[@]}" "$@" --parallel.tp="$n"
    "$BUILD/diff" "$runs/$name" "$runs/$name.tp" --exact | tail -n 1 | grep -q '^identical'
}

other_ranks() { # two ranks of tensor parallelism, then one
    ranks 2 llama other "${options[@]}" --run.stop_at=3 --parallel.tp=2
    train llama other "${options[@]}" --ckpt.resume=true
    "$BUILD/diff" "$runs/one" "$runs/other" --exact | tail -n 1 | grep -q '^identical'
}

# Without an order of sums: the losses are those of one rank but for rounding.
any_order() { # NAME OPTION...: on two ranks
    local name=$1
    shift
    [ -d "$runs/any" ] || train llama any "${options[@]}" --numerics.deterministic=false
    ranks 2 llama "$name" "${options[@]}" --numerics.deterministic=false --parallel.tp=2 "$@"
    for run in any "$name"; do value train loss "$runs/$run/metrics.jsonl"; done >"$work/losses"
    [ "$(wc -l <"$work/losses")" = 12 ]
    awk '{ x[NR] = $1 } END { for (i = 1; i <= 6; i++) if (!((x[i] - x[i + 6]) ^ 2 < (1e-5 * x[i]) ^ 2)) exit 1 }' \
        "$work/losses"
}

# OLMoE's norm, of all heads of a token together.
whole_norm() {
    train llama norm "${options[@]}" --model.qk_norm=whole
    ranks 4 llama norm4 "${options[@]}" --model.qk_norm=whole --parallel.cp=2 --parallel.zero=3
    "$BUILD/diff" "$runs/norm" "$runs/norm4" --exact | tail -n 1 | grep -q '^identical'
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
    ranks 2 llama bad --model.experts=4 --model.experts_ffn=41 --parallel.tp=2 && return 1
    grep -q 'error: .*model.experts_ffn' "$work/bad.err"
    refused 'has no effect|no effect' --monitor.experts_steps=10
}

# What more ranks of experts refuse, and rows that come for which there is no room.
mistakes_of_ranks() {
    refused 'no effect' --parallel.ep=2
    refused 'parallel.ep = 3 does not divide model.experts = 4' --model.experts=4 --parallel.ep=3
    refused 'does not divide parallel.dp . cp = 1' --model.experts=4 --parallel.ep=2
    ranks 2 llama bad --model.experts=4 --parallel.ep=2 --moe.room=0.01 && return 1
    grep -q 'error: moe.room: the experts of .* there is room for 256 (try a larger' "$work/bad.err"
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
passes 'experts on two ranks' layout ep2 2 --parallel.ep=2
passes 'experts on two of four ranks, ZeRO-3' layout ep2z 4 --parallel.ep=2 --parallel.zero=3
deeper passes 'ZeRO-3 on a pipeline that defers gradients and computes norms again' layout zbs 4 --parallel.pp=2 \
    --parallel.schedule=zb-h1 --batch.micro=1 --memory.recompute=selective --parallel.zero=3
passes 'experts on two of four ranks' layout ep2r 4 --parallel.ep=2
deeper passes 'experts on four ranks' layout ep4 4 --parallel.ep=4
deeper passes 'experts on two of four ranks, ZeRO-1' layout ep2o 4 --parallel.ep=2 --parallel.zero=1
deeper passes 'experts on two of four ranks, offload' layout ep2d 4 --parallel.ep=2 --parallel.zero=2 \
    --memory.offload=cpu
passes 'experts on two ranks of a stage' layout ep2p 4 --parallel.ep=2 --parallel.pp=2
deeper passes 'experts on two ranks of a stage that defers' layout ep2w 4 --parallel.ep=2 --parallel.pp=2 \
    --parallel.schedule=zb-h1
passes 'shared sequences' layout cp2 2 --parallel.cp=2
passes 'shared sequences, columns of experts, experts on two ranks' layout tpcpep 4 --parallel.cp=2 --parallel.tp=2 \
    --parallel.ep=2
deeper passes 'columns of experts, experts on two ranks, a shared stream, ZeRO-3' layout tpep 4 --parallel.tp=2 \
    --parallel.sp=true --parallel.ep=2 --parallel.zero=3
passes 'columns of experts' layout tp 2 --parallel.tp=2
passes 'columns of experts, a shared stream, ZeRO-3' layout tp_sp 4 --parallel.tp=2 --parallel.sp=true --parallel.zero=3
deeper passes 'columns of experts over four ranks' columns heads 4 --model.kv_heads=4
deeper passes 'columns of experts, two copies, ZeRO-1' layout tp_dp 4 --parallel.tp=2 --parallel.zero=1
deeper passes 'columns of experts in a pipeline' layout tp_pp 4 --parallel.tp=2 --parallel.pp=2
deeper passes 'columns of experts in a pipeline that defers gradients, recomputation' layout tp_zb 4 --parallel.tp=2 \
    --parallel.pp=2 --parallel.schedule=zb-h1 --memory.recompute=full
deeper passes 'columns of experts, a shared stream, recomputation' layout tp_full 2 --parallel.tp=2 \
    --parallel.sp=true --memory.recompute=full
passes 'Muon on columns of experts' columns muon 2 --optim.name=muon # each matrix comes together on one rank
deeper passes 'resumed on fewer ranks' other_ranks
passes 'columns of experts, sums in any order' any_order fast
deeper passes 'columns of experts, a shared stream, sums in any order' any_order fast_sp --parallel.sp=true
passes 'recomputation' again full --memory.recompute=full
deeper passes 'selective recomputation' again selective --memory.recompute=selective
deeper passes 'offload' again offload --memory.offload=cpu
deeper passes 'other micro-batches' again micro --batch.micro=4
passes 'sequences on several ranks' of_sequences
passes 'a norm of all heads together' whole_norm
passes 'resumed' resumed
passes 'evaluation on ranks with more windows and fewer' evaluated
passes 'a router of one row' one_row
passes 'what is watched' watched
passes 'the loss scale' loss_scale
passes 'mistakes' mistakes
passes 'mistakes of ranks' mistakes_of_ranks
exit $failed
