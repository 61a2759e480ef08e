#!/bin/bash
# scripts/run.sh [TEXT] [--section.key=value ...]: the flow of `make run`, from text to a model and its samples.
#
#   without TEXT   28 MB of generated stories, whose entropy is known   -> runs/stories
#   with TEXT      a file, or a folder of files: your own text   -> runs/text
#
# The arithmetic is at the top of scripts/presets/stories.toml; for a TEXT, `build/plan for` chooses a model by its size
# and the minutes and says why (doc/scaling_laws.md; runs/text/model.txt). An earlier run is kept as
# runs/NAME.previous, in place of the one before; one that saved no checkpoint is removed instead. While a run goes on,
# another one of its name is refused. Each phase prints one line with the seconds since the start; an error ends the
# script with its message. Settings are passed on to build/train. MINUTES in the environment replaces the preset's
# minutes of training. Where a core multiplies bf16 numbers faster than fp32 the model is trained in bf16: more steps in
# the same time, and a loss that differs by less than two seeds do (doc/precision.md).
set -euo pipefail
start=${START:-$(date +%s)} # make passes the moment it was called, so that building counts
text=
if [ $# -gt 0 ] && [[ $1 != --* ]]; then
    text=$1
    shift
fi
case $text in '' | /*) ;; *) text=$PWD/$text ;; esac
cd "$(dirname "$0")/.."
build=${BUILD:-build}
command -v setpriv >/dev/null && with=(setpriv --pdeathsig TERM) || with=() # a run ends with its script, however that ends

phase() { printf '[%3d s] %s\n' $(($(date +%s) - start)) "$*"; }

# Wrong arguments are refused before anything is written.
if ! [[ ${MINUTES:-1} =~ ^([0-9]+\.?[0-9]*|\.[0-9]+)$ ]]; then
    echo "error: MINUTES: not a number: $MINUTES (as MINUTES=4)" >&2
    exit 1
fi
if [ -n "$text" ] && [ ! -e "$text" ]; then
    echo "error: TEXT: no such file or folder: $text" >&2
    exit 1
fi
name=stories
[ -n "$text" ] && name=text
run=runs/$name model=() data=runs/$name/data
"$build/train" "$name" "$@" --print run.name >/dev/null

case $text in "$PWD/$run" | "$PWD/$run"/*)
    echo "error: TEXT: $text is inside $run, where this run is about to be written (copy it elsewhere)" >&2
    exit 1
    ;;
esac
if command -v flock >/dev/null && [ -d "$run" ] && ! flock -n "$run" true; then
    echo "error: $run: a run goes on there: $(cat "$run/lock" 2>/dev/null) (end it first)" >&2
    exit 1
fi
saved=$(find "$run/checkpoints" -name 'step_*[0-9]' 2>/dev/null) || true
if [ -e "$run" ] && [ -z "$saved" ]; then
    rm -rf "$run"
elif [ -e "$run" ]; then
    rm -rf "$run.previous"
    mv "$run" "$run.previous"
    phase "an earlier run was here; it is now $run.previous"
fi
mkdir -p "$data"

if [ -z "$text" ]; then
    phase "1/4 corpus: writing rhymes, then tales, to $data"
    "$build/stories" --bytes 28000000 --primer 7000000 --val-bytes 500000 --seed 1 --out "$data"
    phase "2/4 tokens: training a tokenizer on them"
    "${with[@]}" "$build/prepare" tokens --train "$data/train.txt" --val-file "$data/val.txt" --vocab 3000 --out "$data"
    read -ra model < <("$build/plan" for --bytes 28000000 --minutes 4 | grep -o -e '--numerics.dtype=[a-z0-9]*' || echo)
else
    phase "1/4 corpus: $text"
    bytes=$(stat -Lc %s "$text") # of a folder: without hidden files, as prepare reads it; what is packed counts as packed
    [ ! -d "$text" ] || bytes=$(find -L "$text" -mindepth 1 -name '.*' -prune -o -type f -printf '%s\n' |
        awk '{ n += $1 } END { print n + 0 }')
    "$build/plan" for --bytes "$bytes" --minutes "${MINUTES:-4}" | tee "$run/model.txt"
    vocab=$(awk '$1 == "vocabulary" { print $2 }' "$run/model.txt")
    drop='' # steps that are given take the place of the minutes
    [[ " $*" != *' --run.steps='* ]] || drop='s/--run.minutes=[^ ]*//'
    read -ra model < <(sed -n "/^ *settings /{ s///; $drop; p; }" "$run/model.txt")
    phase "2/4 tokens: training a tokenizer on the first 90%"
    "${with[@]}" "$build/prepare" tokens --input "$text" --val 0.1 --vocab "$vocab" --max-document 1024 --out "$data" || {
        status=$?
        [ $status != 3 ] || echo "error: $text: see the warning above (is it UTF-8? try: iconv -f LATIN1 -t UTF-8 OLD >NEW)" >&2
        exit $status
    }
fi
phase "3/4 training: preset $name"
floor=() minutes=()
[ -n "${MINUTES:-}" ] && [ -z "$text" ] && minutes=(--run.minutes="$MINUTES")
[ -f "$data/floor.json" ] && floor=(--data.floor="$data/floor.json")
"${with[@]}" "$build/train" "$name" --run.name="$name" --data.tokenizer="$data" \
    --data.train="$data/train_*.bin" --data.val="$data/val_*.bin" \
    "${floor[@]}" "${minutes[@]}" "${model[@]}" "$@"
if grep -q '"event":"end".*"val_loss":null' "$run/metrics.jsonl"; then
    phase "stopped before its end; the command above goes on with it, from $PWD"
    exit 130
fi
phase "4/4 done: everything is in $run"
echo "Look at $run/report.html in a browser: losses, speed, time, memory, samples, settings"
echo "Text from it: build/sample $run (or --prompt TEXT; build/sample --help)"
