#!/bin/bash
# circle: docs
# test/test_guide_examples.sh: each configuration of scripts/examples is what it says, planned as it stands, and trains
# three steps on ranks of this machine, smaller: with the layout and the batch that its comment gives, the bytes that
# build/plan says for every rank, and the learning rates of its schedule. The commands of doc/guide_map.txt that train are
# run, and print what their rows say.
# deeper: every configuration and every command, not four
. "$(dirname "$0")/data_common.sh"
cd "$(dirname "$0")/.." || exit 1
export DIR=$work/examples OMP_NUM_THREADS=1

# NAME; as it stands: layout, micro-batches of a step; small: ranks, dp tp pp zero, tokens of a step; peak rate, steps of
# the warm-up; a line of its log. What the guides say, once more: nothing here is read from the files.
table='
megatron-gpt3-175b|dp 4 tp 8 sp pp 16 v 1 cp 1 zero 0 micro 1 recompute none|384|8|2 2 2 0|512|6e-5|300|numerics.dtype bf16
deepspeed-zero1-3d|dp 8 tp 8 sp pp 16 v 1 cp 1 zero 1 micro 1 recompute none|256|8|2 2 2 1|512|6e-5|50|run.log_every 1
launcher-zero2|dp 32 tp 1 pp 1 v 1 cp 1 zero 2 micro 4 recompute none|8|4|4 1 1 2|1024|3e-4|4|optim.decay_tokens 1000000000
deepspeed-zero3-accum|dp 8 tp 1 pp 1 v 1 cp 1 zero 3 micro 2 recompute none offload updates|4|4|4 1 1 3|2048|3e-4|50|batch.accum 4
gpt-neox-20b|dp 12 tp 2 pp 4 v 1 cp 1 zero 1 micro 4 recompute full|32|8|2 2 2 1|1024|0.97e-4|1500|numerics.loss_scale 4096
olmo-7b|dp 256 tp 1 pp 1 v 1 cp 1 zero 3 micro 2 recompute none|4|4|4 1 1 3|1024|3e-4|100|parallel.reduce_dtype storage
torchtitan-llama3-8b|dp 64 tp 1 pp 1 v 1 cp 1 zero 3 micro 8 recompute full|1|4|4 1 1 3|2048|3e-4|200|optim.schedule linear
deepspeed-zero3-offload|dp 64 tp 1 pp 1 v 1 cp 1 zero 3 micro 1 recompute full offload updates|1|4|4 1 1 3|1024|1.5e-4|50|memory.offload cpu
hf-trainer-zero3|dp 8 tp 1 pp 1 v 1 cp 1 zero 3 micro 4 recompute full|16|4|4 1 1 3|1024|3e-4|1286|ckpt.keep 5
megatron-70b|dp 8 tp 8 pp 4 v 1 cp 1 zero 0 micro 1 recompute selective|128|8|2 2 2 0|512|3e-4|4769|optim.beta2 0.95
fsdp|dp 8 tp 1 pp 1 v 1 cp 1 zero 3 micro 1 recompute none|8|4|4 1 1 3|1024|3e-4|50|parallel.reshard true
hyperparameters|dp 64 tp 1 pp 1 v 1 cp 1 zero 1 micro 1 recompute none|16|2|2 1 1 1|1024|3e-4|2000|batch.ramp_from 256'
rows() { sed -n '/|/p' <<<"$table"; }

planned_as_it_stands() {
    local name cut micro
    while IFS='|' read -r name cut micro _; do
        echo "$name"
        scripts/example.sh full "$name" | tr -s ' ' >"$work/full"
        grep -qxF " cut $cut" "$work/full"
        grep -qF " micro-batches $micro of a step" "$work/full"
    done < <(rows)
    rows | cut -d '|' -f 1 | sort | diff - <(cd scripts/examples && ls | sed -n 's/[.]toml$//p' | grep -vx mixture)
}

value() { # EVENT KEY: the key's value in each line of the event, of $run
    sed -n "/\"event\":\"$1\"/s/.*\"$2\":\([^,}]*\).*/\1/p" "$run/metrics.jsonl"
}

memory_lines() { # of account.json or of `plan memory --json`: RANK TAG BYTES
    awk -F '[":, ]+' '/"traffic"/ { exit } /^ *"[0-9]+": [{]/ { rank = $2 } /: [0-9]+,?$/ { print rank, $2, $3 }'
}

