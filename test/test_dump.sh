#!/bin/bash
# test/test_dump.sh: build/plan against what runs account for, and dumps of two runs through build/diff: threads change no
# bit of an update, micro-batches only round, and neither option changes the run.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

dump() { # NAME: the file
    printf '%s/%s/dump/step_00000002.safetensors' "$runs" "$1"
}

# Every byte that a run holds was predicted.
planned_is_held() { # FAMILY
    train "$1" "$1" --run.stop_at=3 --run.account=true --run.dump=2
    [ ! -s "$work/$1.err" ]
    "$BUILD/plan" memory "$work/$1.toml" --json | memory_lines >"$work/planned"
    [ "$(wc -l <"$work/planned")" = 9 ] # 7 tags, total, peak
    memory_lines <"$runs/$1/account.json" | cmp - "$work/planned"
    "$BUILD/plan" memory "$work/$1.toml" --batch.micro=4 --json | memory_lines | awk '/activations/ { print $3 }' |
        cmp - <(awk '/activations/ { print $3 / 2 }' "$work/planned")
}

threads_give_the_same_dump() { # FAMILY
    train "$1" "$1-threads" --run.stop_at=3 --run.dump=2 --run.threads=2
    "$BUILD/diff" "$(dump "$1")" "$(dump "$1-threads")"
    cmp "$(dump "$1")" "$(dump "$1-threads")"
}

# One micro-batch of 16 sequences, or 2 of 8: losses and gradients agree to rounding, and only to rounding. The second update
# starts from weights that an update has rounded already, so the first one is compared. A token's loss has a path of 1376
# roundings of u = 2^-24 (test_train.sh), which amount to 6 sqrt(1376) u with near certainty; a gradient of 3264 roundings,
# with cancellation among the 512 tokens that it sums: 6 sqrt(3264) sqrt(512) u, of its largest elements. Twice that for
# two runs: 9.3e-4 in all, of gradients below 1.
micro_batches_round() { # FAMILY
    local micro bound first=step_00000001.safetensors
    bound=$(awk 'BEGIN { print 2 * 6 * sqrt(3264) * 2 ^ -24 * sqrt(512) }')
    for micro in 8 16; do train "$1" "$1-micro$micro" --run.stop_at=1 --run.dump=1 --batch.micro=$micro; done
    "$BUILD/diff" "$runs/$1-micro8/dump/$first" "$runs/$1-micro16/dump/$first" --rtol "$bound" --atol "$bound"
    if "$BUILD/diff" "$runs/$1-micro8/dump/$first" "$runs/$1-micro16/dump/$first"; then return 1; fi
}

# The fp32 numbers of a dump, one a line: the data lies behind 8 bytes of length and the header, sorted by name, so that
# grad.* come first and loss next.
numbers() { # grad|loss FILE
    local header loss
    header=$(od -An -tu8 -N8 "$2")
    loss=$(head -c $((header + 8)) "$2" | tail -c +9 | sed 's/.*"loss": *{[^}]*"data_offsets": *\[\([0-9]*\), *\([0-9]*\)\].*/\1 \2/')
    set -- "$1" "$2" "${loss% *}" "${loss#* }"
    [ "$1" = grad ] && set -- "$1" "$2" 0 "$3"
    od -An -v -tf4 -w4 -j$((header + 8 + $3)) -N$(($4 - $3)) "$2"
}

# The mean of the dumped losses is the step's loss and the norm of the dumped gradients its norm, as metrics.jsonl has them, to the
# 6 digits that the reading and printing keep; so the dump has all micro-batches, and stands before clipping.
dump_is_the_update() { # FAMILY
    local file=$runs/$1/metrics.jsonl
    [ "$(numbers loss "$(dump "$1")" | wc -l)" = 512 ]
    close_to "$(numbers loss "$(dump "$1")" | awk '{ s += $1 } END { printf "%.9f", s / NR }')" "$(value train loss "$file" | sed -n 2p)" 1e-6
    close_to "$(numbers grad "$(dump "$1")" | awk '{ s += $1 * $1 } END { printf "%.9f", sqrt(s) }')" \
        "$(value train grad_norm "$file" | sed -n 2p)" 1e-6
    less 0.1 "$(value train grad_norm "$file" | sed -n 2p)" # it was clipped
}

