#!/bin/bash
# test/test_chat.sh: conversations from a file of JSON lines to a model that answers: prepare tokens --chat, a run with
# data.loss=assistant, build/sample --chat, build/eval; on two ranks the same; and what is refused.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
marks='<|im_start|>,<|im_end|>'
options=(--data.loss=assistant --data.document_mask=true --data.packing=best_fit --sample.count=0 --model.layers=1 --model.context=64)

# A question has one answer, whoever asks it and whatever was asked before.
talk() { # LINES
    awk -v lines="$1" 'function turn(role, text) { return "{\"role\": \"" role "\", \"content\": \"" text "\"}" }
    BEGIN {
        n = split("snow white coal black grass green blood red", word, " ")
        for (i = 0; i < lines; i++) {
            printf "{\"messages\": ["
            for (k = 0; k <= i % 2; k++) {
                w = 2 * int(rand() * n / 2)
                printf "%s%s, %s", k ? ", " : "", turn("user", "What colour is " word[w + 1] "?"), turn("assistant", "It is " word[w + 2] ".")
            }
            print "]}"
        }
    }'
}

prepare() { "$BUILD/prepare" tokens --input "$work/talk.jsonl" --tokenizer "$work/base" --out "$work/data" "$@" 2>"$work/prepare.err"; }

learns() {
    train gpt one "${options[@]}" --run.steps=200 --optim.decay_steps=200 --run.eval_every=0
    printf 'What colour is coal?\nWhat colour is grass?\n' |
        "$BUILD/sample" "$runs/one" --chat --temperature 0 2>/dev/null >"$work/said"
    printf 'It is black.\nIt is green.\n' | cmp - "$work/said"
    local form
    for form in hf gguf; do # the template goes with the model
        "$BUILD/export" "$runs/one" --to $form --out "$work/one.$form" >/dev/null
        "$BUILD/sample" "$work/one.$form" --chat --temperature 0 --prompt 'What colour is blood?' 2>/dev/null </dev/null >"$work/said"
        echo 'It is red.' | cmp - "$work/said"
    done
    # The validation of the run, and that of build/eval, count the answers alone.
    local answers
    answers=$("$BUILD/eval" "$runs/one" --json 2>/dev/null | sed 's/.*"tokens":\([0-9]*\),"bytes":\([0-9]*\),.*"loss":\([0-9.]*\).*/\1 \2 \3/')
    awk -v a="$answers" 'BEGIN { split(a, x, " "); exit !(x[1] > 200 && x[1] < 500 && x[2] > x[1] && x[3] < 0.5) }'
    [ "$(sed -n 's/^validation *\([0-9.]*\) nats.*/\1/p' "$work/one.out")" = "$(printf '%.4f' "${answers##* }")" ]
}

# The same bytes on two ranks; other weights where all tokens count.
same_on_ranks() {
    local each=(--run.steps=3 --numerics.deterministic=true)
    train gpt alone "${options[@]}" "${each[@]}"
    ranks 2 gpt both "${options[@]}" "${each[@]}"
    same_state both alone 3
    train gpt all "${options[@]}" "${each[@]}" --data.loss=all
    if (same_state all alone 3) >/dev/null 2>&1; then return 1; fi
}

refusals() {
    head -n 2 "$work/talk.jsonl" >"$work/bad.jsonl"
    echo '{"messages": [{"role": "narrator", "content": "x"}]}' >>"$work/bad.jsonl"
    fails_with 1 "bad.jsonl:3: message 1: role 'narrator' [(]system" \
        "$BUILD/prepare" tokens --input "$work/bad.jsonl" --chat chatml --tokenizer "$work/base" --out "$work/no"
    fails_with 1 "need the special token <.start_header_id.>" \
        "$BUILD/prepare" tokens --input "$work/talk.jsonl" --chat llama3 --tokenizer "$work/base" --out "$work/no"
    fails_with 2 'chat needs --tokenizer' "$BUILD/prepare" tokens --input "$work/talk.jsonl" --chat chatml --out "$work/no"
    fails_with 1 'has no chat_template' "$BUILD/train" "$work/gpt.toml" --run.name=no --data.loss=assistant \
        --data.tokenizer="$work/base"
    fails_with 1 'has no chat_template' "$BUILD/sample" "$runs/one" --chat --tokenizer "$work/base" --prompt x
}

mkdir "$runs"
config gpt >"$work/gpt.toml"
talk 400 >"$work/talk.jsonl"
"$BUILD/prepare" train-tokenizer --input "$work/talk.jsonl" --field messages --format text --vocab 300 --special-tokens "$marks" \
    --out "$work/base" 2>"$work/base.err" && prepare --chat chatml || { cat "$work"/*.err; exit 1; }
passes 'a run learns the answers' learns
passes 'two ranks learn the same, and all tokens count otherwise' same_on_ranks
passes 'what is refused' refusals
