#!/bin/bash
# scripts/bench_gpu.sh: how fast the GPU path is on this machine: its ops compared with the machine's memory and
# tensor cores, training compared with PyTorch's, and the aims of doc/gpu.md, each reached or missed.
#
# usage: bench_gpu.sh [ops] [PRESET...]     none: ops, bench-gpt2-124m, bench-gpt2-1.5b, bench-llama-1b
#
# Ops: dev/cuda_on_cpu/tests/speed.cu; a copy within the GPU's memory and a large bf16 matmul are the yardsticks.
# Training: build/train_gpu on generated stories. The first steps warm up; the result is the median of the others, by
# the run's own clock. MFU: needed FLOPs (build/plan flops: 6 a weight of the matmuls, and causal attention's half)
# over the measured matmul rate; PyTorch's FLOPs are counted in the same way. PyTorch: the first of $PYTHON, python3,
# /usr/bin/python3 that has it for CUDA; dev/reference/train_gpu_torch.py trains the same model on the same batches,
# bench_gpu.py times the ops.
#
# Tables go to standard output, progress to standard error. The lines below the tables: PASS or MISS for an aim, OPEN
# if PyTorch is missing, SKIP for a model that does not fit, FAIL for a program that failed; only FAIL makes the exit
# status 1. BENCH_GPU_EMULATE=1 does the same on the emulation, with tiny sizes; the numbers then mean nothing.
set -uo pipefail
export LC_ALL=C # awk and bash write 0.5, not 0,5
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build} emulate=${BENCH_GPU_EMULATE:-} failed=0
stop() { echo "error: bench_gpu.sh: $*" >&2; exit 1; }
note() { echo "bench_gpu: $*" >&2; }
[ $# != 0 ] || set -- ops bench-gpt2-124m bench-gpt2-1.5b bench-llama-1b
work=$(mktemp -d "${TMPDIR:-/tmp}/bench_gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
for what; do
    [ "$what" = ops ] || [ -f "scripts/presets/$what.toml" ] ||
        stop "no preset $what (try: ops, or one of scripts/presets)"
done

# ---- programs
make=(${MAKE:-make} --no-print-directory "B=$build")
tiny=() small=() warm=4 device=cuda
if [ -n "$emulate" ]; then
    train=$build/train_gpu_on_cpu speed=$build/speed_on_cpu name='the emulation: times mean nothing'
    small=(small) warm=1 device=cpu
    tiny=(--run.threads=1 --model.layers=1 --model.channels=32 --model.heads=2 --model.ffn=64 --model.vocab=512
        --model.context=16 --batch.tokens=64 --batch.micro=2 --eval.tokens=16)
else
    nvidia-smi -L >/dev/null 2>&1 || stop 'no GPU here (nvidia-smi -L finds none)'
    train=$build/train_gpu speed=$build/speed
    name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
    arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
    make+=("GPU_ARCH=$arch" ${NVCC:+"NVCC=$NVCC"})
    export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
fi
note 'building'
goals=("$train") # `make gpu` looks for what nvcc needs first
[ -n "$emulate" ] || goals=(gpu)
"${make[@]}" "$build/stories" "$build/prepare" "$build/plan" "${goals[@]}" >&2 && "${make[@]}" "$speed" >&2 ||
    stop 'a program does not build; see above'
python=
for candidate in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
    "$candidate" -c "import torch; assert '$device' == 'cpu' or torch.cuda.is_available()" 2>/dev/null || continue
    python=$candidate
    break
done
echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $name," \
    "$([ -n "$python" ] && "$python" -c 'import torch; print("PyTorch", torch.__version__)' || echo 'no PyTorch')"

aims=()
aim() { # VALUE LEAST WHAT: is it as large as it is meant to be?
    local verdict=MISS
    awk -v x="$1" -v least="$2" 'BEGIN { exit !(x + 0 >= least) }' && verdict=PASS # not for NaN
    aims+=("$verdict  $3")
}
failure() { # NAME LOG
    local line
    line=$(grep -am1 '^error' "$2" || tail -n 1 "$2")
    case $line in
    *' left'* | *'out of memory'*) aims+=("SKIP  $1: $line") ;;
    *) aims+=("FAIL  $1: $line") failed=1 ;;
    esac
}
is_wanted() { local wanted=$1 what; shift; for what; do [ "$what" = "$wanted" ] && return; done; return 1; }

