#!/bin/bash
# test/test_ablate.sh: scripts/ablate.sh trains each variant as long as its speed allows, once, and its table holds what
# the runs ended with.
# long: twelve short trainings
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
dir=$work/ablate
prepare() {
    seq 1 20000 | tr '\n' ' ' >"$work/text"
    mkdir -p "$dir"
    printf 'baseline 1 0.5\nmuon 2 1\n' >"$dir/speed.txt" # as if measured: half as fast
}
ablate() { # TASK TEXT, with the environment of the call
    DIR=$dir SEEDS=${SEEDS:-3} SETTINGS='--model.channels=32 --model.heads=1 --model.layers=1 --model.context=64
        --batch.tokens=512 --batch.micro=8 --eval.tokens=512' STEPS=${STEPS:-20} scripts/ablate.sh "$@"
}
equal_time() {
    ONLY=muon ablate text "$work/text" >"$work/said"
    [ "$(awk '$1 == "baseline" && $3 == 20' "$dir/results.txt" | wc -l)" = 3 ]
    [ "$(awk '$1 == "muon" && $3 == 10' "$dir/results.txt" | wc -l)" = 3 ]
    grep -q '"event":"end","step":10,' "$dir/muon-2/metrics.jsonl"
    [ "$(awk '{ print $1, $2, $4 }' "$dir/results.txt" | sort -u | awk '{ print $3 }' | sort -u | wc -l)" = 6 ] # seeds differ
}
# By another way than the script's: sums of squares.
table() {
    awk '{ x[$1, $2] = $4 } END {
        for (s = 1; s <= 3; s++) { d = x["muon", s] - x["baseline", s]; sum += d; squares += d * d }
        printf "%+.4f %.4f\n", sum / 3, 4.303 * sqrt((squares - sum * sum / 3) / 2 / 3) }' "$dir/results.txt" >"$work/expected"
    awk -F' *[|] *' '$2 == "muon" { sub("-[+] ", "", $7); print $6, $7 }' "$dir/table.md" >"$work/got"
    diff "$work/expected" "$work/got"
    grep -q '^| baseline | `` | 1.00 | ' "$dir/table.md"
}
once() {
    cp "$dir/results.txt" "$work/before"
    ONLY=muon ablate text "$work/text" >"$work/said"
    cmp "$work/before" "$dir/results.txt"
}
measures() {
    sed -i /muon/d "$dir/speed.txt"
    SEEDS=1 ONLY=muon ablate text "$work/text" >"$work/said"
    awk '$1 == "muon" && $2 > 0 && $3 > 0 { n++ } END { exit n != 1 }' "$dir/speed.txt"
}
refuses() {
    ! ONLY=nonsense ablate text "$work/text" 2>"$work/err"
    grep -q '^error: no variant nonsense of text' "$work/err"
    ! ablate text "$work/none" 2>"$work/err"
    grep -q '^error: TEXT: no such file' "$work/err"
    ! scripts/ablate.sh 2>"$work/err"
    grep -q '^usage: ' "$work/err"
}
prepare
passes 'variants train as long as their speed allows' equal_time
passes 'the table has means and intervals of the differences' table
passes 'what is there is not trained again' once
passes 'speeds are measured in turns' measures
passes 'unknown variants and texts are refused' refuses
exit $failed
