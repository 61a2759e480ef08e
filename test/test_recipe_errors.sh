#!/bin/bash
# test/test_recipe_errors.sh: build/prepare with recipes that are wrong, changed or spelled differently, and with
# folders that were damaged: what is finished stays, and an error is reported before any work, in one line.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=test/data_common.sh
. test/data_common.sh
BUILD=$(cd "$BUILD" && pwd) || exit 1

mkdir "$work/in"
awk 'BEGIN { srand(5); for (i = 0; i < 300; i++) { printf "{\"text\":\"page%d", i
    for (k = 0; k < 80; k++) printf " %c%c%c", 97 + int(rand() * 26), 97 + int(rand() * 20), 97 + int(rand() * 9)
    print "\"}" } }' >"$work/in/a.jsonl"
awk 'BEGIN { srand(6); for (i = 0; i < 50; i++) { printf "<|endoftext|>book%d", i
    for (k = 0; k < 60; k++) printf " ver%c%c", 97 + int(rand() * 26), 97 + int(rand() * 20) } }' >"$work/in/b.txt"
echo 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen' >"$work/test.txt"

cat >"$work/r.toml" <<END
[recipe]
out = "out"
unit = 0.01
[source.a]
path = "in/a.jsonl"
[source.b]
path = "in/b.txt"
[dedup]
exact = true
near = true
[shards]
val = 0.1
tokens = 5000
[tokenizer]
vocab = 400
[filter]
rules = "guide"
END
prepare() { "$BUILD/prepare" "$@" 2>"$work/err"; }
# refused WORDS ARGUMENT...: status 1, and the last line of stderr is an error with these words.
refused() {
    local words=$1 got=0
    shift
    prepare "$@" >/dev/null || got=$?
    cat "$work/err"
    [ $got = 1 ]
    tail -n 1 "$work/err" | grep -F "error: " | grep -qF -- "$words"
}
# at_once WORDS ARGUMENT...: the same, and it is the only line: no stage has begun.
at_once() {
    refused "$@"
    [ "$(wc -l <"$work/err")" = 1 ]
}
again() { prepare "$work/r.toml" "$@" >/dev/null && cat "$work/err"; }
# The same for each line: WORDS|RECIPE|OPTION|OPTION.
each_at_once() {
    local words file a b
    while IFS='|' read -r words file a b; do at_once "$words" "$work/$file.toml" ${a:+"$a"} ${b:+"$b"}; done
}
whole() { diff -r "$work/out" "$work/want"; }
restore() { rm -r "$work/out" && cp -r "$work/want" "$work/out"; }
all_before() { [ "$(grep -c 'done before' "$work/err")" = "$(wc -l <"$work/err")" ]; } # no stage ran

first_run() {
    prepare "$work/r.toml" >"$work/report"
    cp -r "$work/out" "$work/want"
}

# A wrong value, an error that would appear after hours, a key that changes nothing: said at once, by its name, and the
# folders of finished stages are not emptied.
said_at_once() {
    mkdir "$work/empty"
    sed '/vocab = 400/d; /\[tokenizer\]/d' "$work/r.toml" >"$work/given.toml"
    sed 's/b.txt"/&\nseparator = "x"\nline = "y"/' "$work/r.toml" >"$work/both.toml"
    sed 's/in.b.txt"/empty"/' "$work/r.toml" >"$work/none.toml"
    sed 's/b.txt"/&\nfield = "body"/' "$work/r.toml" >"$work/field.toml"
    sed 's/a.jsonl"/&\nseparator = "--"/' "$work/r.toml" >"$work/separator.toml"
    each_at_once <<END
'guide.words.mni=40': no such threshold|r|--filter.set=guide.words.mni=40
'gudie': no such rule|r|--filter.rules=gudie
words.txt: cannot read the list|r|--filter.rules=c4|--filter.bad_words=$work/words.txt
both a text and a line are given|both
empty: no file in it|none
tokenizer.path: $work/nope: cannot read: No such file|given|--tokenizer.path=$work/nope
$work/in: no tokenizer.json|given|--tokenizer.path=$work/in
contamination.evaluation: $work/nope.jsonl: cannot read: No such file|r|--contamination.evaluation=$work/nope.jsonl
shards.dtype: a vocabulary of 70000 tokens does not fit in uint16|r|--shards.dtype=uint16|--tokenizer.vocab=70000
'gopher.words.min=3': has no effect: gopher.words is not among the rules|r|--filter.set=gopher.words.min=3
$work/words.txt: has no effect: c4.bad_words is not among the rules|r|--filter.bad_words=$work/words.txt
[source.b]: field has no effect: $work/in/b.txt is neither JSONL nor Parquet|field
[source.a]: separator has no effect: $work/in/a.jsonl is JSONL|separator
contamination.field has no effect: $work/test.txt is text|r|--contamination.evaluation=$work/test.txt|--contamination.field=x
END
    whole
}