# ---- ops. The yardsticks are measured in any case.
is_wanted ops "$@" || small+=(machine)
note 'ops'
timeout 300 "$speed" "${small[@]}" >"$work/ops" 2>"$work/ops.log" || failure ops "$work/ops.log"
value_of() { awk -F '|' -v name="$1" '$1 == name { print $3 }' "$work/ops"; }
copy=$(value_of copy) peak=$(value_of 'matmul bf16')
if is_wanted ops "$@"; then
    : >"$work/ops.torch"
    if [ -n "$python" ] && [ -z "$emulate" ]; then
        timeout 240 "$python" -B dev/reference/bench_gpu.py >"$work/ops.torch" 2>"$work/ops.torch.log" ||
            note "PyTorch's ops: $(tail -n 1 "$work/ops.torch.log")"
    fi
    printf '\n| op | ms | reached | of the yardstick | PyTorch ms | ours / PyTorch, speed |\n'
    printf '|---|--:|--:|--:|--:|--:|\n'
    awk -F '|' 'FILENAME == ARGV[1] { torch[$1] = $2; next }
        {
            if (!($4 in first)) first[$4] = $3 # of its unit: the copy, the matmul
            of = (first[$4] > 0) ? sprintf("%.0f%%", 100 * $3 / first[$4]) : "-"
            t = ($1 in torch) ? sprintf("%.3f | %.2f", torch[$1], torch[$1] / $2) : "- | -"
            printf "| %s | %.3f | %.1f %s | %s | %s |\n", $1, $2, $3, $4, of, t
        }' "$work/ops.torch" "$work/ops"
    while IFS='|' read -r op _ amount unit; do
        case $op in
        copy | matmul* | *backward*TFLOP*) continue ;;
        'attention forward bf16 D=128 T=4096') part=0.6 of=$peak ;;
        *) part=0.8 of=$copy; [ "$unit" = GB/s ] || continue ;;
        esac
        ratio=$(awk -v x="$amount" -v of="$of" 'BEGIN { printf "%.3f", (of > 0 ? x / of : 0) }')
        aim "$ratio" $part "$op: $ratio of the yardstick (aim: $part)"
    done <"$work/ops"
fi

# ---- training
note 'a text'
bytes=3000000 vocab=4096
[ -z "$emulate" ] || bytes=60000 vocab=300
{
    "$build/stories" --bytes $bytes --seed 1 --out "$work/text" &&
        "$build/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab $vocab \
            --out "$work/data"
} >"$work/log" 2>&1 || { cat "$work/log" >&2; stop 'no text to train on'; }

