#!/bin/bash
# test/test_bench_gpu.sh: what scripts/bench_gpu.sh compares is comparable: PyTorch's twin of a run, from the same
# weights and on the same batches, has the losses of build/train within a derived bound (where a python3 has PyTorch).
# And the script itself, run on the CUDA emulation with tiny sizes: each op and a model get a row, and each error one
# line.
# long: a benchmark walked in the emulation
set -u
cd "$(dirname "$0")/.." || exit 1
. test/cuda_steps.sh || exit 1
unset OMP_NUM_THREADS
export TMPDIR=$work # PyTorch leaves its caches there
export OMP_WAIT_POLICY=passive
if nm "$BUILD/libpretrain.a" 2>/dev/null | grep -q __asan_; then
    skip 'bench_gpu.sh (the library is built for a sanitizer)'
    finish
fi

python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import torch' 2>/dev/null && python=$candidate && break
done
corpus() {
    "$BUILD/stories" --bytes 60000 --seed 3 --out "$work/text" &&
        "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 300 \
            --out "$work/data"
}
step 'a corpus' corpus
all_built

# ---- the twin. What rounding may do: let e be the relative error of a gradient, in norm: 30 ops one after the other,
# each with sums of up to 300 terms (the vocabulary), whose roundings of 2^-24 add up like a random walk; 6 deviations:
# e = 30 * 6 * sqrt(300) * 2^-24. Adam's update is lr m / (s + eps) with m a weighted mean of the gradients so far, and
# s a weighted root mean square of them: both are off by at most the largest error d of a gradient, and |m| <= 1.1 s
# for these betas, so the update is off by at most 2.1 lr d / eps. Weights are off by the sum of that, and the loss by
# |g| times the weights' error, and by e of itself. eps is large, so that the bound is small.
steps=12 dump=1 e=1.86e-4
adam=(--optim.lr=0.01 --optim.eps=0.1 --optim.schedule=constant --optim.warmup=0 --optim.clip=1)
weights() { printf '%s/%s/dump/step_%08d/rank_00000.safetensors' "$work" "$1" $dump; } # before update $dump
ours() { # NAME OPTION...
    "$BUILD/train" tiny --run.dir="$work" --run.name="$1" --data.train="$work/data/train_*.bin" \
        --data.val="$work/data/val_*.bin" --data.tokenizer="$work/data" --data.shuffle=false \
        --run.steps=$((steps + 1)) --run.fault="exit:rank=0,step=$((steps + 1))" --run.dump=$dump --run.threads=1 \
        --model.layers=2 --model.channels=32 --model.heads=4 --model.context=16 --batch.tokens=128 --batch.micro=4 \
        --eval.tokens=16 --run.eval_every=0 "${adam[@]}" "${@:2}" >"$log" 2>&1 </dev/null &&
        [ -s "$(weights "$1")" ]
}
theirs() { # NAME
    OMP_NUM_THREADS=1 "$python" -B dev/reference/train_gpu_torch.py "$work/$1" --device cpu \
        --weights "$(weights "$1")" --first $dump >"$work/$1.torch" 2>"$log"
}
within() { # NAME: are the twin's losses the run's?
    paste -d ' ' <(sed -n 's/.*"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' "$work/$1.torch") \
        <(sed -n 's/.*"event":"train".*"loss":\([^,]*\),"lr":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2 \3/p' \
            "$work/$1/metrics.jsonl") |
        awk -v e=$e -v eps=0.1 -v n="$steps" '
            { d = $1 - $2; if (d < 0) d = -d
              bound = e * $2 + $4 * e * way; way += 2.1 * $3 / eps * $4
              if (!(d <= bound)) { print "update " NR ": PyTorch " $1 ", ours " $2 ", bound " bound; bad = 1 } }
            END { exit bad || NR != n }'
}
agree() { # NAME OPTION...
    ours "$@" && theirs "$1" && within "$1"
}
llama=(--model.norm=rmsnorm --model.activation=swiglu --model.position=rope --model.kv_heads=2 --model.bias=false
    --model.tie=false)
