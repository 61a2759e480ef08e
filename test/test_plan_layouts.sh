#!/bin/bash
# test/test_plan_layouts.sh [LAYOUTS [SEED [NUMBERS]]]: memory and traffic of layouts drawn at random, on up to 8 real
# ranks: what build/plan says from the configuration against what the run counts, to the byte.
#
# Memory: every tag of every rank. Traffic: of every group and kind of call, the sum over the ranks; groups are dp, tp,
# cp, pp, the tied ends and the copies of hybrid sharding. Numbers that ranks agree on (control: loss, counts, norm) are in no plan. A layout is a
# function of the seed and its number. `make layouts` runs 60; `make test-long` ten of those, in which every group and
# every way of recomputing is met; `make test` two. NUMBERS, as "3 14": those alone.
#
# Then layouts of a model whose experts ranks divide. How many rows travel to experts (ep) depends on what the router
# chooses; the plan has equal loads. Without recomputation the difference is a whole number of rows: C elements four
# times, and two weights. With it each layer's rows travel another number of times.
#
# Only sizes that a chapter refuses are left out: more than 8 ranks, fewer
# micro-batches than stages (doc/pipeline.md), 8 layers that do not fill the chunks.
# deeper: ten layouts
if [ $# = 0 ]; then
    if [ -n "${TEST_LONG:-}" ]; then set -- 54 1 "4 13 14 16 24 26 46 49 51 54"; else set -- 54 1 "4 26"; fi
fi
layouts=$1 seed=${2:-1} only=${3:-}
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

layout_config() { # FAMILY: 16 sequences a step; heads, vocabulary and layers that do not divide by everything
    printf '%s\n' '[run]' "dir = \"$runs\"" 'steps = 10' 'threads = 1' 'peak = 100' 'eval_every = 0' 'sample_every = 0' \
        '[data]' "train = \"$work/data/train_*.bin\"" "val = \"$work/data/val_*.bin\"" "tokenizer = \"$work/data\"" \
        '[model]' 'channels = 48' 'heads = 8' 'context = 32' '[batch]' 'tokens = 512' \
        '[eval]' 'tokens = 64' '[sample]' 'count = 0'
    [ "$1" = llama ] && printf '%s\n' '[model]' 'norm = "rmsnorm"' 'activation = "swiglu"' 'position = "rope"' \
        'kv_heads = 2' 'bias = false' 'tie = false' 'qk_norm = true' 'value_embeddings = "v-v"'
    return 0
}

# draw N: one of 0 .. N-1 into $drawn. Park and Miller's generator; low bits are poor, so high ones are taken.
draw() {
    state=$((state * 48271 % 2147483647))
    drawn=$(((state >> 8) % $1))
}

pick() { # WORD...: one of them into $picked
    draw $#
    shift "$drawn"
    picked=$1
}

# layout NUMBER: sets n (ranks), family and options, or fails where the sizes cannot be.
layout() {
    local dp tp cp pp zero micro layers chunks schedule dtype
    pick 1 1 2 4 && dp=$picked
    pick 1 1 2 4 && tp=$picked
    pick 1 1 2 && cp=$picked
    pick 1 1 2 4 && pp=$picked
    pick 0 1 2 3 && zero=$picked
    pick 1 2 4 && micro=$picked
    pick 4 5 8 && layers=$picked
    pick gpipe 1f1b interleaved zb-h1 zb-v v-half v-min && schedule=$picked
    pick gpt llama && family=$picked
    pick fp32 fp32 bf16 && dtype=$picked
    n=$((dp * tp * cp * pp))
    options=(--numerics.dtype="$dtype" --batch.micro="$micro" --model.layers="$layers")
    pick none selective attention full sqrt && options+=(--memory.recompute="$picked")
    pick true false && local sp=$picked
    pick true false && local reshard=$picked
    [ $n -gt 1 ] && [ $n -le 8 ] || return 1
    if [ "$tp" -gt 1 ]; then options+=(--parallel.tp="$tp" --parallel.sp="$sp"); fi
    if [ "$cp" -gt 1 ]; then options+=(--parallel.cp="$cp"); fi
    if [ "$zero" -gt 0 ]; then
        [ $((dp * cp)) -gt 1 ] || return 1
        options+=(--parallel.zero="$zero")
        if [ "$zero" = 3 ]; then options+=(--parallel.reshard="$reshard"); fi
    fi
    if [ "$pp" -gt 1 ]; then
        chunks=1
        case $schedule in interleaved | zb-v | v-*) chunks=2 ;; esac
        [ $((16 / dp / micro)) -ge "$pp" ] || return 1
        case $schedule in zb-v) [ $((16 / dp / micro)) -ge $((2 * pp)) ] || return 1 ;; esac
        [ $((layers % (pp * chunks))) = 0 ] || { [ "$layers" = 5 ] && [ "$pp" = 2 ] && [ $chunks = 1 ]; } || return 1
        options+=(--parallel.pp="$pp" --parallel.schedule="$schedule")
    fi
}

