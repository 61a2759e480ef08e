#!/bin/bash
# test/test_eval_program.sh: build/eval gives the run's own figures for its set, the same for the same text in any form,
# one row for each source of a mixture, and one line for what is wrong. It leaves nothing in TMPDIR.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

eval_json() { TMPDIR=$work/tmp "$BUILD/eval" "$@" --json; } # MODEL [SET...] [OPTION...]
number() { grep -o "\"$1\":[^,}]*" | cut -d : -f 2; }       # NAME: of each line
last() { tail -n 1 "$runs/$2/metrics.jsonl" | number "$1"; } # NAME RUN

the_run() { # CONFIG NAME [OPTION...]
    local config=$1 name=$2
    shift 2
    train "$config" "$name" --run.steps=20 --sample.count=0 "$@"
    eval_json "$runs/$name" >"$work/json"
    number loss <"$work/json" | cmp - <(last val_loss "$name")
    number bpb <"$work/json" | cmp - <(last val_bpb "$name")
    number tokens <"$work/json" | cmp - <(echo "${eval_tokens:-1000}")
    [ "$(wc -l <"$work/json")" = 1 ]
}

ranks_too() {
    local options=(--run.steps=3 --sample.count=0 --numerics.deterministic=true)
    ranks 2 gpt two "${options[@]}" --parallel.tp=2
    train gpt one "${options[@]}"
    eval_json "$runs/two" | cmp - <(eval_json "$runs/one")
}

# The shards, the text they were made of, packed text, and JSONL.
any_form() {
    awk -v RS='<[|]endoftext[|]>' '{ gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub(/\n/, "\\n"); gsub(/\t/, "\\t")
        if (length($0)) printf "{\"text\": \"%s\"}\n", $0 }' "$work/text/val.txt" >"$work/val.jsonl"
    gzip -c "$work/text/val.txt" >"$work/val.txt.gz"
    eval_json "$runs/gpt" "$work/data/val_*.bin" "$work/text/val.txt" "$work/val.txt.gz" "$work/val.jsonl" --tokens 0 \
        >"$work/json"
    cat "$work/json"
    [ "$(wc -l <"$work/json")" = 4 ]
    [ "$(sed 's/"set":"[^"]*",//' "$work/json" | sort -u | wc -l)" = 1 ]
    tail -n 1 "$work/json" | grep -qF "\"set\":\"$work/val.jsonl\","
    eval_json "$runs/gpt" - --tokens 0 <"$work/text/val.txt" | sed 's/"set":"[^"]*",//' |
        cmp - <(sed -n '1s/"set":"[^"]*",//p' "$work/json")
    sed 's/"set":"[^"]*"/"set":""/' "$work/json" | awk -F '[:,}]' '{ loss = $8; if (($10 / exp(loss) - 1) ^ 2 > 1e-12) exit 1 # perplexity
        if (($12 / (loss * $4 / $6 / log(2)) - 1) ^ 2 > 1e-12) exit 1 }'
}

# A folder for Transformers has the same weights, so the same bits; it names no set.
other_folders() {
    local name
    train llama qwen --run.steps=20 --sample.count=0 --model.qk_norm=true --model.kv_heads=2 --model.tie=true \
        --model.rope_scaling=yarn --model.rope_original=16
    for name in gpt llama qwen; do
        "$BUILD/export" "$runs/$name" --to hf --out "$work/$name.hf"
        eval_json "$work/$name.hf" "$work/data/val_*.bin" --tokens 700 --batch 4 --stride 16 |
            cmp - <(eval_json "$runs/$name" "$work/data/val_*.bin" --tokens 700 --batch 4 --stride 16)
    done
    refuses 1 'names no validation set' "$work/gpt.hf"
}

sources() {
    printf '[source.one]\npath = "%s"\n[source.two]\npath = "%s"\nweight = 3\n' "$work/data/val_*.bin" \
        "$work/data/train_*.bin" >"$work/mix.toml"
    eval_json "$runs/gpt" "$work/mix.toml" --tokens 900 >"$work/json"
    [ "$(number set <"$work/json" | tr '\n' ' ')" = '"one" "two" ' ]
    number loss <"$work/json" |
        cmp - <(eval_json "$runs/gpt" "$work/data/val_*.bin" "$work/data/train_*.bin" --tokens 900 | number loss)
}

