#!/bin/bash
# test/test_numerics.sh: build/train from end to end with the settings of [numerics] and [memory], dropout,
# document masks, batch ramps and every optimizer: what must not change a bit of the final weights (the way of a
# product, a stop on the way), how far an fp16 gradient is from fp32's, and what is refused. (Threads, micro-batches and
# recomputation: test_layouts.sh.)
# shellcheck source=test/train_common.sh
# deeper: more steps, number formats and optimizers
. "$(dirname "$0")/train_common.sh"

# brief CONFIG NAME [OPTION...]: training alone, no evaluation or samples on the way.
brief() {
    local config=$1 name=$2
    shift 2
    train "$config" "$name" --run.eval_every=0 --run.sample_every=0 --sample.count=0 --eval.tokens=64 "$@" ||
        { cat "$work/$name.err"; return 1; }
}

weights() { # NAME STEP: the checkpoint's weights as one file of safetensors
    "$BUILD/export" "$(checkpoint "$1" "$2")" --to safetensors --out "$work/$1.weights" >&2
    printf '%s\n' "$work/$1.weights"
}

differ() { # FILE FILE: the comparison can see a difference
    if cmp -s "$1" "$2"; then echo "$1 and $2 are the same"; return 1; fi
}

small=(--batch.tokens=128 --batch.micro=4) # 4 sequences, where 16 would prove no more

# Not deterministic, the cut into micro-batches changes bits, so the comparison in test_layouts.sh can fail.
fast_mode_rounds() {
    brief gpt fast-8 --run.stop_at=10 --batch.micro=8
    brief gpt fast-2 --run.stop_at=10 --batch.micro=2
    differ "$(weights fast-8 10)" "$(weights fast-2 10)"
}

# Products by the processor's instruction are the widened ones in another order of sums. In deterministic mode the order
# is the same, so a run is the same; in the other mode each op is within its bound. On a processor without the
# instruction both are widened.
bf16_products() {
    local way
    for way in auto widened; do
        brief gpt "products-$way" "${small[@]}" --numerics.deterministic=true --run.stop_at=8 --numerics.dtype=bf16 \
            --numerics.bf16_products=$way
    done
    grep 'matmul: .*; bf16 matrices: widened to fp32, ' "$runs/products-widened/log.txt"
    cmp "$(weights products-auto 8)" "$(weights products-widened 8)"
    if grep -qw avx512_bf16 /proc/cpuinfo; then
        grep 'matmul: .*; bf16 matrices: AVX512-BF16, ' "$runs/products-auto/log.txt"
    else
        refuses 'numerics.bf16_products = hardware: this processor' gpt --numerics.dtype=bf16 \
            --numerics.bf16_products=hardware
    fi
    brief llama products-checked --run.stop_at=2 --numerics.dtype=bf16 --numerics.check=true
    grep -E '[0-9]+ ops, 0 beyond their bound' "$runs/products-checked/log.txt"
}

# The lookup of fp32 tables: other bits than that of the stored ones, which a run may read before or after; a stop on the
# way changes none; and the ops are those of the definition.
embedding_in_fp32() {
    local bf16="${small[*]} --numerics.dtype=bf16" wide=--numerics.embed_dtype=fp32
    brief gpt embed-stored --run.stop_at=6 $bf16
    brief gpt embed-wide --run.stop_at=6 $bf16 $wide
    differ "$(weights embed-stored 6)" "$(weights embed-wide 6)"
    resumes gpt embed-stop $bf16 $wide
    brief gpt embed-then --run.stop_at=3 $bf16
    brief gpt embed-then --run.stop_at=6 --ckpt.resume=true $bf16 $wide
    differ "$(weights embed-stored 6)" "$(weights embed-then 6)"
    brief gpt embed-back --run.stop_at=3 $bf16 $wide
    brief gpt embed-back --run.stop_at=6 --ckpt.resume=true $bf16
    differ "$(weights embed-wide 6)" "$(weights embed-back 6)"
    brief gpt embed-checked --run.stop_at=2 $bf16 $wide --numerics.check=true
    grep -E '[0-9]+ ops, 0 beyond their bound' "$runs/embed-checked/log.txt"
}

