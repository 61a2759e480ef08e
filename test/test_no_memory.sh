#!/bin/bash
# test/test_no_memory.sh [--all]: memory that runs out. A program is run once to count what it allocates, then again and
# again, each time with one of these allocations failing: it ends with one line and status 1, or does without the memory
# and leaves the same bytes. There is never a signal, nor a checkpoint that does not load; and the next run, which has
# memory, ends as if nothing had happened. This is done by places in the code (once failing once, once failing from then
# on) and by single allocations. --all: every place, and many more of the others. (nth_malloc.c; doc/reliability.md, T7)
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
unset OMP_WAIT_POLICY GOMP_SPINCOUNT # so the program sets them, and restarts, on every machine (dev_cpu.c)
: "${CC:=gcc}"
all=
[ "${1:-}" = --all ] && all=yes
tiny=(--run.threads=1 --model.layers=1 --model.channels=16 --model.heads=2 --model.context=16 --batch.tokens=32
    --batch.micro=2 --run.eval_every=0 --eval.tokens=32 --run.sample_every=0 --sample.tokens=2 --sample.count=1
    --optim.decay_steps=6 --optim.warmup=1)
bounded=(timeout -k 5 60)

# The programs, each as a function that is told where to write. begin_NAME: what lies there before.
begin_prepare() { :; }
do_prepare() {
    "${bounded[@]}" "$BUILD/prepare" tokens --train "$work/short.txt" --val-file "$work/short.txt" --vocab 270 \
        --out "$1"
}
begin_start() { :; }
do_start() {
    "${bounded[@]}" "$BUILD/train" "$work/gpt.toml" --run.dir="$1" --run.name=r "${tiny[@]}" --run.steps=2 \
        --ckpt.resume=auto
}
begin_resume() { cp -r "$work/resume-from" "$1"; }
do_resume() {
    "${bounded[@]}" "$BUILD/train" "$work/gpt.toml" --run.dir="$1" --run.name=r "${tiny[@]}" \
        --run.steps=4 --run.save_every=1 --ckpt.async=true --ckpt.resume=true --monitor.skip_z=8
}
begin_export() { mkdir "$1"; }
do_export() { "${bounded[@]}" "$BUILD/export" "$work/resume-from/r" --to state --out "$1/state.safetensors"; }

# What a program leaves that does not depend on the clock, nor on how often it began.
left_by() { # DIRECTORY
    local file
    find "$1" -type f | sort | while IFS= read -r file; do
        echo "${file#"$1"}"
        case $file in
        */log.txt | */samples.txt | */loss.svg | */report.html | */config.toml | */lock) ;;
        */metrics.jsonl) sed -n '/"event":"\(train\|val\|end\)"/s/,"\(dt_ms\|floor_loss\|seconds\)".*//p' "$file" ;;
        */step_*/manifest.json) sed 's/"\(seconds\|xxh3_128\)": *[^,}]*//' "$file" ;;
        *) cksum <"$file" ;;
        esac
    done
}

newest() { # DIRECTORY: the same, without checkpoints before the last
    rm -rf "$1"/r/checkpoints/step_0000000[23]*
    left_by "$1"
}

# short WHAT N [SETTING...]: the program without its allocation N
short() {
    local what=$1 n=$2 dir=$work/$1 status=0 step unsaved=
    shift 2
    rm -rf "$dir"
    "begin_$what" "$dir"
    : >"$work/says"
    (
        export LD_PRELOAD=nth.so LD_LIBRARY_PATH=$work NTH_MALLOC=$n NTH_MALLOC_IN=$(program_of "$what") NTH_MALLOC_SAYS=$work/says "$@"
        "do_$what" "$dir"
    ) >"$work/out" 2>"$work/err" </dev/null || status=$?
    grep '^error: ' "$work/err" >"$work/errors" || true
    echo "-- $what, number $n $*: status $status; $(paste -sd ';' "$work/says")"
    cat "$work/err"
    [ $status = 0 ] || [ $status = 1 ]
    # A save without memory is a save that failed: the run goes on, and only where it was the last is the status 1.
    # An old checkpoint that cannot be deleted is a warning, and goes with the next load.
    if grep -q 'NOT saved: .*memory' "$work/out"; then unsaved=yes
    elif [ $status = 0 ] && grep -q "^warning: .*cannot delete the old checkpoint" "$work/err"; then unsaved=yes
    else
        [ "$(wc -l <"$work/errors")" = $status ]
        [ $status = 0 ] || grep -qE '^error: .*memory' "$work/errors"
    fi
    # prepare prints its progress; any other output is wrong
    if grep -vE '^(error|warning): |^(tokenizer|train|val|input|done|/.*): ' "$work/err"; then return 1; fi
    if [ $status = 0 ] && [ $unsaved ]; then
        newest "$dir" | cmp - "$work/$what.newest"
        return
    fi
    [ $status = 1 ] || { left_by "$dir" | cmp - "$work/$what.want"; return; }
    for step in "$dir"/r/checkpoints/step_*[0-9]; do
        [ ! -d "$step" ] || "$BUILD/export" "$step" --to state --out "$work/state" >/dev/null
    done
    [ -e "$dir" ] || "begin_$what" "$dir"
    "do_$what" "$dir" >"$work/out" 2>&1
    left_by "$dir" | cmp - "$work/$what.want"
}

program_of() {
    case $1 in start | resume) echo train ;; *) echo "$1" ;; esac
}

count() { # WHAT [SETTING...]: what there is to fail
    local what=$1
    shift
    rm -rf "${work:?}/$what" "$work/says"
    "begin_$what" "$work/$what"
    (
        export LD_PRELOAD=nth.so LD_LIBRARY_PATH=$work NTH_MALLOC=0 NTH_MALLOC_IN=$(program_of "$what") NTH_MALLOC_SAYS=$work/says "$@"
        "do_$what" "$work/$what"
    ) >"$work/out" 2>"$work/err" </dev/null || { cat "$work/err"; return 1; }
    left_by "$work/$what" >"$work/$what.want"
    newest "$work/$what" >"$work/$what.newest"
    n=$(sed -n 's/ calls$//p' "$work/says")
}

# spread WHAT POINTS [SETTING...]: about POINTS of all its numbers, evenly, with both ends
spread() {
    local what=$1 points=$2 n i last=0 at
    shift 2
    count "$what" "$@"
    echo "$what: $n"
    [ "$n" -ge 10 ]
    [ "$points" -le "$n" ] || points=$n
    for ((i = 0; i < points; i++)); do
        at=$((1 + i * (n - 1) / (points - 1)))
        [ $at = $last ] || short "$what" $at "$@"
        last=$at
    done
}

if [ "${BUILD##*/}" = asan ]; then
    echo 'skip no memory (the sanitizer has its own allocator)'
    exit
fi
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
head -c 6000 "$work/text/val.txt" >"$work/short.txt"
$CC -shared -fPIC -O1 -o "$work/nth.so" test/nth_malloc.c || { echo 'not ok nth_malloc.c compiles'; exit 1; }
do_start "$work/resume-from" >"$work/log" 2>&1 || { echo 'not ok a run'; sed 's/^/  /' "$work/log"; exit 1; }
many=6 few=4
[ -z "$all" ] || many=100000 few=50
for what in prepare start resume export; do
    [ $what != export ] || many=100000 # it has few
    passes "$what: a place in the code" spread $what $many NTH_MALLOC_SITES=1
    passes "$what: nothing from then on" spread $what $few NTH_MALLOC_SITES=1 NTH_MALLOC_ON=1
    passes "$what: an allocation" spread $what $few
done
exit $failed