# Initial weights are small: the two halves of a SwiGLU then differ little, and attention hardly depends on positions.
# So the loss of a later update is compared too, with the weights of that update.
later() { # NAME OPTION...
    local steps=60 dump=60
    ours "$@" --optim.eps=1e-8 && theirs "$1" || return 1
    paste -d ' ' <(sed -n 's/.*"step": 60, "loss": \([^,]*\),.*/\1/p' "$work/$1.torch") \
        <(sed -n 's/.*"event":"train","step":60,.*"loss":\([^,]*\),.*/\1/p' "$work/$1/metrics.jsonl") |
        awk -v e=$e '
            { d = $1 - $2; if (d < 0) d = -d; print "PyTorch " $1 ", ours " $2; good = d <= e * $2 && $2 < 5 }
            END { exit !(good && NR == 1) }'
}
off_by_two_percent() { # the bound detects another learning rate
    cp -r "$work/gpt" "$work/wrong" && sed -i 's/"lr":0.01,/"lr":0.0102,/' "$work/wrong/metrics.jsonl" &&
        theirs wrong &&
        cp "$work/wrong.torch" "$work/gpt.wrong" && mv "$work/gpt.torch" "$work/gpt.right" &&
        mv "$work/gpt.wrong" "$work/gpt.torch" && ! within gpt >"$log.within"
}
if [ -n "$python" ]; then
    step "PyTorch's twin of a GPT: the losses of $steps updates are ours" agree gpt
    step "PyTorch's twin of a LLaMA" agree llama "${llama[@]}"
    step "PyTorch's twin of a GPT, 60 updates later" later gpt60
    step "PyTorch's twin of a LLaMA, 60 updates later" later llama60 "${llama[@]}"
    wait
    step 'the bound tells a learning rate that is 2% off' off_by_two_percent
    shuffled() {
        ours shuffled --data.shuffle=true && ! theirs shuffled && [ "$(wc -l <"$log")" = 1 ] &&
            grep -q '^error: train_gpu_torch.py: .*shuffle' "$log"
    }
    step 'a run that has shuffled its text has no twin' shuffled
else skip "PyTorch's twin (no python3 with PyTorch)"
fi

# ---- the script
walked() {
    if ! BENCH_GPU_EMULATE=1 scripts/bench_gpu.sh ops bench-llama-1b >"$work/table" 2>"$log"; then
        cat "$work/table"
        return 1
    fi
    grep -q '^| adamw | [0-9.]* | [0-9.]* GB/s | [0-9]*% |' "$work/table" &&
        grep -q '^| attention forward bf16 D=128 T=[0-9]* | [0-9.]* | [0-9.]* TFLOP/s |' "$work/table" &&
        grep -qE '^\| bench-llama-1b \| 2 x 16 x 2 \| [0-9.]+ \| [0-9]+ \| [0-9.]+ \| [0-9.]+% \| [0-9.]+ \|' \
            "$work/table" &&
        [ "$(grep -cE '^- (PASS|MISS)  .* of the yardstick' "$work/table")" -ge 11 ] &&
        grep -qE '^- (MISS|PASS|OPEN)  bench-llama-1b: ' "$work/table" && ! grep -q '^- FAIL' "$work/table"
}
step 'bench_gpu.sh walks through on the emulation' walked
says() { # WORDS ARGUMENT...: one line, status 1
    local status=0
    scripts/bench_gpu.sh "${@:2}" >"$log" 2>&1 || status=$?
    [ $status = 1 ] && [ "$(wc -l <"$log")" = 1 ] && grep -q "^error: bench_gpu.sh: $1" "$log"
}
step 'a preset that does not exist' says 'no preset bench-gpt9' bench-gpt9
nvidia-smi -L >/dev/null 2>&1 || step 'no GPU' says 'no GPU here'
finish
