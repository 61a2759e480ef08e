#!/bin/bash
# test/test_train_gpu.sh: train_gpu on the CUDA emulation: the losses of build/train within a derived bound; every op of
# live training within its bound of the CPU's (numerics.check), in fp32, bf16, fp16, on 1 and 4 ranks; the same bytes in any
# order of threads and streams; no host code that touches device memory; one line for each error; a seeded bug is named.
#
# TRAIN_GPU=build/train_gpu: the same of a program for GPUs, on one (scripts/gpu_check.sh), without what only the
# emulation can do.
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1
. test/ranks_common.sh
unset OMP_NUM_THREADS
export OMP_WAIT_POLICY=passive

# A library that was built for a sanitizer cannot go into the other programs: they are built beside it.
bin=$BUILD
if nm "$BUILD/libpretrain.a" 2>/dev/null | grep -q __asan_; then bin=$BUILD/cuda_on_cpu/cpu; fi
builds() {
    ${MAKE:-make} --no-print-directory B="$bin" $([ "$bin" = "$BUILD" ] || echo EXTRA_CFLAGS=) \
        "$bin"/{train,train_gpu_on_cpu,stories,prepare,export}
}
program=${TRAIN_GPU:-$bin/train_gpu_on_cpu}
emulated() { [ -z "${TRAIN_GPU:-}" ]; }
[ -n "${TRAIN_GPU:-}" ] && cores=1 # one after the other: one GPU
emulated && step 'train_gpu builds for the emulation' builds
all_built
checker() {
    [ -e "$work/checker" ] || $here/build.sh checker "$work/checker" train_gpu.cu $(printf "%s\n" src/*.cu | grep -v ^src/comm_) "$bin/libpretrain.a" -- -fopenmp \
        $(${MAKE:-make} -s --no-print-directory B="$bin" print-libraries)
}

corpus() {
    "$bin/stories" --bytes 60000 --seed 3 --out "$work/text" &&
        "$bin/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 300 --out "$work/data"
}
step 'a corpus' corpus
all_built
config() { # LINE...
    printf '%s\n' '[run]' "dir = \"$work\"" 'steps = 2' 'threads = 1' '[data]' "train = \"$work/data/train_*.bin\"" \
        "val = \"$work/data/val_*.bin\"" "tokenizer = \"$work/data\"" '[model]' 'layers = 1' 'channels = 32' 'heads = 2' \
        'context = 16' '[batch]' 'tokens = 64' 'micro = 2' '[optim]' 'lr = 3e-3' 'schedule = "constant"' 'warmup = 0' \
        '[eval]' 'tokens = 16' '[sample]' 'tokens = 2' 'count = 1' "$@"
}
config >"$work/gpt.toml"
config '[model]' 'norm = "rmsnorm"' 'activation = "swiglu"' 'position = "rope"' 'kv_heads = 1' 'bias = false' \
    'tie = false' 'qk_norm = true' >"$work/llama.toml"
gpu() { # CONFIG NAME [OPTION...]
    timeout 600 "$program" "$work/$1.toml" --run.name="$2" "${@:3}" >"$log" 2>&1 </dev/null
}
cpu() {
    "$bin/train" "$work/$1.toml" --run.name="$2" "${@:3}" >"$log" 2>&1 </dev/null
}

# ---- losses. The optimizer is sgd, for which rounding can be followed: with e the relative error of a gradient, weights
# are off by at most e times the sum of lr |g| so far (where the loss descends steadily, steps do not enlarge what is
# there), and the loss by |g| times that, and by e of itself. e: 30 ops one behind the other, each with sums of up to 300
# terms (the vocabulary), whose roundings of 2^-24 add up like a random walk; 6 deviations: 30 * 6 * sqrt(300) * 2^-24.
sgd=(--run.steps=20 --optim.name=sgd --optim.lr=0.1)
columns() { sed -n 's/.*"event":"train".*"loss":\([^,]*\),"lr":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$work/$1/metrics.jsonl"; }
within() { # NAME NAME: how much of the bound is used
    paste -d ' ' <(columns "$1") <(columns "$2") | awk '
        { d = $1 - $4; if (d < 0) d = -d; bound = e * $4 + $6 * e * way; way += $5 * $6; r = d / bound
          if (!(r <= 1)) { print "update " NR ": " $1 " against " $4 ", bound " bound; bad = 1 }; n++ }
        END { exit bad || n != 20 }' e=1.86e-4
}
same_losses() { # CONFIG
    gpu "$1" "$1" "${sgd[@]}" && cpu "$1" "$1.cpu" "${sgd[@]}" && within "$1" "$1.cpu"
}
for family in gpt llama; do step "$family, 20 updates: the losses are the CPU's within their bound" same_losses $family; done
off_by_one_percent() {
    cpu gpt right "${sgd[@]}" && cpu gpt wrong "${sgd[@]}" --optim.lr=0.101 && ! within wrong right >"$log"
}
step 'the bound tells a learning rate that is 1% off' off_by_one_percent

# ---- every op against the CPU's
checked() { # CONFIG NAME [OPTION...]
    gpu "$@" --numerics.check=true && grep -aqE '[0-9]+ ops, 0 beyond their bound' "$log"
}
step 'checked: GPT, fp32' checked gpt c1
step 'checked: LLaMA, bf16' checked llama c2 --numerics.dtype=bf16
step 'checked: GPT, fp16, dropout' checked gpt c3 --numerics.dtype=fp16 --model.dropout=0.1
step 'checked: LLaMA, documents, recomputation, 8-bit activations' checked llama c4 --data.document_mask=true \
    --memory.recompute=full --memory.compress=int8 --run.steps=1
step 'checked: GPT, deterministic, muon, clipping by units' checked gpt c5 --numerics.deterministic=true \
    --optim.name=muon --optim.agc=0.01 --run.steps=1
on_the_cpu() {
    cpu llama c6 --numerics.check=true && grep -aqE '[0-9]+ ops, 0 beyond their bound' "$log"
}
step 'checked: the CPU, against another order of sums' on_the_cpu

# ---- ranks
if [ -n "$launcher" ]; then
    ranks() { # NAME [OPTION...]
        timeout 600 "$launcher" -n 4 "$program" "$work/gpt.toml" --run.name="$1" --parallel.tp=2 \
            --parallel.zero=3 "${@:2}" >"$log" 2>&1 </dev/null
    }
    checked_ranks() {
        ranks r1 --numerics.check=true --numerics.dtype=bf16 && grep -aqE '[0-9]+ ops, 0 beyond' "$log"
    }
    step 'checked: 4 ranks, tp = 2, zero = 3, bf16' checked_ranks
    losses_of_ranks() {
        EMU_STREAMS=late EMU_ORDER=random ranks r2 "${sgd[@]}" && cpu gpt r2.cpu "${sgd[@]}" && within r2 r2.cpu
    }
    step '4 ranks, tp = 2, zero = 3, late streams: the losses of one CPU' losses_of_ranks
else skip '4 ranks (no mpiexec)'
fi

# ---- the same bytes; nobody touches what is not his
bytes() { # NAME: weights and optimizer after update 2
    "$bin/export" "$work/$1/checkpoints/step_00000002" --to state --out "$work/$1.state" >>"$log" 2>&1
}
twice() {
    gpu llama d1 --numerics.deterministic=true && bytes d1 &&
        EMU_ORDER=random EMU_STREAMS=random EMU_SEED=7 gpu llama d2 --numerics.deterministic=true && bytes d2 &&
        cmp "$work/d1.state" "$work/d2.state"
}
step 'deterministic: the same bytes, in any order of blocks, threads and streams' twice
if emulated; then
    guarded() { EMU_GUARD=1 gpu "$@"; }
    step 'no host code touches device memory: GPT' guarded gpt g1 --run.steps=1 --run.norms_every=1 --run.dump=1
    step 'no host code touches device memory: LLaMA, bf16, documents, offload' guarded llama g2 --run.steps=1 \
        --numerics.dtype=bf16 --data.document_mask=true --memory.offload=cpu
fi
goes_on() { # a GPU's checkpoint on the CPU
    gpu gpt o1 --run.steps=4 --run.stop_at=2 && cpu gpt o1 --run.steps=4 --ckpt.resume=true &&
        [ "$(columns o1 | wc -l)" = 4 ]
}
step 'the CPU goes on from a checkpoint of the GPU' goes_on
looked_at() { # CONFIG [OPTION...]
    EMU_ORDER=random EMU_STREAMS=late timeout 600 "$work/checker" "$work/$1.toml" --run.name="checker.$1" --run.steps=1 \
        --eval.tokens=8 --sample.tokens=1 "${@:2}" >"$log" 2>&1 </dev/null && ! grep -a '^cuda_on_cpu' "$log"
}
under_the_checker() {
    checker && looked_at gpt && looked_at llama --numerics.dtype=bf16 &&
        looked_at llama --numerics.dtype=bf16 --memory.offload=cpu --run.name=offloaded
}
emulated && step 'steps under the checker: GPT, and LLaMA in bf16' under_the_checker

# ---- errors: one line, status 1
refused() { # WORDS OPTION...
    local status=0
    gpu gpt errors "${@:2}" || status=$?
    [ $status = 1 ] && grep -aqE "^error: .*$1" "$log" && [ "$(grep -ac '^error' "$log")" = 1 ]
}
step 'no such GPU' refused 'run.device = 63.*this machine has [0-9]+' --run.device=63
step 'fp8 is not there' refused 'numerics.dtype = fp8' --numerics.dtype=fp8
full() { # MiB WORDS [OPTION...]
    EMU_MEMORY=$1 refused "$2" "${@:3}"
}
emulated && step 'out of memory, at the start' full 16 'cuda: no .* MiB left on GPU 0'
emulated && step 'out of memory, in the model' full 48 'memory: no .* MiB left for' --model.channels=512 --batch.tokens=1024 \
    --batch.micro=64
other_program() {
    ! cpu gpt errors --run.device=0 && grep -aq '^error: run.device = 0: this program computes on the CPU' "$log"
}
step "a GPU's number for build/train" other_program

emulated || finish

# ---- seeded bugs: the check names the op
named() { # NAME FILE.cu SED WORDS: with one edit in one file, the table blames that op and no other
    local at=$work/$1
    mkdir "$at" && sed "$3" "src/$2" >"$at/$2" && ! cmp -s "src/$2" "$at/$2" &&
        $here/build.sh plain "$at/program" train_gpu.cu $(ls src/*.cu | grep -v -e "/$2\$" -e ^src/comm_) "$at/$2" "$bin/libpretrain.a" \
            -- -fopenmp $(${MAKE:-make} -s --no-print-directory B="$bin" print-libraries) || return 1
    ! timeout 600 "$at/program" "$work/gpt.toml" --run.name="bug.$1" --run.steps=1 --numerics.check=true \
        >"$log" 2>&1 </dev/null && grep -aq 'error: numerics.check' "$log" &&
        grep -aE '\[[0-9]+\] of [0-9]+ in call' "$log" | sort -u >"$at/blamed" && grep -aqE "^$4 " "$at/blamed" &&
        ! grep -avE "^$4 " "$at/blamed"
}
step 'a mask that is missing is named' named mask attention.cu '0,/attention_gpu_end<PART>(s, at.t)/s//(int)s.Tk/' \
    attention_forward
step 'a scale that is wrong is named' named scale loss.cu 's|float factor = scale / total;|float factor = 2 * scale / total;|' \
    softmax_xent
step 'a barrier that is missing is named' named barrier sums.cu \
    '/parts.threadIdx.y..threadIdx.x. = sum;/{n;s/__syncthreads();//}' '(matmul_backward_weight|norm_backward)'
finish