# ---- stopping and going on

# 12 steps and 12 more are 24 steps: weights, optimizer state, the scales of the number formats, and every
# logged number.
resumes() { # FAMILY NAME [OPTION...]
    local family=$1 name=$2
    shift 2
    brief "$family" "$name" --run.steps=24 --optim.decay_steps=24 "$@"
    brief "$family" "$name-half" --run.steps=24 --optim.decay_steps=24 --run.stop_at=12 "$@"
    brief "$family" "$name-half" --run.steps=24 --optim.decay_steps=24 --ckpt.resume=true "$@"
    cmp "$(checkpoint "$name" 24)/model.safetensors" "$(checkpoint "$name-half" 24)/model.safetensors"
    [ "$name" = sgd ] || cmp "$(checkpoint "$name" 24)/optim.safetensors" "$(checkpoint "$name-half" 24)/optim.safetensors"
    cmp <(extras "$name") <(extras "$name-half")
    cmp <(history "$name") <(history "$name-half")
    cmp <(skips "$name") <(skips "$name-half")
    value resume step "$runs/$name-half/metrics.jsonl" | cmp - <(echo 12)
}

extras() { sed -n '/"extra"/,/}/p' "$(checkpoint "$1" 24)/manifest.json"; }

skips() { sed -n 's/.*"event":"skip","step":\([0-9]*\),.*lowered to \([0-9.e+]*\)".*/\1 \2/p' "$runs/$1/metrics.jsonl"; }

# A loss scale that overflows at once, doubles every third step and overflows again, on either side of the
# stop, which comes in the middle of a count.
fp16_resumes() {
    resumes gpt fp16 --numerics.dtype=fp16 --numerics.loss_scale=16777216 --numerics.loss_growth=3 "${small[@]}"
    skips fp16
    extras fp16 | grep -q loss_scale
    [ "$(skips fp16 | head -n 1)" = '1 8.38861e+06' ]
    skips fp16 | awk '$1 > 12 { after++ } seen[$2]++ { again++ } END { exit !(after && again) }' # it grew in between
}

# A run in another format may go on in fp16: with the configured scale, not with the 1 of a format that has no
# scale.
fp16_takes_over() {
    brief gpt over --run.stop_at=3
    brief gpt over --run.stop_at=5 --ckpt.resume=true --numerics.dtype=fp16 --numerics.loss_scale=4096
    sed -n '/"loss_scale"/,/\]/p' "$(checkpoint over 5)/manifest.json" | tr -d ' \n' | grep -q '4096'
}

tf32_resumes() { # alone, and from a run in fp32, which stores the same
    resumes llama tf32 "${small[@]}" --numerics.dtype=tf32
    brief gpt wide --run.stop_at=5
    brief gpt rounds --run.stop_at=3
    brief gpt rounds --run.stop_at=5 --ckpt.resume=true --numerics.dtype=tf32
    differ "$(weights wide 5)" "$(weights rounds 5)"
}

fp8_resumes() { # the history of 4 steps is full before the stop, and its last row matters for 4 steps after it
    resumes llama fp8 "${small[@]}" --numerics.dtype=fp8 --numerics.amax_history=4
    extras fp8 | grep -q 'fp8\.amax'
    brief llama fp8-current "${small[@]}" --run.steps=24 --optim.decay_steps=24 --numerics.dtype=fp8 --numerics.fp8_scaling=current
    differ "$(weights fp8 24)" "$(weights fp8-current 24)"
}

# The updates that measure the speed for run.minutes leave nothing in the history of the scales.
fp8_measured() {
    local steps
    brief gpt fp8-minutes --run.steps=0 --run.minutes=0.05 --run.stop_at=2 --numerics.dtype=fp8
    steps=$(value start steps "$runs/fp8-minutes/metrics.jsonl")
    brief gpt fp8-steps --run.steps="$steps" --run.stop_at=2 --numerics.dtype=fp8
    cmp "$(weights fp8-minutes 2)" "$(weights fp8-steps 2)"
}

