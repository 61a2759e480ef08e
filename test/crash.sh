#!/bin/bash
# test/crash.sh [--quick] [PATTERN]: what may happen to a run, and what must hold afterwards. Jobs on several ranks are
# killed whole at random instants, told to stop, moved from layout to layout; they meet a full disk, a flipped bit, a
# clock that jumps and an unusual environment. Whatever happened, the resumed run is bit for bit the run that nothing
# disturbed. (doc/reliability.md: which test answers which failure.) --quick: a few of each, for `make test-long`;
# without TEST_LONG one of each, for `make test`.
# PATTERN: only the tests whose names match. SEED=N: other instants. JOBS=N: N of these processes share the tests;
# most of a test is waiting. DONE=FILE: what an earlier run printed; tests that are "ok" there are not run again.
if [ "${JOBS:-1}" -gt 1 ]; then
    QUEUE=$(mktemp -d "${TMPDIR:-/tmp}/crash.XXXXXX") && export QUEUE || exit 1
    trap 'jobs -p | xargs -r kill 2>/dev/null; wait; rm -rf "$QUEUE"' EXIT
    trap 'exit 130' INT TERM
    n=$JOBS status=0
    for ((i = 0; i < n; i++)); do JOBS=1 "$0" "$@" & done
    for ((i = 0; i < n; i++)); do wait -n || status=1; done
    exit $status
fi
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
# shellcheck source=test/crash_common.sh
. "$(dirname "$0")/crash_common.sh"
quick=
[ "${1:-}" = --quick ] && { quick=yes; shift; }
only=${1:-.}

# Tests with the same KEY share files: the process that makes the key's directory in the queue runs them all.
try() { # [-k KEY] NAME FUNCTION [ARGUMENT...]
    local began=$SECONDS key=$((number++))
    [ "$1" != -k ] || { key=$2; shift 2; }
    grep -qE -- "$only" <<<"$1" || return 0
    if [ -n "${DONE:-}" ] && grep -qxF "ok $1" "$DONE"; then return 0; fi
    if [ -n "${QUEUE:-}" ]; then
        ! mkdir "$QUEUE/$key" 2>/dev/null || : >"$QUEUE/$key/$$"
        [ -e "$QUEUE/$key/$$" ] || return 0
    fi
    passes "$1" seeded "$number" "${@:2}"
    [ -n "$quick" ] || echo "   $((SECONDS - began)) s: $1"
}
number=0

seeded() { # NUMBER FUNCTION [ARGUMENT...]: a subshell draws its own random numbers, never the same again
    RANDOM=$((${SEED:-1} * 1000 + $1))
    "${@:2}"
}

# ---- the run that nothing disturbs

undisturbed() {
    at one straight
    well_formed straight $steps
}

# ---- kills

span_of() { # NAME LAYOUT [OPTION...]: sets span, the milliseconds of an undisturbed run; measured once
    if [ ! -s "$work/span-$1" ]; then
        span=$(milliseconds)
        at "$2" "$1-span" "${@:3}"
        echo $(($(milliseconds) - span)) >"$work/span-$1"
    fi
    span=$(cat "$work/span-$1")
    echo "$span ms undisturbed"
}

kills() { # WANTED EACH WHAT LAYOUTS [OPTION...]: lives of EACH kills until so many jobs were killed
    local wanted=$1 each=$2 name=$3 sum=0 i=0 span
    shift 3
    span_of "$name" "${1%% *}" "${@:2}"
    while [ $sum -lt "$wanted" ]; do
        [ $i -lt $((wanted + 10)) ]
        life "$name-$i" straight "$span" "$each" "$@"
        rm -rf "$runs/$name-$i"
        sum=$((sum + killed)) i=$((i + 1))
        [ $killed = "$each" ] || span=$((span * 3 / 4)) # some kills came too late: the machine was busier
    done
    echo "$sum kills, $i lives"
}

stops() { # TIMES NAME LAYOUT [OPTION...]
    local times=$1 name=$2 span
    shift 2
    span_of "$name" "$@"
    asked "$name" straight "$span" "$times" "$@"
    rm -rf "${runs:?}/$name"
}

