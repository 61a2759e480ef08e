#!/bin/bash
# scripts/whole_tales.sh RUN [N] [--option VALUE ...]: how many of N (60) tales that the model of `make run` writes are
# whole tales of the grammar: every word agrees with what came before, to the end (doc/stories.md).
#
# Options are those of build/sample (--temperature 0.8, --min-p 0.1). One line a text says where it leaves the grammar, the
# last line counts. The texts are in RUN/tales.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build} run=${1:-} n=60
[ "$run" ] && [ -d "$run" ] || { echo "error: RUN: no such run: '$run' (try: scripts/whole_tales.sh runs/stories)" >&2; exit 1; }
shift
if [[ ${1:-} =~ ^[0-9]+$ ]]; then n=$1; shift; fi

for ((at = 0, seed = 1; at < n; at += 8, seed++)); do # sample draws up to 8 side by side
    "$build/sample" "$run" --prompt "Long ago," --n $((n - at < 8 ? n - at : 8)) --tokens 400 --seed $seed --json "$@" 2>"$run/tales.log" ||
        { cat "$run/tales.log" >&2; exit 1; }
done | sed -E 's/^\{"prompt":"(.*)","text":"(.*)","end":.*/\1\2<|endoftext|>/; s/\\n/\n/g; s/\\(["\\])/\1/g' >"$run/tales.txt"
exec "$build/stories" --check "$run/tales.txt"
