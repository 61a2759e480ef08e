#!/bin/bash
# test/test_account.sh: what build/plan says beforehand against what runs of build/train hold, to the byte, over precisions,
# optimizers and ways to recompute; and build/plan's other tables and mistakes.
# (test_plan makes every combination within one process; test_dump.sh plans every preset.)
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

planned() { # OPTION...
    "$BUILD/plan" memory "$@" --json | memory_lines
}

held() { # NAME
    memory_lines <"$runs/$1/account.json"
}

# One update of the run holds what was planned for it, tag by tag; the formulas give the same (else plan ends).
planned_is_held() { # NAME FAMILY OPTION...
    local name=$1 family=$2
    shift 2
    train "$family" "$name" --run.stop_at=1 --run.account=true --eval.tokens=64 --sample.count=0 "$@" || cat "$work/$name.err"
    planned "$work/$family.toml" "$@" >"$work/planned"
    [ "$(wc -l <"$work/planned")" = 9 ] # 7 tags, total, peak
    held "$name" | cmp - "$work/planned"
    "$BUILD/plan" memory "$work/$family.toml" "$@" >"$work/table"
    awk -v planned="$work/planned" '
        BEGIN { while ((getline line < planned) > 0) if (split(line, part, " ") == 3) want[part[2]] = part[3] }
        NF > 2 && $1 in want && !seen[$1]++ { print $1, $2, want[$1]; bad += $2 != want[$1]; n++ }
        END { exit bad || n != 8 }' "$work/table" # the tags and the total
}

# Bytes per parameter of the table are those of runs; the guides' 16 among them.
table_is_held() {
    local params
    "$BUILD/plan" table "$work/gpt.toml" >"$work/table.md"
    params=$(sed -n 's/^Bytes per parameter, of \([0-9]*\).*/\1/p' "$work/table.md")
    bytes() { held "$1" | awk '/parameters|gradients|optimizer/ { n += $3 } END { print n }'; }
    grep -qF '| `adamw` | 4 + 4 + 8 = **16** | 2 + 4 + 12 = **18** |' "$work/table.md"
    [ "$(bytes fp32-adamw-none)" = $((16 * params)) ]
    [ "$(bytes bf16-lion-sqrt)" = $((14 * params)) ]
    grep -qF '| `lion` | 4 + 4 + 4 = **12** | 2 + 4 + 8 = **14** |' "$work/table.md"
    # 8 sequences of 32 tokens: activations per token in the second column of bytes, bf16
    local bf16
    bf16=$(sed -n 's/^| `sqrt` | [0-9]* | \([0-9]*\) |.*/\1/p' "$work/table.md")
    [ "$(held bf16-lion-sqrt | awk '/activations/ { print $3 / 256 }')" = "$bf16" ]
    [ "$(grep -c '^| `' "$work/table.md")" = 23 ] # 9 + 2 * 5 rows, and the two heads
}

# The tables that other files make can be printed, and are about this configuration.
other_tables() {
    local plan=$BUILD/plan
    "$plan" formats | grep -q '^fp8 E4M3 .* 448 '
    [ "$("$plan" optimizers | grep -c '^| `')" = 10 ]
    "$plan" recompute "$work/gpt.toml" --numerics.dtype=bf16 >"$work/out"
    grep -q '^2 layers, micro-batches of 8 x 32 tokens, 2 bytes an activation' "$work/out"
    [ "$(awk '$1 == "full" { print $4 }' "$work/out")" = \
        "$(planned "$work/gpt.toml" --numerics.dtype=bf16 --memory.recompute=full | awk '/activations/ { print $3 }')" ]
    "$plan" fp8 "$work/gpt.toml" --numerics.dtype=fp8 --numerics.fp8_keep=layers.1.attn >"$work/out"
    grep -qE '^layers\.0\.attn\.out\.weight +fp8' "$work/out"
    grep -qE '^layers\.1\.attn\.out\.weight +bf16' "$work/out"
    grep -qE '^embed\.tokens\.weight +bf16' "$work/out"
    [ "$(grep -c norm "$work/out" || true)" = 0 ]
    "$plan" flops "$work/gpt.toml" --memory.recompute=full | grep -q '^done again'
}