# The same files by another name are the same input, and the records speak of them in the same way.
spelled_differently() {
    local way
    for way in "$work/in/../r.toml" "$work/in/.././r.toml" r.toml ./r.toml "$(basename "$work")/r.toml"; do
        cd "$work"
        case $way in */r.toml) [ -e "$way" ] || cd .. ;; esac
        prepare "$way" --recipe.out="$work/out" >/dev/null
        cat "$work/err"
        all_before
    done
    cd "$work"
    rm "$work/out/documents/stage.json" "$work"/out/documents/part_00000[1-9]_*.*
    prepare in/../r.toml >/dev/null
    grep -q 'documents: going on' "$work/err"
    whole
}

# made_again LINE: the stage that the line begins with is run once more, and says why.
made_again() {
    again
    grep -q "^$1: begins again" "$work/err"
    whole
}

# What a record says must be there: what is gone, cut off or changed is named and made again.
missing_results() {
    local file
    for file in shards/a/train_000000.bin tokenizer/tokenizer.json exact/removed.tsv documents/part_000001_000.text; do
        rm "$work/out/$file"
        made_again "${file%%/*}: ${file#*/}: No such file or directory"
    done
    truncate -s 100 "$work/out/shards/b/val_000000.bin"
    made_again 'shards: b/val_000000.bin: 100 bytes, but [0-9]* were written'
    sed -i 's/"vocab": {/"vocab":{ /' "$work/out/tokenizer/tokenizer.json" # the same size
    made_again 'tokenizer: tokenizer.json: changed since it was written'
    restore
}

# A byte of the documents that changed on the disk, between stages, reaches no tokenizer and no shard.
changed_text() {
    printf '#' | dd of="$work/out/documents/part_000001_000.text" bs=1 seek=1000 conv=notrunc status=none
    refused 'changed since it was written (delete' "$work/r.toml" --tokenizer.vocab=300
    refused 'changed since it was written (delete' "$work/r.toml" --dedup.threshold=0.7
    # Stopped in the middle: what the trainer and a reader would open is not there, and not from before.
    ls "$work/out"
    if [ -e "$work/out/train.toml" ] || [ -e "$work/out/report.json" ] || [ -e "$work/out/report.html" ]; then return 1; fi
    restore
}

# An evaluation set in which there is nothing to look for is an error, not a clean result.
examples_too_short() {
    local n=--contamination.evaluation=$work/eval.jsonl
    printf '{"text":"what is %d and %d"}\n' 1 2 3 4 5 6 >"$work/eval.jsonl"
    at_once "all 3 examples are shorter than 13 words, so none can be looked for" "$work/r.toml" "$n"
    whole
    printf '{"text":" "}\n' >"$work/eval.jsonl"
    at_once "contamination.evaluation: $work/eval.jsonl: no text in it" "$work/r.toml" "$n"
    printf '{"text":"what is %d and %d"}\n' 1 2 3 4 >"$work/eval.jsonl"
    sed 's/.*/{"text":"&"}/' "$work/test.txt" >>"$work/eval.jsonl"
    prepare "$work/r.toml" "$n" >"$work/report"
    local note='2 of 3 evaluation examples are shorter than 13 words and were not looked for.'
    grep -qxF "$note" "$work/report"
    grep -qF "<p>$note</p>" "$work/out/report.html"
    grep -q '"too_short": 2' "$work/out/report.json"
    sed -i 1,2d "$work/eval.jsonl"
    prepare "$work/r.toml" "$n" >"$work/report"
    if grep 'looked for' "$work/report" "$work/out/report.html"; then return 1; fi
    restore
}

