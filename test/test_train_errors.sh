#!/bin/bash
# test/test_train_errors.sh: what a user can do wrong with build/train. Each mistake ends with status 1 and one line
# "error: ..." on stderr that names the trouble (for a configuration file the line and a caret follow),
# before anything is trained, and leaves what was there as it was.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # a program that dies does not free its memory

# refuses WORDS CONFIG [OPTION...]: build/train CONFIG.toml fails with one line that contains WORDS (a regular
# expression), and no step was trained.
refuses() {
    local words=$1 config=$2 status=0
    shift 2
    train "$config" wrong "$@" || status=$?
    one_error "$status" "$words" "$work/wrong.err"
    if [ -s "$runs/wrong/metrics.jsonl" ]; then
        echo 'a run was begun'
        return 1
    fi
}

one_error() { # STATUS WORDS FILE
    cat "$3"
    [ "$1" = 1 ]
    [ "$(wc -l <"$3")" = 1 ]
    grep -qE "^error: .*($2)" "$3"
}

help_is_help() {
    "$BUILD/train" --help >"$work/help" 2>"$work/help.err" </dev/null
    [ ! -s "$work/help.err" ]
    grep -q 'run\.steps' "$work/help"
    grep -q 'ckpt\.resume' "$work/help"
}

no_arguments_is_usage() {
    local status=0
    "$BUILD/train" >"$work/usage.out" 2>"$work/usage.err" </dev/null || status=$?
    [ $status = 2 ]
    grep -qi 'usage' "$work/usage.err"
    [ ! -s "$work/usage.out" ]
}

wrong_settings() {
    refuses 'optim\.lrr.*optim\.lr' gpt --optim.lrr=1
    refuses 'optim\.lr.*abc' gpt --optim.lr=abc
    refuses 'run\.steps.*-1' gpt --run.steps=-1
    refuses 'model\.norm.*batchnorm' gpt --model.norm=batchnorm
    refuses 'model\.heads|model\.channels' gpt --model.heads=7
    refuses 'batch\.tokens' gpt --batch.tokens=500
    # Of two settings that do not fit, the place is that of the one on the command line.
    refuses 'command line: batch\.tokens [0-9]+ is not a multiple of batch\.micro' gpt --batch.micro=7
    refuses 'command line: model\.channels [0-9]+ is not a multiple of model\.heads' gpt --model.channels=65
    refuses 'run\.steps' gpt --run.steps=0
    refuses 'context' gpt --model.context=200000 --batch.tokens=200000 --batch.micro=1
}

# In a file: error line with file and line number, the line itself, and a caret below it.
wrong_file() {
    local status=0
    sed 's/^lr = .*/lrr = 3e-3/' "$work/gpt.toml" >"$work/typo.toml"
    train typo wrong || status=$?
    cat "$work/wrong.err"
    [ $status = 1 ]
    [ "$(grep -c '^error: ' "$work/wrong.err")" = 1 ]
    head -n 1 "$work/wrong.err" | grep -qE "typo\.toml:$(grep -n lrr "$work/typo.toml" | cut -d: -f1):? .*lrr"
    [ "$(wc -l <"$work/wrong.err")" = 3 ]
    tail -n 1 "$work/wrong.err" | grep -qE '^[ |]*\^[~^]*$'
    refuses 'absent\.toml' absent
}

missing_data() {
    refuses "none_\*.bin" gpt --data.train="$work/data/none_*.bin"
    refuses 'no_val\.bin' gpt --data.val="$work/data/no_val.bin"
    refuses 'no_folder' gpt --data.tokenizer="$work/no_folder"
    refuses 'no_floor\.json' gpt --data.floor="$work/no_floor.json"
    local key
    for key in train val tokenizer; do refuses 'data\.train, data\.val and data\.tokenizer: all three' gpt --data.$key=; done
    mkdir "$work/empty"
    refuses 'empty' gpt --data.tokenizer="$work/empty"
    echo '{"val": {"nats": 3}}' >"$work/half.json"
    refuses 'half\.json' gpt --data.floor="$work/half.json"
}

