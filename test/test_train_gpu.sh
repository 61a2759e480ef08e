#!/bin/bash
# test/test_train_gpu.sh: train_gpu on the CUDA emulation: the losses of build/train within a derived bound; every op of
# live training within its bound of the CPU's (numerics.check), in fp32, tf32, bf16, fp16, fp8, on 1 and 4 ranks; the same
# bytes in any order of threads and streams; no host code that touches device memory; one line for each error; seeded
# bugs are named.
#
# TRAIN_GPU=build/train_gpu: the same of a program for GPUs, on one (scripts/gpu_check.sh), without what only the
# emulation can do.
# deeper: more orders of threads and streams, AddressSanitizer, the checker of the emulation
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1
. test/ranks_common.sh
unset OMP_NUM_THREADS
export OMP_WAIT_POLICY=passive

# A library built for a sanitizer cannot be linked into the other programs: they are built separately.
bin=$BUILD
if nm "$BUILD/libpretrain.a" 2>/dev/null | grep -q __asan_; then bin=$BUILD/cuda_on_cpu/cpu; fi
builds() {
    ${MAKE:-make} --no-print-directory B="$bin" $([ "$bin" = "$BUILD" ] || echo EXTRA_CFLAGS=) \
        "$bin"/{train,train_gpu_on_cpu,stories,prepare,export}
}
follows() { ${MAKE:-make} -n -W src/train/run.h B="$bin" "$bin/train_on_gpu.o" | grep -q 'for GPUs'; }
program=${TRAIN_GPU:-$bin/train_gpu_on_cpu}
emulated() { [ -z "${TRAIN_GPU:-}" ]; }
[ -n "${TRAIN_GPU:-}" ] && cores=${JOBS:-1} # one after the other: one GPU
emulated && step 'train_gpu builds for the emulation' builds
all_built
emulated && step 'train.c is compiled again when a header has changed' follows
built= # the corpus is asked for by all
checker() {
    [ -e "$work/checker" ] || $here/build.sh checker "$work/checker" train_gpu.cu "$bin/train_on_gpu.o" src/*/*.cu "$bin/libpretrain.a" -- -fopenmp \
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
    'tie = false' 'qk_norm = true' 'window = 5' >"$work/llama.toml"
gpu() { # CONFIG NAME [OPTION...]
    timeout 600 "$program" "$work/$1.toml" --run.name="$2" "${@:3}" >"$log" 2>&1 </dev/null
}
cpu() {
    "$bin/train" "$work/$1.toml" --run.name="$2" "${@:3}" >"$log" 2>&1 </dev/null
}

# ---- losses. The optimizer is sgd, for which rounding can be followed: with e the relative error of a gradient, weights
# are off by at most e times the sum of lr |g| so far (where the loss descends steadily, steps do not enlarge what is
# there), and the loss by |g| times that, and by e of itself. e: 30 ops one after the other, each with sums of up to 300
# terms (the vocabulary), whose roundings of 2^-24 add up like a random walk; 6 deviations: 30 * 6 * sqrt(300) * 2^-24.
updates=5
sgd=(--run.steps=$updates --optim.name=sgd --optim.lr=0.1)
columns() { sed -n 's/.*"event":"train".*"loss":\([^,]*\),"lr":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$work/$1/metrics.jsonl"; }
within() { # NAME NAME [UPDATES]
    paste -d ' ' <(columns "$1") <(columns "$2") | awk '
        { d = $1 - $4; if (d < 0) d = -d; bound = e * $4 + $6 * e * way; way += $5 * $6; r = d / bound
          if (!(r <= 1)) { print "update " NR ": " $1 " against " $4 ", bound " bound; bad = 1 }; n++ }
        END { exit bad || n != updates }' e=1.86e-4 updates="${3:-$updates}"
}
same_losses() { # CONFIG
    gpu "$1" "$1" "${sgd[@]}" && cpu "$1" "$1.cpu" "${sgd[@]}" && within "$1" "$1.cpu"
}
for family in gpt llama; do step "$family, $updates updates: the losses are the CPU's within their bound" same_losses $family; done
off_by_one_percent() {
    cpu gpt right "${sgd[@]}" && cpu gpt wrong "${sgd[@]}" --optim.lr=0.101 && ! within wrong right >"$log"
}
step 'the bound tells a learning rate that is 1% off' off_by_one_percent

# fp8. Both devices cast with the same scales, but what fp32 sums differ by turns roundings to 16 and 8 bits, and where
# the spacing is 1/8 that soon makes as much as the roundings themselves: the gradients are off by e |g|, e^2 = 2 (34
# (2^-8)^2 + 48 / 256) / 3 (doc/precision.md, one block, for each of the two). The errors have either sign. So on
# average they cost the part e^2 of the descent; the rest is a sum of as many terms as there are weights, 1024 in the
# smallest matrix, so of deviation e |g| way / 32; and the loss of 64 tokens errs by sqrt(2) e z / 8, where logits
# deviate by z: 0.02 sqrt(32) as initialised. 6 deviations of each.
fp8=(--numerics.dtype=fp8)
within_fp8() { # NAME NAME
    paste -d ' ' <(columns "$1") <(columns "$2") | awk '
        { if (NR == 1) first = $4; d = $1 - $4; if (d < 0) d = -d; fall = first > $4 ? first - $4 : 0
          bound = e * e * fall + 6 * e * $6 * way / 32 + 6 * 1.42 * e * 0.114 / 8; way += $5 * $6; n++
          if (!(d <= bound)) { print "update " NR ": " $1 " against " $4 ", bound " bound; bad = 1 } }
        END { exit bad || n != updates }' e=0.354 updates="$updates"
}
losses_fp8() {
    gpu gpt e1 "${sgd[@]}" "${fp8[@]}" && cpu gpt e1.cpu "${sgd[@]}" "${fp8[@]}" && within_fp8 e1 e1.cpu &&
        cpu gpt e1.wrong "${sgd[@]}" "${fp8[@]}" --optim.lr=0.2 && ! within_fp8 e1.wrong e1.cpu
}
step "fp8, $updates updates: the losses are the CPU's within their bound, which tells twice the learning rate" losses_fp8

# ---- every op against the CPU's
checked() { # CONFIG NAME [OPTION...]
    gpu "$@" --numerics.check=true && grep -aqE '[0-9]+ ops, 0 beyond their bound' "$log"
}
step 'checked: GPT, fp32' checked gpt c1
step 'checked: LLaMA, tf32' checked llama c10 --numerics.dtype=tf32
step 'checked: LLaMA, bf16' checked llama c2 --numerics.dtype=bf16
deeper step 'checked: GPT, fp16, dropout' checked gpt c3 --numerics.dtype=fp16 --model.dropout=0.1
deeper step 'checked: LLaMA, documents, recomputation, 8-bit activations' checked llama c4 --data.document_mask=true \
    --memory.recompute=full --memory.compress=int8 --run.steps=1
deeper step 'checked: GPT, bf16, embeddings in fp32' checked gpt c10 --numerics.dtype=bf16 --numerics.embed_dtype=fp32
deeper step 'checked: GPT, deterministic, muon, clipping by units' checked gpt c5 --numerics.deterministic=true \
    --optim.name=muon --optim.agc=0.01 --run.steps=1
step 'checked: GPT, fp8' checked gpt c7 "${fp8[@]}"
deeper step 'checked: LLaMA, fp8 with current scales, one matrix kept' checked llama c8 "${fp8[@]}" --model.ffn=96 \
    --numerics.fp8_scaling=current --numerics.fp8_keep=ffn.down --run.steps=1
on_the_cpu() {
    cpu gpt c9 "${fp8[@]}" --numerics.check=true && grep -aqE '[0-9]+ ops, 0 beyond their bound' "$log" &&
        cpu llama c6 --numerics.check=true && grep -aqE '[0-9]+ ops, 0 beyond their bound' "$log"
}
step 'checked: the CPU, against another order of sums' on_the_cpu

# ---- ranks. They exchange through NCCL or through the host (comm.backend). A sum of two numbers has no
# order: in groups of two both must give the same bits, whatever the streams do; and one CPU's losses within the bound.
if [ -n "$launcher" ]; then
    ranks() { # RANKS NAME [OPTION...]
        timeout 600 "$launcher" -n "$1" "$program" "$work/two.toml" --run.name="$2" "${@:3}" >"$log" 2>&1 </dev/null
    }
    sed 's/^layers = 1$/layers = 2/; s/^tokens = 64$/tokens = 32/' "$work/gpt.toml" >"$work/two.toml"
    few=(--run.steps=2 --optim.name=sgd --optim.lr=0.1 --eval.tokens=8 --sample.count=0 --run.hang_timeout=100)
    step 'two layers on one CPU' cpu two one.cpu "${few[@]}"
    wait
    travels_by() { grep -aq "ranks: their arrays travel by $1" "$log"; }
    backends=(nccl staged)
    emulated || backends=(staged) # ranks that share a GPU
    layout() { # RANKS NAME [OPTION...]
        local n=$1 name=$2 backend
        shift 2
        for backend in "${backends[@]}"; do
            EMU_STREAMS=$([ "$backend" = nccl ] && echo late || echo random) \
                ranks "$n" "$name.$backend" --comm.backend="$backend" "${few[@]}" "$@" && travels_by "$backend" &&
                within "$name.$backend" one.cpu 2 || return 1
        done
        [ ${#backends[@]} = 1 ] || cmp <(columns "$name.nccl") <(columns "$name.staged")
    }
    slots() {
        layout 2 slot0 --parallel.zero=3 --parallel.prefetch=0 &&
            layout 2 slot2 --parallel.zero=3 --parallel.prefetch=2 --parallel.keep=500
    }
    step 'tp = 2: by NCCL as through the host, and as one CPU' layout 2 tp --parallel.tp=2 --parallel.sp=true
    deeper step 'buckets that travel during backward: the same' layout 2 dp --comm.bucket=4096
    for stage in 1 2 3; do deeper step "zero = $stage: the same" layout 2 zero$stage --parallel.zero=$stage; done
    deeper step 'zero = 3, slots: nothing ahead; two units ahead, small ones kept' slots
    deeper step 'zero = 3, state and weights wait on the host, which updates: the same' layout 2 hosts --parallel.zero=3 \
        --memory.offload=cpu --memory.offload_update=cpu
    deeper step 'pp = 2: the same' layout 2 pp --parallel.pp=2 --batch.micro=1
    deeper step 'cp = 2: the same' layout 2 cp --parallel.cp=2
    deeper step '4 ranks, tp = 2, zero = 3: the same' layout 4 both --parallel.tp=2 --parallel.zero=3
    checked_ranks() {
        ranks 4 r1 --parallel.tp=2 --parallel.zero=3 --run.steps=2 --numerics.check=true --numerics.dtype=bf16 &&
            grep -aqE '[0-9]+ ops, 0 beyond' "$log" && travels_by staged
    }
    step 'checked: 4 ranks, tp = 2, zero = 3, bf16' checked_ranks
    checked_experts() {
        ranks 2 r4 --parallel.ep=2 --model.experts=4 --model.experts_shared=16 --moe.capacity=1.25 \
            --model.activation=swiglu --model.bias=false --run.steps=1 --numerics.check=true &&
            grep -aqE '[0-9]+ ops, 0 beyond' "$log" && travels_by staged
    }
    step 'checked: 2 ranks that divide the experts' checked_experts
    checked_ranks_fp8() {
        ranks 4 r3 --parallel.tp=2 --parallel.zero=3 --numerics.check=true --run.steps=1 "${fp8[@]}" &&
            grep -aqE '[0-9]+ ops, 0 beyond' "$log"
    }
    deeper step 'checked: 4 ranks, tp = 2, zero = 3, fp8' checked_ranks_fp8
    nobody_touches() { # BACKEND
        EMU_GUARD=1 ranks 2 "guarded.$1" --comm.backend="$1" --parallel.pp=2 --run.steps=1 --run.trace=1 --run.dump=1 \
            --batch.micro=1 --eval.tokens=8 --numerics.dtype=bf16 && [ -s "$work/guarded.$1/trace.json" ]
    }
    if emulated; then
        step 'no host code touches device memory: 2 stages, NCCL' nobody_touches nccl
        deeper step 'no host code touches device memory: 2 stages, through the host' nobody_touches staged
    fi
    by_itself() { # GPUS BACKEND: the default choice
        EMU_GPUS=$1 ranks 2 "auto$1" "${few[@]}" --run.steps=1 && travels_by "$2"
    }
    if emulated; then
        step 'a GPU for each rank: NCCL' by_itself 2 nccl
        step 'two ranks on a GPU: through the host' by_itself 1 staged
    fi
    # What is asked of the GPU, in order (EMU_LOG), in the first update. Units: 0 the embedding, 1 and 2 blocks, 3 the
    # head.
    asked() { # NAME [OPTION...]: into $work/NAME.asked
        EMU_LOG=$work/$1.log ranks 2 "$1" --comm.backend=nccl "${few[@]}" --run.steps=1 "${@:2}" &&
            sed -n '/^begin update$/,/^begin optimizer$/p' "$work/$1.log.0" >"$work/$1.asked"
    }
    before() { # NAME LINE LINE: how often the first line comes before the first of the second kind
        awk -v a="$2" -v b="$3" '$0 == b { there = 1; exit } $0 == a { n++ } END { print there ? n + 0 : "no" }' \
            "$work/$1.asked"
    }
    sums_begin_early() { # the last block's bucket is on its way before the first block goes backward
        asked early --comm.bucket=4096 && asked naive --comm.bucket=4096 --parallel.overlap=false &&
            [ "$(before early 'begin all_reduce replicas' 'begin backward 1')" = 1 ] &&
            [ "$(before naive 'begin all_reduce replicas' 'begin backward 0')" = 0 ] &&
            [ "$(grep -c '^begin all_reduce replicas' "$work/naive.asked")" = 1 ]
    }
    weights_come_early() { # those of the next unit are on their way when a unit begins
        asked ahead --parallel.zero=3 && asked late --parallel.zero=3 --parallel.overlap=false &&
            [ "$(before ahead 'begin all_gather replicas' 'begin forward 1')" = 3 ] &&
            [ "$(before late 'begin all_gather replicas' 'begin forward 1')" = 2 ]
    }
    own_stream() { # NCCL's calls and the kernels share none
        asked streams --parallel.zero=3 && grep -q ' ncclAllGather$' "$work/streams.asked" &&
            [ -z "$(comm -12 \
                <(sed -n 's/^\([0-9]*\) \(nccl.*\|a group of NCCL calls\)$/\1/p' "$work/streams.asked" | sort -u) \
                <(sed -n 's/^\([0-9]*\) .*_kernel.*/\1/p' "$work/streams.asked" | grep -v '^0$' | sort -u))" ]
    }
    ranges_nest() { # NVTX: every range ends, within the one that it began in
        asked nested && awk '/^begin / { at[n++] = $0 } /^end$/ { if (!n--) exit 1 }
            /^begin micro-batch$/ { if (at[n - 2] != "begin update") exit 1; micro++ }
            /^begin (for|back)ward [0-3]$/ && n > 1 { if (at[n - 2] != "begin micro-batch") exit 1; units++ }
            /^begin optimizer$/ { if (at[n - 2] != "begin update") exit 1; done = 1 }
            END { if (micro != 1 || units != 8 || !done || n) exit 1 }' <(
            sed -n '/^begin update$/,$p' "$work/nested.log.0" | sed '/^begin forward [0-3]$/,$!b')
    }
    if emulated; then
        step 'the sum of a bucket is asked for before backward ends' sums_begin_early
        step "ZeRO-3: a unit's weights are asked for while the one before it runs" weights_come_early
        step "NCCL's calls are in streams of their own" own_stream
        step 'ranges for a profiler: update, micro-batch, units, optimizer' ranges_nest
    fi