# Names are bytes. The other files repeat the first one's text, so each line of the list names two files.
odd_names() {
    local bad=$'o\xff.jsonl' odd=$'p\tq\nr\\s.jsonl'
    mkdir "$work/odd"
    head -n 3 "$work/in/a.jsonl" >"$work/odd/$bad"
    { sed -n 2p "$work/in/a.jsonl"; sed -n 10,20p "$work/in/a.jsonl"; } >"$work/odd/$odd"
    { sed -n 21,30p "$work/in/a.jsonl"; sed -n 3p "$work/in/a.jsonl"; } >"$work/odd/z.jsonl"
    printf '[recipe]\nout = "odd_out"\n[source.a]\npath = "odd"\n[dedup]\nexact = true\n[shards]\nval = 0\n' \
        >"$work/odd.toml"
    prepare "$work/odd.toml" >/dev/null
    printf '%s\t%s\t%s\t%s\n' 3 1 "$work/odd/p\\tq\\nr\\\\s.jsonl:1" "$work/odd/o"$'\xef\xbf\xbd'.jsonl:2 \
        25 2 "$work/odd/z.jsonl:11" "$work/odd/o"$'\xef\xbf\xbd'.jsonl:3 >"$work/list"
    cmp "$work/list" "$work/odd_out/exact/removed.tsv"
    [ "$(grep -c '"xxh3_128"' "$work/odd_out/documents/stage.json")" = 3 ]
    prepare "$work/odd.toml" --tokenizer.vocab=300 >/dev/null
    grep -q 'exact: done before' "$work/err"
    prepare tokens --input "$work/odd" --out "$work/odd_tokens"
    [ "$(grep -c '"xxh3_128"' "$work/odd_tokens/manifest.json")" = 3 ]
    grep -qF $'o\xef\xbf\xbd.jsonl' "$work/odd_tokens/manifest.json"
}

# cut_while_reading FILE COMMAND...: stops it when it has read some of its input, cuts the file to $size bytes, lets it
# go on. $status
cut_while_reading() {
    local file=$1 n=0 pid
    shift
    "$@" >/dev/null 2>"$work/err" &
    pid=$!
    while [ "${n:-1000000}" -lt 1000000 ]; do n=$(sed -n 's/^rchar: //p' /proc/$pid/io || true); done
    kill -STOP $pid || true
    truncate -s "$size" "$file"
    kill -CONT $pid || true
    status=0
    wait $pid || status=$?
}

# A file that changes while it is read gives half of what it was, or of what it will be.
changing_input() {
    local i status size=9000000 command
    if [ ! -r /proc/$$/io ]; then return; fi # no way to observe the reading
    for ((i = 0; i < 120; i++)); do cat "$work/in/a.jsonl"; done >"$work/big.jsonl" # 12 MB
    mkdir "$work/grow"
    printf '[recipe]\nout = "big_out"\n[source.a]\npath = "grow"\n' >"$work/big.toml"
    for i in recipe tokens; do
        command=("$work/big.toml")
        [ $i = recipe ] || command=(tokens --out "$work/big_data" --input "$work/grow")
        for _ in 1 2 3 4 5; do # a busy machine may look too late
            cp "$work/big.jsonl" "$work/grow/big.jsonl"
            cut_while_reading "$work/grow/big.jsonl" "$BUILD/prepare" "${command[@]}"
            if [ $status = 1 ]; then break; fi
        done
        cat "$work/err"
        [ $status = 1 ]
        tail -n 1 "$work/err" | grep -F "error: $work/grow/big.jsonl: changed while the input was read"
    done
}

# The folder of a stage that is no longer asked for is not a result; it is used again when the stage is asked for again.
stage_left_out() {
    sed '/near = true/d' "$work/r.toml" >"$work/less.toml"
    prepare "$work/less.toml" >/dev/null
    grep "^near: of an earlier recipe, not part of this one" "$work/err"
    [ "$(grep -c 'of an earlier recipe' "$work/err")" = 1 ]
    again
    grep '^near: done before' "$work/err"
    whole
}

