#!/bin/bash
# test/test_recipe_ranks.sh [KILLS]: build/prepare with a recipe on 1, 2, 3 and 4 ranks: the same bytes as one process,
# also when ranks are killed at random instants and other numbers of ranks go on; how the work is dealt; errors.
# deeper: 30 kills, not 2; a corpus of 110 MB, whose memory is measured
# limit: 1800 s
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=test/data_common.sh
. test/data_common.sh
# shellcheck source=test/lsan.sh
. test/lsan.sh
kills=${1:-${TEST_LONG:+30}}
kills=${kills:-2}
launcher=$(command -v mpiexec.mpich || command -v mpiexec || ls /usr/lib64/mpich/bin/mpiexec)

# The corpus of test_recipe.sh, larger, and a third source in Parquet: other pages, and copies of some.
good=3000 short=120 copies=330 near=270 seen=43 books=120
make_files() {
    make_corpus
    mkdir "$work/in/rows"
    sed -n 's/^{"text":"page\(.*\)"}$/\1/p' "$work/in/web/2.jsonl" | sed 's/e/qu/g; s/^/row/' >"$work/in/lines"
    sed -n '1,30s/^{"text":"\(.*\)"}$/\1/p' "$work/in/web/4.jsonl" >>"$work/in/lines"
    printf '%s\n' '#include <stdio.h>' '#include "test/parquet_file.h"' 'int main(void) { static char line[1000][8192];' \
        'const char *row[1000]; size_t n = 0; while (n < 1000 && fgets(line[n], 8192, stdin)) row[n] = line[n], n++;' \
        'Out o = parquet_file(row, n, (FileOptions){.codec = FILE_ZSTD, .page_rows = 50, .group_rows = 200});' \
        'return fwrite(o.bytes, 1, o.n, stdout) != o.n; }' >"$work/parquet.c"
    ${CC:-gcc} -I. -w -o "$work/parquet" "$work/parquet.c" -lsnappy -lz -lzstd
    "$work/parquet" <"$work/in/lines" >"$work/in/rows/pages.parquet"
    sed -i 's|^unit = .*|unit = 0.06|; s|^tokens = .*|tokens = 30000|; s|^\[filter\]|[source.rows]\npath = "in/rows"\n&|' \
        "$work/recipe.toml"
}

ranks() { # N [OPTION...]
    local n=$1
    shift
    "$launcher" -n "$n" "$BUILD/prepare" "$work/recipe.toml" --recipe.threads=1 "$@" >"$work/report" 2>"$work/err" </dev/null
}

one_process() {
    "$BUILD/prepare" "$work/recipe.toml" >"$work/want.report" 2>"$work/err"
    ! grep -q 'ranks took\|process' "$work/err"
    mv "$work/out" "$work/want"
    cat "$work/want.report"
    local stage
    for stage in exact near contamination; do [ "$(wc -l <"$work/want/$stage/removed.tsv")" -gt 20 ]; done
    ls "$work/want/documents/part_000001_001.text"       # a packed file that is cut
    ls "$work/want/shards/web/train_000006.bin" "$work/want/shards/rows/val_000000.bin"
}

same_bytes() {
    local n
    for n in 1 2 3 4; do
        rm -rf "$work/out"
        if [ $n = 3 ]; then ranks 3 --recipe.threads=2 --recipe.memory=1; else ranks "$n"; fi
        cat "$work/err"
        cp "$work/err" "$work/err.$n"
        cmp "$work/report" "$work/want.report"
        diff -r "$work/out" "$work/want"
        [ "$(sed -n '/^rank [0-9]*: process/p' "$work/err" | wc -l)" = $((n > 1 ? n : 0)) ]
    done
    ranks 4
    [ "$(grep -c 'done before' "$work/err")" = 6 ]
    diff -r "$work/out" "$work/want"
    rm -r "$work/out"
}

# The busiest of two ranks has little more than half of what both took, in each stage that reads texts. Seconds depend
# on the machine's other work, so it may be tried five times: with one rank that does it all it would fail each time.
evenly() {
    local stage
    for stage in documents exact near runs 'all stages'; do
        [ "$(sed -n "s/^$stage: 2 ranks took .* the busiest \([0-9]*\)% of it/\1/p" "$work/err.2")" -le 65 ] || return 1
    done
}
dealt() {
    local try
    for try in 1 2 3 4 5; do
        cat "$work/err.2"
        if evenly; then return 0; fi
        ranks 2
        mv "$work/err" "$work/err.2"
        rm -r "$work/out"
    done
    return 1
}