another_update_is_another_dump() {
    train gpt first --run.stop_at=3 --run.dump=1
    [ -f "$runs/first/dump/step_00000001.safetensors" ]
    [ "$(find "$runs/first/dump" -type f | wc -l)" = 1 ]
    if "$BUILD/diff" "$runs/first/dump/step_00000001.safetensors" "$(dump gpt)" >"$work/diff"; then return 1; fi
    grep -q '^first tensor out of bound: weight\.embed\.tokens\.weight' "$work/diff"
    if "$BUILD/diff" "$(dump gpt)" "$(dump llama)" >/dev/null; then return 1; fi
}

options_change_nothing() {
    train gpt plain --run.stop_at=3
    same_state gpt plain 3
    cmp <(history gpt) <(history plain)
    [ ! -e "$runs/plain/dump" ]
    [ ! -e "$runs/plain/account.json" ]
}

# The updates that measure the speed for run.minutes come first, and are not the run's.
measuring_is_not_dumped() {
    train gpt minutes --run.steps=0 --run.minutes=0.05 --run.stop_at=1 --run.dump=2 --run.account=true
    [ -s "$runs/minutes/account.json" ]
    [ ! -e "$(dump minutes)" ]
    train gpt minutes --run.steps=0 --run.minutes=0.05 --run.stop_at=2 --run.dump=2 --ckpt.resume=true
    train gpt straight --run.steps="$(sed -n 's/^steps = \([0-9]*\).*/\1/p' "$runs/minutes/config.toml")" --run.stop_at=2 --run.dump=2
    cmp "$(dump minutes)" "$(dump straight)"
}

mistakes() {
    local status=0
    fails_with 1 'run\.dump = 41.*40 updates' "$BUILD/train" "$work/gpt.toml" --run.name=late --run.dump=41
    [ ! -e "$runs/late/metrics.jsonl" ]
    fails_with 1 'model\.vocab' "$BUILD/plan" memory tiny --data.tokenizer=
    fails_with 1 'optim\.lr' "$BUILD/plan" memory tiny --optim.lrr=1
    fails_with 2 'plan memory' "$BUILD/plan" memroy tiny
    fails_with 2 'json' "$BUILD/plan" flops tiny --model.vocab=100 --json
    "$BUILD/plan" memory >"$work/out" 2>"$work/err" || status=$?
    [ $status = 2 ]
    grep -q usage "$work/err"
    "$BUILD/plan" --help | grep -q 'usage'
}

# Each preset can be planned; where its header names a number of parameters, the table has that number.
every_preset() {
    local file name vocab want
    for file in scripts/presets/*.toml; do
        name=$(basename "$file" .toml)
        want=$(sed -n 's/^# parameters: \([0-9]*\).*/\1/p' "$file")
        vocab=$(sed -n 's/^# parameters: .* a vocabulary of \([0-9]*\).*/--model.vocab=\1/p' "$file")
        grep -q '^vocab' "$file" || vocab=${vocab:---model.vocab=4096}
        # shellcheck disable=SC2086
        for what in memory params flops; do "$BUILD/plan" $what "$name" $vocab >"$work/$what"; done
        [ -z "$want" ] || grep -qE "^ *$want  parameters" "$work/params"
    done
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
for family in gpt llama; do printf '%s\n' '[optim]' 'clip = 0.1' >>"$work/$family.toml"; done # every update is clipped
for family in gpt llama; do
    passes "$family: planned memory is held memory" planned_is_held $family
    passes "$family: a dump is the update" dump_is_the_update $family
    passes "$family: threads do not change a bit of an update" threads_give_the_same_dump $family
    passes "$family: micro-batches only round" micro_batches_round $family
done
passes 'the dumped update is the one asked for' another_update_is_another_dump
passes 'account and dump leave the run as it is' options_change_nothing
passes 'measuring for run.minutes is not dumped' measuring_is_not_dumped
passes 'mistakes' mistakes
passes 'every preset can be planned' every_preset
exit $failed