# The same for tokens that wait to be shuffled: the merge is stopped by a file where it wants a folder.
changed_tokens() {
    rm -r "$work/out/shards/stage.json" "$work/out/shards/a"
    touch "$work/out/shards/a"
    refused 'shards/a/' "$work/r.toml"
    rm "$work/out/shards/a"
    cp -r "$work/out" "$work/stopped"
    again
    whole
    rm -r "$work/out"
    mv "$work/stopped" "$work/out"
    printf '\001' | dd of="$work/out/runs/run_000001_train.tokens" bs=1 seek=300 conv=notrunc status=none
    refused 'run_000001_train.tokens: offset ' "$work/r.toml"
    restore
}

# What an editor, a file system or somebody left in a finished stage's folder is not a result.
strays() {
    local odd=$'o\xff.json' file
    local stray=("documents/.part.swp" "documents/.nfs000000000012" "documents/$odd" "documents/notes.tsv"
        "documents/part_000001_000.text~" "shards/a/.nfs000000000013" "shards/notes.json" "shards/backup/train_000000.bin"
        "shards/b/train_000000.bin.old" "shards/$odd")
    rm "$work/out/documents/stage.json" "$work/out/shards/stage.json"
    mkdir "$work/out/shards/backup" "$work/out/documents/part_000000_000.json.d" "$work/out/documents/removed.tsv"
    ln -s nowhere "$work/out/documents/tokenizer.json"
    for file in "${stray[@]}"; do echo x >"$work/out/$file"; done
    again
    grep -q '^documents: going on' "$work/err"
    grep -q '^shards: going on' "$work/err"
    cmp "$work/out/documents/stage.json" "$work/want/documents/stage.json"
    cmp "$work/out/shards/stage.json" "$work/want/shards/stage.json"
    for file in "${stray[@]}"; do rm "$work/out/$file"; done
    rm "$work/out/documents/tokenizer.json"
    rmdir "$work/out/shards/backup" "$work/out/documents/part_000000_000.json.d" "$work/out/documents/removed.tsv"
    again
    all_before
    whole
}

# Folders of stages are emptied: nothing of the user's may be in one. The other way round, a preparation may lie in the
# folder of its tokenizer, and is no part of it.
input_in_output() {
    local way
    ln -s out/tokenizer "$work/tokenizer_link"
    mkdir "$work/linked"
    ln -s "$work/out/tokenizer/tokenizer.json" "$work/linked/tokenizer.json"
    each_at_once <<END
tokenizer.path: $work/out/tokenizer: lies in recipe.out|given|--tokenizer.path=$work/out/tokenizer
tokenizer.path: $work/out/tokenizer: lies in recipe.out|given|--tokenizer.path=$work/tokenizer_link
tokenizer.path: $work/linked/tokenizer.json: lies in recipe.out|given|--tokenizer.path=$work/linked
END
    whole
    cp "$work/in/a.jsonl" "$work/out/exact"
    ln -s "$work/in/a.jsonl" "$work/out/exact/link.jsonl"
    ln -s out/exact/a.jsonl "$work/outside.jsonl"
    for way in out/exact/a.jsonl out/exact/link.jsonl outside.jsonl; do
        sed "s|in/a.jsonl|$way|" "$work/r.toml" >"$work/inside.toml"
        each_at_once <<END
[source.a]: $work/$way: lies in recipe.out|inside
contamination.evaluation: $work/$way: lies in recipe.out|r|--contamination.evaluation=$work/$way
filter.bad_words: $work/$way: lies in recipe.out|r|--filter.rules=c4|--filter.bad_words=$work/$way
END
    done
    rm "$work/out/exact/link.jsonl" "$work/out/exact/a.jsonl"
    whole
    cp -r "$work/out/tokenizer" "$work/base"
    rm "$work/base/key" "$work/base/stage.json"
    mkdir "$work/eval"
    cp "$work/test.txt" "$work/eval"
    at_once "$work/eval/data: lies in the input folder $work/eval" "$work/r.toml" \
        --contamination.evaluation="$work/eval" --recipe.out="$work/eval/data"
    prepare "$work/given.toml" --tokenizer.path="$work/base" --recipe.out="$work/base/data" >/dev/null
    touch "$work/base/notes.txt"
    prepare "$work/given.toml" --tokenizer.path="$work/base" --recipe.out="$work/base/data" >/dev/null
    cat "$work/err"
    all_before
    touch -d 2020-01-01 "$work/base/tokenizer.json"
    prepare "$work/given.toml" --tokenizer.path="$work/base" --recipe.out="$work/base/data" >/dev/null
    grep '^tokenizer: made from other settings or input' "$work/err"
}

