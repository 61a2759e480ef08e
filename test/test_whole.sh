#!/bin/bash
# test/test_whole.sh: the optimizers that need whole tensors (Muon, Adafactor, 8-bit AdamW) and adaptive clipping, where
# tensor parallelism cuts them, on real ranks. In deterministic mode weights, state, losses and dumps are the bytes of one
# process, on every layout; a run goes on from any layout on any other. (test_plan_layouts.sh: bytes held and sent.)
# deeper: more layouts
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
exact=(--numerics.deterministic=true --optim.clip=0.1 --run.eval_every=2 --eval.tokens=200 --sample.count=0 --batch.micro=2)

# same N FAMILY RECIPE [OPTION...]: RECIPE, options with commas between, is of the one process too
same() {
    local n=$1 family=$2 recipe one
    read -ra recipe <<<"${3//,/ }"
    one=one-$family-$(tr -c 'a-z0-9\n' _ <<<"$3")
    shift 3
    [ -d "$runs/$one" ] || train "$family" "$one" "${exact[@]}" "${recipe[@]}" --run.stop_at=4 --run.dump=2
    rm -rf "$runs/ranks"
    ranks "$n" "$family" ranks "${exact[@]}" "${recipe[@]}" --run.stop_at=4 --run.dump=2 "$@"
    [ ! -s "$work/ranks.err" ]
    same_state ranks "$one" 4
    history "$one" | cmp - <(history ranks)
    "$BUILD/diff" "$runs/ranks" "$runs/$one" --exact | tail -n 1 | grep '^identical: '
}

# From tp 2 to one process, to tp 2 with ZeRO and a store, to a pipeline of tp 2; against one process that never stopped.
moves() { # OPTION...
    local options=("${exact[@]}" "$@" --run.save_every=0)
    rm -rf "$runs/moved" "$runs/straight"
    train gpt straight "${options[@]}" --run.stop_at=6
    ranks 2 gpt moved "${options[@]}" --run.stop_at=2 --parallel.tp=2
    train gpt moved "${options[@]}" --run.stop_at=3 --ckpt.resume=true
    ranks 4 gpt moved "${options[@]}" --run.stop_at=4 --ckpt.resume=true --parallel.tp=2 --parallel.zero=3 --memory.offload=cpu
    ranks 4 gpt moved "${options[@]}" --run.stop_at=5 --ckpt.resume=true --parallel.tp=2 --parallel.pp=2
    ranks 2 gpt moved "${options[@]}" --run.stop_at=6 --ckpt.resume=true --parallel.zero=3
    [ ! -s "$work/moved.err" ]
    same_state moved straight 6
}

# In 16 bits tensor-parallel ranks round what they send, so runs agree closely, not exactly. Units read new weights.
in_16_bits() {
    local options=(--optim.name=muon --optim.clip=0.1 --numerics.dtype=bf16 --run.stop_at=12 --run.eval_every=12 --eval.tokens=500
        --sample.count=0 --batch.micro=4)
    train gpt wide "${options[@]}"
    ranks 4 gpt wide-ranks "${options[@]}" --parallel.tp=2 --parallel.zero=1 --monitor.agree_every=1
    paste <(value train loss "$runs/wide/metrics.jsonl") <(value train loss "$runs/wide-ranks/metrics.jsonl") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; print $1, $2; n++ } !(d < 0.01) { bad = 1 } END { exit bad || n < 12 }'
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
layouts() { # of standard input
    local n family recipe options
    while read -r n family recipe options; do
        # shellcheck disable=SC2086
        passes "one process' bytes: $n ranks, $family $recipe $options" same "$n" "$family" "$recipe" $options
    done
}
layouts <<'END'
4 gpt --optim.name=muon,--optim.agc=0.01 --parallel.tp=2 --parallel.zero=1
4 llama --optim.name=normuon,--optim.momentum_warmup=9,--optim.cautious_decay=true --parallel.tp=2 --parallel.zero=3 --memory.offload=disk
4 gpt --optim.name=adafactor --parallel.tp=4 --parallel.sp=true
4 llama --optim.name=adafactor,--optim.agc=0.01,--optim.agc_unit=tensor --parallel.tp=2 --parallel.cp=2
4 gpt --optim.name=adamw8bit,--model.channels=48 --parallel.tp=2 --parallel.pp=2
4 llama --optim.name=adamw8bit --parallel.tp=2 --parallel.zero=2
END
deeper layouts <<'END'
2 gpt --optim.name=muon --parallel.tp=2
4 gpt --optim.name=muon,--optim.agc=0.01 --parallel.tp=2 --parallel.zero=2
8 gpt --optim.name=muon,--optim.agc=0.01 --parallel.tp=2 --parallel.cp=2 --parallel.zero=3
8 gpt --optim.name=adamw8bit --parallel.tp=2 --parallel.pp=2 --parallel.zero=1
4 gpt --optim.name=adamw8bit,--model.channels=128 --parallel.tp=4
4 gpt --optim.name=lion,--optim.agc=0.01 --parallel.tp=2 --parallel.zero=3
2 llama --optim.name=adafactor --parallel.tp=2 --memory.offload=cpu
4 gpt --optim.name=adafactor,--model.layers=4 --parallel.tp=2 --parallel.pp=2 --parallel.schedule=zb-v
8 llama --optim.name=adafactor,--optim.agc=0.01 --parallel.tp=2 --parallel.cp=2 --parallel.pp=2
END
passes 'moves: 8-bit AdamW' moves --optim.name=adamw8bit
deeper passes 'moves: Muon, adaptive clipping' moves --optim.name=muon --optim.agc=0.01
deeper passes 'moves: Adafactor' moves --optim.name=adafactor
passes 'bf16' in_16_bits
exit $failed
