#!/bin/bash
# scripts/docs.sh [--check]: rewrites the generated parts of README.md and doc/*.md. The text between the lines
#
#   <!-- NAME -->  and  <!-- /NAME -->
#
# is replaced by what the function gen_NAME below prints. If that is a measurement and the function prints nothing
# (because the run was not made here), the old text stays. Nothing between markers is written by hand, so no table can
# disagree with the code, and every number has its command. --check changes nothing: it says which files are out of date
# (except for measured parts) and ends with status 1 if one is.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C
build=${BUILD:-build} check=0
[ "${1:-}" = --check ] && check=1
tmp=$(mktemp -d "${TMPDIR:-/tmp}/docs.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

# The opening sentence of a file: "// name: what it is. Layer 0." gives "what it is".
about() {
    awk 'NR > 4 || !/^\/\/ / { exit } { if (NR > 1) sub(/^\/\//, ""); printf "%s", $0 } END { print "" }' "$1" |
        sed -E 's/^\/\/ *[A-Za-z0-9_]+: *//; s/ See [a-z_]+\.h.*//; s/\.( .*)?$//; s/\|/\\|/g'
}

# One row a room: its page has the components.
gen_rooms() {
    local page
    echo '| room | what is in it |'
    echo '|---|---|'
    for page in src/*/README.md data/*/README.md dev/{check,draw,plan,show}/README.md; do
        echo "| [$(dirname "$page")](${up}$page) | $(awk '/^<!-- room -->/ { exit } NR > 2 && NF { printf "%s%s", n++ ? " " : "", $0 }' "$page") |"
    done
}

gen_programs() {
    local file
    echo '| program | source | what it is |'
    echo '|---|---|---|'
    for file in train.c train_gpu.cu data/*.c dev/*.c; do
        [ -f "$file" ] && echo "| \`build/$(basename "${file%.*}")\` | [$file](${up}$file) | $(about "$file") |"
    done
}

# What to read first, with the lines that one process executes (doc/journeys.md).
gen_reading() {
    local file why lines
    echo '| file | lines run | what it is |'
    echo '|---|---:|---|'
    while IFS='|' read -r file why; do
        [ -f "$file" ] || { echo "error: scripts/docs.sh: no such file: $file" >&2; continue; }
        lines=$(awk -v file="[$file]" -F ' *[|] *' '/^<!-- journey-one -->/ { on = 1 } /^<!-- \/journey-one/ { exit }
            on && index($3, file) == 1 { print $5 }' doc/journeys.md)
        echo "| [${file#src/}](${up}$file) | $lines | $why |"
    done <<'END'
train.c|the step, the loop, and what is set up around them
src/train/run.c|from the settings to a run that can begin
src/ops/dev.h|the op table: all that a language model computes
src/net/unit.h|what a layer is
src/net/block.c|one transformer layer, forward and backward
src/net/model_run.c|the list of layers, forward and backward
src/ops/attention.c|attention, without the T x T matrix
src/train/optim.c|norm, clipping, update
src/text/dataset.c|which tokens a step reads
END
}

gen_presets() {
    local file
    echo '| preset | what it is |'
    echo '|---|---|'
    for file in scripts/presets/*.toml; do
        [ -f "$file" ] || continue
        echo "| [$(basename "$file" .toml)](${up}$file) | $(sed -n 's/^# *//p' "$file" | head -n 1 | sed -E 's/^[A-Za-z0-9._-]+: *//; s/\|/\\|/g') |"
    done
}

gen_examples() { # of other programs
    local file
    echo '| example | what it is | ranks | here |'
    echo '|---|---|---:|---:|'
    for file in scripts/examples/*.toml; do
        echo "| [$(basename "$file" .toml)](${up}$file) | $(sed -nE '1s/^# [a-z0-9-]*: (.*)[.]$/\1/p' "$file") |" \
            "$(sed -n 's/^# full:  *\([0-9]*\) .*/\1/p' "$file") | $(sed -n 's/^# small: *\([0-9]*\) .*/\1/p' "$file") |"
    done
}

# The trainer in steps: each program beside the one before, with the loss that its opening comment states.
gen_steps() {
    local name new chapters file before='' changed
    make -s --no-print-directory B="$build" steps >&2
    echo '| step | what is new | lines | changed | loss after its steps | chapter |'
    echo '|---|---|---:|---:|---|---|'
    while IFS='|' read -r name new chapters; do
        file=$build/steps/$name.c changed=
        [ -z "$before" ] || changed=$(diff "$before" "$file" | grep -c '^[<>]')
        echo "| $name | $new | $(wc -l <"$file") | $changed |" \
            "$(sed -nE 's|^// Loss: ([0-9.]* nats) per ([a-z]*) .*|\1/\2|p' "$file") | $chapters |"
        before=$file
    done <<'END'
1_bigram|table, cross-entropy, SGD|[ops.md](ops.md)
2_attention|four blocks and their backward|[units.md](units.md)
3_adamw|batches, AdamW, warm-up, the tree of gradients|[optim.md](optim.md), [deterministic.md](deterministic.md)
4_bpe|tokens and a shard|[tokenizer.md](tokenizer.md), [dataset.md](dataset.md)
5_threads|threads and BLAS for three loops|[performance.md](performance.md)
6_bf16|bf16 with fp32 masters; recomputation|[precision.md](precision.md), [recompute.md](recompute.md)
7_ddp|data parallelism|[ddp.md](ddp.md)
8_zero_tp|ZeRO-1, tensor parallelism|[zero.md](zero.md), [tp.md](tp.md)
9_pipeline|1F1B; tensor parallelism is left out|[pipeline.md](pipeline.md)
END
}

gen_config() { "$build/train" --help-markdown; }
gen_targets() { fenced sed -nE 's/^###? //p' Makefile; }

# What build/plan computes.
gen_formats() { fenced "$build/plan" formats; }
gen_noise() { "$build/plan" noise; }
gen_optimizers() { "$build/plan" optimizers; }
gen_recompute() { fenced "$build/plan" recompute gpt2-124m; }
gen_memory() { fenced memory_table; }
memory_table() { "$build/plan" memory gpt2-124m >"$tmp/memory" && sed '/^tag *buffer/,$d' "$tmp/memory"; }
gen_memory-table() { "$build/plan" table gpt2-124m; }
gen_cp() { "$build/show" cp 8192 4; }
gen_recipe-keys() { "$build/prepare" --keys; }
gen_guide-map() { awk -f scripts/guide_map.awk doc/guide_map.txt; }
gen_filter() { "$build/prepare" filter --list; }
gen_zero-holds() { "$build/show" zero holds gpt2-124m --ranks 4; }
gen_zero-hybrid() { # 64 H100, 8 a node
    echo '| between nodes | GB/s of a GPU | GB, `--shard 0` | s a step | GB, `--shard 8` | s a step |'
    echo '|---|---:|---:|---:|---:|---:|'
    local link rate
    while read -r link rate; do
        printf '| %s | %s |' "$link" "$rate"
        for shard in 0 8; do
            build/plan time llama2-7b --gpus 64 --zero 3 --shard $shard --batch 256 --micro 1 --link "$link" |
                awk '$1 == "memory" { held = $2 } $1 == "step" && NF == 3 { printf " %.1f | %.2f |", held, $2 }'
        done
        echo
    done <<<$'ndr 50\neth100 12.5\neth25 3.1'
}

gen_zero-stages() { # a rank of the second stage, GB
    local stage options
    echo '| `parallel.` | weights | gradients | optimizer | communication | together | sent to replicas in a step, all ranks |'
    echo '|---|---:|---:|---:|---:|---:|---:|'
    for stage in zero=0 zero=1 zero=2 zero=3 'zero=3 reshard=false'; do
        read -ra options <<<"--batch.tokens=65536 --batch.micro=1 --numerics.dtype=bf16 --parallel.pp=4 --parallel.${stage/ / --parallel.}"
        { "$build/plan" memory gpt2-1.5b "${options[@]}" --ranks 16 --json; "$build/plan" traffic gpt2-1.5b "${options[@]}" --gpus 16 --json; } |
            awk -v stage="$stage" -F '[":, ]+' '
            /^  "[0-9]+": [{]/ { rank = $2 } /^    "(para|grad|opti|comm)/ && rank == 1 { held[$2] = $3 / 1e9; all += $3 / 1e9 }
            $2 == "group" { dp = $3 == "dp" } /bytes, all ranks/ && dp { match($0, /: [0-9]+/); sent += substr($0, RSTART + 2, RLENGTH - 2) / 1e9 }
            END { printf "| `%s` | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f |\n", stage, held["parameters"], held["gradients"],
                         held["optimizer"], held["communication"], all, sent }'
    done
}
gen_zero-slots() { # a rank's slots; weights sent by all ranks in a step
    local setting options
    echo '| `parallel.` | slots of weights and gradients, a rank, MB | weights sent by all ranks in a step, GB |'
    echo '|---|---:|---:|'
    for setting in prefetch=0 prefetch=1 prefetch=2 prefetch=4 keep=10_000 keep=10_000_000 reshard=false; do
        options=(--batch.tokens=65536 --batch.micro=4 --parallel.zero=3 --parallel.$setting)
        { "$build/plan" memory gpt2-124m "${options[@]}" --ranks 4 --json; "$build/plan" traffic gpt2-124m "${options[@]}" --gpus 4 --gpu cpu --json; } |
            awk -v setting="$setting" -F '[":, ]+' '
            /^  "[0-9]+": [{]/ { rank = $2 } /^    "comm/ && rank == 0 { held = $3 / 1e6 }
            $2 == "kind" { gather = $3 == "all_gather" } /bytes, all ranks/ && gather { match($0, /: [0-9]+/); sent += substr($0, RSTART + 2, RLENGTH - 2) / 1e9 }
            END { printf "| `%s` | %.1f | %.3f |\n", setting, held, sent }'
    done
}
gen_collectives-ring() { fenced "$build/show" collectives steps ring 4; }
gen_collectives-cost() { fenced "$build/show" collectives cost 8 5e-6 1e-10; }
gen_mesh() { fenced "$build/show" mesh 16 --pp 2 --cp 2 --tp 2 --ep 2; }
gen_offload-need() { "$build/show" offload need; }
gen_pipeline-compare() { "$build/show" pipeline compare --stages 4 --micro 8; }
gen_pipeline-grids() { fenced pipeline_grids; }
pipeline_grids() { for k in gpipe 1f1b interleaved zb-h1 zb-v v-half v-min; do "$build/show" pipeline $k --stages 4 --micro 8; echo; done; }
gen_pipeline-vees() { "$build/show" pipeline compare --stages 8 --micro 32; }
gen_pipeline-bytes() {
    echo '| schedule | activations of stage 0, GB | with full recomputation, GB |'
    echo '|---|---:|---:|'
    local k mode
    for k in 1f1b zb-h1 zb-v v-half v-min; do
        printf '| %s |' $k
        for mode in none full; do
            "$build/plan" memory llama2-7b --parallel.pp=16 --parallel.schedule=$k --memory.recompute=$mode \
                --batch.micro=1 | awk '$1 == "activations" { printf " %.1f |", $2 / 1e9; exit }'
        done
        echo
    done
}
gen_pipeline-exchange() { "$build/show" pipeline exchange --stages 16 --micro 128 --exchange 1; }
gen_pipeline-proof() { fenced "$build/show" pipeline zb-v --stages 4 --micro 8 --check; }
gen_plan-fits() { "$build/plan" memory gpt2-124m --gpu A10G | sed -n '/^A10G has/,$p'; }
gen_plan-machines() { "$build/plan" machines; }
gen_plan-published() { "$build/plan" published; }
gen_guides-wrong() { "$build/plan" guides wrong; }
gen_guides-loose() { "$build/plan" guides loose; }
gen_plan-approach() { "$build/plan" approach; }
gen_four-answers() {
    say() { echo "\$ build/plan $1"; eval "\"$build/plan\" $1" | sed -n "$2" | cut -c 1-150; echo; }
    echo '```text'
    say 'time llama2-7b --gpus 4 --pp 4 --batch 8 --micro 1 --explain' '/^  bubble/,/=/p'
    say 'traffic llama2-7b --gpus 8 --zero 3' '/^| group/,/^| dp | all_gather/p'
    say 'layout llama2-7b --gpus 8 --gpu A100-80' '/^| step, s/,+5p'
    say 'layout llama2-7b --gpus 512 --tokens 2e12' '/^| step, s/,+2p; /^  days/p; /^  accelerator hours/p; /^  cost/p'
    echo '```'
}
gen_strategies() { BUILD=$build scripts/strategies.sh; }
gen_packing-padded() { # the stories are the same on every machine
    "$build/stories" --bytes 4000000 --seed 1 --out "$tmp/stories" >/dev/null &&
        "$build/prepare" tokens --train "$tmp/stories/train.txt" --val-file "$tmp/stories/val.txt" --vocab 4096 --out "$tmp/stories" >/dev/null 2>&1 &&
        "$build/show" packing "$tmp/stories/train_000000.bin" padded 128 256 512 1024 2048 4096
}
gen_guides-missing() { "$build/plan" guides missing; }
gen_guides-agrees() { "$build/plan" guides agrees; }
gen_guides-none() { "$build/plan" guides none; }
gen_plan-time() { fenced "$build/plan" time gpt2-1.5b --gpus 8 --micro 16 --zero 1 --recompute selective --tokens 33.5e9 --explain; }
gen_plan-traffic-host() {
    "$build/plan" traffic llama2-7b --gpus 8 --zero 3 --batch 64 --micro 1 --memory.offload=cpu \
        --memory.offload_update=cpu --memory.offload_acts=cpu --recompute full | sed -n '/^| group.*| what/,/^$/p' | sed '/^$/d'
}
gen_plan-traffic() { fenced "$build/plan" traffic llama3-70b --gpus 1024 --tp 8 --pp 4 --vpp 5 --zero 1 --explain; }
gen_plan-layout() { fenced "$build/plan" layout llama3-70b --gpus 256; }
gen_plan-scaling() { fenced "$build/plan" scaling --flops 5.76e23 --served 1e13 --explain; }
gen_plan-recipes() { "$build/plan" recipe; }
gen_plan-cluster-small() { "$build/plan" cluster gpt2-1.5b --gpus 64 --tokens 33.5e9 | grep '^|'; }
gen_plan-cluster-middle() { "$build/plan" cluster llama3-8b --gpus 4096 --tokens 15e12 | grep '^|'; }
gen_plan-cluster-large() { "$build/plan" cluster llama3-405b --gpus 16384 --tokens 15.6e12 | grep '^|'; }
gen_plan-layout-guides() {
    local model gpus fixed best one
    echo '| model | accelerators | the guide | its step, s | its best rest | the fastest found | step, s |'
    echo '|---|---:|---|---:|---|---|---:|'
    while IFS='|' read -r model gpus fixed; do
        # shellcheck disable=SC2086
        one=$("$build/plan" layout $model --gpus $gpus --gpu A100-80 $fixed | awk -F ' *[|] *' '/step, s/ { getline; getline; print $2 "|" $5 }')
        # shellcheck disable=SC2086
        best=$("$build/plan" layout $model --gpus $gpus --gpu A100-80 | awk -F ' *[|] *' '/step, s/ { getline; getline; print $2 "|" $5 }')
        echo "| $model | $gpus | \`$fixed\` | ${one%%|*} | ${one#*|} | ${best#*|} | ${best%%|*} |"
    done <<'END'
gpt3-175b|1024|--tp 8 --pp 4
gpt3-175b|3072|--tp 8 --pp 12
llama2-70b|1024|--tp 8 --pp 8
llama2-70b|256|--tp 8 --pp 1
gpt3-175b|512|--tp 8 --pp 8
END
}
gen_schedule() {
    fenced "$build/plan" schedule gpt3-175b --optim.ramp_lr=sqrt
}

# What was measured: the files that the commands wrote.
measured='run|run-text|samples|bench|bench-data|bench-decode|bench-products|bench-sample|matmul-ladder|attention-ladder|optimizers-race|optimizers-decay'
measured+='|packing|precision|bench-ranks|zero-overlap|collectives-run|offload-measured|launch-account|recipe-report|loader|long-context|window'
measured+='|diff-rounding|diff-bug|planted|monitor-curve|parity|attention-registers|gpu-check|bench-save|bench-attention|scaling-measured|scaling-forms'
measured+='|experts-bench|experts-stories'
measured+='|journey-[a-z]+'
gen_journey-one() { left_by journeys/one.md; } # the last command of doc/journeys.md
# `make run` of all the preset's minutes, over; not a shorter one, which would make the README's block another run's.
full_run() {
    grep -q "^$(grep '^minutes' scripts/presets/stories.toml)" runs/stories/config.toml 2>/dev/null && grep -q '"event":"end"' runs/stories/metrics.jsonl &&
        ! grep -q '^stopped by a signal' runs/stories/log.txt
}
gen_run() { full_run && fenced run_in_short runs/stories/log.txt; } # make run
run_in_short() { # LOG: the last steps, an evaluation, a sample and the summary: 15 lines
    grep '^step ' "$1" | tail -n 2
    grep '^val ' "$1" | tail -n 1
    tail -n 60 "$1" | grep -A 1 '^---- sample' | tail -n 2 | cut -c 1-100
    tail -n 30 "$1" | grep -E '^(save|trained|train loss|validation|floor|plot|samples|checkpoint) '
}
gen_run-text() { [ -f runs/text/log.txt ] && fenced tail -n 20 runs/text/log.txt; }
gen_samples() { full_run && fenced tail -n 7 runs/stories/samples.txt; }
gen_bench() { [ -f runs/bench.txt ] && fenced cat runs/bench.txt; }
gen_bench-attention() { left_by bench_attention.md; } # build/bench attention --threads 1 >runs/bench_attention.md, with its commit
gen_bench-decode() { left_by bench_decode.md; } # build/bench decode | grep '^|' >runs/bench_decode.md
gen_bench-products() { left_by bench_products.md; } # build/bench bf16 --threads 1 >runs/bench_products.md, with its commit
gen_bench-sample() { left_by bench_sample.md; } # dev/reference/bench_sample.py >runs/bench_sample.md
gen_bench-save() { [ -f runs/bench_save.txt ] && fenced cat runs/bench_save.txt; }
gen_bench-data() { left_by bench_data.txt; } # make bench-data
gen_bench-ranks() { left_by bench_ranks.md; } # make bench-ranks
gen_matmul-ladder() { left_by matmul_ladder.txt; } # scripts/matmul_ladder.sh >runs/matmul_ladder.txt
gen_gpu-check() { :; } # scripts/gpu_check.sh writes there itself
gen_attention-ladder() { left_by attention_ladder.txt; } # scripts/attention_ladder.sh >runs/attention_ladder.txt, on a GPU
gen_diff-rounding() { [ -f runs/diff_rounding.txt ] && fenced cat runs/diff_rounding.txt; } # scripts/rounding_or_bug.sh rounding
gen_planted() { [ -f runs/planted.txt ] && sed -n '/^| error/,$p' runs/planted.txt; } # dev/reference/check_planted.py >runs/planted.txt
gen_diff-bug() { [ -f runs/diff_bug.txt ] && fenced cat runs/diff_bug.txt; } # scripts/rounding_or_bug.sh bug gelu_grad
gen_optimizers-race() { left_by optimizers_race.md; }   # build/show optimizers race --steps 300 >runs/optimizers_race.md
gen_optimizers-decay() { left_by optimizers_decay.md; } # build/show optimizers decay >runs/optimizers_decay.md
gen_long-context() { left_by long_context.md; }         # scripts/long_context.sh
gen_window() { left_by windows.md; }                    # scripts/window.sh
gen_precision() { left_by precision.md; }               # scripts/precision.sh
gen_experts-bench() { left_by bench_experts.md; }       # build/bench swiglu moe experts >runs/bench_experts.md, with its commit
gen_experts-stories() { left_by ablate_experts/table.md; } # the command in doc/experts.md
gen_monitor-curve() { [ -f runs/curve.txt ] && fenced cat runs/curve.txt; } # the drill of doc/monitor.md; build/show curve runs/drill/metrics.jsonl >runs/curve.txt
gen_zero-overlap() { left_by zero_overlap.md; }         # mpiexec -n 2 build/show zero overlap >runs/zero_overlap.md
gen_offload-measured() { left_by offload.md; }          # build/show offload measure runs >runs/offload.md
gen_recipe-report() { [ -f runs/recipe.txt ] && fenced cat runs/recipe.txt; } # as scripts/recipes/stories.toml says, >runs/recipe.txt
gen_scaling-forms() { # of the runs in the table above it
    awk '/<!-- scaling-measured -->/ { on = 1 } /<!-- .scaling-measured -->/ { on = 0 } on && /^c[0-9]/ { print $1, $2, $3, $5 }' \
        doc/scaling_fit.md >"$tmp/ladder"
    fenced "$build/show" scaling "$tmp/ladder" --predict 176576 20480000 --resamples 1 | sed -n '1p; /^other forms/,$p'
}
gen_scaling-measured() { # make scaling; without the held-out run what was known before it
    local file
    for file in runs/scaling/fit.txt runs/scaling/predicted.txt; do [ -f $file ] && fenced cat $file && return; done
}
gen_loader() { left_by loader.md; }                             # build/show loader >runs/loader.md
gen_launch-account() { # the command in doc/launch.md, | sed -n '/^account:/,/^  communication:/p' >runs/account.txt
    [ -f runs/account.txt ] && fenced cat runs/account.txt
}
gen_collectives-run() { [ -f runs/collectives.txt ] && fenced cat runs/collectives.txt; } # mpiexec -n 4 build/show collectives run 4000000
gen_attention-registers() { left_by attention_registers.md; } # dev/cuda_on_cpu/gpu.sh: needs nvcc
gen_parity() { # make parity, or test/parity.sh --quick, which leave runs/parity.txt: one row in ten, and the last line
    [ -f runs/parity.txt ] && fenced awk '{ last = $0 } NR % 10 == 1 { print } END { print "..."; print last }' runs/parity.txt
}
gen_packing() { # the data of make run
    full_run && "$build/show" packing runs/stories/data/train_000000.bin 256 64 1024 0
}
left_by() { [ -f "runs/$1" ] && cat "runs/$1"; }

fenced() {
    local status
    echo '```text'
    "$@"
    status=$?
    echo '```'
    return $status
}

# Prints FILE with its generated parts renewed.
rewrite() {
    local line name='' skipping=''
    while IFS= read -r line || [ -n "$line" ]; do
        if [ -n "$skipping" ]; then
            case $line in "<!-- /$skipping -->" | "<!-- $skipping -->") skipping='' ;; *) continue ;; esac
            printf '%s\n' "$line"
            continue
        fi
        printf '%s\n' "$line"
        [[ $line =~ ^'<!-- '([a-z-]+)' -->'$ ]] || continue
        name=${BASH_REMATCH[1]}
        if [ "$(type -t "gen_$name")" != function ]; then
            echo "error: $1: scripts/docs.sh knows no part called '$name'" >&2
            return 1
        fi
        if [ $check = 1 ] && [[ $name =~ ^($measured)$ ]]; then continue; fi
        "gen_$name" >"$tmp/part" || : >"$tmp/part"
        if [ ! -s "$tmp/part" ]; then
            [[ $name =~ ^($measured)$ ]] && continue
            echo "error: $1: nothing was made for '$name'" >&2
            return 1
        fi
        cat "$tmp/part"
        skipping=$name
    done <"$1"
    [ -z "$skipping" ] || { echo "error: $1: the part '$skipping' has no end (<!-- /$skipping -->)" >&2; return 1; }
}

status=0
for picture in $(full_run && echo stories/loss) precision/precision precision/precision_scale scaling/isoflop; do
    [ $check = 0 ] && [ -f "runs/$picture.svg" ] && cp "runs/$picture.svg" "doc/$(basename "$picture").svg"
done
# Drawings that a program makes: the picture, and the command to which its path is added.
while IFS='|' read -r picture command; do
    # shellcheck disable=SC2086
    "$build/"$command "$tmp/drawn.svg" >/dev/null || { status=1; continue; }
    cmp -s "$tmp/drawn.svg" "doc/$picture" && continue
    if [ $check = 1 ]; then echo "doc/$picture is out of date (run make docs)"; status=1
    else cp "$tmp/drawn.svg" "doc/$picture" && echo "doc/$picture drawn"; fi
done <<'END'
zero.svg|show zero holds gpt2-124m --ranks 4 --svg
collectives.svg|show collectives draw ring,halving 4
mesh.svg|show mesh 16 --pp 2 --cp 2 --tp 2 --svg
dedup.svg|prepare dedup --curve
tp.svg|show tp tiny 4 --svg
cp.svg|show cp 8192 4 --svg
pipeline.svg|show pipeline compare --stages 4 --micro 8 --svg
block.svg|show draw block tiny
casts.svg|show draw casts tiny --numerics.dtype=bf16
state.svg|show draw state gpt2-124m
recompute.svg|show draw recompute gpt2-124m
tiles.svg|show draw tiles
experts.svg|show draw experts tiny-moe --moe.capacity=1
slices.svg|show draw slices tiny
END
# The rooms of the tree: a picture, and a page in each.
if ! scripts/house.sh "$tmp/house.svg"; then status=1
elif cmp -s "$tmp/house.svg" doc/house.svg; then :
elif [ $check = 1 ]; then echo 'doc/house.svg is out of date (run make docs)'; status=1
else cp "$tmp/house.svg" doc/house.svg && echo 'doc/house.svg drawn'
fi
if [ $check = 1 ]; then scripts/rooms.sh --check || status=1
else scripts/rooms.sh || status=1
fi
for file in doc/*.md; do
    name=$(basename "$file")
    case $name in README.md) continue ;; esac
    [ "$(grep -c "]($name)" doc/README.md)" -ge 1 ] && continue
    echo "$file is not in the index, doc/README.md (add it to the list of chapters)"
    status=1
done
for file in doc/*.md README.md; do # README last: it is made from the others
    [ -f "$file" ] || continue
    up=
    case $file in doc/*) up=../ ;; esac
    if ! rewrite "$file" >"$tmp/new"; then status=1
    elif cmp -s "$tmp/new" "$file"; then :
    elif [ $check = 1 ]; then
        echo "$file is out of date (run make docs)"
        diff "$file" "$tmp/new" | head -n 10
        status=1
    else
        cat "$tmp/new" >"$file" && echo "$file rewritten"
    fi
done
exit $status