counted() { # FILE: "GROUP KIND BYTES" of account.json, over the ranks; no control
    awk -F '[":, ]+' '
        /"traffic"/ { on = 1 }
        /[{]$/ { match($0, /^ */); if (RLENGTH == 6) group = $2; if (RLENGTH == 8) kind = $2 }
        on && $2 == "sent" && $3 > 0 && group != "control" { n[group " " kind] += $3 }
        END { for (i in n) printf "%s %.0f\n", i, n[i] }' "$1" | sort
}

planned() { # the same, of build/plan traffic's JSON; neighbours that share keys (tp kv) are a part of a tp group
    awk -F '"' '
        $2 == "group" { group = $4 == "tp kv" ? "tp" : $4 } $2 == "kind" { kind = $4 }
        $2 == "bytes, all ranks" { bytes = $3; gsub(/[^0-9]/, "", bytes); if (bytes > 0) n[group " " kind] += bytes }
        END { for (i in n) printf "%s %.0f\n", i, n[i] }' "$1" | sort
}

held_and_sent() { # NAME
    local name=$1 gpu=cpu # on which weights and activations have 4 bytes; on others 2
    case "${options[*]}" in *dtype=bf16*) gpu=H100 ;; esac
    ranks "$n" "$family" "$name" --run.stop_at=1 --run.account=true "${options[@]}"
    [ ! -s "$work/$name.err" ]
    local account=$runs/$name/account.json
    "$BUILD/plan" memory "$work/$family.toml" "${options[@]}" --ranks "$n" --json | memory_lines >"$work/memory"
    [ "$(wc -l <"$work/memory")" = $((9 * n)) ]
    memory_lines <"$account" | diff "$work/memory" - # planned <, counted >
    "$BUILD/plan" traffic "$work/$family.toml" "${options[@]}" --gpu $gpu --gpus "$n" --json >"$work/plan.json"
    planned "$work/plan.json" >"$work/traffic"
    [ -s "$work/traffic" ]
    counted "$account" >"$work/counted"
    [ "$family" != experts ] || rows_travel
    diff "$work/traffic" "$work/counted"
    rm -rf "${runs:?}/$name"
}

rows_travel() { # takes ep out of both files: 48 channels of x bytes
    local row=$((4 * 48 * 4 + 8)) planned counted
    case "${options[*]}" in *bf16*) row=$((4 * 48 * 2 + 8)) ;; esac
    planned=$(sed -n 's/^ep all_to_all //p' "$work/traffic") counted=$(sed -n 's/^ep all_to_all //p' "$work/counted")
    [ $((10 * counted)) -gt $((9 * planned)) ] && [ $((10 * counted)) -lt $((11 * planned)) ]
    case "${options[*]}" in *recompute=[fs][uq]*) ;; *) [ $(((planned - counted) % row)) = 0 ] ;; esac
    sed -i '/^ep /d' "$work/traffic" "$work/counted"
}

