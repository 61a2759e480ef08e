#!/bin/bash
# test/test_prepare_folder.sh: `build/prepare tokens` over a folder that holds an older preparation: killed at random
# points, started twice at once; what it leaves is whole or refused.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=test/data_common.sh
. test/data_common.sh

awk 'BEGIN { srand(8); for (i = 0; i < 4000; i++) { printf "page%d", i
    for (k = 0; k < 60; k++) printf " %c%c%c", 97 + int(rand() * 26), 97 + int(rand() * 20), 97 + int(rand() * 9)
    print "" } }' >"$work/new.txt"
head -c 100000 "$work/new.txt" | tr a-j A-J >"$work/old.txt"
tokens() { "$BUILD/prepare" tokens --shard-tokens 20000 "$@" 2>"$work/err"; }
new() { tokens --input "$work/new.txt" --vocab 600 --out "$1"; }
old() { tokens --input "$work/old.txt" --vocab 300 --out "$1"; }
as_it_was() { # FOLDER: the old one or the new one, whole; what a killed run leaves beside it does not count
    diff -r -x new.tmp "$1" "$work/old" >/dev/null || diff -r -x new.tmp "$1" "$work/new"
}

old_again() { rm -rf "$work/out" && cp -r "$work/old" "$work/out"; }

replaces() {
    new "$work/new"
    old "$work/old"
    old_again
    echo keep >"$work/out/notes.txt"
    printf x >"$work/out/train_000099.bin" # a pattern would find it
    new "$work/out"
    [ "$(cat "$work/out/notes.txt")" = keep ]
    rm "$work/out/notes.txt"
    diff -r "$work/out" "$work/new"
}

killed() {
    local n ms whole from
    from=$(date +%s%N)
    new "$work/out"
    whole=$((($(date +%s%N) - from) / 1000000))
    for ((n = 0; n < 12; n++)); do
        old_again
        ms=$((whole / 2 + n * whole / 24)) # the second half of it, where files are written
        "$BUILD/prepare" tokens --shard-tokens 20000 --input "$work/new.txt" --vocab 600 --out "$work/out" 2>"$work/err" &
        sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
        kill -KILL $! 2>/dev/null || true
        wait $! 2>/dev/null || true
        [ -e "$work/out/unfinished" ] || as_it_was "$work/out"
    done
    new "$work/out" # whatever the last one left
    diff -r "$work/out" "$work/new"
}

# refused WORDS COMMAND...: status 1, and the last line that it says is an error that begins with these words.
refused() {
    local words=$1 got=0
    shift
    "$@" >"$work/said" 2>&1 || got=$?
    tail -n 1 "$work/said"
    [ $got = 1 ]
    tail -n 1 "$work/said" | grep "^error: $words"
}

# Stopped while the files changed places: the trainer says so, and the next run puts it right.
half_replaced() {
    local data=$work/out train
    rm -r "$data"
    cp -r "$work/new" "$data"
    touch "$data/unfinished"
    rm "$data/manifest.json" "$data/tokenizer.json"
    mkdir "$data/new.tmp"
    cp "$work/new/tokenizer.json" "$data/new.tmp"
    printf '[source.a]\npath = "out/train_*.bin"\n' >"$work/mixture.toml"
    refused "$data: a preparation was stopped" "$BUILD/prepare" encode --tokenizer "$data" "$work/old.txt"
    for train in "$data/train_*.bin" "$data/train_000000.bin" "$work/mixture.toml"; do
        refused "$data: a preparation was stopped" "$BUILD/train" --data.tokenizer="$work/new" --data.train="$train" \
            --data.val="$work/new/val_*.bin" --run.dir="$work/run" --run.steps=1
    done
    new "$data"
    diff -r "$data" "$work/new"
}

# The second one does not wait, and does not write.
two_at_once() {
    mkfifo "$work/pipe"
    "$BUILD/prepare" tokens --shard-tokens 20000 --input - --vocab 600 --out "$work/out" <"$work/pipe" 2>/dev/null &
    exec 9>"$work/pipe"
    cat "$work/old.txt" >&9
    sleep 0.5
    refused "$work/out: another preparation is at work there" \
        "$BUILD/prepare" tokens --input "$work/old.txt" --out "$work/out"
    refused "$work/out: another preparation is at work there" \
        "$BUILD/prepare" train-tokenizer --input "$work/old.txt" --out "$work/out"
    exec 9>&-
    wait $!
    old "$work/out"
    diff -r "$work/out" "$work/old"
}

