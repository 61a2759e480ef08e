#!/bin/bash
# test/test_tasks_run.sh: build/eval --task, and eval.sets and eval.tasks while training: the same figures from both, on one
# rank and on several layouts; one line for what is wrong.
# deeper: pipelines with context and tensor parallelism, and sharded weights, in one job
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# Questions about the stories' own words, in datasets' fields; their last words, as LAMBADA has them.
make_tasks() {
    awk -v RS='<[|]endoftext[|]>' '{ gsub(/[\\"]/, ""); gsub(/[[:space:]]+/, " "); sub(/^ /, ""); sub(/ $/, "")
        n = split($0, w, " "); if (n < 24) next
        s = w[1]; for (i = 2; i <= 4; i++) s = s " " w[i]
        e = w[5] " " w[6]
        o = w[20]; for (i = 21; i <= 23 - k % 3; i++) o = o " " w[i]
        printf "{\"goal\": \"%s\", \"sol1\": \"%s\", \"sol2\": \"%s\", \"label\": %d}\n", s, k % 2 ? o : e, k % 2 ? e : o, k % 2 >piqa
        printf "{\"text\": \"%s\"}\n", s " " w[5] " " w[6] >lambada
        if (++k == 40) exit }' piqa="$work/piqa.jsonl" lambada="$work/lambada.jsonl" "$work/text/train.txt"
}

figures() { # RUN: what does not depend on the clock
    sed -n '/"event":"\(set\|task\)"/s/,"t":.*//p' "$runs/$1/metrics.jsonl"
}

tasks="piqa=$work/piqa.jsonl,words=$work/lambada.jsonl"
sets="a=$work/data/val_*.bin,b=$work/data/train_*.bin"
options=(--run.steps=20 --sample.count=0 --eval.tasks="$tasks" --eval.sets="$sets" --eval.tasks_every=15 --eval.tokens=700)
exact=("${options[@]}" --numerics.deterministic=true --run.steps=2 --run.eval_every=1 --eval.tasks_every=1 --eval.tokens=300)

program=$(realpath "$BUILD/eval")
number() { grep -o "\"$1\":[^,}]*" | cut -d : -f 2; } # NAME: of each line

alone() {
    train gpt one "${options[@]}"
    cat "$runs/one/metrics.jsonl"
    well_formed one 20
    [ "$(value set step "$runs/one/metrics.jsonl" | tr '\n' ' ')" = '10 10 20 20 ' ]
    [ "$(value set name "$runs/one/metrics.jsonl" | head -n 2 | tr '\n' ' ')" = '"a" "b" ' ]
    [ "$(value task step "$runs/one/metrics.jsonl" | tr '\n' ' ')" = '15 15 20 20 ' ]
    [ "$(value task items "$runs/one/metrics.jsonl" | sort -u)" = 40 ]
    # `a` is the validation set; `b` is another one
    value set val_loss "$runs/one/metrics.jsonl" | sed -n 3p | cmp - <(value end val_loss "$runs/one/metrics.jsonl")
    [ "$(value set val_loss "$runs/one/metrics.jsonl" | sort -u | wc -l)" = 4 ]
    grep -qE '^set +step 10: b: [0-9.]+ nats/token' "$runs/one/log.txt"
    grep -qE '^task +step 20: piqa: acc 0\.[0-9]+ [+]- 0\.[0-9]+, acc_norm .* of 40 items' "$runs/one/log.txt"
}

# The finished run's weights give build/eval the same figures, to the last digit; so does a folder for Transformers.
program_agrees() {
    local key out
    "$BUILD/eval" "$runs/one" --json --task "piqa=$work/piqa.jsonl" --task "words=$work/lambada.jsonl" --items "$work/items" \
        >"$work/json"
    cat "$work/json"
    for key in items acc centred; do
        number $key <"$work/json" | cmp - <(value task $key "$runs/one/metrics.jsonl" | tail -n 2)
    done
    number perplexity <"$work/json" | cmp - <(value task perplexity "$runs/one/metrics.jsonl" | tail -n 1)
    number acc_norm <"$work/json" | cmp - <(value task acc_norm "$runs/one/metrics.jsonl" | sed -n 3p)
    [ "$(wc -l <"$work/items")" = 80 ]
    "$BUILD/export" "$runs/one" --to hf --out "$work/one.hf"
    "$BUILD/eval" "$work/one.hf" --json --batch 8 --task "piqa=$work/piqa.jsonl" --task "words=$work/lambada.jsonl" |
        cmp - "$work/json"
    [ "$("$BUILD/eval" "$runs/one" --task "$work/piqa.jsonl" --limit 7 | awk 'NR == 2 { print $1, $NF }')" = '7 piqa' ]
    for key in '--shots 2 --shots-from piqa.jsonl' --bare; do # other contexts: other log-likelihoods
        (cd "$work" && "$program" "$runs/one" --task piqa.jsonl --limit 7 --json --items "$work/more" $key >"$work/json")
        [ "$(number items <"$work/json")" = 7 ]
        [ "$(head -n 7 "$work/items" | number loglik | paste - <(number loglik <"$work/more") | awk '$1 == $2' | wc -l)" -le 3 ] # those that are cut
    done
}

# Copies of the model share the items: the same bits.
copies() {
    ranks 2 gpt ddp "${exact[@]}"
    train gpt exact "${exact[@]}"
    figures exact | cmp - <(figures ddp)
}

# Copies that have a layer's experts between them need each other for every item.
experts() {
    local more=("${exact[@]}" --model.experts=4 --model.experts_active=2)
    train llama routed "${more[@]}"
    ranks 2 llama routed2 "${more[@]}" --parallel.ep=2
    figures routed | cmp - <(figures routed2)
}

layout() { # NAME RANKS OPTION...
    local name=$1 n=$2
    shift 2
    ranks "$n" gpt "$name" "${exact[@]}" "$@"
    figures exact | cmp - <(figures "$name")
}

refuses() { # WORDS OPTION...
    local words=$1
    shift
    fails_with 1 "$words" "$BUILD/train" "$work/gpt.toml" --run.name=bad "$@"
}

mistakes() {
    refuses 'nonesuch' --eval.tasks="x=$work/nonesuch"
    refuses 'is not NAME=PATH' --eval.tasks=a,b
    refuses 'is not NAME=PATH' --eval.sets="$work/data/val_*.bin"
    refuses 'none_' --eval.sets="a=$work/none_*.bin"
    refuses 'no known task|not JSON' --eval.tasks="x=$work/text/val.txt"
    program_refuses eval 1 'shots-from' "$runs/one" --task "$work/piqa.jsonl" --shots 2
    program_refuses eval 1 'nonesuch' "$runs/one" --json --task "$work/nonesuch"
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
make_tasks
passes 'while training' alone
passes 'build/eval agrees' program_agrees
passes 'two copies' copies
passes 'a pipeline' layout pp 2 --parallel.pp=2
passes 'tensor and sequence parallelism' layout tp 2 --parallel.tp=2 --parallel.sp=true
passes 'context parallelism' layout cp 2 --parallel.cp=2
passes 'sharded weights' layout zero 2 --parallel.zero=3
passes 'experts on two ranks' experts
deeper passes 'two copies of a pipeline' layout four 4 --parallel.pp=2
deeper passes 'a grid' layout grid 8 --parallel.pp=2 --parallel.tp=2 --parallel.zero=1
passes 'mistakes' mistakes
exit $failed
