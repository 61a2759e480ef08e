#!/bin/bash
# scripts/strategies.sh [MODEL GPUS]...: the strategies of a guide's table side by side: data parallelism, ZeRO 1 and 3,
# tensor and pipeline parallelism, and three of them together, as build/plan layout predicts them. Each strategy fixes its
# sizes; micro-batch, chunks, schedule and recomputation are the fastest that fit. The batch is that of the preset.
#
#   GPU=H100 (default) or another accelerator of build/plan machines
#
# scripts/bench_ranks.sh measures such layouts on ranks of this machine; for cores that are free.
set -euo pipefail
export LC_ALL=C # awk and bash write 0.5, not 0,5
cd "$(dirname "$0")/.."
build=${BUILD:-build} gpu=${GPU:-H100}
[ $# -gt 0 ] || set -- gpt3-2.7b 64 llama2-7b 64 llama2-70b 64 gpt3-175b 512

models=() gpus=()
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "error: scripts/strategies.sh: $1: on how many accelerators? (try scripts/strategies.sh $1 64)" >&2; exit 2; }
    [ -f "scripts/presets/$1.toml" ] || { echo "error: scripts/strategies.sh: no preset $1 (they are in scripts/presets)" >&2; exit 2; }
    models+=("$1") gpus+=("$2")
    shift 2
done

cell() { # MODEL GPUS OPTION...: tokens/s of an accelerator, MFU
    local tokens
    tokens=$(sed -n 's/^tokens = \([0-9_]*\).*/\1/p' "scripts/presets/$1.toml" | tr -d _)
    if ! "$build/plan" layout "$1" --gpus "$2" --gpu "$gpu" "${@:3}" >"$work/found" 2>"$work/why"; then
        grep -q 'does not fit into memory' "$work/why" && { echo 'no room'; return; }
        grep -q 'does not divide' "$work/why" && { echo 'does not divide'; return; }
        cat "$work/why" >&2
        exit 1
    fi
    awk -F ' *[|] *' -v tokens="$tokens" -v gpus="$2" '/step, s/ { getline; getline; printf "%.0f (%s)\n", tokens / $2 / gpus, $3 }' "$work/found"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/strategies.XXXXXX")
trap 'rm -rf "$work"' EXIT
printf '| tokens/s of one %s (MFU) |' "$gpu"
for i in "${!models[@]}"; do printf ' %s on %s |' "${models[i]}" "${gpus[i]}"; done
printf '\n|---|'
for i in "${!models[@]}"; do printf -- '---:|'; done
echo
while IFS='|' read -r name options; do
    printf '| %s |' "$name"
    for i in "${!models[@]}"; do
        # shellcheck disable=SC2086
        text=$(cell "${models[i]}" "${gpus[i]}" $options)
        printf ' %s |' "$text"
    done
    echo
done <<'END'
data|--tp 1 --pp 1 --zero 0
data, ZeRO 1|--tp 1 --pp 1 --zero 1
data, ZeRO 3|--tp 1 --pp 1 --zero 3
data, tensor 8|--tp 8 --pp 1 --zero 0
data, pipeline 8|--tp 1 --pp 8 --zero 0
data, tensor 8, pipeline 8|--tp 8 --pp 8 --zero 0
the same, ZeRO 1|--tp 8 --pp 8 --zero 1
the fastest found|
END
