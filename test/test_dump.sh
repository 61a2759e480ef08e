#!/bin/bash
# test/test_dump.sh: dumps of two runs through build/diff: threads change no bit of an update, micro-batches and storage types
# only round, a changed formula is found where it acts, and the option changes no run; and build/plan of every preset. (What
# is planned is held: test_account.sh, test_plan, test_layouts.sh.)
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

dump() { # NAME: the file
    printf '%s/%s/dump/step_00000002/rank_00000.safetensors' "$runs" "$1"
}

verdict() { # WORDS A B [OPTION...]: the last line begins so, and the exit status agrees
    local words=$1 status=0 want=0
    shift
    "$BUILD/diff" "$@" >"$work/diff" || status=$?
    cat "$work/diff"
    tail -n 1 "$work/diff" | grep -q "^$words"
    case $words in DIFFERENT*) want=1 ;; cannot*) want=3 ;; esac
    [ $status = $want ]
}

threads_give_the_same_dump() { # FAMILY
    train "$1" "$1-threads" --run.stop_at=3 --run.dump=2 --run.threads=2
    verdict 'identical: ' "$runs/$1" "$runs/$1-threads"
    cmp "$(dump "$1")" "$(dump "$1-threads")"
}

# One micro-batch of 16 sequences, or 2 of 8; bf16, fp16 and fp8 against fp32: within the bound that diff derives, and not
# the same bits. The second update starts from weights that an update has rounded already, so the first one is compared.
rounds() { # FAMILY
    local micro type
    for micro in 8 16; do train "$1" "$1-micro$micro" --run.stop_at=1 --run.dump=1 --batch.micro=$micro; done
    verdict 'rounding: ' "$runs/$1-micro16" "$runs/$1-micro8"
    verdict 'DIFFERENT: first at ' "$runs/$1-micro16" "$runs/$1-micro8" --exact
    for type in bf16 fp16 fp8; do
        train "$1" "$1-$type" --run.stop_at=1 --run.dump=1 --numerics.dtype=$type
        verdict 'rounding: ' "$runs/$1-$type" "$runs/$1-micro8"
    done
}

# The noise scale runs micro-batches of its own before those of the update.
noise_is_not_dumped() {
    train gpt noisy --run.stop_at=1 --run.dump=1 --batch.micro=8 --run.noise_every=1
    verdict 'identical: ' "$runs/gpt-micro8" "$runs/noisy"
}

# What is not rounding: another epsilon in the norms (the first norm is the first tensor that differs), another dropout
# mask, another learning rate.
differs() {
    local bug
    for bug in norm_eps=1e-4:forward.layers.0.norm1 dropout=0.1:forward.embed.out; do
        train gpt "bug-${bug%%=*}" --run.stop_at=1 --run.dump=1 "--model.${bug%:*}"
        verdict "DIFFERENT: first at ${bug#*:};" "$runs/bug-${bug%%=*}" "$runs/gpt-micro8"
    done
    train gpt bug-lr --run.stop_at=1 --run.dump=1 --optim.lr=6e-3
    verdict 'DIFFERENT: first at updated.embed.tokens.weight;' "$runs/bug-lr" "$runs/gpt-micro8"
}

# Other tokens; weights that an honest update has rounded. The command that is printed begins with the same.
inputs_differ() {
    local options=(--run.stop_at=2 --run.dump=2)
    train gpt other-tokens --run.stop_at=1 --run.dump=1 --run.seed=77
    verdict 'cannot tell: other tokens, from sample 0, token ' "$runs/other-tokens" "$runs/gpt-micro8"
    verdict 'DIFFERENT: first at input.tokens;' "$runs/other-tokens" "$runs/gpt-micro8" --exact
    verdict 'cannot tell: other tokens, ' "$runs/other-tokens" "$runs/gpt-micro8" --only 'grad.*' --rtol 1
    train gpt 'second 8' "${options[@]}" --batch.micro=8 && train gpt second-16 "${options[@]}" --batch.micro=16
    verdict 'cannot tell: the weights already differed before this step: ' "$runs/second 8" "$runs/second-16"
    tail -n 1 "$work/diff" | sed "s|.*: build/diff|$BUILD/diff|; s|build/train|$BUILD/train|g" >"$work/command"
    TMPDIR=$work bash "$work/command" | tail -n 1 | grep '^rounding: '
}

# The fp32 numbers of some tensors of a dump, one a line; tensors follow 8 bytes of length and the header.
numbers() { # grad|loss FILE
    local header begin end
    header=$(od -An -tu8 -N8 "$2")
    head -c $((header + 8)) "$2" | tail -c +9 | grep -o "\"$1[^\"]*\": *{\"dtype[^}]*}" |
        sed 's/.*"data_offsets": *\[\([0-9]*\), *\([0-9]*\)\].*/\1 \2/' | while read -r begin end; do
        od -An -v -tf4 -w4 -j$((header + 8 + begin)) -N$((end - begin)) "$2"
    done
}