else skip 'ranks (no mpiexec)'
fi

# ---- the same bytes; no host code touches device memory
bytes() { # NAME: weights and optimizer after update 2
    "$bin/export" "$work/$1/checkpoints/step_00000002" --to state --out "$work/$1.state" >>"$log" 2>&1
}
twice() { # NAME [OPTION...]
    gpu llama "$1.1" --numerics.deterministic=true "${@:2}" && bytes "$1.1" &&
        EMU_ORDER=random EMU_STREAMS=random EMU_SEED=7 gpu llama "$1.2" --numerics.deterministic=true "${@:2}" &&
        bytes "$1.2" && cmp "$work/$1.1.state" "$work/$1.2.state"
}
says_what_it_promises() { twice d && grep -q 'on a GPU: the same bits again on this layout' "$work/d.1/log.txt"; }
step 'deterministic: the same bytes, in any order of blocks, threads and streams' says_what_it_promises
deeper step 'deterministic, bf16: the same bytes' twice db --numerics.dtype=bf16 --model.head_size=32
# Activations in host memory, and recomputed: three blocks, so that each uses what the one before left in the shared
# buffers. With OpenBLAS' kernels for Haswell, where they run, the bits of a product depend on its shape, as cuBLAS' do.
away() { # NAME
    local mode=(--numerics.deterministic=true --model.layers=3 --batch.tokens=32 --sample.count=0)
    gpu llama "near$1" "${mode[@]}" && bytes "near$1" && gpu llama "away$1" "${mode[@]}" --memory.offload_acts=cpu &&
        bytes "away$1" && cmp "$work/near$1.state" "$work/away$1.state" &&
        gpu llama "full$1" "${mode[@]}" --memory.offload_acts=cpu --memory.recompute=full &&
        bytes "full$1" && cmp "$work/near$1.state" "$work/full$1.state"
}
kernels=$(blas_kernels)
[ -n "${TEST_LONG:-}" ] || kernels=$(grep -x Haswell <<<"$kernels")
[ -n "$kernels" ] || step 'deterministic: the same bytes with activations in host memory' away usual
for name in $kernels; do
    step "deterministic: the same bytes with activations in host memory ($name kernels)" on_kernel "$name" away "$name"
