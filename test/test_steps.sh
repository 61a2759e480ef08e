#!/bin/bash
# test/test_steps.sh: the trainer in steps (dev/steps): each compiles, has 100 to 400 lines, and reaches the loss that
# doc/steps.md states; ranks have the bits of one process; the first losses are the trainer's.
# deeper: whole runs in place of 40 steps
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/steps.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
launcher=$(command -v mpiexec.mpich || command -v mpiexec || ls /usr/lib64/mpich/bin/mpiexec)
export OMP_NUM_THREADS=1
failed=0
check() { # NAME COMMAND...
    if "${@:2}" >"$work/log" 2>&1; then echo "ok $1"
    else
        echo "not ok $1"
        tail -n 12 "$work/log" | sed 's/^/  /'
        failed=1
    fi
}

programs=() names=(1_bigram 2_attention 3_adamw 4_bpe 5_threads 6_bf16 7_ddp 8_zero_tp)
for name in "${names[@]}"; do programs+=("$BUILD/steps/$name"); done
check 'the steps compile' make -s --no-print-directory B="$BUILD" "${programs[@]}" "$BUILD/stories" "$BUILD/train"
"$BUILD/stories" --bytes 300000 --out "$work" >"$work/log" || failed=1

lines() { wc -l dev/steps/[0-9]*.c | awk '$2 != "total" && ($1 < 100 || $1 > 400) { print; bad = 1 } END { exit bad }'; }
check 'each has 100 to 400 lines' lines

reaches() { # NAME STEPS LOSS MARGIN: the final loss
    "$BUILD/steps/$1" "$work" "$2" >"$work/$1.out" || return 1
    awk -v want="$3" -v margin="$4" '{ print } $1 == "final" { d = $2 - want; ok = d <= margin && d >= -margin }
        END { exit !ok }' "$work/$1.out"
}
if [ -n "${TEST_LONG:-}" ]; then
    set -- 1_bigram 5000 2.501 2_attention 2000 2.476 3_adamw 300 2.437 4_bpe 300 3.489 5_threads 300 3.489 \
        6_bf16 300 3.480 7_ddp 300 3.480 8_zero_tp 300 3.480
else
    set -- 1_bigram 5000 2.501 2_attention 200 2.848 3_adamw 40 3.574 4_bpe 40 5.388 5_threads 40 5.388 6_bf16 40 5.388 \
        7_ddp 40 5.388 8_zero_tp 40 5.388
fi
while [ $# -gt 0 ]; do
    check "$1 reaches $3" reaches "$1" "$2" "$3" 0.02
    shift 3
done

on() { # RANKS NAME [ARGUMENT...]: the losses
    timeout -k 5 200 "$launcher" -n "$1" "$BUILD/steps/$2" "$work" "${@:3}" </dev/null | grep -E '^(step|final)'
}
same() { # RANKS NAME [ARGUMENT...]: as 6_bf16 in one process
    on 1 6_bf16 20 | sed 's/ = .*bits per byte//' >"$work/one" && on "$1" "$2" 20 "${@:3}" >"$work/many" &&
        cmp "$work/one" "$work/many" && grep -q 'step   20' "$work/many"
}
check '7_ddp on 2 ranks: the bits of one' same 2 7_ddp
check '7_ddp on 4 ranks: the bits of one' same 4 7_ddp
check '8_zero_tp on 2 ranks: the bits of one' same 2 8_zero_tp
check '8_zero_tp on 4 ranks: the bits of one' same 4 8_zero_tp
near() { # RANKS TP: every step's loss within 0.02 of one process'
    on 1 6_bf16 20 >"$work/one" && on "$1" 8_zero_tp 20 8 "$2" >"$work/many" &&
        paste "$work/one" "$work/many" | awk '$1 == "step" { d = $4 - $8; n++; print; if (!(d <= 0.02 && d >= -0.02)) bad = 1 }
            END { exit bad || n < 4 }'
}
check '8_zero_tp, tp = 2: within 0.02' near 2 2
check '8_zero_tp, dp = 2, tp = 2: within 0.02' near 4 2

trainer() { # first steps equal; by step 20 they differ by 1.2e-4, not explained
    on 1 8_zero_tp 20 2 | awk '$1 == "step" { print $2, $4 }' >"$work/own"
    (cd "$work" && "$train" "$root/dev/steps/train.toml" --data.train=tokens.bin --data.val=tokens.bin \
        --data.tokenizer=. --run.steps=20 --batch.tokens=128 --run.threads=1) >"$work/log" 2>&1 || return 1
    sed -n 's/.*"event":"train","step":\([0-9]*\),.*"loss":\([0-9.]*\),.*/\1 \2/p' "$work/runs/steps/metrics.jsonl" >"$work/theirs"
    awk 'NR == FNR { loss[$1] = $2; next } { n++; print $1, $2, loss[$1]; d = loss[$1] - $2; if (!(d <= 0.001 && d >= -0.001) || ($1 <= 3 && loss[$1] != $2)) bad = 1 }
        END { exit bad || n < 4 }' "$work/theirs" "$work/own"
}
root=$PWD train=$(realpath "$BUILD/train")
check 'the losses of build/train: 3 steps to all digits, 20 within 0.001' trainer
exit $failed
