#!/bin/bash
# scripts/bench.sh: the tables of `make bench`: our training step as a fraction of this machine's own sgemm peak, the same in
# bf16 beside the peak of its instruction, where the processor has it; what a waiting CUDA thread costs on the CPU, and,
# where a python3 with PyTorch is found (build/venv's first), PyTorch's step on the same models in the same run: eager and
# compiled, in fp32 and bf16 autocast; where build/venv has llama.cpp, its rate of writing text beside ours; and what more ranks than cores cost (scripts/bench_ranks.sh).
set -euo pipefail
export LC_ALL=C # awk and bash write 0.5, not 0,5
cd "$(dirname "$0")/.."
build=${BUILD:-build}
echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 |
    sed 's/^ *//'), $(nproc) cores"
echo
table=$("$build/bench" --ops "$@")
echo "$table"
echo
narrow=
if grep -q -w avx512_bf16 /proc/cpuinfo; then # beside fp32, against the peak of the instruction
    narrow=$("$build/bench" --bf16 --ops ${@:-gpt2-1024 gpt2-64 demo})
    echo "$narrow"
    echo
fi
if command -v "${CXX:-g++}" >/dev/null 2>&1; then
    BUILD=$build dev/cuda_on_cpu/build.sh plain "$build/cuda_bench" dev/cuda_on_cpu/tests/bench.cu
    echo "CUDA on the CPU: $("$build/cuda_bench" | paste -sd ';' | sed 's/;/; /')"
else echo 'no C++ compiler: no CUDA on the CPU'
fi

if [ $# = 0 ] && [ -f build/venv/ready ] && build/venv/bin/python -c 'import xllamacpp' 2>/dev/null; then
    echo
    build/venv/bin/python dev/reference/bench_sample.py
elif [ $# = 0 ]; then echo 'no build/venv with xllamacpp: no llama.cpp (dev/reference/check_gguf.py makes one)'
fi

if [ $# = 0 ] && command -v mpiexec >/dev/null; then
    echo
    BUILD=$build LAYOUTS='ddp zero1' scripts/bench_ranks.sh
fi

python=
for candidate in build/venv/bin/python python3 /usr/bin/python3; do
    "$candidate" -c 'import torch' 2>/dev/null && python=$candidate && break
done
if [ -z "$python" ]; then
    echo
    echo "no python3 with PyTorch here: no comparison (Debian: apt-get install python3-torch)"
    exit 0
fi
echo
"$python" -c 'import torch; print("PyTorch", torch.__version__)'
echo
echo "| model | PyTorch | ms/step | tokens/s | RSS MB | ours fp32 / it, tokens/s | RSS | ours bf16 / it, tokens/s | RSS |"
echo "|---|---|---|---|---|---|---|---|---|"
field() { sed -E "s/.*\"$1\": *([0-9.]+).*/\1/" <<<"$2"; }
for model in gpt2-1024 gpt2-64 demo; do
    row=$(grep "^| $model " <<<"$table") || continue
    row16=$(grep "^| $model " <<<"$narrow") || row16=
    case $model in
        gpt2-1024) arguments="--model gpt2 --T 1024 --steps 2" ;;
        gpt2-64) arguments="--model gpt2 --T 64 --steps 8" ;;
        demo) arguments="--model demo --steps 10" ;;
    esac
    for how in '--dtype fp32' '--dtype fp32 --compile' '--dtype bf16' '--dtype bf16 --compile'; do
        json=$("$python" dev/reference/bench_gpt2.py $arguments $how | tail -n 1) || continue
        awk -v model="$model" -v how="${how#--dtype }" -v ms="$(field ms_per_step "$json")" \
            -v tps="$(field tokens_per_s "$json")" -v mb="$(field peak_rss_mb "$json")" \
            -v rate="$(cut -d'|' -f5 <<<"$row")" -v rss="$(cut -d'|' -f10 <<<"$row")" \
            -v rate16="$(cut -d'|' -f5 <<<"$row16")" -v rss16="$(cut -d'|' -f10 <<<"$row16")" \
            'BEGIN { printf "| %s | %s | %.1f | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f |\n", model, how, ms, tps, mb,
                     rate / tps, rss / mb, rate16 / tps, rss16 / mb }'
    done
done