done
# The host updates what is in its memory, by the CPU's op: losses within the bound. Its new weights, rounded to bf16, are
# what the device makes of the fp32 weights of a checkpoint: the next loss is the same.
on_host() {
    local host=(--memory.offload=cpu --memory.offload_update=cpu) mode=(--numerics.deterministic=true --numerics.dtype=bf16)
    EMU_GUARD=1 gpu gpt h1 "${sgd[@]}" "${host[@]}" && cpu gpt h1.cpu "${sgd[@]}" && within h1 h1.cpu &&
        gpu llama h2 "${mode[@]}" "${host[@]}" && gpu llama h3 "${mode[@]}" --run.stop_at=1 "${host[@]}" &&
        gpu llama h3 "${mode[@]}" --ckpt.resume=true && [ "$(columns h2 | wc -l)" = 2 ] && cmp <(columns h2) <(columns h3)
}
step 'the host updates what is in its memory' on_host
step 'fp8: the same bytes' twice d8 --numerics.deterministic=false "${fp8[@]}" --model.ffn=96
resumed_fp8() { # the history of the largest magnitudes comes back to the GPU
    gpu gpt f1 "${fp8[@]}" && bytes f1 && gpu gpt f2 "${fp8[@]}" --run.stop_at=1 &&
        gpu gpt f2 "${fp8[@]}" --ckpt.resume=true && bytes f2 && cmp "$work/f1.state" "$work/f2.state"
}
deeper step 'fp8: 1 update, resumed, and 1 more are 2, byte for byte' resumed_fp8
if emulated; then
    guarded() { EMU_GUARD=1 gpu "$@"; }
    step 'no host code touches device memory: GPT' guarded gpt g1 --run.steps=1 --run.norms_every=1 --run.dump=1
    deeper step 'no host code touches device memory: LLaMA, bf16, documents, offload, recomputation' guarded llama g2 --run.steps=1 \
        --numerics.dtype=bf16 --data.document_mask=true --memory.offload=cpu --memory.offload_acts=cpu --memory.recompute=full
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
emulated && deeper step 'steps under the checker: GPT, and LLaMA in bf16' under_the_checker

