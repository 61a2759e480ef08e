#!/bin/bash
# test/test_layouts.sh: build/train with a model in parts (tp, sp, cp, pp) on real ranks: it resumes on any other layout,
# holds what build/plan says, sends what the formulas say, and refuses what cannot be cut. (test_parity.sh: that gradients
# are one rank's.)
# deeper: more plans
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
plan=$BUILD/plan

# Everything that the parts could do differently, in one run that moves over four layouts; against one process that never
# stops.
moves() {
    local options=(--numerics.deterministic=true --model.dropout=0.1 --data.document_mask=true --optim.clip=0.1
        --run.steps=8 --run.eval_every=2 --eval.tokens=1300 --sample.count=1 --sample.tokens=12 --batch.micro=2
        --model.layers=4 --model.window=9 --model.window_pattern=ssf)
    train gpt straight "${options[@]}" --run.stop_at=8
    ranks 8 gpt moved "${options[@]}" --run.stop_at=3 --parallel.tp=2 --parallel.sp=true --parallel.pp=2 --parallel.zero=1
    ranks 4 gpt moved "${options[@]}" --run.stop_at=5 --ckpt.resume=true --parallel.cp=2 --parallel.zero=3
    ranks 2 gpt moved "${options[@]}" --run.stop_at=7 --ckpt.resume=true --parallel.pp=2 --parallel.schedule=zb-v
    train gpt moved "${options[@]}" --run.stop_at=8 --ckpt.resume=true
    [ ! -s "$work/moved.err" ]
    same_state moved straight 8
    history moved | cmp - <(history straight)
}

# held N NAME [OPTION...]: bytes by tag and rank after an update, as planned
held() {
    local n=$1 name=$2
    shift 2
    ranks "$n" llama "$name" --run.stop_at=1 --run.account=true --eval.tokens=64 --sample.count=0 "$@"
    [ ! -s "$work/$name.err" ]
    "$plan" memory "$work/llama.toml" "$@" --ranks "$n" --json | memory_lines >"$work/planned"
    [ "$(wc -l <"$work/planned")" = $((9 * n)) ]
    memory_lines <"$runs/$name/account.json" | cmp - "$work/planned"
}

