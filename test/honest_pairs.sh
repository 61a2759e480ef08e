#!/bin/bash
# test/honest_pairs.sh [N [SEED]]: does build/diff leave rounding in peace? N pairs of runs compute one update in two
# ways; each must be `identical` or `rounding`.
#
# A reference is drawn (family, sizes, windows, dropout, optimizer, learning rate, clipping, batch, seed, type), and
# OTHERS runs that compute it otherwise: layouts of ranks, threads, kernels of OpenBLAS, cuts into micro-batches,
# recomputation, order of sums, types, and the programs of PROGRAMS (those that another compiler made, say). A third of
# the references is the third update, from a checkpoint that all of them share. What the program refuses (heads that the
# ranks do not divide) is drawn again. The same SEED draws the same pairs on every machine, but for its kernels.
#
#     PROGRAMS='build/O0/train build/train_gpu_on_cpu' test/honest_pairs.sh 1000
#
# 1,000 pairs take about twenty minutes of a core. KEEP=FOLDER keeps the dumps of those that fail.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
wanted=${1:-60} seed=${2:-1} OTHERS=8
read -ra programs <<<"$BUILD/train ${PROGRAMS:-}"

# ---- drawing: a linear congruence, of whose 31 bits the upper ones are used
state=$((seed * 7919 + 12345))
pick() { # CHOICE...: sets picked; - stands for nothing
    state=$(((state * 1103515245 + 12345) & 0x7fffffff))
    local at=$(((state >> 12) % $#))
    picked=${*:at + 1:1}
    [ "$picked" != - ] || picked=
}

add() { # CHOICE...: appends one to options; commas separate the options of a choice
    pick "$@"
    read -ra options <<<"${options[*]} ${picked//,/ }"
}

pairs_config() { # FAMILY
    config "$1" | sed '/^\(steps\|eval_every\|sample_every\|warmup\|decay_steps\) = /d; s/^tokens = 1000/tokens = 100/'
    printf '%s\n' '[run]' 'steps = 4' 'eval_every = 0' '[optim]' 'warmup = 0' 'schedule = "constant"' \
        '[sample]' 'count = 0'
}

draw_reference() {
    pick gpt llama
    family=$picked options=()
    add --model.layers={1,2,4,4,5}
    add --model.channels=64,--model.heads={4,8} --model.channels=48,--model.heads=4 \
        --model.channels=40,--model.heads=2,--model.kv_heads=2,--model.head_size=24
    add --batch.tokens=512,--model.context={16,32,64} --batch.tokens=384,--model.context={16,24,48} \
        --batch.tokens=2048,--model.context=64
    add - - --model.ffn={72,192}
    add - - --model.tie={true,false}
    add - - --model.bias={true,false}
    add - - - --model.qk_norm=true
    add - - --model.window=5 --model.window=11,--model.window_pattern=sf
    add - - - --model.dropout=0.1
    add - - - --data.document_mask=true --data.document_mask=true,--data.packing=best_fit
    add - - - --model.norm_eps=1e-6 --model.norm={layernorm,rmsnorm} --model.activation={gelu,swiglu} \
        --model.position={learned,rope}
    add - - - - - - - --optim.name={lion,muon,sgd,momentum,adafactor,adam,adamw8bit}
    pick 1 1 3
    update=$picked
    # After two updates at 1e-2 such a model is no longer one: every token has the same stream, and gradients cancel.
    if [ "$update" = 1 ]; then add --optim.lr={1e-2,1e-3,1e-4,1e-6}; else add --optim.lr={1e-3,1e-4,1e-6}; fi
    add - --optim.clip={0,0.1,10}
    add - - --optim.weight_decay={0,1}
    add - - - --optim.agc=0.01 --optim.mup_base=16
    add - - - - - - --numerics.dtype={bf16,fp16,fp8}
    add --run.seed={1..99}
    reference=("${options[@]}")
}

# shellcheck disable=SC2054 # the commas separate options
layouts=(2 4 2,--parallel.zero={1,2,3} 4,--parallel.zero={1,2,3}
    2,--parallel.zero=3,--parallel.reshard=false,--parallel.overlap=false
    2,--parallel.tp=2 4,--parallel.tp=4 2,--parallel.tp=2,--parallel.sp=true 4,--parallel.tp=4,--parallel.sp=true
    2,--parallel.cp=2 4,--parallel.cp=4 2,--parallel.cp=2,--parallel.cp_assign=contiguous
    2,--parallel.cp=2,--parallel.cp_way=gather 2,--parallel.pp=2 4,--parallel.pp=4
    2,--parallel.pp=2,--parallel.schedule={gpipe,interleaved,zb-h1,zb-v,v-half,v-min} 4,--parallel.tp=2 4,--parallel.pp=2
    4,--parallel.cp=2,--parallel.zero=2 4,--parallel.tp=2,--parallel.pp=2 4,--parallel.tp=2,--parallel.cp=2)

# Sets program, n (ranks), environment and options to what computes the same in one or two other ways.
draw_other() {
    local axes=(layout layout layout threads kernel micro recompute order type program)
    program=$BUILD/train n=1 environment=() options=()
    pick 1 1 2
    for _ in $(seq "$picked"); do
        pick "${axes[@]}"
        case $picked in
        layout) [ "$n" = 1 ] && pick "${layouts[@]}" && n=${picked%%,*} && add "--batch.micro=1${picked#"$n"}" ;;
        threads) add --run.threads={2,3,4} ;;
        kernel) pick "${kernels[@]}" && environment=(PRETRAIN_BLAS=keep "OPENBLAS_CORETYPE=$picked") ;;
        micro) add --batch.micro={1,2,4} ;;
        recompute) add --memory.recompute={selective,attention,full,sqrt} --memory.recompute=every,--memory.recompute_every=3 ;;
        order) add --numerics.deterministic=true ;;
        type) add --numerics.dtype={bf16,fp16,fp8,fp32} ;;
        program) pick "${programs[@]}" && program=$picked ;;
        esac
    done
}