# ---- errors: one line, status 1
refused() { # WORDS OPTION...
    local status=0
    gpu gpt errors "${@:2}" || status=$?
    [ $status = 1 ] && grep -aqE "^error: .*$1" "$log" && [ "$(grep -ac '^error' "$log")" = 1 ]
}
step 'no such GPU' refused 'run.device = 63.*this machine has [0-9]+' --run.device=63
step 'fp8: a width that tensor cores do not take' refused 'fp8: a matrix of 24 x 32: both must be multiples of 16' \
    --numerics.dtype=fp8 --model.ffn=24
on() { # SETTING COMMAND...: on a machine that is emulated so
    export "${1?}"
    "${@:2}"
}
large=(--model.channels=512 --batch.tokens=1024 --batch.micro=64)
if emulated; then
    step 'no GPU' on EMU_GPUS=0 refused 'cuda: no GPU found: no CUDA-capable device is detected'
    step 'a GPU that is too old' on EMU_CAPABILITY=75 refused 'GPU 0 has compute capability 7.5, and 8.0 is needed'
    step 'a GPU that is too old for fp8' on EMU_CAPABILITY=86 refused 'GPU 0 has compute capability 8.6, and fp8 needs 8.9' \
        --numerics.dtype=fp8
    step 'kernels of another architecture' on EMU_IMAGE=0 refused 'GPU 0 does not run the kernels that this program'
    step 'out of memory, at the start' on EMU_MEMORY=16 refused 'cuda: no .* MiB left on GPU 0'
    step 'out of memory, in the model' on EMU_MEMORY=48 refused 'memory: no .* MiB left for' "${large[@]}"