sent() { # NAME RANK GROUP [KIND]: bytes
    awk -v rank="$2" -v group="$3" -v kind="${4:-}" -F '[":, ]+' '
        /"traffic"/ { on = 1 }
        /[{]$/ { match($0, /^ */); if (RLENGTH == 4) in_rank = $2; if (RLENGTH == 6) in_group = $2; if (RLENGTH == 8) in_kind = $2 }
        on && in_rank == rank && in_group == group && (kind == "" || in_kind == kind) && $2 == "sent" { n += $3 }
        END { printf "%.0f\n", n }' "$runs/$1/account.json"
}

# A layer of a micro-batch adds (N, C) floats over tp four times; ring: 2 (tp - 1) / tp of them are sent. With sequence
# parallelism the same bytes go as gathers and scatters.
tp_bytes() {
    local options=(--run.stop_at=1 --run.account=true --eval.tokens=64 --sample.count=0 --batch.micro=4 --parallel.tp=2)
    ranks 2 gpt tp "${options[@]}"
    ranks 2 gpt sp "${options[@]}" --parallel.sp=true
    # 4 micro-batches of 4 x 32 tokens, 2 layers and the ends: embedding 1 + 0, head 0 + 1, and 3 numbers a token for the loss
    local rows=$((4 * 32)) stream
    stream=$((rows * 64 * 4))
    [ "$(sent tp 0 tp)" = $((4 * (2 * 4 + 2) * stream + 4 * 3 * rows * 4)) ]
    # the same, and the gradients of 5 norms (weight and bias) a micro-batch, which ranks have of their own rows
    [ "$(sent sp 0 tp)" = $((4 * (2 * 4 + 2) * stream + 4 * 3 * rows * 4 + 4 * 5 * 2 * 64 * 4)) ]
}

# A stage sends each micro-batch's stream up, its gradient down.
pp_bytes() {
    ranks 2 gpt pp --run.stop_at=1 --run.account=true --eval.tokens=64 --sample.count=0 --batch.micro=4 --parallel.pp=2
    [ "$(sent pp 0 pp send)" = $((4 * 4 * 32 * 64 * 4)) ]
    [ "$(sent pp 1 pp send)" = $((4 * 4 * 32 * 64 * 4)) ]
}

# ZeRO 2 and 3 on stages: every rank holds what is planned and sends what the formulas say; without determinism, losses and
# norms are those of one process but for rounding.
zero_on_stages() { # FAMILY ZERO SCHEDULE [OPTION...]
    local family=$1 zero=$2 schedule=$3 name="staged-$*" one="one-$1" key
    local options=(--batch.micro=2 --model.layers=4 --run.account=true --eval.tokens=64 --sample.count=0)
    local layout=(--parallel.pp=2 --parallel.schedule="$schedule" --parallel.zero="$zero" "${@:4}")
    [ -e "$runs/$one" ] || train "$family" "$one" "${options[@]}" --run.stop_at=3
    ranks 4 "$family" "$name" "${options[@]}" "${layout[@]}" --run.stop_at=3
    [ ! -s "$work/$name.err" ]
    "$plan" memory "$work/$family.toml" "${options[@]}" "${layout[@]}" --ranks 4 --json | memory_lines |
        cmp - <(memory_lines <"$runs/$name/account.json")
    awk '/bytes sent/ { on = 1 } on && / P/ { n++; bad += $(NF - 1) != 0; print } END { exit bad || n < 2 }' "$work/$name.out"
    for key in loss grad_norm; do # rounding of fp32 in sums of some thousand terms, after two updates
        close_to "$(value train $key "$runs/$name/metrics.jsonl" | tail -n 1)" \
            "$(value train $key "$runs/$one/metrics.jsonl" | tail -n 1)" 1e-4
    done
}

# A bucket waits for the step's last micro-batch: each of two replicas sends half of its gradients and half of the sums,
# but for the copy of the tied head (512 x 64), whose gradient goes to the embedding's stage.
pp_buckets() {
    ranks 4 gpt buckets --run.stop_at=1 --run.account=true --eval.tokens=64 --sample.count=0 --batch.micro=2 --parallel.pp=2 \
        --comm.bucket=1000
    local rank bytes
    memory_lines <"$runs/buckets/account.json" | awk '$2 == "gradients"' >"$work/gradients"
    [ "$(wc -l <"$work/gradients")" = 4 ]
    while read -r rank _ bytes; do
        [ "$(sent buckets "$rank" dp all_reduce)" = $((bytes - rank % 2 * 512 * 64 * 4)) ]
    done <"$work/gradients"
}

# Two nodes of two ranks: each sends what a ring sends, 2 (N-1)/N of the gradients, and the losses are those of one
# process but for rounding.
hierarchical_sums() {
    local options=(--run.stop_at=3 --eval.tokens=64 --sample.count=0 --batch.micro=2) key rank bytes
    train gpt alone "${options[@]}"
    ranks 4 gpt nodes "${options[@]}" --run.account=true --comm.all_reduce=hierarchical --comm.node=2 --comm.bucket=1000
    bytes=$(memory_lines <"$runs/nodes/account.json" | awk '$1 == 0 && $2 == "gradients" { print $3 }')
    for rank in 0 1 2 3; do [ "$(sent nodes $rank dp all_reduce)" = $((bytes * 3 / 2)) ]; done
    for key in loss grad_norm; do # rounding of fp32 in sums of some thousand terms, after two updates
        close_to "$(value train $key "$runs/nodes/metrics.jsonl" | tail -n 1)" \
            "$(value train $key "$runs/alone/metrics.jsonl" | tail -n 1)" 1e-4
    done
    if ranks 4 gpt three "${options[@]}" --comm.all_reduce=hierarchical --comm.node=3; then return 1; fi
    grep -q 'comm.node = 3 does not divide the 4 replicas' "$work/three.err"
}

# A ring of 2 sends K and V once forward; back, K and V and the gradients of both.
cp_bytes() {
    ranks 2 gpt cp --run.stop_at=1 --run.account=true --eval.tokens=64 --sample.count=0 --batch.micro=4 --parallel.cp=2
    [ "$(sent cp 0 cp)" = $((4 * 2 * (2 + 4) * 4 * 16 * 64 * 4)) ]
}

traced() {
    ranks 2 gpt traced --run.stop_at=2 --sample.count=0 --eval.tokens=64 --batch.micro=4 --parallel.pp=2 --run.trace=2
    [ "$(grep -c '"ph":"X"' "$runs/traced/trace.json")" = 16 ] # 4 F and 4 B on 2 stages
    grep -q "stages' time idle" "$work/traced.out"
}

refused() { # WORDS N FAMILY [OPTION...]: rank 0 says why in one line, before anything is trained; exit status 1
    local words=$1 n=$2 family=$3 status=0
    shift 3
    ranks "$n" "$family" refused "$@" || status=$?
    cat "$work/refused.err"
    [ "$status" = 1 ]
    grep -E '^(rank [0-9]+: )?error: ' "$work/refused.err" | sed 's/^rank [0-9]*: //' | sort -u >"$work/said"
    [ "$(wc -l <"$work/said")" = 1 ]
    grep -qE "$words" "$work/said"
    [ ! -e "$runs/refused/checkpoints" ]
}

mistakes() {
    refused 'parallel\.tp = 3 does not divide model\.heads = 4' 3 gpt --parallel.tp=3
    refused 'pp 3 .*the job has 4' 4 gpt --parallel.pp=3
    refused '4 pieces.* 2 layers|2 layers.* 4 pieces' 4 gpt --parallel.pp=4 --batch.micro=2
    refused 'interleaved.*micro-batches|micro-batches.*interleaved' 2 gpt --parallel.pp=2 --parallel.schedule=interleaved \
        --batch.micro=16
    refused 'parallel\.sp: rows of 33 tokens' 2 gpt --parallel.tp=2 --parallel.sp=true --model.context=33 --batch.tokens=528
    refused 'does not divide model\.context = 36' 4 gpt --parallel.cp=4 --model.context=36 --batch.tokens=576
    refused 'run\.norms_every: reads the fp32 weights' 2 gpt --parallel.zero=3 --memory.offload=cpu --run.norms_every=1
    refused 'batch\.ramp_from: parallel\.table is a schedule for one number' 2 gpt --parallel.pp=2 --batch.ramp_from=256 \
        --batch.ramp_tokens=1024 --batch.micro=2 --parallel.schedule=user --parallel.table="$work/mine.csv"
    refused 'batch\.ramp_from: 192 is not a multiple of a micro-batch of 128 tokens' 2 gpt --parallel.pp=2 --batch.ramp_from=192 \
        --batch.ramp_tokens=1024 --batch.micro=2 --parallel.schedule=interleaved --model.layers=4
    refused 'parallel\.layers = 2,1' 2 gpt --parallel.pp=2 --parallel.layers=2,1 --batch.micro=2
    refused 'parallel\.table' 2 gpt --parallel.pp=2 --parallel.schedule=user --batch.micro=2
    refused 'neighbouring|contiguous' 2 gpt --parallel.cp=2 --parallel.cp_assign=contiguous --numerics.deterministic=true
    refused 'parallel\.sp has no effect' 2 gpt --parallel.sp=true
}

# Layers as parallel.layers says; a schedule written by the user.
by_hand() {
    "$BUILD/pipeline" 1f1b --stages 2 --micro 4 --csv "$work/mine.csv" >/dev/null
    ranks 2 gpt hand --run.stop_at=2 --sample.count=0 --eval.tokens=64 --batch.micro=4 --model.layers=3 --parallel.pp=2 \
        --parallel.layers=1,2 --parallel.schedule=user --parallel.table="$work/mine.csv" --numerics.deterministic=true
    train gpt nohand --run.stop_at=2 --sample.count=0 --eval.tokens=64 --model.layers=3 --numerics.deterministic=true
    same_state hand nohand 2
}

# Four stages in a V, whose pieces have one layer or two, against one rank.
in_a_v() {
    local options=(--run.stop_at=2 --sample.count=0 --eval.tokens=64 --batch.micro=2 --model.layers=9
        --numerics.deterministic=true)
    train gpt flat "${options[@]}" || return 1
    ranks 4 gpt half "${options[@]}" --parallel.pp=4 --parallel.schedule=v-half || return 1
    ranks 4 gpt min "${options[@]}" --parallel.pp=4 --parallel.schedule=v-min || return 1
    same_state half flat 2 && same_state min flat 2
}

# A batch that grows from 2 micro-batches to 8, through several sizes, on stages; stopped on the way and resumed on other
# stages: the bytes of one process.
grows() { # MICRO SCHEDULE: of the one process; of the stages, whose micro-batches have 2 sequences
    local options=(--numerics.deterministic=true --model.layers=4 --model.dropout=0.1 --batch.ramp_from=128 --run.steps=10
        --batch.ramp_tokens=2000 --optim.ramp_lr=sqrt --eval.tokens=100 --sample.count=0 --run.eval_every=3)
    train gpt "one$2" "${options[@]}" --batch.micro="$1"
    ranks 2 gpt "grown$2" "${options[@]}" --batch.micro=2 --parallel.pp=2 --parallel.schedule="$2" --run.stop_at=4
    ranks 2 gpt "grown$2" "${options[@]}" --batch.micro="$1" --parallel.pp=2 --parallel.schedule=gpipe --ckpt.resume=true
    [ ! -s "$work/grown$2.err" ]
    [ "$(value train tokens "$runs/grown$2/metrics.jsonl" | awk '{ print $1 - n; n = $1 }' | sort -nu | wc -l)" -ge 3 ]
    same_state "grown$2" "one$2" 10
    history "grown$2" | cmp - <(history "one$2")
}

# Norms of every tensor and the noise scale on any layout: norms.csv has the bytes of one process, so has the noise where
# the small batch is the same 4 sequences (one replica), and neither changes a bit of the training.
watched() { # N NAME MICRO [OPTION...]
    local n=$1 name=watched-$2 micro=$3 noted='/noise .*B_simple/s/.*step/step/p'
    local options=(--numerics.deterministic=true --model.dropout=0.1 --run.stop_at=3 --sample.count=0 --eval.tokens=64
        --batch.micro="$micro" --model.layers=4)
    shift 3
    ranks "$n" gpt "$name" "${options[@]}" --run.norms_every=1 --run.noise_every=1 "$@"
    [ ! -s "$work/$name.err" ]
    [ "$(wc -l <"$runs/$name/norms.csv")" -gt 100 ]
    [ "$(sed -n "$noted" "$runs/$name/log.txt" | wc -l)" = 3 ]
    if [ "$name" = watched-one ]; then
        train gpt unwatched "${options[@]}"
        same_state "$name" unwatched 3
    else
        same_state "$name" watched-one 3
        cmp "$runs/$name/norms.csv" "$runs/watched-one/norms.csv"
        if [ "$n" = 2 ]; then cmp <(sed -n "$noted" "$runs/$name/log.txt") <(sed -n "$noted" "$runs/watched-one/log.txt"); fi
    fi
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
uneven_corpus
passes 'a run moves over layouts' moves
n=0
plans() { # of standard input
    local ranks options
    while read -r ranks options; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        passes "planned is held: $ranks ranks $options" held "$ranks" "held$n" $options
    done
}
plans <<'END'
4 --parallel.tp=4 --parallel.sp=true --batch.micro=4
4 --parallel.cp=2 --parallel.zero=2 --batch.micro=4 --data.document_mask=true
2 --parallel.pp=2 --batch.micro=4 --memory.recompute=full
4 --parallel.pp=4 --parallel.schedule=v-min --model.layers=9 --batch.micro=2
8 --parallel.tp=2 --parallel.pp=2 --parallel.cp=2 --batch.micro=2 --numerics.deterministic=true --model.tie=true
END
deeper plans <<'END'
2 --parallel.tp=2 --batch.micro=4
4 --parallel.tp=2 --parallel.zero=3 --numerics.dtype=bf16 --batch.micro=4
2 --parallel.cp=2 --parallel.cp_way=gather --batch.micro=4 --numerics.deterministic=true
4 --parallel.pp=2 --parallel.zero=1 --batch.micro=2 --parallel.schedule=zb-h1
4 --parallel.pp=2 --parallel.schedule=v-min --model.layers=5 --batch.micro=2 --parallel.zero=3
END
passes 'bytes over tp and with sp' tp_bytes
passes 'bytes between stages' pp_bytes
passes 'replicas of a stage send their gradients once a step' pp_buckets
passes 'hierarchical sums on two nodes of two ranks' hierarchical_sums
passes 'bytes of the ring' cp_bytes
passes 'a trace' traced
passes 'ZeRO 2 on stages' zero_on_stages gpt 2 zb-v
passes 'ZeRO 3 on stages' zero_on_stages gpt 3 1f1b --memory.recompute=sqrt
deeper passes 'ZeRO 2 on split stages' zero_on_stages gpt 2 zb-h1
deeper passes 'ZeRO 3, chunks' zero_on_stages gpt 3 interleaved --memory.recompute=sqrt
deeper passes 'ZeRO 3, split, offloaded' zero_on_stages llama 3 zb-v --memory.recompute=full --memory.offload=cpu
deeper passes 'ZeRO 3, kept' zero_on_stages llama 3 zb-h1 --parallel.reshard=false
passes 'norms and noise on one process' watched 1 one 4
passes 'norms and noise on two stages' watched 2 pp 4 --parallel.pp=2
passes 'norms and noise on tp x ZeRO 3' watched 4 tp 2 --parallel.tp=2 --parallel.sp=true --parallel.zero=3
passes 'norms and noise on cp x dp' watched 4 cp 2 --parallel.cp=2
passes 'norms and noise on two copies of two shards' watched 4 hybrid 1 --parallel.zero=2 --parallel.shard=2
deeper passes 'norms and noise on an interleaved pipeline' watched 2 loops 2 --parallel.pp=2 --parallel.schedule=interleaved
passes 'a batch that grows on 1f1b stages' grows 2 1f1b
passes 'a batch that grows on interleaved stages' grows 4 interleaved
deeper passes 'a batch that grows on zb-v stages' grows 2 zb-v
passes 'layers and schedule by hand' by_hand
passes 'four stages in a V' in_a_v
passes 'mistakes' mistakes
exit $failed
