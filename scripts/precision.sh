#!/bin/bash
# scripts/precision.sh: presets/tiny.toml in every number format, against fp32 and the bounds of doc/precision.md.
#
#   300 steps of 1024 tokens   in fp32, tf32, bf16, fp16, fp8, fp16 without a loss scale; fp32 with other seeds
#   4 gradients                of each format at the fp32 run's weights, before steps 1, 101, 201 and 301
#   60 steps of 16384 tokens   in fp32, fp16 and fp16 without a loss scale, which is needed here. Learning rate
#                              1e-3: at the preset's 3e-3 this batch causes a spike of the gradient norm, which
#                              magnifies any difference
#
# It writes runs/precision.md (the tables of doc/precision.md), runs/precision/precision.svg and
# precision_scale.svg. The arithmetic: 9 * 300 * 1024 + 3 * 60 * 16384 = 5.7e6 tokens, times 6 * 466304
# parameters 1.5e13 FLOPs, and as much again for rounding: some minutes. Exit status 1 if a measured number
# exceeds its bound, or if fp16 works as well without the scale.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
build=${BUILD:-build} dir=runs/precision steps=300 every=100
formats='tf32 bf16 fp16 fp8'
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends

rm -rf "$dir.previous"
[ ! -e "$dir" ] || mv "$dir" "$dir.previous"
mkdir -p "$dir/data"
"$build/stories" --bytes 3000000 --val-bytes 100000 --seed 1 --out "$dir/data" >"$dir/log"
"$build/prepare" tokens --train "$dir/data/train.txt" --val-file "$dir/data/val.txt" --vocab 4096 --out "$dir/data" >>"$dir/log"

options() { # FORMAT: as settings
    case $1 in
    unscaled) echo --numerics.dtype=fp16 --numerics.loss_scale=1 --numerics.loss_growth=0 ;;
    *) echo "--numerics.dtype=$1" ;;
    esac
}

train() { # NAME [OPTION...]
    local name=$1
    shift
    echo "$name: $*"
    "${with[@]}" "$build/train" presets/tiny.toml --run.dir="$dir" --run.name="$name" --data.train="$dir/data/train_*.bin" \
        --data.val="$dir/data/val_*.bin" --data.tokenizer="$dir/data" --run.eval_every=0 --sample.count=0 "$@" >>"$dir/log"
}

# ---- 300 steps

train fp32 --run.steps=$steps --run.save_every=$every --ckpt.keep=0
# shellcheck disable=SC2046
for format in $formats unscaled; do train "$format" --run.steps=$steps $(options "$format"); done
for seed in 1 2 3; do train "seed$seed" --run.steps=$steps --run.seed=$seed; done

# ---- gradients at the same weights

# One update in another format from a checkpoint of the fp32 run; the gradient goes to dump/.
probe() { # FORMAT STEP
    local name=probe-$1-$2
    mkdir -p "$dir/$name/checkpoints"
    [ "$2" = 0 ] || cp -r "$(printf '%s/fp32/checkpoints/step_%08d' "$dir" "$2")" "$dir/$name/checkpoints/"
    # shellcheck disable=SC2046
    train "$name" --run.steps=$((steps + 1)) --optim.decay_steps=$steps --run.stop_at=$(($2 + 1)) --run.dump=$(($2 + 1)) \
        --ckpt.resume=auto --eval.tokens=64 $(options "$1")
}

error_of() { # DIRECTORY REFERENCE UPDATE: the last line of build/show gradients
    local dump
    dump=$(printf 'dump/step_%08d' "$3")
    "$build/show" gradients "$dir/$1/$dump" "$dir/$2/$dump" | tail -n 1
}

: >"$dir/errors"
for ((step = 0; step <= steps; step += every)); do
    probe fp32 $step
    for format in $formats unscaled; do
        probe "$format" $step
        echo "$format $step $(error_of "probe-$format-$step" "probe-fp32-$step" $((step + 1)))" >>"$dir/errors"
    done
done
rm -rf "$dir"/probe-*/checkpoints

# ---- a batch of 16384 tokens

large=(--batch.tokens=16384 --optim.lr=1e-3 --run.steps=60 --run.dump=1)
train batch-fp32 "${large[@]}"
for format in fp16 unscaled; do
    # shellcheck disable=SC2046
    train "batch-$format" "${large[@]}" $(options "$format")
    echo "batch-$format 0 $(error_of "batch-$format" batch-fp32 1)" >>"$dir/errors"
done
"$build/show" overlay "$dir/precision.svg" 'tiny, 300 steps of 1024 tokens' "$dir/fp32" "$dir/bf16" "$dir/fp16" "$dir/fp8"
"$build/show" overlay "$dir/precision_scale.svg" 'tiny, 60 steps of 16384 tokens: fp16 with and without a loss scale' \
    "$dir/batch-fp32" "$dir/batch-fp16" "$dir/batch-unscaled"

# ---- the tables, and the verdict

# NAME RUN: the first loss, the mean of the last 50 (or the last sixth), validation loss, skipped updates
summary() {
    sed -n 's/.*"event":"train",.*"loss":\([^,]*\),.*/train \1/p; s/.*"event":"end",.*"val_loss":\([^,]*\),.*/val \1/p
        s/.*"event":"skip".*/skip 1/p' "$dir/$2/metrics.jsonl" | awk -v name="$1" '
        $1 == "train" { loss[++n] = $2 }
        $1 == "val" { val = $2 }
        $1 == "skip" { skips++ }
        END { last = n / 6; for (i = n - last + 1; i <= n; i++) sum += loss[i]
              printf "loss %s %.9f %.9f %.9f %d\n", name, loss[1], sum / last, val, skips }'
}