fi
# Of several ranks: one line, and all of them end, long before anybody calls it a hang.
ended() { # WORDS [OPTION...]
    local status=0
    ranks 2 "ended.$BASHPID" "${few[@]}" --run.hang_timeout=60 "${@:2}" || status=$?
    [ $status != 0 ] && [ $status != 124 ] && [ "$(grep -ac 'error: ' "$log")" = 1 ] &&
        grep -a '^rank [01]: error: ' "$log" | grep -qE "$1" && ! pgrep -f "run.name=ended.$BASHPID " >/dev/null
}
nccl=(--comm.backend=nccl --parallel.zero=3)
if emulated && [ -n "$launcher" ]; then
    network='remote process exited or there was a network error'
    step 'ranks: no such GPU' ended 'run.device = 0,7.*this machine has 1' --run.device=0,7
    step 'ranks: out of memory' on EMU_MEMORY=48 ended 'memory: no .* MiB left for .*held so far' "${large[@]}" \
        --batch.tokens=2048
    step 'ranks: an error of NCCL' on EMU_NCCL_FAIL=1:9 ended "group replicas, rank 1 of 2: .*$network" "${nccl[@]}"
    step 'ranks: a call of NCCL that does not end' on EMU_NCCL_FAIL=0:3:stuck ended "an earlier call: $network" \
        --comm.backend=nccl --parallel.tp=2
    killed='^rank 1: error: process [0-9]+ on .* was killed by signal 9 .Killed., at step'
    step 'ranks: one is killed in a call of NCCL' on EMU_NCCL_FAIL=1:12:killed ended "$killed 1" "${nccl[@]}"
    step 'ranks: one is killed, arrays go through the host' ended "$killed 2" --comm.backend=staged \
        --run.fault=kill:rank=1,step=2
