#!/bin/bash
# test/test_recipe.sh [KILLS]: build/prepare with recipes: what comes out, what is done again, and kill -9 at random
# points (5, or as many as the argument says): the same command then ends with the same bytes.
#
# The corpus is like a crawl (make_corpus). How many pages of each kind there are is known, so every count is.
set -u
cd "$(dirname "$0")/.." || exit 1
kills=${1:-5}
# shellcheck source=test/data_common.sh
. test/data_common.sh

good=900 short=40 copies=70 near=30 seen=8 books=120
prepare() { "$BUILD/prepare" "$work/recipe.toml" "$@"; }
documents() { sed -n "s/^$1  *\([0-9]*\) .*/\1/p" "$work/report"; }
# A field of the stage's record, at its first place.
recorded() { sed -n "s/.*\"$2\": *\([0-9]*\).*/\1/p" "$work/$1/stage.json" | head -n 1; }

counts() {
    prepare >"$work/report"
    [ "$(documents read)" = $((good + short + copies + near + seen + books)) ]
    [ "$(documents filter)" = $((good + copies + near + seen + books)) ]
    [ "$(documents exact)" = $((good + near + seen + books)) ]
    [ "$(documents near)" = $((good + seen + books)) ]
    [ "$(documents contamination)" = $((good + books)) ]
    [ $(($(documents train) + $(documents val))) = $((good + books)) ]
    local val
    val=$(documents val) # of 1,020, each with probability 0.05: 51, standard deviation 7
    [ "$val" -gt 16 ] && [ "$val" -lt 86 ]
    [ ! -e "$work/out/runs" ]
    grep -q 'guide.words 40' "$work/report"
    tr -d ' \n' <"$work/out/documents/stage.json" | grep -qE '"guide.words":\[40,[1-9]' # and their bytes
    [ "$(grep -c '^<tr><td>' "$work/out/report.html")" -ge "$(grep -cE '^(read|filter|exact|near|contamination|train|val) ' "$work/report")" ]
    ! grep -qE 'https?:|<script|src=' "$work/out/report.html"
    # Why a document went: the copy of the first page, and the page it is a copy of.
    [ "$(head -n 1 "$work/out/exact/removed.tsv" | cut -f 3,4 | tr '\t' ' ')" = \
        "$work/in/web/0.jsonl:3 $work/in/web/0.jsonl:1" ]
    mv "$work/out" "$work/want"
}

# Every document that was left is in the shards, once, whole, and not where it was.
contents() {
    for part in web book; do
        for split in train val; do
            for f in "$work/want/shards/$part/${split}"_*.bin; do tail -c +1025 "$f"; done |
                od -An -v -tu2 -w2 | tr -d ' ' | tr '\n' ' ' >"$work/ids"
            "$BUILD/prepare" decode --tokenizer "$work/want/tokenizer" "$work/ids" >"$work/$part.$split.txt"
        done
        cat "$work/$part.train.txt" "$work/$part.val.txt" | sed 's/<|endoftext|>/\n/g' | sed '/^$/d' | sort >"$work/got"
        case $part in
            book) sed 's/<|endoftext|>/\n/g' "$work/in/book.txt" | sort | cmp - "$work/got" ;;
            web) [ "$(sed 's/ .*//' "$work/got" | uniq | wc -l)" = $good ]
                 { cat "$work"/in/web/[02].jsonl; gzip -dc "$work"/in/web/1.jsonl.gz; } |
                     sed 's/^{"text":"//; s/"}$//' | sort -u >"$work/all"
                 [ "$(comm -12 "$work/all" "$work/got" | wc -l)" = $good ] ;;
        esac
    done
    # A shuffle of n numbers has about n/2 descents: here the web pages' numbers.
    sed 's/<|endoftext|>/\n/g' "$work/web.train.txt" | sed -n 's/^page\([0-9]*\) .*/\1/p' >"$work/order"
    awk -v n="$(wc -l <"$work/order")" 'NR > 1 && $1 < last { down++ } { last = $1 }
        END { exit !(down > 0.42 * n && down < 0.58 * n) }' "$work/order" # standard deviation sqrt(n / 12) = 8.6 of 850
}