damaged_shards() {
    local shard=$work/data/train_000000.bin bad=$work/bad.bin
    head -c -1 "$shard" >"$bad"
    refuses 'bad\.bin' gpt --data.train="$bad"
    head -c 1000 "$shard" >"$bad" # not even a header
    refuses 'bad\.bin' gpt --data.train="$bad"
    : >"$bad"
    refuses 'bad\.bin' gpt --data.val="$bad"
    cp "$shard" "$bad"
    printf '\377\377' | dd of="$bad" bs=1 seek=3024 conv=notrunc 2>/dev/null # token 1000 is 65535
    refuses 'bad\.bin.*3024.*65535' gpt --data.train="$bad"
    refuses 'model\.vocab.*100' gpt --model.vocab=100
}

# One window, context + 1 tokens, is the least that a run can be made of.
least_data() {
    head -c 150 "$work/text/train.txt" >"$work/least.txt"
    "$BUILD/prepare" tokens --train "$work/least.txt" --val-file "$work/text/val.txt" --tokenizer "$work/data" \
        --out "$work/least"
    local n
    n=$(grep -m 1 -o '"tokens": *[0-9]*' "$work/least/manifest.json" | grep -o '[0-9]*$')
    of_one() { # CONTEXT COMMAND...
        "${@:2}" --data.train="$work/least/train_*.bin" --batch.micro=1 --model.context="$1" --batch.tokens="$1"
    }
    of_one $((n - 1)) train gpt least --run.stop_at=1
    rm -r "$runs/least"
    of_one "$n" refuses "$n tokens are fewer than model.context \+ 1 = $((n + 1))" gpt
}

run_directories() {
    local kept
    refuses "$work/gpt\.toml" gpt --run.dir="$work/gpt.toml" # below a regular file
    train gpt used --run.stop_at=2
    kept=$(cat "$runs"/used/*.* "$(checkpoint used 2)"/* | cksum)
    refused_run() { # WORDS OPTION...: run `used` is left as it is
        local words=$1 status=0
        shift
        train gpt used "$@" || status=$?
        one_error "$status" "$words" "$work/used.err"
        [ "$(cat "$runs"/used/*.* "$(checkpoint used 2)"/* | cksum)" = "$kept" ]
    }
    refused_run 'ckpt\.resume.*false, true or auto' --ckpt.resume=yes
    refused_run 'model\.[a-z_]+: the checkpoint' --ckpt.resume=true --model.channels=32
    refused_run 'model\.norm_eps: the checkpoint' --ckpt.resume=true --model.norm_eps=1e-3
    refused_run 'run\.seed: the checkpoint' --ckpt.resume=true --run.seed=8
    refused_run 'batch\.tokens: the checkpoint' --ckpt.resume=true --batch.tokens=1024
    printf 'x' | dd of="$(checkpoint used 2)/model.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
    kept=$(cat "$runs"/used/*.* "$(checkpoint used 2)"/* | cksum)
    local status=0
    train gpt used --ckpt.resume=true || status=$?
    cat "$work/used.err"
    [ $status = 1 ]
    grep -q 'model\.safetensors' "$work/used.err"
    [ "$(grep -c '^error: ' "$work/used.err")" = 1 ]
    [ "$(cat "$runs"/used/*.* "$(checkpoint used 2)"/* | cksum)" = "$kept" ]
}

# A learning rate that no run survives: updates that are not finite are skipped and recorded; after ten in a row the
# run ends.
diverges() {
    local status=0 file=$runs/diverges/metrics.jsonl
    train gpt diverges --optim.lr=1e30 --run.eval_every=0 --run.sample_every=0 || status=$?
    one_error "$status" 'optim\.lr' "$work/diverges.err"
    "$BUILD/test/test_schema" "$file"
    [ "$(grep -c '"event":"skip"' "$file")" = 10 ]
    grep '"event":"train"' "$file" | grep -q '"grad_norm":null,"grad_norm_nan":true'
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes '--help, status 0' help_is_help
passes 'no arguments: usage, status 2' no_arguments_is_usage
passes 'wrong settings on the command line' wrong_settings
passes 'a wrong configuration file: line and caret' wrong_file
passes 'missing data' missing_data
passes 'damaged shards, a vocabulary that is too small' damaged_shards
passes 'the least data' least_data
passes 'run directories: unwritable, in use, another model, damaged' run_directories
passes 'a run that diverges ends' diverges
exit $failed