for run in fp32 $formats unscaled seed1 seed2 seed3; do summary "$run" "$run"; done >"$dir/losses"
for run in fp32 fp16 unscaled; do summary "batch-$run" "batch-$run"; done >>"$dir/losses"

# doc/precision.md derives eps, the relative error of a matrix's gradient at the start, and what the largest
# measured eps may do to the loss. (With the batch of 16384 tokens only the first gradient is measured, so
# the derived eps stands for the largest.)
status=0
awk '
    function abs(x) { return x < 0 ? -x : x }
    function eps_bound(format, u, casts) { # L = 4 blocks
        u = format ~ /fp16|unscaled|tf32/ ? 2 ^ -11 : 2 ^ -8
        if (format == "tf32") return sqrt((24 * 4 + 6) * u ^ 2 / 3) # operands of matmuls alone
        casts = format == "fp8" ? 4 * (8 * (2 ^ -4) ^ 2 + 8 * ((2 ^ -3) ^ 2 + (2 ^ -4) ^ 2)) : 0
        return sqrt(((25 * 4 + 9) * u ^ 2 + casts) / 3)
    }
    function must(ok, what) { if (!ok) { print "error: out of bound: " what > "/dev/stderr"; bad = 1 } }
    function row(name, title, format, base, checked, d, worst, noise) {
        d = val[name] - val[base]
        worst = 2 * (base == "fp32" ? eps[name] : eps_bound(format)) * (first[base] - val[base]) + off[name]
        noise = eps[name] ^ 2 * (first[base] - val[base]) + 3 * sqrt(2) * sigma + off[name]
        printf "| %s | %.4f | %.4f | %+.4f | %d |", title, last[name], val[name], d, skips[name]
        if (name == base) { print " | | | | | |"; return }
        printf " %.2g | %.2g | %s | %.2g%% | %.2g | %s |\n", start[name], eps_bound(format),
               base == "fp32" ? sprintf("%.2g", eps[name]) : "", zero[name], worst,
               base == "fp32" && checked ? sprintf("%.2g", noise) : ""
        if (!checked) return
        must(start[name] <= eps_bound(format), title ": error of the first gradient " start[name])
        must(abs(d) <= worst && abs(last[name] - last[base]) <= worst, title ": loss off by " d ", bound " worst)
        if (base == "fp32") must(abs(d) <= noise, title ": loss off by " d ", bound with noise " noise)
    }
    function head() {
        print "| | training loss | validation loss | against fp32 | skipped | eps at the start | derived |" \
              " eps, largest | became 0 | first-order bound | noise bound |"
        print "|---|---|---|---|---|---|---|---|---|---|---|"
    }
    $1 == "loss" { first[$2] = $3; last[$2] = $4; val[$2] = $5; skips[$2] = $6; next }
    { # FORMAT STEP worst matrix E, zero Z%, loss D
        gsub(/[,%]/, "")
        must($5 ~ /^[0-9.]+e[-+][0-9]+$/ && $9 ~ /^[-+][0-9.]+e[-+][0-9]+$/, "no error of a gradient: " $0)
        if ($2 == 0) start[$1] = $5 + 0
        if ($5 + 0 > eps[$1]) eps[$1] = $5 + 0
        if ($7 + 0 > zero[$1]) zero[$1] = $7 + 0
        if (abs($9) > off[$1]) off[$1] = abs($9)
    }
    END {
        n = split("fp32 seed1 seed2 seed3", seed, " ")
        for (i = 1; i <= n; i++) mean += val[seed[i]] / n
        for (i = 1; i <= n; i++) sigma += (val[seed[i]] - mean) ^ 2 / (n - 1)
        sigma = sqrt(sigma)
        print "300 steps of 1024 tokens:\n"; head()
        row("fp32", "fp32", "fp32", "fp32", 0)
        row("tf32", "tf32", "tf32", "fp32", 1)
        row("bf16", "bf16", "bf16", "fp32", 1)
        row("fp16", "fp16", "fp16", "fp32", 1)
        row("fp8", "fp8, delayed scales", "fp8", "fp32", 1)
        row("unscaled", "fp16 without a loss scale", "fp16", "fp32", 0)
        printf "\nfp32 with other seeds: validation loss %.4f, %.4f, %.4f; with the first, standard deviation %.4f.\n",
               val["seed1"], val["seed2"], val["seed3"], sigma
        print "\n60 steps of 16384 tokens:\n"; head()
        row("batch-fp32", "fp32", "fp32", "batch-fp32", 0)
        row("batch-fp16", "fp16", "fp16", "batch-fp32", 1)
        row("batch-unscaled", "fp16 without a loss scale", "fp16", "batch-fp32", 0)
        allowed = 2 * eps_bound("fp16") * (first["batch-fp32"] - val["batch-fp32"]) + off["batch-fp16"]
        must(val["batch-unscaled"] - val["batch-fp32"] > allowed, "fp16 without a loss scale does as well as with one")
        must(start["batch-unscaled"] > eps_bound("fp16"), "gradients of fp16 without a loss scale are good enough")
        exit bad
    }' "$dir/losses" "$dir/errors" >runs/precision.md || status=1
cat runs/precision.md
exit $status