# The mean of the dumped losses is the step's loss and the norm of the dumped gradients its norm, as metrics.jsonl has them, to the
# 6 digits that reading and printing keep; so the dump has all micro-batches, and is taken before clipping.
dump_is_the_update() { # FAMILY
    local file=$runs/$1/metrics.jsonl
    train "$1" "$1" --run.stop_at=3 --run.account=true --run.dump=2
    [ ! -s "$work/$1.err" ]
    [ "$(numbers loss "$(dump "$1")" | wc -l)" = 512 ]
    close_to "$(numbers loss "$(dump "$1")" | awk '{ s += $1 } END { printf "%.9f", s / NR }')" "$(value train loss "$file" | sed -n 2p)" 1e-6
    close_to "$(numbers grad "$(dump "$1")" | awk '{ s += $1 * $1 } END { printf "%.9f", sqrt(s) }')" \
        "$(value train grad_norm "$file" | sed -n 2p)" 1e-6
    less 0.1 "$(value train grad_norm "$file" | sed -n 2p)" # it was clipped
    # A weight is there before and after, with its gradient and with all that the optimizer keeps of it.
    head -c $((8 + $(od -An -tu8 -N8 "$(dump "$1")"))) "$(dump "$1")" |
        grep -ao '"[a-z_.]*\.embed\.tokens\.weight"' | grep -v '^"part\.' | LC_ALL=C sort >"$work/names"
    printf '"%s.embed.tokens.weight"\n' grad state.exp_avg state.exp_avg_sq updated weight | cmp - "$work/names"
}

another_update_is_another_dump() {
    train gpt first --run.stop_at=3 --run.dump=1
    [ "$(find "$runs/first/dump" -type f)" = "$runs/first/dump/step_00000001/rank_00000.safetensors" ]
    verdict 'cannot tell: other tokens, ' "$runs/first/dump/step_00000001" "$runs/gpt/dump/step_00000002"
    if "$BUILD/diff" "$runs/first" "$runs/gpt" 2>"$work/err"; then return 1; fi
    grep -q 'no update that both have dumped, theirs are 1 and 2' "$work/err"
    verdict 'DIFFERENT: first at ' "$runs/gpt" "$runs/llama"
}

# The step again, over an earlier dump by more ranks, whose files do not stay.
dumped_again() {
    mkdir -p "$runs/again/dump/step_00000001"
    echo old >"$runs/again/dump/step_00000001/rank_00007.safetensors"
    train gpt again --run.stop_at=1 --run.dump=1
    verdict 'identical: ' "$runs/again" "$runs/gpt-micro8"
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
    train gpt straight --run.steps="$(value start steps "$runs/minutes/metrics.jsonl")" --run.stop_at=2 --run.dump=2
    cmp "$(dump minutes)" "$(dump straight)"
}

mistakes() {
    local status=0
    fails_with 1 'run\.dump = 41.*40 updates' "$BUILD/train" "$work/gpt.toml" --run.name=late --run.dump=41
    [ ! -e "$runs/late/metrics.jsonl" ]
    fails_with 1 'model\.vocab' "$BUILD/plan" memory tiny --data.tokenizer=
    fails_with 1 'optim\.lr' "$BUILD/plan" memory tiny --optim.lrr=1
    fails_with 2 'plan memory' "$BUILD/plan" memroy tiny
    fails_with 2 'json' "$BUILD/plan" recompute tiny --model.vocab=100 --json
    fails_with 1 'batch\.tokens 512 is not a multiple of 3 ranks' "$BUILD/plan" memory "$work/gpt.toml" --ranks 3
    fails_with 2 'no number of ranks' "$BUILD/plan" memory "$work/gpt.toml" --ranks 0
    fails_with 2 'no number of ranks' "$BUILD/plan" memory "$work/gpt.toml" --ranks
    fails_with 2 'only for plan memory' "$BUILD/plan" flops "$work/gpt.toml" --ranks 2
    "$BUILD/plan" memory "$work/gpt.toml" --ranks 1 --json | cmp - <("$BUILD/plan" memory "$work/gpt.toml" --json)
    "$BUILD/plan" memory >"$work/out" 2>"$work/err" || status=$?
    [ $status = 2 ]
    grep -q usage "$work/err"
    "$BUILD/plan" --help | grep -q 'usage'
}

# A model that fits nowhere, on 64 ranks: planned like any other, and between them they hold it once.
large() {
    local P tag
    P=$("$BUILD/plan" params gpt3-175b | awk '$2 == "parameters" { print $1 }')
    "$BUILD/plan" memory gpt3-175b --batch.tokens=131072 --batch.micro=1 --ranks 64 --parallel.zero=3 --json | memory_lines >"$work/large"
    for tag in 8optimizer 4parameters; do
        awk -v tag="${tag#?}" -v want=$((${tag%"${tag#?}"} * P)) '$2 == tag { n += $3 } END { exit sprintf("%.0f", n) != want "" }' "$work/large"
    done
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

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
for family in gpt llama; do printf '%s\n' '[optim]' 'clip = 0.1' >>"$work/$family.toml"; done # every update is clipped
for family in gpt llama; do
    passes "$family: a dump is the update" dump_is_the_update $family
    passes "$family: threads do not change a bit of an update" threads_give_the_same_dump $family
    passes "$family: other micro-batches and other types only round" rounds $family
done
passes 'the micro-batches of the noise scale are not dumped' noise_is_not_dumped
passes 'what is no rounding is found at its place' differs
passes 'what went in differs' inputs_differ
passes 'a dump replaces an earlier one' dumped_again
passes 'the dumped update is the one asked for' another_update_is_another_dump
passes 'account and dump leave the run as it is' options_change_nothing
passes 'measuring for run.minutes is not dumped' measuring_is_not_dumped
passes 'mistakes' mistakes
passes 'a large model on 64 ranks' large
passes 'every preset can be planned' every_preset
exit $failed