# example NAME RANKS "DP TP PP ZERO" TOKENS LR WARMUP LINE
example() {
    local name=$1 run=$DIR/$1.run n=$2 tokens=$4 lr=$5 warmup=$6 line=$7 dp tp pp zero
    read -r dp tp pp zero <<<"$3"
    scripts/example.sh "$name" 2>"$work/err" | tr -s ' ' >"$work/out"
    [ ! -s "$work/err" ]
    grep -q "^mpiexec -n $n " "$work/out"
    awk '/^\[/ { gsub(/[][]/, ""); section = $0; next } { sub(/^# /, "") }
        $2 == "=" { gsub(/"/, "", $3); print section "." $1, $3 " " }' "$run/config.toml" >"$work/settings"
    grep -q "^parallel.dp $dp " "$work/settings"
    grep -q "^parallel.tp $tp " "$work/settings"
    grep -q "^parallel.pp $pp " "$work/settings"
    grep -q "^parallel.zero $zero " "$work/settings"
    grep -q "^batch.tokens $tokens " "$work/settings"
    grep -q "^$line " "$work/settings"

    "$BUILD/plan" memory "$run/config.toml" --ranks "$n" --json | memory_lines >"$work/planned"
    [ "$(wc -l <"$work/planned")" = $((9 * n)) ] # 7 tags, total, peak
    memory_lines <"$run/account.json" | diff "$work/planned" -

    [ "$(value train step | wc -l)" = 3 ]
    value train lr | awk -v lr="$lr" -v warmup="$warmup" '
        { want = lr * NR / warmup; d = $1 - want; if (!((d < 0 ? -d : d) <= 1e-8 * want)) { print "step " NR ": lr " $1 ", not " want; bad = 1 } }
        END { exit bad || NR != 3 }' # metrics.jsonl has nine digits
}

mixture() {
    local run=$DIR/mixture.run share
    scripts/example.sh mixture >"$work/out"
    for share in 69.07 14.43 4.64 2.58 2.06; do grep -q " $share% " "$work/out"; done # of 0.97: .67 .14 .045 .025 .02
    [ "$(grep -c '^[a-z_]*  *[0-9.]*% ' "$work/out")" = 7 ]
    [ "$(value train step | wc -l)" = 3 ]
}

# A replica of 7 billion parameters, 18 bytes each, is more than 80 GB; with ZeRO 1, 6 + 12 / 64, it is 42 GB. And the best
# of all is not worse than the best of some.
strategies_side_by_side() {
    scripts/strategies.sh llama2-7b 64 >"$work/strategies"
    cat "$work/strategies"
    [ "$(wc -l <"$work/strategies")" = 10 ]
    grep -qxF '| data | no room |' "$work/strategies"
    awk -F ' *[|] *' 'NR > 2 { rate[$2] = $3 + 0; if ($3 + 0 > most) most = $3 + 0 }
        END { exit !(rate["data, ZeRO 1"] > rate["data, tensor 8"] && rate["data, tensor 8"] > 0 && rate["the fastest found"] == most) }' "$work/strategies"
}

# The map's commands that train, in a folder with the small set where `make run` puts its own.
of_map() { # of what needs data, or an example: COMMAND SAYS
    awk -f scripts/guide_map.awk -v mode=claims doc/guide_map.txt | tr '\t' '\037' |
        awk -F '\037' '$1 == "run" && ($5 ~ /^data$|^data and|^the command above$|^a folder that it writes|runs\/examples/) && !seen[$3 $4]++ {
            print $3 "\037" $4 }'
}

commands_of_the_map() {
    local here=$PWD command says bad=0 top
    top=$(cd "$BUILD" && pwd)
    mkdir -p "$work/tree/runs/stories"
    cd "$work/tree"
    ln -s "$top" build
    for top in scripts doc README.md; do ln -s "$here/$top" $top; done
    build/stories --bytes 200000 --seed 3 --out text >log
    build/prepare tokens --train text/train.txt --val-file text/val.txt --vocab 512 --out runs/stories/data >log
    build/train tiny >log 2>&1 # the run that some of them show
    unset DIR
    while IFS=$'\037' read -r command says; do
        if ! timeout 120 bash -c "$command" >log 2>&1 </dev/null; then echo "$command: $(tail -n 1 log)"; bad=1
        elif [ -n "$says" ] && { tr -s ' ' <log >words; ! grep -qF -- "$says" words; }; then echo "$command: does not print: $says"; bad=1
        fi
    done < <(cd "$here" && of_map)
    return $bad
}

passes 'as they stand they are planned as their comments say' planned_as_it_stands
while IFS='|' read -r name _ _ n layout tokens lr warmup line; do
    case $name in megatron-gpt3-175b | launcher-zero2 | deepspeed-zero3-accum) ;; *) [ -n "${TEST_LONG:-}" ] || continue ;; esac
    passes "$name, small" example "$name" "$n" "$layout" "$tokens" "$lr" "$warmup" "$line"
done < <(rows)
passes 'the mixture of sources' mixture
passes 'strategies side by side' strategies_side_by_side
[ -z "${TEST_LONG:-}" ] || passes 'the commands of the map that train' commands_of_the_map
exit $failed