# All that a recipe reads is read again: by a check and then by a stage, or after a kill. What can be read only once is
# refused, not waited for.
pipes() {
    local words="a pipe or a device, which cannot be read twice (write it to a file)"
    mkfifo "$work/pipe.jsonl"
    sed 's|in/a.jsonl|/dev/stdin|' "$work/r.toml" >"$work/stdin.toml"
    sed 's|in/a.jsonl|pipe.jsonl|' "$work/r.toml" >"$work/piped.toml"
    prepare() { timeout 20 "$BUILD/prepare" "$@" 2>"$work/err"; }
    at_once "[source.a]: /dev/stdin: $words" "$work/stdin.toml" < <(cat "$work/in/a.jsonl")
    each_at_once <<END
[source.a]: $work/pipe.jsonl: $words|piped
contamination.evaluation: $work/pipe.jsonl: $words|r|--contamination.evaluation=$work/pipe.jsonl
filter.bad_words: $work/pipe.jsonl: $words|r|--filter.rules=c4|--filter.bad_words=$work/pipe.jsonl
END
    at_once "/fd/" "$work/r.toml" --contamination.evaluation=<(cat "$work/test.txt")
    grep -F "contamination.evaluation: " "$work/err" | grep -F "$words"
    whole
}

# An evaluation set that loses its text between the check and the stage leaves nothing to look for.
evaluation_that_goes() {
    local status size=0
    if [ ! -r /proc/$$/io ]; then return; fi
    [ -e "$work/big.jsonl" ]
    printf '[recipe]\nout = "goes_out"\n[source.a]\npath = "big.jsonl"\n[contamination]\nevaluation = "goes.txt"\n' \
        >"$work/goes.toml"
    for _ in 1 2 3 4 5; do # a busy machine may look too late
        cp "$work/test.txt" "$work/goes.txt"
        rm -rf "$work/goes_out"
        cut_while_reading "$work/goes.txt" "$BUILD/prepare" "$work/goes.toml"
        if [ $status = 1 ]; then break; fi
    done
    cat "$work/err"
    [ $status = 1 ]
    tail -n 1 "$work/err" | grep -F "error: contamination.evaluation: $work/goes.txt: no example that can be looked for"
}

# A stage's folder on another disk, behind a link: it is emptied, and the link stays. What a link inside points to is
# not touched.
linked_folder() {
    mkdir "$work/disk" "$work/disk/runs" "$work/disk/shards" "$work/mine"
    touch "$work/mine/notes.txt"
    rm -r "$work/out/shards"
    ln -s "$work/disk/runs" "$work/out/runs"
    ln -s "$work/disk/shards" "$work/out/shards"
    again
    [ -L "$work/out/runs" ] && [ -L "$work/out/shards" ]
    [ -z "$(ls -A "$work/disk/runs")" ]
    diff -r -x runs "$work/out" "$work/want"
    ln -s "$work/mine" "$work/out/shards/mine"
    again --shards.tokens=4000
    [ -L "$work/out/runs" ] && [ -L "$work/out/shards" ]
    cp "$work/in/b.txt" "$work/disk/shards"
    sed "s|in/b.txt|disk/shards/b.txt|" "$work/r.toml" >"$work/behind.toml"
    at_once "[source.b]: $work/disk/shards/b.txt: lies in recipe.out" "$work/behind.toml"
    [ ! -e "$work/out/shards/mine" ]
    [ -e "$work/mine/notes.txt" ]
    again
    diff -r -x runs "$work/out" "$work/want"
    restore
}

passes 'a first run' first_run
passes 'another spelling of the same paths' spelled_differently
passes 'what is wrong is said at once and costs nothing' said_at_once
passes 'results that are missing or damaged' missing_results
passes 'a text that changed is not read' changed_text
passes 'evaluation examples that cannot be looked for' examples_too_short
passes 'files with odd names' odd_names
passes 'an input that changes while it is read' changing_input
passes 'a stage that is left out' stage_left_out
passes 'tokens that changed are not shuffled' changed_tokens
passes 'pipes' pipes
passes 'an evaluation set that goes' evaluation_that_goes
passes 'input that lies in the output' input_in_output
passes 'files that no stage has written' strays
passes 'the folder of a stage behind a link' linked_folder
exit $failed