# Whatever one number of ranks left, another goes on with.
other_numbers() {
    cp -r "$work/want" "$work/out"
    rm "$work"/out/documents/stage.json "$work"/out/documents/part_00000[1357]_* "$work"/out/shards/stage.json \
        "$work"/out/shards/web/train_00000[0257].bin "$work"/out/shards/rows/*
    ranks 3
    grep -q 'documents: going on' "$work/err"
    grep -q 'shards: going on' "$work/err"
    diff -r "$work/out" "$work/want"
    rm -r "$work/out"
}

# kill_at_random N: starts N ranks, kills one rank, or all and the launcher, after a random time below $most ms. The
# preparation must end at once, and name a rank that was killed alone. $status, $whole: it was done before.
kill_at_random() {
    local n=$1 pid p i left process=() victim all=$((RANDOM % 3 == 0))
    "$launcher" -n "$n" "$BUILD/prepare" "$work/recipe.toml" --recipe.threads=1 >/dev/null 2>"$work/err" </dev/null &
    pid=$!
    for ((i = 0; i < 200; i++)); do
        mapfile -t process < <(sed -n 's/^rank [0-9]*: process \([0-9]*\) on .*/\1/p' "$work/err")
        [ ${#process[@]} = "$n" ] && break
        sleep 0.05
    done
    [ ${#process[@]} = "$n" ]
    local ms=$(((RANDOM * 32768 + RANDOM) % most))
    sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
    victim=$((RANDOM % n))
    if [ $all = 1 ]; then kill -KILL $pid "${process[@]}" 2>/dev/null || true
    else kill -KILL "${process[victim]}" 2>/dev/null || true
    fi
    local began=$SECONDS
    status=0
    wait $pid 2>/dev/null || status=$?
    [ $((SECONDS - began)) -le 120 ]
    for p in "${process[@]}"; do
        for ((i = 0; i < 100; i++)); do
            left=$(ps -o stat= -p "$p" || true)
            case $left in '' | Z*) break ;; esac
            sleep 0.05
        done
        case $left in '' | Z*) ;; *) echo "process $p is still there"; return 1 ;; esac
    done
    if [ $status = 0 ] || [ $all = 1 ]; then return; fi
    cat "$work/err"
    grep -q "^rank $victim: error: process ${process[victim]} on .* was killed by signal 9 (Killed), \(in [a-z]*\|at the start\)$" "$work/err"
}

killed() {
    local n=0 ended=0 resumed=0 status most from
    from=$(date +%s%N)
    ranks 2
    most=$((($(date +%s%N) - from) / 1000000 + 20)) # ms
    rm -r "$work/out"
    while [ $n -lt "$kills" ]; do
        kill_at_random $((2 + RANDOM % 3))
        if [ $status = 0 ]; then
            ended=$((ended + 1))
            diff -r "$work/out" "$work/want"
            rm -r "$work/out"
        else
            n=$((n + 1))
        fi
        if grep -q 'going on' "$work/err"; then resumed=$((resumed + 1)); fi
    done
    ranks $((1 + RANDOM % 4))
    diff -r "$work/out" "$work/want"
    rm -r "$work/out"
    echo "$n kills; $resumed starts in the middle of a stage; $ended preparations that ended after kills" >"$work/killed"
}

# An error of all ranks is one line of rank 0; one of a rank alone names it; in both cases all end.
errors() {
    local status=0
    ranks 3 --dedup.threshold=7 || status=$?
    cat "$work/err"
    [ $status = 1 ]
    [ "$(grep -c 'error: ' "$work/err")" = 1 ]
    grep -q '^rank 0: error: .*dedup.threshold is 7' "$work/err"
    cp -r "$work/want" "$work/out"
    rm -r "$work/out/exact" # it sees all documents, and 64 is rank 1's, of 2
    at=$(od -An -v -tu4 -w24 "$work/out/documents/part_000000_000.rows" | awk 'NR <= 65 { n += $1 } END { print n - 5 }')
    [ "$(wc -c <"$work/out/documents/part_000000_000.text")" -gt "$at" ]
    printf '#' | dd of="$work/out/documents/part_000000_000.text" bs=1 seek="$at" conv=notrunc status=none
    status=0
    ranks 2 || status=$?
    cat "$work/err"
    [ $status = 1 ]
    [ "$(grep -c 'error: ' "$work/err")" = 1 ]
    grep -q '^rank 1: error: .*documents/part_000000_000.text: document 64: changed since it was written' "$work/err"
    rm -r "$work/out"
    # Another folder, and other settings, on one of the ranks.
    "$launcher" -n 1 "$BUILD/prepare" "$work/recipe.toml" : -n 1 "$BUILD/prepare" "$work/recipe.toml" \
        --filter.rules=c4 >/dev/null 2>"$work/err" </dev/null && return 1
    cat "$work/err"
    grep -q "^rank 1: error: documents: settings or input differ from rank 0's" "$work/err"
    mkdir "$work/elsewhere"
    "$launcher" -n 1 "$BUILD/prepare" "$work/recipe.toml" : -n 1 "$BUILD/prepare" "$work/recipe.toml" \
        --recipe.out="$work/elsewhere" >/dev/null 2>"$work/err" </dev/null && return 1
    cat "$work/err"
    grep -q "^rank 1: error: $work/elsewhere/documents/key: not rank 0's (recipe.out must be a folder" "$work/err"
    rm -r "$work/out"
}

# Every rank holds the lock: nobody begins in the folder as long as one of them is alive.
locked() {
    local pid i status=0 process=()
    "$launcher" -n 2 "$BUILD/prepare" "$work/recipe.toml" >/dev/null 2>"$work/first.err" </dev/null &
    pid=$!
    for ((i = 0; i < 200; i++)); do
        mapfile -t process < <(sed -n 's/^rank [0-9]*: process \([0-9]*\) on .*/\1/p' "$work/first.err")
        [ ${#process[@]} = 2 ] && break
        sleep 0.02
    done
    kill -STOP "${process[@]}"
    "$BUILD/prepare" "$work/recipe.toml" >/dev/null 2>"$work/err" </dev/null || status=$?
    kill -CONT "${process[@]}"
    cat "$work/err" "$work/first.err"
    [ $status = 1 ]
    grep -q 'out: another preparation is at work there' "$work/err"
    wait $pid
    diff -r "$work/out" "$work/want"
    rm -r "$work/out"
}

# A corpus of 110 MB on three ranks. A rank takes its program (20 MiB), a unit of text and its tokens, and 16 MiB for
# sorting; its part of the texts, 37 MB, does not fit in what is allowed beside them.
memory() {
    local i size
    mkdir "$work/large"
    for ((i = 0; i < 60; i++)); do
        { cat "$work"/in/web/*.jsonl | sed "s/page/page$i./; s/ab/v$i/g; s/op/w$i/g"; } >"$work/large/$i.jsonl"
    done
    size=$(du -sm "$work/large" | cut -f 1)
    [ "$size" -ge 100 ]
    sed 's|in/web|large|; s|unit = .*|unit = 4|; s|tokens = .*|tokens = 1000000|' "$work/recipe.toml" >"$work/large.toml"
    "$launcher" -n 3 "$BUILD/prepare" "$work/large.toml" --recipe.out="$work/large_out" --recipe.threads=1 \
        --recipe.memory=16 >/dev/null 2>"$work/err" </dev/null
    cat "$work/err"
    local most
    most=$(sed -n 's/^memory: at most \([0-9]*\) MiB on a rank/\1/p' "$work/err")
    [ "$most" -lt 64 ]
    echo "$size MB: $(grep '^memory\|^all stages' "$work/err" | paste -sd ' ')" >"$work/measured"
}

passes 'a corpus of JSONL, packed JSONL, text and Parquet' make_files
passes 'one process does not say a word of ranks' one_process
passes '1, 2, 3 and 4 ranks: the same bytes' same_bytes
passes 'two ranks share the work' dealt
passes 'other numbers of ranks go on' other_numbers
passes 'errors of all ranks, and of one' errors
passes 'the lock is held by all ranks' locked
[ $failed = 0 ] || exit 1 # what follows takes long
passes "$kills times kill -9: the same bytes" killed
[ "$kills" = 2 ] || cat "$work/killed"
if [ -n "${TEST_LONG:-}" ]; then
    passes 'memory of a rank' memory
    cat "$work/measured"
fi
exit $failed