# In the middle of a long step a second signal ends the run at once.
second_signal() {
    local status=0
    launch gpt second "${common[@]}" --batch.tokens=1048576 --run.eval_every=0
    until grep -qs '"event":"start"' "$runs/second/metrics.jsonl"; do kill -0 "$pid" && sleep 0.05; done
    sleep 0.5
    kill -TERM "$pid"
    sleep 0.3
    kill -TERM "$pid" # within a second: the same request
    sleep 1
    kill -0 "$pid"
    kill -TERM "$pid"
    wait "$pid" || status=$?
    [ $status = 143 ]
    [ "$(lines second)" = 0 ]
}

# ---- layouts

saved_by() { # LAYOUT: two steps, once: the same state as one process
    [ ! -d "$runs/by-$1" ] || return 0
    at "$1" "by-$1" --run.stop_at=2
    [ "$1" = one ] || { saved_by one && same_state "by-$1" by-one 2; }
    [ -d "$runs/three" ] || at one three --run.stop_at=3
}

pair() { # FROM TO: a third step on another layout is the third step of the run that never moved
    local name=$1-$2
    saved_by "$1"
    cp -r "$runs/by-$1" "$runs/$name"
    at "$2" "$name" --run.stop_at=3 --ckpt.resume=true
    [ ! -s "$work/$name.err" ]
    same_state "$name" three 3
    cmp <(history "$name" | grep '"train"') <(history three | grep '"train"')
    rm -rf "${runs:?}/$name"
}