# From 4 to 16 sequences over 3000 tokens: at the stop the batch has grown, and has further to grow.
ramp_resumes() {
    local ramp=(--batch.ramp_from=128 --batch.ramp_tokens=3000 --batch.micro=2 --optim.ramp_lr=sqrt)
    resumes gpt ramp "${ramp[@]}"
    value train tokens "$runs/ramp/metrics.jsonl" | awk '
        { batch[NR] = $1 - last; last = $1 }
        END { exit !(batch[1] == 128 && batch[12] > 128 && batch[13] < 512 && batch[24] == 512) }'
}

optimizers_resume() {
    local name
    for name in sgd momentum adam adafactor lion adamw8bit muon; do resumes gpt "$name" --optim.name=$name; done
    differ "$(weights sgd 24)" "$(weights momentum 24)"
    resumes gpt normuon --optim.name=normuon --optim.momentum_warmup=18 --optim.cautious_decay=true # resumed in the warm-up
    differ "$(weights muon 24)" "$(weights normuon 24)"
    resumes gpt relative --optim.name=adafactor --optim.relative_step=true
}

# ---- compressed activations

# They change the weights, and are compressed in the same way each time.
compressed() {
    brief gpt int8 --run.stop_at=8 --memory.compress=int8
    brief gpt int8-again --run.stop_at=8 --memory.compress=int8 --run.threads=2
    brief gpt kept --run.stop_at=8
    cmp "$(weights int8 8)" "$(weights int8-again 8)"
    differ "$(weights int8 8)" "$(weights kept 8)"
}

# ---- gradients of fp16 against fp32, through dumps

# doc/precision.md bounds the error of a matrix's gradient: |dg| <= eps |g| with 3 eps^2 = K 2^-22, K = 25 L
# + 9 stored arrays and L = 2 blocks. build/show gradients has the largest of these errors. A dump that kept the loss scale is
# 65536 times too large, which build/diff's bound would see as well.
fp16_dump_is_near() {
    local eps
    brief gpt grad32 --run.stop_at=1 --run.dump=1
    brief gpt grad16 --run.stop_at=1 --run.dump=1 --numerics.dtype=fp16
    eps=$(awk 'BEGIN { print sqrt((25 * 2 + 9) * 2 ^ -22 / 3) }')
    "$BUILD/diff" "$runs/grad16" "$runs/grad32" >"$work/diff"
    tail -n 1 "$work/diff" | grep -q '^rounding: '
    "$BUILD/show" gradients "$runs/grad16" "$runs/grad32" >"$work/gradients"
    less "$(sed -n 's/^worst matrix \([^,]*\),.*/\1/p' "$work/gradients")" "$eps"
    less 0 "$(sed -n 's/^worst matrix \([^,]*\),.*/\1/p' "$work/gradients")"
    if "$BUILD/diff" "$runs/grad16" "$runs/grad32" --exact >"$work/diff"; then return 1; fi # they do differ
    grep -q '^first out of bound: forward\.embed' "$work/diff" # and the master weights do not
}

# ---- what is refused

refuses() { # WORDS CONFIG [OPTION...]: one line on stderr, status 1, no step trained
    local words=$1 config=$2 status=0
    shift 2
    train "$config" wrong "$@" || status=$?
    one_error $status "$words" "$work/wrong.err"
    [ ! -s "$runs/wrong/metrics.jsonl" ]
}

one_error() { # STATUS WORDS FILE
    cat "$3"
    [ "$1" = 1 ]
    [ "$(wc -l <"$3")" = 1 ]
    grep -qE "^error: .*($2)" "$3"
}

mistakes() {
    rm -rf "$runs/wrong"
    refuses 'loss.scale.*1000.*power of two' gpt --numerics.dtype=fp16 --numerics.loss_scale=1000
    refuses 'batch\.ramp_from.*100.*multiple' gpt --batch.ramp_from=100 --batch.ramp_tokens=1000
    refuses 'batch\.ramp_from.*1024.*batch\.tokens' gpt --batch.ramp_from=1024 --batch.ramp_tokens=1000
}

