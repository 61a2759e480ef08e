#!/bin/bash
# test/test_sample_program.sh: build/sample writes what the run wrote, from a run, a checkpoint and another layout's, on
# a pipe and on a terminal; it leaves the run as it is; and it says in one line what is wrong.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
sample=$BUILD/sample

texts() { "$sample" "$@" --json </dev/null 2>/dev/null; } # MODEL [OPTION...]: lines of JSON
field() { sed -n "s/.*\"$1\":\"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p" | sed 's/\\"/"/g'; } # NAME: of each line
state() { find "$runs/$1" -printf '%p %s %T@\n' | sort; }

# The same bytes as the run's own samples, which follow its prompt. The run draws them one after another, the program up
# to 8 side by side; they are longer than the context.
as_the_run() { # CONFIG NAME [OPTION...]
    local config=$1 name=$2
    shift 2
    train "$config" "$name" --run.steps=20 --sample.count=10 --sample.tokens=50 --sample.prompt="Once" "$@"
    state "$name" >"$work/before"
    sed -n '/^== step 20, /,$p' "$runs/$name/samples.txt" | sed 's/^== step 20, /== /' >"$work/wanted"
    [ "$(grep -c '^== ' "$work/wanted")" = 10 ]
    printf 'Once\n' | "$sample" "$runs/$name" --n 10 2>/dev/null >"$work/got"
    cmp "$work/got" <(sed '$d' "$work/wanted")
    texts "$runs/$name" --prompt Once --n 10 >"$work/json"
    texts "$runs/$name/checkpoints/step_00000020" --prompt Once --n 10 | cmp - "$work/json"
    [ "$(grep -c '"prompt":"Once","text":".*\(length\|end of text\)' "$work/json")" = 10 ]
    state "$name" | cmp - "$work/before" # it writes nothing
}

other_layouts() {
    local options=(--run.steps=3 --sample.count=3 --sample.prompt=Once --numerics.deterministic=true)
    ranks 2 gpt zero3 "${options[@]}" --parallel.zero=3
    train gpt one "${options[@]}"
    texts "$runs/zero3" --prompt Once | cmp - <(texts "$runs/one" --prompt Once)
}

# Each token of --logprobs is one of --json; greedy text is likelier than a drawn one; a run's rule is the default.
rules() {
    texts "$runs/gpt" --prompt Once --temperature 0 --tokens 30 >"$work/greedy"
    texts "$runs/gpt" --prompt Once --temperature 0 --tokens 30 --seed 9 --top-k 3 --top-p 0.5 --min-p 0.1 |
        cmp - "$work/greedy"
    texts "$runs/gpt" --prompt Once --top-k 1 --tokens 30 | cmp - "$work/greedy"
    texts "$runs/gpt" --prompt Once --min-p 1 --tokens 30 | cmp - "$work/greedy"
    texts "$runs/gpt" --prompt Once --seed 9 --tokens 30 >"$work/nine"
    if texts "$runs/gpt" --prompt Once --tokens 30 | cmp -s - "$work/nine"; then return 1; fi
    texts "$runs/gpt" --prompt Once --temperature 0 --tokens 30 --repetition 1e9 | # no token twice
        grep -o '"ids":\[[^]]*' | grep -oE '[0-9]+' | sort | uniq -d | cmp - /dev/null
    "$sample" "$runs/gpt" --prompt Once --tokens 30 --seed 9 --logprobs 2>/dev/null </dev/null >"$work/lines"
    awk '/^ *-[0-9]/ { print $1 + 0 }' "$work/lines" |
        cmp - <(grep -o '"logprobs":\[[^]]*' "$work/nine" | tr ',[' '\n\n' |
            awk '/^-/ { printf "%.4f\n", $1 }' | awk '{ print $1 + 0 }')
    [ "$(grep -cE '^ *-[0-9]' "$work/lines")" -gt 5 ]
    texts "$runs/gpt" --prompt Once --tokens 7 | grep -q '"end":"length"'
    [ "$(texts "$runs/gpt" --prompt Once --tokens 7 | grep -o '"ids":\[[^]]*' | tr ',' '\n' | wc -l)" = 7 ]
}

# The text ends before the first place of any of the words, wherever tokens are cut.
stops() {
    local text word
    text=$(texts "$runs/gpt" --prompt Once --tokens 60 | field text)
    for word in "${text:9:1}" "${text:13:4}" "${text:20:9}"; do
        texts "$runs/gpt" --prompt Once --tokens 60 --stop "$word" --stop nothing_like_it >"$work/json"
        [ "$(field text <"$work/json")" = "${text%%"$word"*}" ]
        [ "$(field end <"$work/json")" = stop ]
        "$sample" "$runs/gpt" --prompt Once --tokens 60 --stop "$word" 2>/dev/null </dev/null |
            cmp - <(echo "Once${text%%"$word"*}")
    done
}

# What looks like the beginning of such a text is shown when nothing comes after it.
held_back() {
    local text
    text=$(texts "$runs/gpt" --prompt Once --tokens 60 | field text)
    "$sample" "$runs/gpt" --prompt Once --tokens 60 --stop "${text: -3}@@" 2>/dev/null </dev/null |
        cmp - <(echo "Once$text")
}

# Texts that are drawn side by side end each where its own --stop is. Their order and their --logprobs are theirs.
side_by_side() {
    local n=0 line text word options=(--prompt Once --n 3 --tokens 40)
    texts "$runs/gpt" "${options[@]}" | field text >"$work/free"
    text=$(sed -n 2p "$work/free")
    word=${text:9:5}
    texts "$runs/gpt" "${options[@]}" --stop "$word" >"$work/json"
    while read -r line; do echo "Once${line%%"$word"*}"; done <"$work/free" >"$work/wanted"
    sed 's/^/Once/' <(field text <"$work/json") | cmp - "$work/wanted"
    [ "$(sed -n 2p "$work/json" | field end)" = stop ]
    [ "$(field end <"$work/json" | sort -u | wc -l)" = 2 ] # others go on
    "$sample" "$runs/gpt" "${options[@]}" --stop "$word" 2>/dev/null </dev/null | grep -v '^\(== .*\|\)$' |
        cmp - "$work/wanted"
    "$sample" "$runs/gpt" "${options[@]}" --stop "$word" --logprobs 2>/dev/null </dev/null >"$work/lines"
    grep -v '^$' "$work/lines" | awk '/^ *-[0-9]/ { n++; next } { print n + 0 " " $0; n = 0 }' |
        cmp - <(while read -r line; do
            echo "0 == sample $((n++))"
            echo "$(grep -o '"ids":\[[^]]*' <<<"$line" | tr ',' '\n' | wc -l) $(field end <<<"$line")"
        done <"$work/json")
}

# Waits until a file has a line.
until_said() { # PATTERN
    local i
    for ((i = 0; i < 300; i++)); do
        grep -q "$1" "$work/said" && return
        sleep 0.1
    done
    cat "$work/said"
    return 1
}

# Ctrl-C ends all texts that are being written, and the next prompt is asked for.
interrupted() {
    mkfifo "$work/keys"
    script -qec "$sample '$runs/gpt' --n 3 --tokens 100000000 --temperature 0 --logprobs" /dev/null \
        <"$work/keys" >"$work/said" &
    exec 3>"$work/keys"
    printf 'Once\n' >&3
    until_said '^ *-[0-9]'
    printf '\003' >&3
    until_said 'tokens in'
    printf '\004' >&3
    exec 3>&-
    wait $!
    tr -d '\r' <"$work/said" | grep -c 'interrupted$' | cmp - <(echo 3)
}

# On a terminal: a text for each line, until Ctrl-D.
on_a_terminal() {
    printf 'Once\nThe\n\004' | script -qec "$sample '$runs/gpt' --tokens 9" /dev/null >"$work/said"
    tr -d '\r' <"$work/said" >"$work/lines"
    cat "$work/lines"
    grep -qF "Once$(texts "$runs/gpt" --prompt Once --tokens 9 | field text)" "$work/lines"
    grep -qF "The$(texts "$runs/gpt" --prompt The --tokens 9 | field text)" "$work/lines"
    [ "$(grep -c 'tokens in' "$work/lines")" = 2 ]
}

# A folder for Transformers has the tokenizer too, and the token at which a text ends.
exported() {
    local eot
    eot=$(sed -n 's/.*"eot": *\([0-9]*\).*/\1/p' "$work/data/manifest.json")
    "$BUILD/export" "$runs/gpt" --to hf --out "$work/hf" 2>"$work/err"
    [ ! -s "$work/err" ]
    cmp "$work/hf/tokenizer.json" "$work/data/tokenizer.json"
    cmp "$work/hf/tokenizer_config.json" "$work/data/tokenizer_config.json"
    grep -q "\"eos_token_id\": $eot" "$work/hf/config.json"
    grep -q "\"bos_token_id\": $eot" "$work/hf/generation_config.json"
    grep -q '"eos_token": "<|endoftext|>"' "$work/hf/special_tokens_map.json"
    "$BUILD/export" "$runs/gpt" --to hf --out "$work/hf2" --tokenizer "$work/hf" # one that was exported is a tokenizer
    diff -r "$work/hf" "$work/hf2"
    texts "$work/hf" --prompt Once --temperature 0 --tokens 20 |
        cmp - <(texts "$runs/gpt" --prompt Once --temperature 0 --tokens 20)
}

refuses() { program_refuses sample "$@"; } # STATUS WORDS ARGUMENT...

mistakes() {
    refuses 2 'usage: sample MODEL'
    refuses 2 'usage: sample MODEL' "$runs/gpt" more
    refuses 1 'no_such_run' "$runs/no_such_run" --prompt a
    refuses 2 'top_p' "$runs/gpt" --top_p 1
    refuses 2 '--top-p' "$runs/gpt" --top-p 0
    refuses 2 '--temperature' "$runs/gpt" --temperature -1
    refuses 2 '--tokens' "$runs/gpt" --tokens 0
    refuses 1 '--stop' "$runs/gpt" --stop ''
    refuses 1 "prompt has [0-9]* tokens, and the model's context" "$runs/gpt" --prompt "$(head -c 2000 README.md)"
    refuses 1 'no_tokenizer' "$runs/gpt" --tokenizer "$work/no_tokenizer" --prompt a
    cp -r "$runs/gpt" "$runs/damaged"
    local newest=$runs/damaged/checkpoints/step_00000020
    printf 'x' | dd of="$newest/model.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
    refuses 1 'model\.safetensors' "$newest" --prompt a
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'gpt: the samples of the run' as_the_run gpt gpt --sample.temperature=0.5
passes 'llama: the samples of the run' as_the_run llama llama --sample.temperature=0.9 --sample.top_k=20 \
    --sample.min_p=0.05 --sample.repetition=1.1
passes 'weights of any layout' other_layouts
passes 'rules and probabilities' rules
passes 'stops' stops
passes 'what is held back comes at the end' held_back
passes 'side by side' side_by_side
passes 'on a terminal' on_a_terminal
passes 'Ctrl-C' interrupted
passes 'an exported folder' exported
passes 'mistakes' mistakes
exit $failed