{
    "$BUILD/stories" --bytes 60000 --seed 3 --out "$work/text"
    "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 509 \
        --out "$work/data"
} >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
mkdir -p "$runs"
layout_config gpt >"$work/gpt.toml"
layout_config llama >"$work/llama.toml"
{
    layout_config llama
    printf '%s\n' '[model]' 'experts = 8' 'experts_active = 2' 'experts_ffn = 24' 'layers = 4' '[batch]' 'micro = 2'
} >"$work/experts.toml"
state=$(((seed * 7919 + 12345) % 2147483647))
recipes=('--optim.name=muon' '--optim.name=adamw' '--optim.name=adafactor --optim.agc=0.01' '--optim.name=adamw8bit')
for ((done = 0; done < layouts; )); do
    layout || continue
    done=$((done + 1))
    read -ra recipe <<<"${recipes[done % 4]}" # by number: the layouts do not depend on the list of recipes
    options+=("${recipe[@]}")
    [ -z "$only" ] || [[ " $only " = *" $done "* ]] || continue
    passes "layout $done: $n ranks, $family ${options[*]}" held_and_sent "layout$done"
done
# Experts: the shared one's sums, also where blocks run again, and the gradients of the weights of slots.
columns=(--model.layers=4 --model.experts=4 --model.experts_ffn=40 --model.experts_shared=24 --parallel.tp=2)
n=2 family=llama
options=("${columns[@]}" --batch.micro=2 --parallel.sp=false --memory.recompute=full)
passes 'experts over two ranks' held_and_sent columns
n=4 options=("${columns[@]}" --batch.micro=2 --parallel.sp=true --parallel.zero=1)
deeper passes 'experts over two ranks that share the stream' held_and_sent columns

# RANKS OPTION...
experts=('4 ep=2 zero=3 memory.recompute=selective model.experts_dense=1 model.experts_shared=16'
    '8 ep=2 pp=2 zero=2 schedule=zb-v memory.recompute=full batch.micro=1'
    '2 ep=2 batch.micro=4' '4 ep=2 zero=1' '4 ep=2 zero=3 memory.recompute=sqrt'
    '4 ep=4 zero=2 memory.recompute=attention' '4 ep=2 pp=2 zero=1 numerics.dtype=bf16 moe.room=2.5'
    '8 ep=2 pp=2 zero=2 schedule=zb-h1 model.experts_dense=1 batch.micro=1 memory.recompute=selective'
    '8 ep=4 zero=3 reshard=false optim.name=muon' '4 cp=2 ep=4 zero=1'
    '8 tp=2 sp=true ep=2 pp=2 memory.recompute=full model.experts_shared=16 model.experts_dense=1'
    '8 cp=2 ep=2 zero=2 memory.recompute=attention' '8 tp=4 sp=true pp=2 schedule=zb-h1 batch.micro=1'
    '4 tp=2 sp=true pp=2 schedule=zb-v batch.micro=1 model.experts_shared=16'
    '8 tp=2 cp=2 ep=4 sp=false zero=3 memory.recompute=sqrt model.experts_dense=1'
    '4 pp=2 zero=3 schedule=zb-h1 batch.micro=1 memory.recompute=attention')
# Hybrid sharding: two rows or four.
shards=('8 tp=2 sp=true zero=3 shard=2 batch.micro=2 memory.recompute=full optim.name=muon'
    '4 zero=1 shard=2 batch.micro=2' '8 pp=2 zero=2 shard=2 schedule=zb-h1 batch.micro=1 memory.recompute=selective'
    '8 cp=2 zero=3 shard=4 reshard=false batch.micro=2 numerics.dtype=bf16' '8 zero=2 shard=2 batch.micro=1 optim.name=adafactor optim.agc=0.01'
    '8 pp=2 zero=3 shard=2 batch.micro=1 memory.recompute=sqrt')
# Stage 3 with other slots, of GPT's and of LLaMA's; in the second row the parts of the vocabulary lie on both sides of
# `keep`, and the tied head is on another stage.
slots=('4 zero=3 prefetch=2 keep=27000 memory.recompute=sqrt model.layers=8 batch.micro=2 numerics.dtype=bf16'
    '8 tp=2 pp=2 zero=3 keep=13750 batch.micro=1' '4 zero=3 prefetch=0 overlap=false keep=1 batch.micro=2 memory.recompute=sqrt')