# An empty name is refused, and is not taken for whatever is in memory after it.
no_name() {
    refused "--out: an empty name (give the folder to write to)" \
        "$BUILD/prepare" tokens --input "$work/old.txt" --out ""
    refused "--out: an empty name" "$BUILD/prepare" train-tokenizer --input "$work/old.txt" --out=
    [ "$(wc -l <"$work/said")" = 1 ]
}

# What cannot be removed is named before anything is: the old files stay, and the next run finds them.
folder_in_the_way() {
    old_again
    mkdir "$work/out/train_000077.bin"
    cp -r "$work/out" "$work/was"
    refused "$work/out/train_000077.bin: a folder, where a file is to be written (rename or remove it)" \
        "$BUILD/prepare" tokens --input "$work/new.txt" --out "$work/out"
    [ "$(wc -l <"$work/said")" = 1 ] # before the input is read
    diff -r "$work/out" "$work/was"
    rmdir "$work/out/train_000077.bin"
    # The same when it comes while the input is read.
    mkfifo "$work/late"
    "$BUILD/prepare" tokens --shard-tokens 20000 --input - --vocab 600 --out "$work/out" <"$work/late" 2>"$work/err" &
    exec 9>"$work/late"
    cat "$work/new.txt" >&9 # more than a pipe holds
    mkdir "$work/out/train_000077.bin"
    exec 9>&-
    if wait $!; then return 1; fi
    tail -n 1 "$work/err" | grep 'train_000077.bin: a folder, where a file is to be written'
    diff -r -x new.tmp "$work/out" "$work/was"
    rmdir "$work/out/train_000077.bin"
    new "$work/out"
    diff -r "$work/out" "$work/new"
}

# A terminal that is closed ends it, whatever MPI's libraries do with the signal, and what was there stays.
hangs_up() {
    local status=0
    old_again
    mkfifo "$work/text"
    "$BUILD/prepare" tokens --input - --vocab 600 --out "$work/out" <"$work/text" 2>"$work/err" &
    exec 9>"$work/text"
    cat "$work/new.txt" >&9 # more than a pipe holds: it reads
    kill -HUP $!
    exec 9>&-
    wait $! || status=$?
    [ $status = 129 ]
    as_it_was "$work/out"
}

# A tokenizer alone goes where no shards are, and replaces an older one as a whole.
tokenizer_alone() {
    local train=("$BUILD/prepare" train-tokenizer --input "$work/new.txt" --vocab 400 --out) name
    "${train[@]}" "$work/tok"
    [ "$(ls "$work/tok")" = "tokenizer.json"$'\n'"tokenizer_config.json" ]
    old_again
    refused "$work/out: holds .*, and the tokenizer there belongs to it (choose another --out)" \
        "${train[@]}" "$work/out"
    [ "$(wc -l <"$work/said")" = 1 ] # before the input is read
    diff -r "$work/out" "$work/old"
    for name in train_000003.bin val_000000.bin manifest.json; do
        mkdir "$work/$name.d"
        touch "$work/$name.d/$name"
        refused "$work/$name.d: holds $name" "${train[@]}" "$work/$name.d"
        [ "$(ls "$work/$name.d")" = "$name" ]
    done
    # Left in the middle by a kill: said to the trainer, and put right by the next run.
    mkdir "$work/half" "$work/half/new.tmp"
    touch "$work/half/unfinished" "$work/half/new.tmp/val_000000.bin"
    echo keep >"$work/half/vocab.json"
    "${train[@]}" "$work/half"
    [ "$(cat "$work/half/vocab.json")" = keep ]
    rm "$work/half/vocab.json"
    diff -r "$work/half" "$work/tok"
    mkdir "$work/way" "$work/way/tokenizer.json"
    refused "$work/way/tokenizer.json: a folder, where a file is to be written" "${train[@]}" "$work/way"
}

passes 'new files replace old ones, others stay' replaces
passes '12 times kill -9: the old files or the new ones' killed
passes 'a folder that was left half replaced is refused' half_replaced
passes 'two at once' two_at_once
passes 'an empty name' no_name
passes 'a folder where a file should be' folder_in_the_way
[ $((0x$(sed -n 's/^SigIgn:[[:space:]]*//p' /proc/$$/status) & 1)) = 1 ] || passes 'SIGHUP ends it' hangs_up
passes 'a tokenizer alone' tokenizer_alone
exit $failed