# ---- runs and pairs

set_command() { # NAME
    command=(env "${environment[@]}")
    [ "$n" = 1 ] || command+=("$launcher" -n "$n")
    command+=("$program" "$work/$family.toml" "--run.name=$1" "${reference[@]}" "${options[@]}" "--run.dump=$update")
    [ "$update" = 1 ] || command+=(--ckpt.resume=true)
    command+=("--run.stop_at=$update")
}

run_one() { # NAME
    rm -rf "${runs:?}/$1"
    [ "$update" = 1 ] || cp -r "$runs/base" "$runs/$1"
    set_command "$1"
    timeout -k 10 120 "${command[@]}" >"$work/$1.out" 2>"$work/$1.err" </dev/null
}

run_reference() {
    rm -rf "$runs/base"
    program=$BUILD/train n=1 environment=() options=()
    [ "$update" = 1 ] ||
        train "$family" base "${reference[@]}" --run.stop_at=$((update - 1)) || return 1
    run_one reference
}

# A refusal is one line that says so; anything else that ends a run is a failure.
refused() { # NAME
    grep -q 'error: ' "$work/$1.err" && ! grep -q 'diverged\|signal' "$work/$1.err"
}

compare_pair() {
    local status=0 verdict
    "$BUILD/diff" "$runs/other" "$runs/reference" >"$work/diff" 2>&1 || status=$?
    verdict=$(tail -n 1 "$work/diff")
    made=$((made + 1))
    case $status:$verdict in
    0:identical*) identical=$((identical + 1)) ;;
    0:rounding*) rounding=$((rounding + 1)) ;;
    *)
        failed=$((failed + 1))
        echo "not ok pair $made: $verdict"
        echo "  ${command[*]}"
        program=$BUILD/train n=1 environment=() options=()
        set_command reference
        echo "  ${command[*]}"
        sed -n '/^first out/,/^$/p' "$work/diff" | sed 's/^/  /'
        [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP" && cp -r "$runs" "$KEEP/pair_$made"; }
        ;;
    esac
}

{
    "$BUILD/stories" --bytes 200000 --seed 3 --out "$work/text"
    "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 509 \
        --out "$work/data"
} >"$work/prepare.out" 2>&1 || { cat "$work/prepare.out"; exit 1; }
uneven_corpus
mkdir "$runs"
for family in gpt llama; do pairs_config $family >"$work/$family.toml"; done
# Kernels that this processor runs: OpenBLAS replaces one that it does not have by another.
kernels=()
for kernel in Prescott Nehalem Sandybridge Haswell Zen SkylakeX Cooperlake; do
    PRETRAIN_BLAS=keep OPENBLAS_CORETYPE=$kernel train gpt kernel --run.stop_at=1 --run.threads=1
    ! grep -qi "OpenBLAS, $kernel kernels" "$work/kernel.out" || kernels+=("$kernel")
done
echo "kernels: ${kernels[*]}; programs: ${programs[*]}"

made=0 identical=0 rounding=0 refusals=0 tries=0
while [ $made -lt "$wanted" ]; do
    draw_reference
    if ! run_reference; then
        refused reference || refused base || {
            echo "not ok reference: $(tail -n 3 "$work/reference.err")"
            failed=$((failed + 1))
        }
        refusals=$((refusals + 1))
        [ $((tries += 1)) -lt $((100 + 10 * wanted)) ] || break
        continue
    fi
    for ((k = 0; k < OTHERS && made < wanted; k++)); do
        draw_other
        if run_one other; then compare_pair
        elif refused other; then refusals=$((refusals + 1))
        else
            echo "not ok run: ${command[*]}: $(tail -n 3 "$work/other.err")"
            failed=$((failed + 1))
        fi
    done
done
echo "$made pairs: $identical identical, $rounding rounding, $failed failed; $refusals refused and drawn again"
if [ $failed = 0 ] && [ "$made" = "$wanted" ]; then
    echo "ok $made honest pairs"
else
    echo 'not ok honest pairs'
    exit 1
fi