# A tokenizer whose separator has another name.
no_end_of_text() {
    rm -rf "$runs/wrong"
    cp -r "$work/data" "$work/other"
    sed -i 's/<|endoftext|>/<|somewhere|>/g' "$work"/other/tokenizer*.json
    rm "$work/other/tokenizer_config.json" # which would name it as the end
    refuses 'endoftext' gpt --data.document_mask=true --data.tokenizer="$work/other"
}

# What a checkpoint holds, another setting cannot take over; the run is left as it was.
resume_of_another() {
    local kept
    refused() { # NAME WORDS OPTION...
        local name=$1 words=$2 status=0
        shift 2
        kept=$(cat "$runs/$name"/*.* "$(checkpoint "$name" 3)"/* | cksum)
        train gpt "$name" --ckpt.resume=true "$@" || status=$?
        one_error $status "$words" "$work/$name.err"
        [ "$(cat "$runs/$name"/*.* "$(checkpoint "$name" 3)"/* | cksum)" = "$kept" ]
    }
    brief gpt adamw --run.stop_at=3
    brief gpt amax --run.stop_at=3 --numerics.dtype=fp8
    refused adamw 'optim\.name.*adamw' --optim.name=lion
    refused adamw 'optim\.name.*adamw' --optim.name=sgd
    refused adamw 'batch\.tokens' --batch.ramp_from=256 --batch.ramp_tokens=6000
    refused amax 'amax' --numerics.dtype=fp8 --numerics.amax_history=4
}

# A loss scale that is fixed and too large never fits: ten updates are skipped, then the run ends. One that
# may fall to 1 and still overflows says so.
scales_that_never_fit() {
    local status=0
    train gpt fixed --numerics.dtype=fp16 --numerics.loss_scale=16777216 --numerics.loss_growth=0 --batch.tokens=128 \
        --batch.micro=4 || status=$?
    one_error $status '10 updates' "$work/fixed.err"
    status=0
    train gpt falls --numerics.dtype=fp16 --numerics.loss_scale=4 --optim.lr=1e30 || status=$?
    one_error $status 'loss scale.*smallest' "$work/falls.err"
    [ "$(grep -c '"event":"skip"' "$runs/falls/metrics.jsonl")" = 2 ]
}

# norms.csv and the noise lines, under a loss scale: the tensors' gradients make up the norm of metrics.jsonl (both have
# six digits or more), and |G|^2 of the first step is that of fp32. fp16's gradients are off by eps = 0.003 of their
# norm (doc/precision.md), so squares by 2 eps; |G|^2 is (4 big - small) / 3 for micro-batches of a quarter, and as
# long as small is at most twice big, its relative error is at most 2 eps (4 + 2) / (4 - 2): 2%.
diagnostics() {
    local norm step signal
    brief gpt seen16 --run.steps=6 --batch.micro=4 --run.norms_every=3 --run.noise_every=1 --numerics.dtype=fp16 \
        --numerics.loss_scale=1024
    brief gpt seen32 --run.steps=1 --batch.micro=4 --run.noise_every=1
    for step in 3 6; do
        norm=$(awk -F, -v s=$step '$1 == s { sum += $4 * $4 } END { print sqrt(sum) }' "$runs/seen16/norms.csv")
        close_to "$norm" "$(value train grad_norm "$runs/seen16/metrics.jsonl" | sed -n ${step}p)" 1e-5
    done
    [ "$(cut -d, -f1 "$runs/seen16/norms.csv" | sort -u | tr '\n' ' ')" = '3 6 step ' ]
    signal='s/.*noise .*step 1:.*|G|^2 \([^;]*\);.*/\1/p'
    close_to "$(sed -n "$signal" "$runs/seen16/log.txt")" "$(sed -n "$signal" "$runs/seen32/log.txt")" 0.02
    # A batch of the first micro-batch alone has the small norm; |G|^2 is printed with 4 digits.
    brief gpt alone --run.steps=1 --batch.micro=4 --batch.tokens=128
    close_to "$(sed -n "$signal" "$runs/seen32/log.txt")" "$(paste <(value train grad_norm "$runs/seen32/metrics.jsonl") \
        <(value train grad_norm "$runs/alone/metrics.jsonl") | awk '{ print (4 * $1 * $1 - $2 * $2) / 3 }')" 0.001
}

# What looks on stops nothing: the noise scale of a batch whose rest has no targets; the dump after a rollback; a
# validation text that is shorter than the context, in deterministic mode.
looked_at() {
    brief gpt screened --run.steps=40 --batch.tokens=64 --batch.micro=1 --data.max_repeat=0.08 --run.noise_every=1
    brief gpt back --run.steps=12 --run.save_every=4 --monitor.rollback_at=7 --run.dump=10
    brief gpt short --run.steps=2 --numerics.deterministic=true --eval.tokens=31
}

# Every observer and every measurement at once, against none of them: the same weights and the same state.
all_look_on() { # NAME OPTION...
    local name=$1
    shift
    brief gpt "plain-$name" --run.steps=4 --batch.micro=1 --batch.tokens=128 "$@"
    train gpt "seen-$name" --run.steps=4 --batch.micro=1 --batch.tokens=128 "$@" --run.eval_every=1 --eval.tokens=64 \
        --eval.stride=16 --run.sample_every=1 --run.noise_every=1 --run.norms_every=1 --run.dump=3 --run.account=true \
        --monitor.locate=true --run.save_every=2 --ckpt.async=true --run.peak=0 || { cat "$work/seen-$name.err"; return 1; }
    same_state "plain-$name" "seen-$name" 4
}
every_observer() {
    local dtype experts=(--model.experts=4 --model.activation=swiglu --model.bias=false)
    for dtype in fp32 bf16 fp16 fp8; do
        all_look_on "$dtype" --numerics.dtype="$dtype"
        deeper all_look_on "experts-$dtype" --numerics.dtype="$dtype" "${experts[@]}"
        deeper all_look_on "biased-$dtype" --numerics.dtype="$dtype" "${experts[@]}" --moe.balance=bias --model.dropout=0.1
    done
}

# Measuring an op does not change what it computes: the loss that is printed is the same with a table of ops.
measured_ops() {
    local loss='$2 ~ /^ stories/ { print $11 }' plain
    plain=$("$BUILD/bench" stories --bf16 --steps 1 --threads 1 | awk -F'|' "$loss")
    [ "$plain" ] && [ "$plain" = "$("$BUILD/bench" stories --bf16 --ops --steps 1 --threads 1 | awk -F'|' "$loss")" ]
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'not deterministic: micro-batches round' fast_mode_rounds
passes 'bf16: products by hardware are the widened ones' bf16_products
passes 'bf16: tokens and positions read in fp32' embedding_in_fp32
deeper passes 'bench --bf16: --ops changes no bit' measured_ops
passes 'fp16, overflowing and growing: a resumed run is a straight one' fp16_resumes
deeper passes 'fp16 goes on from fp32 with a scale of its own' fp16_takes_over
passes 'tf32: the same, and after fp32' tf32_resumes
passes 'fp8, delayed scales: the same' fp8_resumes
deeper passes 'fp8: the updates that measure the speed are forgotten' fp8_measured
passes 'a batch ramp: the same' ramp_resumes
deeper passes 'every optimizer: the same' optimizers_resume
passes 'compressed activations' compressed
deeper passes 'the dumped gradient of fp16 is near that of fp32' fp16_dump_is_near
passes 'norms by tensor and the noise scale' diagnostics
passes 'what looks on stops nothing' looked_at
passes 'every observer at once changes nothing' every_observer
passes 'wrong settings' mistakes
passes 'a document mask without documents' no_end_of_text
deeper passes 'resuming with another optimizer, ramp or history' resume_of_another
deeper passes 'loss scales that never fit' scales_that_never_fit
exit $failed
