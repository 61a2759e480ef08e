#!/bin/bash
# test/same_bits.sh: does a change of the source change a bit of what build/train computes? Two builds train a tiny
# model on the same data in the same layouts. Both must end with the same bytes of weights and optimizer state, and the
# same losses, gradient norms and scales. For changes that move source and leave the arithmetic alone; run by hand, or
# by `make same-bits OLD=FOLDER`.
#
# usage: test/same_bits.sh BUILD_OLD BUILD_NEW [WORD]
#   BUILD_OLD, BUILD_NEW  folders with train; the old one also with stories and prepare
#   WORD                  only the layouts with WORD in their name
# RENAME is a sed script for the settings that the new build gets, a line --section.key=value each. It is for settings
# whose names have changed: RENAME='s/^--parallel\.zero=/--zero.stage=/' test/same_bits.sh ...
#
# It prints a line for each layout, `same NAME` or `DIFFERS NAME: why`, then `N same, M differ`. Texts are not compared
# (config.toml, log.txt, and manifest.json except the numbers of its line "extra"). That layouts have the bits of one
# rank is the business of test_layouts.sh. The exit status is 0 only when all that was compared is the same, 1 when
# something differs, 2 for a wrong command line.
set -u
usage() {
    sed -n 's/^# \(usage: .*\)/\1/p; s/^#   \(BUILD_OLD\|WORD\)/  \1/p' "$0" >&2
    exit 2
}
[[ $# -ge 2 && $# -le 3 && $1 && $2 ]] || usage
old=$(cd "$1" && pwd) || usage
new=$(cd "$2" && pwd) || usage
for program in "$old"/{train,stories,prepare} "$new"/train; do
    [ -x "$program" ] || { echo "error: no program $program" >&2 && exit 2; }
done
word=${3:-}
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
steps=6 same=0 differ=0

declare -A families
common="run.steps=$steps run.eval_every=3 run.sample_every=0 run.seed=7 run.peak=100 model.layers=4 model.channels=64
    model.heads=4 model.context=32 batch.tokens=256 optim.lr=3e-3 optim.warmup=2 optim.decay_steps=$steps
    optim.weight_decay=0.1 eval.tokens=300 sample.count=0"
families[gpt]=
families[llama]='model.norm=rmsnorm model.activation=swiglu model.position=rope model.kv_heads=2 model.bias=false
    model.tie=false model.qk_norm=true'

# NAME | ranks | family | settings
deterministic_layouts() {
    cat <<'END'
one rank, GPT        |1|gpt  |batch.micro=8
one rank, LLaMA      |1|llama|batch.micro=8
micro-batches        |1|gpt  |batch.micro=2
2 threads            |1|gpt  |batch.micro=4 run.threads=2
recompute full       |1|gpt  |batch.micro=4 memory.recompute=full
offload disk         |1|gpt  |batch.micro=8 memory.offload=disk
bf16                 |1|llama|batch.micro=4 numerics.dtype=bf16
dropout              |1|gpt  |batch.micro=8 model.dropout=0.1
best_fit             |1|llama|batch.micro=4 data.document_mask=true data.packing=best_fit
muon                 |1|gpt  |batch.micro=8 optim.name=muon
adafactor            |1|gpt  |batch.micro=8 optim.name=adafactor
dp2                  |2|gpt  |batch.micro=2
dp2 zero1            |2|gpt  |batch.micro=4 parallel.zero=1
dp2 zero2 bf16       |2|llama|batch.micro=2 parallel.zero=2 numerics.dtype=bf16
dp2 zero3            |2|llama|batch.micro=2 parallel.zero=3
dp2 zero2 dropout    |2|gpt  |batch.micro=2 parallel.zero=2 model.dropout=0.1
dp2 zero3 offload cpu|2|gpt  |batch.micro=2 parallel.zero=3 memory.offload=cpu
dp2 zero1 muon       |2|gpt  |batch.micro=4 parallel.zero=1 optim.name=muon
dp2 best_fit         |2|llama|batch.micro=4 data.document_mask=true data.packing=best_fit
tp2                  |2|gpt  |batch.micro=4 parallel.tp=2
tp2 sp               |2|llama|batch.micro=4 parallel.tp=2 parallel.sp=true
cp2                  |2|gpt  |batch.micro=4 parallel.cp=2
pp2 1f1b             |2|gpt  |batch.micro=2 parallel.pp=2 parallel.schedule=1f1b
pp2 zb-h1            |2|llama|batch.micro=2 parallel.pp=2 parallel.schedule=zb-h1
pp2 zb-v             |2|gpt  |batch.micro=2 parallel.pp=2 parallel.schedule=zb-v
tp2 pp2              |4|llama|batch.micro=2 parallel.tp=2 parallel.pp=2
dp2 zero3 tp2        |4|gpt  |batch.micro=2 parallel.zero=3 parallel.tp=2
cp2 tp2              |4|llama|batch.micro=4 parallel.cp=2 parallel.tp=2
END
}
# Here OpenBLAS multiplies, so the cut into micro-batches changes bits, but the same program gives the same bits twice.
fast_layouts() {
    cat <<'END'
fast: 2 threads      |1|gpt  |batch.micro=4 run.threads=2
fast: fp8            |1|gpt  |batch.micro=4 run.threads=1 numerics.dtype=fp8
fast: dp2 zero1 fp8  |2|gpt  |batch.micro=4 run.threads=1 parallel.zero=1 numerics.dtype=fp8
fast: dp2 zero2 bf16 |2|llama|batch.micro=2 run.threads=1 parallel.zero=2 numerics.dtype=bf16
fast: tp2 sp pp2     |4|gpt  |batch.micro=2 run.threads=1 parallel.tp=2 parallel.sp=true parallel.pp=2
END
}

# run old|new RANKS SETTINGS: trains into $runs/old or $runs/new; says why it failed, if so
run() {
    local build=$old start=(timeout -k 10 120) rename='' settings status=0
    [ "$1" = new ] && build=$new rename=${RENAME:-}
    [ "$2" = 1 ] || start+=("$launcher" -n "$2")
    # shellcheck disable=SC2086
    mapfile -t settings < <(printf -- '--%s\n' "run.dir=$runs" "run.name=$1" "data.train=$work/data/train_*.bin" \
        "data.val=$work/data/val_*.bin" "data.tokenizer=$work/data" $3 | sed "$rename")
    rm -rf "${runs:?}/$1"
    "${start[@]}" "$build/train" "${settings[@]}" >"$work/$1.out" 2>"$work/$1.err" </dev/null || status=$?
    [ $status = 0 ] && return
    echo "the $1 build ends with status $status: $(head -n 1 "$work/$1.err")"
    return 1
}

numbers() { # old|new: what was measured, a line a number, with its name and not with its place
    local metrics=$runs/$1/metrics.jsonl key
    for key in loss lr grad_norm; do value train $key "$metrics" | sed "s/^/$key /"; done
    for key in val_loss val_bpb; do { value val $key "$metrics" && value end $key "$metrics"; } | sed "s/^/$key /"; done
}

extra() { # old|new: the numbers beside the tensors, such as the scales of fp8
    sed -n '/^"extra":/{ s/"[^"]*"//g; p; }' "$(checkpoint "$1" $steps)/manifest.json"
}

tensor_files() { (cd "$(checkpoint "$1" $steps)" && ls -- *.safetensors); }

# compare: says what differs between $runs/old and $runs/new, and is false then
compare() {
    local file found
    found="$(numbers old | grep -c '^loss [0-9]') $(numbers old | grep -c '^val_loss [0-9]')"
    [ "$found" = "$steps 2" ] || { echo "the old build has written other numbers of losses: $found"; return 1; }
    # the first numbers that differ say more than a byte of a file
    found=$(paste <(numbers old) <(numbers new) | awk '
        { n[$1]++ }
        ($1 != $3 || $2 != $4) && !seen[$1]++ { printf "%s%s %d is %s, was %s", sep, $1, n[$1], $4, $2; sep = "; " }')
    [ "$found" ] && { echo "$found"; return 1; }
    cmp -s <(tensor_files old) <(tensor_files new) || { echo 'the checkpoints have other files'; return 1; }
    [ "$(tensor_files old | wc -l)" -ge 2 ] || { echo 'the checkpoints have no tensors'; return 1; }
    for file in $(tensor_files old); do
        cmp -s "$(checkpoint old $steps)/$file" "$(checkpoint new $steps)/$file" || { echo "$file"; return 1; }
    done
    [ "$(extra old)" ] || { echo 'manifest.json has no line "extra"'; return 1; }
    cmp -s <(extra old) <(extra new) || { echo 'the numbers "extra" of manifest.json'; return 1; }
}

# compare_all MODE: every layout of a table on stdin; MODE: settings for all of them
compare_all() {
    local name ranks family settings why
    while IFS='|' read -r name ranks family settings <&3; do
        read -r name <<<"$name" && read -r family <<<"$family" # without blanks at the end
        case $name in *"$word"*) ;; *) continue ;; esac
        settings="$common ${families[$family]} $1 $settings"
        if why=$(run old "$ranks" "$settings" && run new "$ranks" "$settings" && compare); then
            same=$((same + 1))
            echo "same     $name"
        else
            differ=$((differ + 1))
            echo "DIFFERS  $name: $why"
        fi
    done 3<&0 </dev/null
}

mkdir "$runs"
{ "$old/stories" --bytes 60000 --seed 3 --out "$work/text" &&
    "$old/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 512 --out "$work/data"
} >"$work/log" 2>&1 || { echo 'error: no data' && cat "$work/log" && exit 1; }
cmp -s "$old/train" "$new/train" && echo 'note: both builds have the same train: this shows only that runs repeat'

compare_all 'numerics.deterministic=true run.threads=1' < <(deterministic_layouts)
compare_all 'numerics.deterministic=false' < <(fast_layouts)
echo "$same same, $differ differ"
[ $same -gt 0 ] && [ $differ = 0 ]