# With a store and activations in host memory: group "host" of account.json.
hosts=('4 zero=3 memory.offload=cpu memory.offload_acts=cpu optim.name=adamw batch.micro=2 numerics.dtype=bf16 memory.recompute=selective'
    '4 pp=2 zero=1 schedule=zb-h1 memory.offload=cpu memory.offload_update=cpu memory.offload_acts=cpu optim.name=adamw batch.micro=1'
    '8 tp=2 sp=true pp=2 zero=3 schedule=interleaved memory.offload=cpu memory.offload_acts=cpu memory.recompute=full optim.name=adamw batch.micro=1 model.layers=8'
    '8 cp=2 zero=3 keep=27000 memory.offload=cpu memory.offload_update=cpu memory.recompute=sqrt optim.name=adamw batch.micro=2 numerics.dtype=bf16'
    '2 tp=2 memory.offload=cpu optim.name=adamw batch.micro=4 numerics.dtype=bf16')
more_slots=('8 tp=2 sp=true pp=2 zero=3 prefetch=0 keep=13000 schedule=zb-h1 batch.micro=1 memory.recompute=selective'
    '8 zero=3 shard=4 prefetch=3 keep=100 memory.recompute=full batch.micro=1')
slots_of_experts=('8 ep=2 zero=3 shard=4 prefetch=3 keep=13000 memory.recompute=sqrt' '4 ep=2 zero=3 prefetch=0 keep=10000 memory.recompute=sqrt')
few_experts=('8 ep=2 zero=3 shard=4 memory.recompute=selective' '4 ep=2 zero=2 shard=2' '8 cp=2 ep=4 zero=1 shard=4')
[ -n "${TEST_LONG:-}" ] || experts=("${experts[0]}" "${experts[1]}") shards=("${shards[0]}") few_experts=("${few_experts[0]}") \
    slots=("${slots[0]}") # With a store and activations in host memory: group "host" of account.json.
hosts=('4 zero=3 memory.offload=cpu memory.offload_acts=cpu optim.name=adamw batch.micro=2 numerics.dtype=bf16 memory.recompute=selective'
    '4 pp=2 zero=1 schedule=zb-h1 memory.offload=cpu memory.offload_update=cpu memory.offload_acts=cpu optim.name=adamw batch.micro=1'
    '8 tp=2 sp=true pp=2 zero=3 schedule=interleaved memory.offload=cpu memory.offload_acts=cpu memory.recompute=full optim.name=adamw batch.micro=1 model.layers=8'
    '8 cp=2 zero=3 keep=27000 memory.offload=cpu memory.offload_update=cpu memory.recompute=sqrt optim.name=adamw batch.micro=2 numerics.dtype=bf16'
    '2 tp=2 memory.offload=cpu optim.name=adamw batch.micro=4 numerics.dtype=bf16')
more_slots=("${more_slots[0]}") slots_of_experts=("${slots_of_experts[0]}")

each_row() { # FAMILY NAME ROW...
    local name=$2 i=0 k row
    family=$1
    shift 2
    for row in "$@"; do
        read -ra options <<<"$row"
        n=${options[0]} options=("${options[@]:1}")
        for ((k = 0; k < ${#options[@]}; k++)); do
            case ${options[k]} in *.*=* | *.*) ;; *) options[k]=parallel.${options[k]} ;; esac
            options[k]=--${options[k]}
        done
        passes "$name: $n ranks, ${options[*]}" held_and_sent "$name$((i++))"
    done
}
each_row experts experts "${experts[@]}"
each_row experts shards_of_experts "${few_experts[@]}"
each_row llama host "${hosts[@]}"
each_row experts host '4 ep=2 zero=3 memory.offload=cpu memory.offload_acts=cpu optim.name=adamw'
each_row gpt host "${hosts[1]}"
each_row llama shards "${shards[0]}"
each_row gpt more_shards "${shards[@]:1}"
each_row gpt slots "${slots[@]}"
each_row llama more_slots "${more_slots[@]}"
each_row experts slots_of_experts "${slots_of_experts[@]}"
exit $failed