# The number of ranks changes again and again, through an epoch and into the next: if one sample were skipped or seen
# twice, the weights would differ from those of the run that never moved.
moves() { # SEQUENCE
    local step=0 random epoch
    [ -s "$work/epoch" ] || short_epoch
    epoch=$(cat "$work/epoch")
    while [ $step -lt $epoch ]; do
        below 5
        step=$((step + 1 + random)) # 1 to 5 steps
        [ $step -le $epoch ] || step=$epoch
        below ${#layouts[@]}
        echo "to step $step on ${layouts[random]}"
        at "${layouts[random]}" "moves-$1" --data.train="$work/short/train_*.bin" --run.steps=$epoch \
            --run.stop_at=$step --ckpt.resume=auto
    done
    same_state "moves-$1" moves-straight $epoch
    cmp <(history "moves-$1" | grep '"train"') <(history moves-straight | grep '"train"')
    rm -rf "$runs/moves-$1"
}

short_epoch() { # so few tokens that the run goes through them once and begins again
    head -c 7000 "$work/text/train.txt" >"$work/short.txt"
    "$BUILD/prepare" tokens --train "$work/short.txt" --val-file "$work/text/val.txt" --tokenizer "$work/data" \
        --out "$work/short"
    local tokens
    tokens=$(($(wc -c <"$work/short/train_000000.bin") / 2 - 512))
    epoch=$(((tokens / 256) + 3))
    echo "$tokens tokens, $epoch steps"
    [ $epoch -le 20 ]
    at one moves-straight --data.train="$work/short/train_*.bin" --run.steps=$epoch
    echo $epoch >"$work/epoch"
}

# ---- saves

# On four ranks, in the background or not: the same files. A save that fails (the disk is full) is one line in the log,
# the next one succeeds, and the run ends as if nothing had happened.
saves_beside() {
    local file base
    at tp2-pp2 then --run.save_every=4 --ckpt.keep=0
    at tp2-pp2 beside --run.save_every=4 --ckpt.keep=0 --ckpt.async=true
    for file in "$runs"/then/checkpoints/step_*/*.safetensors; do
        base=${file#"$runs/then/"}
        cmp "$file" "$runs/beside/$base"
    done
    [ "$(find "$runs/beside" -name '*.safetensors' | wc -l)" = 32 ] # 4 saves of 4 ranks
}

full_disk() { # [OPTION...]
    rm -rf "$runs/full"
    at tp2-pp2 full "$@" --run.save_every=4 --ckpt.keep=0 --run.fault=enospc:step=8
    [ "$(grep -c 'NOT saved' "$work/full.out")" = 1 ]
    grep -q 'checkpoint of step 8 NOT saved: .*File too large; the run goes on' "$work/full.out"
    [ ! -e "$(checkpoint full 8)" ] && [ -e "$(checkpoint full 4)" ] && [ -e "$(checkpoint full 12)" ]
    finished full straight
}

# ---- memory

# Memory and open files after many saves are those after a few.
soak() { # STEPS
    local job first last n=$1 most least
    launch gpt soak "${common[@]}" --run.steps=1000000 --optim.decay_steps=1000000 --run.eval_every=0 \
        --run.save_every=5 --ckpt.async=true
    job=$pid
    until [ "$(lines soak)" -gt $((n / 4)) ]; do running && sleep 0.1; done
    first=$(resident "$job")
    until [ "$(lines soak)" -gt "$n" ]; do
        find "/proc/$job/fd" 2>/dev/null | wc -l >>"$work/files"
        running && sleep 0.1
    done
    last=$(resident "$job")
    kill -TERM "$job"
    wait "$job"
    most=$(sort -n "$work/files" | tail -n 1) least=$(sort -n "$work/files" | head -n 1)
    echo "$first KB resident, later $last; $least to $most files"
    [ "$last" -le $((first + first / 100 + 256)) ] # 256: variation of the C library's allocator
    [ $((most - least)) -le 3 ] # the file that is being written, its directory, and the log's plot
    "$BUILD/test/test_schema" "$runs/soak/metrics.jsonl"
}

resident() { # PID: KB
    sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}

# ---- bits

# A random bit of a random number of a random tensor, on a random rank.
flips() { # TIMES
    local i random tensor rank index bit of status said
    local tensors=(embed.tokens.weight layers.0.attn.q.weight layers.1.attn.out.bias layers.2.ffn.up.weight
        layers.3.ffn.down.bias final_norm.weight layers.1.ffn_norm.bias)
    for ((i = 0; i < $1; i++)); do
        below ${#tensors[@]}
        tensor=${tensors[random]}
        below 4 && rank=$random
        below 32 && index=$random # each has so many numbers
        below 32 && bit=$random
        below 3 && of=$(printf '%s\n' weight exp_avg exp_avg_sq | sed -n $((random + 1))p)
        status=0 said="rank=$rank,step=3,tensor=$tensor,index=$index,bit=$bit,of=$of"
        echo "$said"
        at dp4 flipped --run.fault="flip:$said" --monitor.agree_every=2 || status=$?
        [ $status = 1 ]
        grep -q "^rank 0: error: step 4: the ranks' .* are not the same: " "$work/flipped.err"
    done
}

# ---- surroundings

# A wall clock that jumps by days and years, both ways, whenever it is read.
jumping_clock() {
    $CC -shared -fPIC -O1 -o "$work/jumps.so" test/jumping_clock.c -ldl
    LD_PRELOAD=jumps.so LD_LIBRARY_PATH=$work at dp2 jumping --run.save_every=3 --ckpt.async=true --run.hang_timeout=10
    finished jumping straight
    grep -q '"t":[0-9]' "$runs/jumping/metrics.jsonl"
    if grep -qE 'nan|inf|-[0-9]+:[0-9]' "$work/jumping.out"; then return 1; fi
    [ "$(value train t "$runs/jumping/metrics.jsonl" | sort -u | wc -l)" -gt 1 ] # it did jump
}

few_files() {
    (
        ulimit -n 64
        at tp2-pp2 few --run.save_every=3 --ckpt.async=true
    )
    finished few straight
}

odd_paths() {
    local runs="$work/a path, with späces & quotes'"
    mkdir "$runs"
    at dp2 odd --run.dir="$runs" --run.save_every=5 --ckpt.async=true
    "$BUILD/export" "$runs/odd" --to state --out "$work/odd.export"
    "$BUILD/export" "$(runs=$work/runs checkpoint straight $steps)" --to state --out "$work/straight.export"
    cmp "$work/odd.export" "$work/straight.export"
    "$BUILD/test/test_schema" "$runs/odd/metrics.jsonl"
}

other_locale() { # with a decimal comma, where there is one
    local locale
    locale=$(locale -a 2>/dev/null | grep -m 1 -iE '^(de|fr|nl|it|es)_.*utf') || locale=C.UTF-8
    LC_ALL=$locale at one locale
    finished locale straight
}

# Without standard streams, files of the run get their descriptors; what is printed must not land in those files.
closed_streams() {
    "$BUILD/train" "$work/gpt.toml" --run.name=closed "${common[@]}" >&- 2>&- <&-
    : >"$work/closed.err"
    finished closed straight
    local status=0
    "$BUILD/train" "$work/gpt.toml" --run.name=closed --run.dir="$runs" >&- 2>&- <&- --optim.lr=none || status=$?
    [ $status = 1 ]
    status=0
    "$BUILD/train" "$work/gpt.toml" --run.name=dev-full "${common[@]}" >/dev/full 2>"$work/dev-full.err" || status=$?
    [ $status = 1 ]
    [ "$(wc -l <"$work/dev-full.err")" = 1 ]
    grep -q '^error: .*standard output: No space left' "$work/dev-full.err"
}

# What cannot be read or written is one line, and status 1.
unusable() {
    local dir=$work/file
    : >"$dir"
    fails_with 1 'file' "$BUILD/train" "$work/gpt.toml" --run.name=x --run.dir="$dir"
    fails_with 1 '/proc' "$BUILD/train" "$work/gpt.toml" --run.name=x --run.dir=/proc
    : >"$work/empty.bin"
    fails_with 1 'empty\.bin' "$BUILD/train" "$work/gpt.toml" --run.name=x --data.train="$work/empty.bin"
    : >"$work/empty.toml"
    fails_with 1 '' "$BUILD/train" "$work/empty.toml" --run.name=x --run.dir="$runs"
}

# A run of one process opens no connection; ranks of one machine connect to their launcher and to each other only.
connections() {
    strace -f -qq -o "$work/trace" -e trace=connect,bind,sendto \
        "$BUILD/train" "$work/gpt.toml" --run.name=alone "${common[@]}" >/dev/null
    cat "$work/trace"
    if grep -qE 'sa_family=AF_INET' "$work/trace"; then return 1; fi
}

# ---- what is run

: "${CC:=gcc}"
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'a run that nothing disturbs' undisturbed
if [ -n "$quick" ]; then
    lots=1 n_kills=3 n_each=3 n_stops=2 n_moves=1 n_flips=2 n_soak=60
    pairs='dp2-tp2-pp2-zero1 dp2-zero3,pp2 tp2,cp2-zero3 one,one tp2-pp2,'
    [ -n "${TEST_LONG:-}" ] || n_kills=1 n_each=1 n_stops=1 n_flips=1 n_soak=20 pairs='tp2-pp2 dp2-zero3,'
else
    lots=5 n_kills=10 n_each=5 n_stops=5 n_moves=20 n_flips=20 n_soak=5000
    pairs=$(for a in "${layouts[@]}"; do for b in "${layouts[@]}"; do printf '%s %s,' "$a" "$b"; done; done)
fi
beside=(--run.save_every=1 --ckpt.async=true)
for ((i = 1; i <= lots; i++)); do
    lot=" ($i of $lots)"
    try "$n_kills kills, replicas$lot" kills $n_kills $n_each replicas dp2-zero3 --run.save_every=2
    try "$n_kills kills, parts, saves beside training$lot" kills $n_kills $n_each parts tp2-pp2 "${beside[@]}"
    [ -n "$quick" ] || try "$n_kills kills, one process, saves beside training$lot" kills $n_kills $n_each one \
        one "${beside[@]}"
    [ -n "$quick" ] || try "$n_kills kills, a layout after the other$lot" kills $n_kills $n_each mixed \
        'tp2-pp2 dp4-zero2 pp2 cp2-zero3' --run.save_every=1
    try "$n_stops stops, replicas, saves beside training$lot" stops $n_stops stop-dp dp4-zero2 "${beside[@]}"
    [ -n "$quick" ] || try "$n_stops stops, parts$lot" stops $n_stops stop-tp tp2-pp2 --run.save_every=2
    try "$n_flips times one bit of a replica$lot" flips $n_flips
done
try 'a second signal ends at once' second_signal
while read -rd , from to; do try -k "from $from" "from $from to $to" pair "$from" "$to"; done <<<"$pairs"
for ((i = 0; i < n_moves; i++)); do try "through an epoch, sequence $i" moves $i; done
[ -n "$quick" ] || try '10000 states of a disk without power, twice' "$BUILD/test/test_ckpt_power" 10000
[ -n "$quick" ] || try 'no memory, at each place' env BUILD="$BUILD" CC="$CC" test/test_no_memory.sh --all
try 'saves beside training are the same files' saves_beside
try 'a full disk' full_disk
try "$n_soak steps in the same memory" soak $n_soak
try 'a clock that jumps' jumping_clock
try 'ulimit -n 64' few_files
try 'odd paths' odd_paths
try 'another locale' other_locale
try 'closed streams' closed_streams
try 'what cannot be used' unusable
if ! strace -qq -o /dev/null true 2>/dev/null; then echo 'skip connections (no strace)'
else try 'connections' connections
fi
exit $failed
