#!/bin/bash
# test/test_file_list.sh: inputs given as a list of files (.paths): the same as the files themselves, whatever their number.
# 5,000 files, with 40 file descriptors and 200 MiB of memory; --long: 100,000.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=test/data_common.sh
. test/data_common.sh
n=5000
[ -z "${TEST_LONG:-}" ] || n=100000

filter() { "$BUILD/prepare" filter --rules guide.words --set guide.words.min=0 "$@"; }
tokens() { "$BUILD/prepare" tokens --vocab 300 "$@"; }
refused() { # WORDS COMMAND...: one line that has them
    local words=$1 status=0
    shift
    "$@" >"$work/said" 2>"$work/err" || status=$?
    cat "$work/err"
    [ $status = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF "$words" "$work/err"
}

make_files() {
    mkdir "$work/many"
    awk -v n=$n -v folder="$work/many" 'BEGIN {
        for (i = 0; i < n; i++) {
            name = sprintf("d%03d/f%06d.txt", i / 1000, i)
            if (i % 1000 == 0) system("mkdir \"" folder "/" sprintf("d%03d", i / 1000) "\"")
            printf "file %d with some words in it, and %d\n", i, (i * 7919) % 100003 >(folder "/" name)
            close(folder "/" name)
            print name >(folder "/all.paths")
        }
    }'
    [ "$(wc -l <"$work/many/all.paths")" = $n ]
}

# A folder gives its files in the order of their names, so the list must give the same.
many_files() {
    ulimit -n 40
    ulimit -v $((200 * 1024 + 600 * 1024)) # the libraries take address space, not memory
    filter "$work/many/all.paths" --out "$work/list.jsonl"
    [ "$(wc -l <"$work/list.jsonl")" = $n ]
    mv "$work/many/all.paths" "$work/many.paths"
    filter "$work/many" --out "$work/folder.jsonl"
    mv "$work/many.paths" "$work/many/all.paths"
    cmp "$work/list.jsonl" "$work/folder.jsonl"
}

recipe() {
    printf '%s\n' '[recipe]' 'out = "out"' '[source.many]' 'path = "many/all.paths"' '[dedup]' 'exact = true' '[tokenizer]' 'vocab = 300' >"$work/r.toml"
    (ulimit -n 100 && "$BUILD/prepare" "$work/r.toml")
    grep -q "^ *\"documents\": $n" "$work/out/report.json"
    local shard=$work/out/shards/many/train_000000.bin
    cp "$shard" "$work/before"
    "$BUILD/prepare" "$work/r.toml"
    cmp "$shard" "$work/before"
    echo changed and longer than it was before, by some words >"$work/many/d000/f000007.txt"
    "$BUILD/prepare" "$work/r.toml"
    if cmp "$shard" "$work/before"; then return 1; fi
}

small_lists() { # relative to the list, packed, with Windows' line ends and empty lines; folders and formats in it
    mkdir -p "$work/small/in"
    printf 'one' >"$work/small/a.txt"
    printf '{"text": "two"}\n' >"$work/small/in/b.jsonl"
    printf 'three' >"$work/small/in/c.txt"
    printf 'a.txt\r\n\r\nin\r\n%s/small/a.txt' "$work" >"$work/small/files.paths"
    filter "$work/small/files.paths" --out "$work/small.jsonl"
    grep -o '"text":"[a-z]*"' "$work/small.jsonl" | paste -sd ' ' | cmp - <(echo '"text":"one" "text":"two" "text":"three" "text":"one"')
    gzip "$work/small/files.paths"
    filter "$work/small/files.paths.gz" --out "$work/packed.jsonl"
    [ "$(wc -l <"$work/packed.jsonl")" = 4 ]
}

refusals() {
    printf 'small/a.txt\nno-such-file\n' >"$work/bad.paths"
    refused "$work/bad.paths:2: $work/no-such-file: cannot read: No such file" filter "$work/bad.paths"
    printf '\n\n' >"$work/empty.paths"
    refused "$work/empty.paths: no file in it" filter "$work/empty.paths"
    mkdir -p "$work/out2/documents"
    printf 'x' >"$work/out2/documents/mine.txt"
    printf 'small/a.txt\nout2/documents/mine.txt\n' >"$work/inside.paths"
    printf '[recipe]\nout = "out2"\n[source.a]\npath = "inside.paths"\n' >"$work/inside.toml"
    refused "out2/documents/mine.txt: lies in recipe.out" "$BUILD/prepare" "$work/inside.toml"
    [ -f "$work/out2/documents/mine.txt" ]
}

passes "$n files" make_files
passes "$n files, as a list and as a folder" many_files
passes "a recipe of $n files, and one of them changed" recipe
passes 'names relative to the list, packed lists, folders in them' small_lists
passes 'what is no list' refusals
exit $failed
