#!/bin/bash
# scripts/bench_data.sh: the tables of `make bench-data`: the tokenizer beside tiktoken and Hugging Face tokenizers, the
# search for near-duplicates beside datasketch, and the loader beside what training takes.
#
# usage: scripts/bench_data.sh [MB [TRAINING_MB [FILE]]]    size of the generated texts [20 500], and one of yours
#
# The comparisons need a python3 that has these packages: pip install tiktoken tokenizers datasketch xxhash.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build} mb=${1:-20} training_mb=${2:-500} file=${3:-}
echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 |
    sed 's/^ *//'), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"

has() { # MODULES: a python3 that has them, or a sentence
    local candidate
    for candidate in python3 /usr/bin/python3; do
        "$candidate" -c "import $1" 2>/dev/null && python=$candidate && return
    done
    echo "no python3 with $1 here: no comparison (pip install ${1//,/})"
    return 1
}

echo
if has 'tiktoken, tokenizers'; then
    "$python" dev/reference/bench_tokenizer.py --build "$build" --mb "$mb" --train-mb "$training_mb" ${file:+"$file"}
fi
echo
if has 'datasketch, xxhash'; then "$python" dev/reference/bench_dedup.py "$build"; fi
echo
"$build/show" loader
