#!/bin/bash
# test/test_screen.sh: data.max_repeat and data.max_broken in runs: the same targets are taken from the loss on any layout
# and after a resume, in the same bits; what is counted adds up; and good text is left alone.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
. test/ranks_common.sh
channels=32
set=(--run.steps=6 --optim.decay_steps=6 --optim.warmup=2 --run.eval_every=0 --run.sample_every=0 --sample.count=0 --eval.tokens=64 --batch.micro=2
    --numerics.deterministic=true --data.max_repeat=0.5)

# Two more documents in the middle of the text: a sentence said a hundred times, and a page that was not UTF-8.
bad_corpus() {
    prepare_corpus
    {
        head -c 60000 "$work/text/train.txt"
        printf '<|endoftext|>'
        for ((i = 0; i < 400; i++)); do printf 'buy it now. '; done
        printf '<|endoftext|>'
        for ((i = 0; i < 1500; i++)); do printf 'a%b' "\\x$(printf %x $((128 + i * 7 % 64)))"; done
        printf '<|endoftext|>'
        tail -c +60001 "$work/text/train.txt"
    } >"$work/bad.txt"
    rm -r "$work/data"
    "$BUILD/prepare" tokens --train "$work/bad.txt" --val-file "$work/text/val.txt" --vocab 512 --out "$work/data"
}

sum_of() { value train screened "$runs/$1/metrics.jsonl" | awk '{ n += $1 } END { print n + 0 }'; }

# An epoch is about 200 steps of 16 sequences: 6 steps see some of the bad text with this seed, not all.
same_on_layouts() {
    local name
    train gpt one "${set[@]}"
    well_formed one 6
    less 0 "$(sum_of one)"
    less "$(sum_of one)" $((6 * 512 / 2))
    grep -q "^screened    $(sum_of one) of $((6 * 512)) targets, " "$work/one.out"
    ranks 2 gpt dp "${set[@]}"
    ranks 2 gpt cp "${set[@]}" --parallel.cp=2
    ranks 4 gpt tp-pp "${set[@]}" --parallel.tp=2 --parallel.pp=2
    for name in dp cp tp-pp; do
        history one | cmp - <(history $name)
        value train screened "$runs/one/metrics.jsonl" | cmp - <(value train screened "$runs/$name/metrics.jsonl")
    done
}

resumed_is_the_same() {
    train gpt two "${set[@]}" --run.stop_at=3
    ranks 2 gpt two "${set[@]}" --run.name=two --ckpt.resume=true
    history one | grep -v '"event":"\(val\|end\)"' | cmp - <(history two | grep -v '"event":"\(val\|end\)"')
    same_state one two 6
    [ "$(sum_of one)" = "$(sum_of two)" ]
    ! grep -q 'other training data' "$work/two.out"
    train gpt two "${set[@]}" --run.steps=7 --ckpt.resume=true --data.max_repeat=0.6 # other targets: said aloud
    grep -q 'other training data' "$work/two.out"
}

# What no bound rejects is what is trained without one, to the bit.
good_text_is_left() {
    train gpt off "${set[@]}" --data.max_repeat=1
    train gpt wide "${set[@]}" --data.max_repeat=0.9999 --data.max_broken=0.9999
    ! grep -q screened "$work/off.out"
    [ "$(sum_of wide)" = 0 ]
    history off | cmp - <(history wide)
    ! cmp -s <(history off) <(history one)
}

broken_pages_and_masks() {
    local status=0 fast=(--numerics.deterministic=false --batch.micro=16)
    train gpt broken "${set[@]}" "${fast[@]}" --data.max_repeat=1 --data.max_broken=0.3 --run.steps=40 --optim.decay_steps=40
    less 100 "$(sum_of broken)" # of 1500 letters and 1500 marks of 3 bytes, about a fifth of an epoch
    # In the order of the files whole batches are bad: they are passed over, in a resumed run too.
    local bad=("${set[@]}" "${fast[@]}" --data.max_repeat=1 --data.max_broken=0.3 --optim.decay_steps=80 --data.shuffle=false)
    train gpt ordered "${bad[@]}" --run.steps=80
    local at
    at=$(sed -nE 's/.*step ([0-9]+): no target of samples .* took 512.: goes on after them.*/\1/p' "$work/ordered.out" | head -n 1)
    train gpt later "${bad[@]}" --run.steps=80 --run.stop_at="$at"
    train gpt later "${bad[@]}" --run.steps=80 --ckpt.resume=true
    same_state ordered later 80
    for ((i = 0; i < 3000; i++)); do printf '\x80\x81'; done >"$work/marks.txt"
    "$BUILD/prepare" tokens --train "$work/marks.txt" --val-file "$work/text/val.txt" --tokenizer "$work/data" --out "$work/marks" || [ $? = 3 ]
    train gpt none "${bad[@]}" --data.train="$work/marks/train_*.bin" --run.steps=80 || status=$?
    [ $status = 1 ]
    grep -q '^error: data.train: no target counts in [0-9]* batches after sample 0 (data.max_repeat, data.max_broken: try' "$work/none.err"
    train gpt packed "${set[@]}" --data.document_mask=true --data.packing=best_fit
    fails_with 1 'data.max_broken needs it' "$BUILD/train" "$work/gpt.toml" --data.tokenizer= --model.vocab=512 --sample.count=0 \
        --data.max_broken=0.5
}

bad_corpus >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
passes 'the same targets on every layout' same_on_layouts
passes 'the same after a resume, on other ranks' resumed_is_the_same
passes 'text within the bounds is left alone' good_text_is_left
passes 'broken pages, packed rows, no tokenizer' broken_pages_and_masks
exit $failed
