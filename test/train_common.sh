# test/train_common.sh: what the end-to-end tests of build/train share. Their scripts source it.
#
# prepare_corpus makes a small corpus, its tokens and two configurations in $work; train runs the program; passes NAME
# FUNCTION runs one test in a subshell under `set -e`: the first command that fails ends it, and is reported under
# its "not ok" line. Everything is under one temporary directory, removed at the end of the script; programs in the
# background end with their test.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/train.XXXXXX") || exit 1
runs=$work/runs
unset OMP_NUM_THREADS
export LC_ALL=C # awk and bash write 0.5, not 0,5; test_locale.sh is about the programs
export OMP_WAIT_POLICY=passive # waiting threads leave the cores to others, as the machine may be busy
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# shellcheck source=test/passes_common.sh
. test/passes_common.sh

# What only `make test-long` runs (it sets TEST_LONG).
deeper() { [ -z "${TEST_LONG:-}" ] || "$@"; }

# config FAMILY: every switch of the model, and nothing that depends on the machine. A script may set channels.
config() {
    local llama='norm = "rmsnorm"
activation = "swiglu"
position = "rope"
kv_heads = 2
bias = false
tie = false'
    printf '%s\n' '[run]' "dir = \"$runs\"" 'steps = 40' 'eval_every = 10' 'sample_every = 10' 'threads = 1' 'peak = 100' \
        '[data]' "train = \"$work/data/train_*.bin\"" "val = \"$work/data/val_*.bin\"" "tokenizer = \"$work/data\"" \
        '[model]' 'layers = 2' "channels = ${channels:-64}" 'heads = 4' 'context = 32' '[batch]' 'tokens = 512' 'micro = 8' \
        '[optim]' 'lr = 3e-3' 'warmup = 10' 'decay_steps = 40' '[eval]' 'tokens = 1000' '[sample]' 'tokens = 20'
    [ "$1" = llama ] && printf '%s\n' '[model]' "$llama"
    return 0
}

prepare_corpus() {
    "$BUILD/stories" --bytes 200000 --seed 3 --out "$work/text"
    "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 512 \
        --out "$work/data"
    mkdir "$runs"
    config gpt >"$work/gpt.toml"
    config llama >"$work/llama.toml"
}

# train CONFIG NAME [OPTION...]: its exit status; what it wrote is in $work/NAME.out and .err.
train() {
    local file=$work/$1.toml name=$2
    shift 2
    "$BUILD/train" "$file" --run.name="$name" "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null
}

# launch CONFIG NAME [OPTION...]: the same in the background; sets pid, which is the program's own.
launch() {
    local file=$work/$1.toml name=$2
    shift 2
    (exec "$BUILD/train" "$file" --run.name="$name" "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null) &
    pid=$!
}

checkpoint() { # NAME STEP: its directory
    printf '%s/%s/checkpoints/step_%08d' "$runs" "$1" "$2"
}

same_state() { # NAME NAME STEP: the two runs' checkpoints hold the same bytes, whatever layout wrote them
    "$BUILD/export" "$(checkpoint "$1" "$3")" --to state --out "$work/$1.export"
    "$BUILD/export" "$(checkpoint "$2" "$3")" --to state --out "$work/$2.export"
    cmp "$work/$1.export" "$work/$2.export"
}

value() { # EVENT KEY FILE: the key's value in each line of the event
    sed -n "/\"event\":\"$1\"/s/.*\"$2\":\([^,}]*\).*/\1/p" "$3"
}

wait_for_step() { # NAME STEP PID: until metrics.jsonl has that step; fails when the process has ended before
    until value train step "$runs/$1/metrics.jsonl" 2>/dev/null |
        awk -v n="$2" '$1 >= n { found = 1 } END { exit !found }'; do
        kill -0 "$3"
        sleep 0.02
    done
}

history() { # NAME: what does not depend on the clock: train lines up to the gradient norm, val and end up to bpb
    sed -n '/"event":"\(train\|val\|end\)"/s/,"\(dt_ms\|floor_loss\|seconds\)".*//p' "$runs/$1/metrics.jsonl"
}

# The phases of every step are there, and add up to its time but for little: nothing is counted twice.
phases_add_up() { # RUN KEY...: those that this run must have
    local file=$runs/$1/metrics.jsonl key
    shift
    for key in "$@"; do [ "$(value train "$key" "$file" | grep -c .)" = "$(grep -c '"event":"train"' "$file")" ]; done
    grep '"event":"train"' "$file" | awk '
        function of(key) {
            return match($0, "\"" key "\":[0-9.e-]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : 0
        }
        { sum = of("data_ms") + of("forward_ms") + of("backward_ms") + of("comm_ms") + of("optim_ms"); step = of("dt_ms")
          all += step; known += sum
          if (!(sum <= step + 0.005)) { print "phases of " sum " ms in a step of " step " ms: " $0; bad = 1 } } # rounded
        END { if (!(known >= 0.9 * all)) { print known " of " all " ms"; bad = 1 }; exit bad }'
}

# program_refuses PROGRAM STATUS WORDS ARGUMENT...: it ends with that status, nothing on standard output and one line, an
# error that has the words (an extended regular expression).
program_refuses() {
    local program=$BUILD/$1 want=$2 words=$3 status=0
    shift 3
    "$program" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    cat "$work/err"
    [ $status = "$want" ]
    [ ! -s "$work/out" ]
    [ "$(wc -l <"$work/err")" = 1 ]
    grep -qE "^error: .*$words" "$work/err"
}

well_formed() { # NAME LAST: metrics.jsonl follows its schema and has steps 1 to LAST once each, in order
    "$BUILD/test/test_schema" "$runs/$1/metrics.jsonl"
    value train step "$runs/$1/metrics.jsonl" | cmp - <(seq "$2")
}

# The object "memory" of account.json or of `plan memory --json`, a line each: RANK TAG BYTES
memory_lines() {
    awk -F '[":, ]+' '/"traffic"/ { exit } /^ *"[0-9]+": [{]/ { rank = $2 } /: [0-9]+,?$/ { print rank, $2, $3 }'
}

close_to() { # A B RELATIVE: |a - b| <= relative |b|; not with NaN or an empty string
    awk -v a="$1" -v b="$2" -v bound="$3" 'BEGIN {
        d = a - b
        ok = a ~ /^[-+0-9.eE]+$/ && b ~ /^[-+0-9.eE]+$/ && (d < 0 ? -d : d) <= bound * (b < 0 ? -b : b)
        if (!ok) print a " against " b ": not within " bound
        exit !ok
    }'
}

less() { # A B: a < b, both numbers
    awk -v a="$1" -v b="$2" 'BEGIN {
        ok = a ~ /^[-+0-9.eE]+$/ && b ~ /^[-+0-9.eE]+$/ && a + 0 < b + 0
        if (!ok) print a " is not below " b
        exit !ok
    }'
}

fails_with() { # STATUS WORDS COMMAND...: one line on stderr, nothing on stdout
    local want=$1 words=$2 status=0
    shift 2
    "$@" >"$work/out" 2>"$work/err" || status=$?
    cat "$work/err"
    [ "$status" = "$want" ]
    [ "$(wc -l <"$work/err")" = 1 ]
    grep -qE "^error: .*($words)" "$work/err"
    [ ! -s "$work/out" ]
}