# More context for each token: less loss; all of it the same tokens. Windows at a time change no more than a rounding.
windows() {
    local plain close many
    plain=$(eval_json "$runs/gpt" --tokens 600 | number loss)
    close=$(eval_json "$runs/gpt" --tokens 600 --stride 4 | number loss)
    many=$(eval_json "$runs/gpt" --tokens 600 --batch 3 | number loss)
    awk -v a="$plain" -v b="$close" -v c="$many" 'BEGIN { exit !(b < a && (c / a - 1) ^ 2 < 1e-10) }'
    "$BUILD/eval" "$runs/gpt" --tokens 600 | awk -v a="$plain" 'NR == 2 { exit !($1 == 600 && ($3 - a) ^ 2 < 1e-8) }'
}

refuses() { TMPDIR=$work/tmp program_refuses eval "$@" --json; } # STATUS WORDS ARGUMENT...

mistakes() {
    refuses 2 'usage: eval MODEL'
    refuses 1 'nonesuch' "$runs/nonesuch"
    refuses 1 'none_\*\.bin' "$runs/gpt" "$work/data/none_*.bin"
    refuses 1 'no_text' "$runs/gpt" "$work/no_text"
    refuses 2 '--batch' "$runs/gpt" --batch 0
    refuses 1 'no_tokenizer' "$runs/gpt" --tokenizer "$work/no_tokenizer"
    "$BUILD/stories" --bytes 60000 --out "$work/more" >/dev/null
    "$BUILD/prepare" tokens --input "$work/more/train.txt" --vocab 700 --out "$work/larger" >/dev/null 2>&1
    refuses 1 'val_000000\.bin' "$runs/gpt" "$work/larger/val_*.bin"
    "$BUILD/prepare" tokens --input "$work/more/train.txt" --vocab 300 --out "$work/small" >/dev/null 2>&1
    refuses 1 'a vocabulary of 300 tokens, .* has 512' "$runs/gpt" --tokenizer "$work/small"
    refuses 1 'not a model' README.md
    refuses 1 'not a model' "$work/text"
    printf 'version https://git-lfs.github.com/spec/v1\n' >"$work/model.gguf"
    refuses 1 'model.gguf: a pointer of Git LFS, not the file itself' "$work/model.gguf"
    : >"$work/empty.txt"
    refuses 3 'empty.txt: no text in it' "$runs/gpt" "$work/empty.txt"
}

# In safetensors, after the header: all numbers become NaN.
break_weights() { # FILE
    local head
    head=$((8 + $(od -An -tu8 -N8 "$1")))
    { head -c "$head" "$1"; tail -c "+$((head + 1))" "$1" | tr '\0-\377' '\377'; } >"$1.nan"
    mv "$1.nan" "$1"
}

# No figure and no text comes from weights that are not numbers.
not_finite() {
    "$BUILD/export" "$runs/gpt" --to hf --out "$work/nan.hf"
    break_weights "$work/nan.hf/model.safetensors"
    refuses 1 'val_\*\.bin: the loss is not finite' "$work/nan.hf" "$work/data/val_*.bin"
    printf '{"goal": "a", "sol1": "b", "sol2": "c", "label": 0}\n' >"$work/piqa.jsonl"
    refuses 1 'piqa\.jsonl:1: choice 1: its log-likelihood is not finite' "$work/nan.hf" --task "$work/piqa.jsonl"
    program_refuses sample 1 'its logits are not finite' "$work/nan.hf" --prompt a --json
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
mkdir "$work/tmp"
passes 'gpt: the figures of the run' the_run gpt gpt
passes 'llama, a stride: the figures of the run' the_run llama llama --eval.stride=8
passes 'documents: the figures of the run' the_run gpt masked --data.document_mask=true
passes 'weights of any layout' ranks_too
passes 'the same text in any form' any_form
passes 'each source of a mixture' sources
passes 'folders for Transformers' other_folders
passes 'windows' windows
passes 'mistakes' mistakes
passes 'weights that are not finite' not_finite
passes 'nothing is left in TMPDIR' rmdir "$work/tmp"
exit $failed