fi
other_program() {
    ! cpu gpt errors --run.device=0 && grep -aq '^error: run.device = 0: this program computes on the CPU' "$log"
}
step "a GPU's number for build/train" other_program
no_backend() {
    ! cpu gpt errors --comm.backend=nccl && grep -aq '^error: comm.backend: this program computes on the CPU' "$log"
}
step 'NCCL for build/train' no_backend

emulated || finish

# ---- seeded bugs: the check names the op. Those of test/mutations that say `names:`, which test/mutate.sh takes too.
named() { # BUG OPTION...: of a program with that bug the table blames the op that the bug names, and no other
    local at=$work/$1 name file words rest
    IFS=$'\t' read -r name file _ _ _ words < <(test/mutate.sh --list "$1")
    [ "$name" = "$1" ] && [ "$words" != - ] && mkdir -p "$at/${file%/*}" && cp "$file" "$at/$file" || return 1
    test/mutate.sh --apply "$1" "$at" >"$log" 2>&1 || true # in a tree of test/mutate.sh the bug may be there already
    rest=$(printf '%s\n' src/*/*.cu | grep -v "^$file\$")
    # shellcheck disable=SC2046,SC2086
    $here/build.sh plain "$at/program" train_gpu.cu $rest "$at/$file" "$bin/train_on_gpu.o" "$bin/libpretrain.a" -- -fopenmp \
        $(${MAKE:-make} -s --no-print-directory B="$bin" print-libraries) || return 1
    ! timeout 600 "$at/program" "$work/gpt.toml" --run.name="bug.$1" --run.steps=1 --numerics.check=true "${@:2}" \
        >"$log" 2>&1 </dev/null && grep -aq 'error: numerics.check' "$log" &&
        grep -aE '\[[0-9]+\] of [0-9]+ in call' "$log" | sort -u >"$at/blamed" && grep -aqE "^($words) " "$at/blamed" &&
        ! grep -avE "^($words) " "$at/blamed"
}
deeper step 'named: a mask that is missing' named cuda_mask_missing
deeper step 'named: a mask that is missing, on tensor cores' named cuda_flash_mask_missing --numerics.dtype=bf16 --model.head_size=32
deeper step 'named: a scale that is wrong' named cuda_scale_wrong
deeper step 'named: a barrier that is missing' named cuda_barrier_missing
deeper step 'named: an 8-bit operand whose scale is forgotten' named cuda_fp8_scale_forgotten --numerics.dtype=fp8
deeper step 'named: a largest magnitude that is not noted' named cuda_fp8_not_noted --numerics.dtype=fp8
finish