threads() {
    prepare --recipe.threads=1 --recipe.memory=1 >/dev/null
    diff -r "$work/out" "$work/want"
    rm -r "$work/out"
    prepare --recipe.threads=3 >/dev/null
    diff -r "$work/out" "$work/want"
}

# Nothing is done again without need; what has changed is done again, and what follows from it.
again() {
    prepare >/dev/null 2>"$work/progress"
    [ "$(grep -c 'done before' "$work/progress")" = "$(wc -l <"$work/progress")" ]
    diff -r "$work/out" "$work/want"
    prepare --tokenizer.vocab=600 >/dev/null 2>"$work/progress"
    [ "$(grep -c 'done before' "$work/progress")" = 4 ]
    grep -q 'tokenizer: made from other settings' "$work/progress"
    ! diff -rq "$work/out/shards" "$work/want/shards" >/dev/null
    prepare --recipe.seed=12 >/dev/null
    cmp "$work/out/tokenizer/tokenizer.json" "$work/want/tokenizer/tokenizer.json"
    ! cmp -s "$work/out/shards/web/train_000000.bin" "$work/want/shards/web/train_000000.bin"
    prepare >/dev/null 2>&1
    diff -r "$work/out" "$work/want"
    touch -d '2020-01-01' "$work/in/book.txt"
    prepare >/dev/null 2>"$work/progress"
    grep -q 'documents: made from other settings or input' "$work/progress"
    diff -r -x key -x stage.json "$work/out" "$work/want" # those name the time of the change
    rm -r "$work/want" && mv "$work/out" "$work/want"
}

# Killed between two units of work: whatever is not there any more is made again, and only that.
unfinished() {
    local p name parts
    mapfile -t parts < <(cd "$work/out/documents" && ls part_*.json)
    printf '%s\n' "${parts[@]}"
    [ -e "$work/out/documents/part_000000_001.json" ] # a file that is larger than a part
    for p in 0 1 2 $((${#parts[@]} - 1)); do # the last one has the source of books alone
        rm "$work/out/documents/stage.json"
        for name in "${parts[@]:p}"; do rm "$work/out/documents/${name%.json}".*; done
        prepare >/dev/null 2>"$work/progress"
        grep -q 'documents: going on' "$work/progress"
        diff -r "$work/out" "$work/want"
    done
    ls "$work/out/shards/web/train_000001.bin"
    for p in web/train_000001.bin book/train_000000.bin; do # the shards before stay as they are
        rm "$work/out/shards/stage.json" "$work/out/shards/$p"
        prepare >/dev/null 2>&1
        diff -r "$work/out" "$work/want"
    done
}

# kill -9 after a random time, `kills` times, on and on in the same folder; where it ends, it begins from nothing.
killed() {
    local n=0 ended=0 resumed=0 whole from
    from=$(date +%s%N)
    prepare >/dev/null 2>&1
    whole=$((($(date +%s%N) - from) / 1000000)) # ms
    diff -r "$work/out" "$work/want"
    rm -r "$work/out"
    while [ $n -lt "$kills" ]; do
        local ms=$(((RANDOM * 32768 + RANDOM) % (whole / 2 + 20)))
        "$BUILD/prepare" "$work/recipe.toml" >/dev/null 2>"$work/progress" &
        sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
        kill -KILL $! 2>/dev/null || true
        local status=0
        wait $! 2>/dev/null || status=$? # only then it has left its lock
        if [ $status = 0 ]; then
            ended=$((ended + 1))
            diff -r "$work/out" "$work/want"
            rm -r "$work/out"
        else
            [ $status = 137 ] # killed; it has not stopped with an error
            n=$((n + 1))
        fi
        if grep -q 'going on' "$work/progress"; then resumed=$((resumed + 1)); fi
    done
    prepare >/dev/null
    diff -r "$work/out" "$work/want"
    echo "$n kills; $resumed starts in the middle of a stage; $ended preparations that ended after kills" >"$work/killed"
}

passes 'a corpus like a crawl' make_corpus
passes 'every stage: documents in and out' counts
passes 'the shards hold every document once, in a new order' contents
passes 'threads and memory change no byte' threads
passes 'only what changed is done again' again
cp -r "$work/want" "$work/out"
passes 'what a kill left undone is done' unfinished
rm -rf "$work/out"
passes "$kills times kill -9: the same bytes" killed
[ "$kills" = 5 ] || cat "$work/killed"
exit $failed