median() {
    sort -g | awk '{ x[NR] = $1 } END { if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'
}
field() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p"; }
set_of() { # KEY SECTION: a number of the run's resolved settings
    sed -n "/^\[$2\]/,/^\$/s/^$1 = \([0-9]*\).*/\1/p" "$run/config.toml"
}
header='' said=()
row() { # PRESET
    local preset=$1 run=$work/runs/$1 options=() steps flops ms shape rate loss context micro tokens
    local theirs=- their_rate=- ratio=- their_loss=-
    steps=$(sed -n 's/^steps = //p' "scripts/presets/$preset.toml")
    [ -z "$emulate" ] || steps=3
    options=(--run.dir="$work/runs" --run.name="$preset" --data.train="$work/data/train_*.bin"
        --data.val="$work/data/val_*.bin" --data.tokenizer="$work/data" "${tiny[@]}")
    if [ -n "$emulate" ] && grep -q '^kv_heads' "scripts/presets/$preset.toml"; then options+=(--model.kv_heads=1); fi
    note "$preset: ours"
    # The fault ends the run after the last step, so that it saves no checkpoint, which would be gigabytes.
    if ! timeout 240 "$train" "$preset" "${options[@]}" --run.steps=$((steps + 1)) \
        --run.fault="exit:rank=0,step=$((steps + 1))" >"$work/log" 2>&1 </dev/null ||
        [ "$(grep -c '"event":"train"' "$run/metrics.jsonl" 2>/dev/null)" != "$steps" ]; then
        failure "$preset" "$work/log"
        return
    fi
    flops=$("$build/plan" flops "$preset" "${options[@]}" | awk '$1 == "a" && $2 == "token" { print $3 }')
    grep '"event":"train"' "$run/metrics.jsonl" >"$work/ours"
    ms=$(tail -n +$((warm + 1)) "$work/ours" | field dt_ms | median)
    loss=$(tail -n 1 "$work/ours" | field loss)
    context=$(set_of context model) micro=$(set_of micro batch) tokens=$(set_of tokens batch)
    shape="$micro x $context x $((tokens / micro / context))"
    rate=$(awk -v n="$tokens" -v ms="$ms" 'BEGIN { print 1000 * n / ms }')
    if [ -n "$python" ]; then
        note "$preset: PyTorch"
        twin() { timeout "$1" "$python" -B dev/reference/train_gpu_torch.py "$run" --device $device "${@:2}"; }
        if twin 400 >"$work/torch" 2>"$work/torch.log" ||
            twin 240 --no-compile >"$work/torch" 2>>"$work/torch.log"; then
            theirs=$(grep '"step"' "$work/torch" | tail -n +$((warm + 1)) | field ms | median)
            their_loss=$(grep '"step"' "$work/torch" | tail -n 1 | field loss)
            their_rate=$(awk -v n="$tokens" -v ms="$theirs" 'BEGIN { printf "%.0f", 1000 * n / ms }')
            ratio=$(awk -v a="$theirs" -v b="$ms" 'BEGIN { printf "%.3f", a / b }')
            said+=("$preset: PyTorch with $(tail -n 1 "$work/torch" | tr -d '{"}')")
        else note "$preset: PyTorch: $(tail -n 1 "$work/torch.log")"
        fi
    fi
    if [ -z "$header" ]; then
        header='| model | sequences x tokens x micro-batches | ms a step | tokens/s | TFLOP/s | MFU | loss'
        header+=' | PyTorch ms | PyTorch tokens/s | PyTorch MFU | PyTorch loss | ours / PyTorch |'
        printf '\n%s\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n' "$header"
    fi
    awk -v model="$preset" -v shape="$shape" -v ms="$ms" -v rate="$rate" -v flops="$flops" -v peak="$peak" \
        -v loss="$loss" -v theirs="$theirs" -v their_rate="$their_rate" -v their_loss="$their_loss" \
        -v ratio="$ratio" 'BEGIN {
            tflops = rate * flops * 1e-12
            mfu = (peak > 0) ? sprintf("%.1f%%", 100 * tflops / peak) : "-"
            their_mfu = "-"
            if (theirs != "-") {
                if (peak > 0) their_mfu = sprintf("%.1f%%", 100 * their_rate * flops * 1e-12 / peak)
                theirs = sprintf("%.1f", theirs)
                their_loss = sprintf("%.3f", their_loss)
            }
            printf "| %s | %s | %.1f | %.0f | %.1f | %s | %.3f | %s | %s | %s | %s | %s |\n", model, shape, ms, rate,
                tflops, mfu, loss, theirs, their_rate, their_mfu, their_loss, ratio
        }'
    if [ "$ratio" = - ]; then aims+=("OPEN  $preset: no PyTorch to compare with")
    else aim "$ratio" 1 "$preset: $ratio of PyTorch's tokens/s (aim: 1)"; fi
}
for what; do [ "$what" = ops ] || row "$what"; done

echo
for line in "${said[@]}" "${aims[@]}"; do echo "- $line"; done
[ $failed = 0 ]