schedule() {
    "$BUILD/plan" schedule "$work/gpt.toml" >"$work/plain"
    "$BUILD/plan" schedule "$work/gpt.toml" --svg "$work/schedule.svg" >"$work/out"
    grep -qE '^ +39 .*last step' "$work/plain"
    cmp "$work/plain" <(head -n -2 "$work/out")
    head -c 5 "$work/schedule.svg" | grep -q '<svg\|<?xml'
    # the first and the last rate are the run's own
    train gpt whole --eval.tokens=64 --sample.count=0
    close_to "$(awk '/first step$/ { print $4 }' "$work/plain")" "$(value train lr "$runs/whole/metrics.jsonl" | head -n 1)" 1e-5
    close_to "$(awk '/last step$/ { print $4 }' "$work/plain")" "$(value train lr "$runs/whole/metrics.jsonl" | tail -n 1)" 1e-5
    "$BUILD/plan" schedule "$work/gpt.toml" --batch.ramp_from=256 --batch.ramp_tokens=4096 | grep -q '^batch'
}

mistakes() {
    local plan=$BUILD/plan status=0
    fails_with 1 'run\.steps is 0' "$plan" schedule "$work/gpt.toml" --run.steps=0 --run.minutes=1
    fails_with 1 'min_lr' "$plan" schedule "$work/gpt.toml" --optim.schedule=wsd --optim.wsd_shape=exponential --optim.min_lr=0
    fails_with 1 'numerics\.dtype is not fp8' "$plan" fp8 "$work/gpt.toml"
    fails_with 1 'layers\.9' "$plan" fp8 "$work/gpt.toml" --numerics.dtype=fp8 --numerics.fp8_keep=layers.9
    fails_with 2 'did you mean plan schedule' "$plan" scheduel "$work/gpt.toml"
    fails_with 2 'did you mean plan optimizers' "$plan" opt
    fails_with 2 'takes no argument' "$plan" formats "$work/gpt.toml"
    fails_with 2 'only for plan schedule' "$plan" memory "$work/gpt.toml" --svg "$work/x.svg"
    fails_with 2 'no file' "$plan" schedule "$work/gpt.toml" --svg
    "$plan" table >"$work/out" 2>"$work/err" || status=$?
    [ $status = 2 ]
    grep -q usage "$work/err"
    local what
    for what in memory table recompute params flops schedule fp8 optimizers formats; do "$plan" --help | grep -q "^  $what "; done
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
# Each precision, optimizer and recomputation at least once, with the other settings that change a size.
while read -r dtype optim recompute family options; do
    # shellcheck disable=SC2086
    passes "$family: planned is held: $dtype $optim $recompute $options" planned_is_held "$dtype-$optim-$recompute" "$family" \
        --numerics.dtype="$dtype" --optim.name="$optim" --memory.recompute="$recompute" $options
done <<'END'
fp32 adamw none gpt
fp32 muon full llama --memory.compress=int8
fp32 normuon attention llama
fp32 adafactor selective gpt --numerics.deterministic=true
bf16 lion sqrt gpt
bf16 adamw8bit every llama --numerics.deterministic=true --data.document_mask=true
fp16 adam selective llama --memory.compress=int8 --data.document_mask=true
fp16 sgd attention gpt --memory.compress=int8 --batch.ramp_from=256 --batch.ramp_tokens=4096 --model.dropout=0.1
tf32 adamw attention llama
fp8 momentum full gpt --data.document_mask=true
fp8 adamw sqrt llama --optim.agc=0.01 --optim.clip=0
END
passes 'the table of precisions and optimizers is held' table_is_held
passes 'tables by other files' other_tables
passes 'schedule' schedule
passes 'mistakes' mistakes
exit $failed
