#!/bin/bash
# test/test_fault.sh: build/train with things that go wrong on purpose (run.fault): a spike is rolled back and leaves no
# trace, the same drill twice gives the same bytes, on one rank and on two; a resumed run still skips what was skipped;
# a NaN and a flipped bit are named with tensor and rank; a full disk and a slow one do not stop the run.
# shellcheck source=test/train_common.sh
# deeper: more faults
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
runs="$work/runs, all of them" # the name of a folder may have a comma

brief=(--run.steps=60 --optim.decay_steps=60 --optim.lr=1e-3 --run.eval_every=0 --run.sample_every=0 --sample.count=0
    --run.save_every=10 --ckpt.keep=0)
wide=--model.channels=64 # learns enough in 35 steps for random data to stand out
guarded=("${brief[@]}" $wide --monitor.skip_z=8 --monitor.window=16 --monitor.on_spike=rollback)

told() { # EVENT NAME: the texts of an event
    sed -n "/\"event\":\"$1\"/s/.*\"text\":\(\"[^\"]*\"\).*/\1/p" "$runs/$2/metrics.jsonl"
}

# The data of updates 35 to 37 is random. Update 35 goes back to step 30 and around 8 batches, which are those and two more.
a_spike_is_rolled_back() {
    train gpt clean "${brief[@]}" $wide
    train gpt spiked "${brief[@]}" $wide --run.fault=spike:step=35,steps=3
    train gpt back "${guarded[@]}" --run.fault=spike:step=35,steps=3 --monitor.rollback_skip=8
    cat "$work/back.err"
    [ ! -s "$work/back.err" ]
    told rollback back >"$work/texts"
    cat "$work/texts"
    [ "$(wc -l <"$work/texts")" = 1 ]
    grep -q '^"update 35: loss .* standard deviations .*: back to the checkpoint of step 30, samples 480 to 607 skipped; look at these samples' "$work/texts"
    well_formed back 60
    grep -q '"guard"' "$(checkpoint back 60)/manifest.json"
    [ -f "$runs/back/loss.svg" ] && grep -q 'rolled back' "$runs/back/loss.svg"
    local clean back spiked
    clean=$(value end val_loss "$runs/clean/metrics.jsonl")
    back=$(value end val_loss "$runs/back/metrics.jsonl")
    spiked=$(value end val_loss "$runs/spiked/metrics.jsonl")
    echo "clean $clean, rolled back $back, trained on it $spiked"
    close_to "$back" "$clean" 0.01
    less "$back" "$spiked"
}

# The jump is too short and the next batch is as bad: a run that rolls back again and again ends.
rollbacks_are_counted() {
    local status=0
    train gpt many "${guarded[@]}" --monitor.skip_z=5 --run.fault=spike:step=35,steps=20 --monitor.max_rollbacks=2 || status=$?
    cat "$work/many.err"
    [ $status = 1 ]
    [ "$(told rollback many | wc -l)" = 2 ]
    grep -qE '^error: step 3[0-9]: loss .*, and the run has been rolled back 2 times .monitor.max_rollbacks' "$work/many.err"
}

drill=("${brief[@]}" --model.context=8 --batch.tokens=128 --numerics.deterministic=true --monitor.rollback_at=25 --monitor.rollback_skip=30 --monitor.rollback_cool=true
    --monitor.cool_steps=7 --eval.tokens=200)

a_drill_on_two_ranks() {
    train gpt drill "${drill[@]}"
    told rollback drill | grep -q '^"update 25: asked for .*: back to the checkpoint of step 20, samples 320 to 799 skipped, learning rate lowered'
    ranks 2 gpt ranks "${drill[@]}" --parallel.zero=2
    same_state drill ranks 60
}

the_same_drill_twice() {
    train gpt again "${drill[@]}"
    same_state drill again 60
    cmp <(history drill) <(history again)
    train gpt further "${drill[@]}" --monitor.rollback_steps=5 --run.stop_at=25 # 24 updates are in the weights: 19 at most
    told rollback further | grep -q 'back to the checkpoint of step 10, samples 160 to 639 skipped'
    # the schedule goes on where it was, at half of it for 7 steps
    train gpt plain "${brief[@]}" --run.stop_at=30
    local step
    for step in 21 27 28; do
        awk -v a="$(sed -n "/\"event\":\"train\",\"step\":$step,/s/.*\"lr\":\([^,]*\).*/\1/p" "$runs/drill/metrics.jsonl")" \
            -v b="$(sed -n "/\"event\":\"train\",\"step\":$step,/s/.*\"lr\":\([^,]*\).*/\1/p" "$runs/plain/metrics.jsonl")" \
            -v cool=$((step <= 27)) 'BEGIN { d = a - (cool ? b / 2 : b); exit !(a > 0 && d * d <= 1e-16 * b * b) }'
    done
}

# Stopped before and after the rollback, and killed in the middle of it: the same bytes; the jump is not forgotten.
a_drill_resumes() {
    local at
    train gpt parts "${drill[@]}" --run.stop_at=15
    train gpt parts "${drill[@]}" --run.stop_at=33 --ckpt.resume=true
    [ -f "$(checkpoint parts 33)/manifest.json" ]
    for at in 40 60; do train gpt parts "${drill[@]}" --run.stop_at=$at --ckpt.resume=true; done
    same_state drill parts 60
    cmp <(history drill | grep '"train"') <(history parts | grep '"train"')
    # and a run that no longer knows of rollbacks keeps to the data
    train gpt forgot "${drill[@]}" --run.stop_at=30
    train gpt forgot "${brief[@]}" --model.context=8 --batch.tokens=128 --numerics.deterministic=true --monitor.cool_steps=7 --eval.tokens=200 --ckpt.resume=true
    same_state drill forgot 60
}

# The newest checkpoints may still be being written when the bad update comes: the run waits for them and deletes them.
with_saves_on_their_way() {
    train gpt async "${drill[@]}" --ckpt.async=true --run.save_every=1 --monitor.rollback_steps=4
    told rollback async | grep -q 'back to the checkpoint of step 20, samples 320 to 799 skipped'
    same_state async drill 60
    fails_with 1 'run.fault: slowdisk: not with ckpt.async' "$BUILD/train" "$work/gpt.toml" --run.name=both \
        --ckpt.async=true --run.fault=slowdisk:step=3
}

# A damaged checkpoint is no place to go back to: the one before it is. Where all are damaged, the run ends, and what it
# had saved since is still there.
past_a_damaged_one() {
    local back=(--monitor.rollback_steps=4) status=0
    train gpt damaged "${drill[@]}" --run.stop_at=22
    printf '\377\377' | dd of="$(checkpoint damaged 20)/optim.safetensors" bs=1 seek=9000 conv=notrunc status=none
    cp -r "$runs/damaged" "$runs/ruined"
    train gpt damaged "${drill[@]}" "${back[@]}" --run.stop_at=30 --ckpt.resume=true
    told rollback damaged | grep -q 'back to the checkpoint of step 10, samples'
    [ ! -e "$(checkpoint damaged 22)" ] && [ -e "$(checkpoint damaged 30)" ]
    printf '\377\377' | dd of="$(checkpoint ruined 10)/optim.safetensors" bs=1 seek=9000 conv=notrunc status=none
    train gpt ruined "${drill[@]}" "${back[@]}" --ckpt.resume=true || status=$?
    [ $status = 1 ]
    grep -q '^error: .*none of its 2 checkpoints is usable' "$work/ruined.err"
    "$BUILD/export" "$(checkpoint ruined 22)" --to state --out "$work/ruined.export"
}

nowhere_to_go() {
    train gpt nowhere "${brief[@]}" --run.save_every=0 --run.steps=20 --monitor.rollback_at=5
    told skip nowhere | grep -q '^"asked for .*: no checkpoint to go back to'
    [ "$(value train step "$runs/nowhere/metrics.jsonl" | tail -n 1)" = 20 ]
    [ -z "$(told rollback nowhere)" ]
    # A rule that always asks for it: so many updates are skipped as max_skips says, and then one is made.
    train gpt clipped "${brief[@]}" --run.save_every=0 --run.steps=8 --monitor.rules=clip:3:rollback --optim.clip=0.01
    told warn clipped | grep -q 'times optim.clip, 0.01, as were those before it: accepted'
    [ "$(told skip clipped | wc -l)" -lt 8 ]
}

# A NaN in one rank's gradient: the update is skipped on all, and the weights stay. In a weight: the run rolls back,
# since skipping cannot help. Tensor and rank are named.
a_nan_is_named() {
    ranks 3 twelve nan "${brief[@]}" --run.fault=nan:rank=1,step=15,tensor=layers.0.ffn.up.weight,of=gradient --run.save_every=1 \
        --run.norms_every=1 --run.stop_at=20
    told skip nan | grep -q '^"gradient norm nan, first in rank 1: the gradient of layers.0.ffn.up.weight: weights left as they were'
    [ "$(told skip nan | wc -l)" = 1 ]
    [ -e "$(checkpoint nan 14)" ] && [ -e "$(checkpoint nan 16)" ] && [ ! -e "$(checkpoint nan 15)" ]
    awk -F, '$1 == 14 && $5 > 0 { before++ } $1 == 15 && $5 == 0 { here++ } $1 == 15 && $5 != 0 { moved++ }
        END { exit !(before > 0 && here == before && !moved) }' "$runs/nan/norms.csv"
    ranks 3 twelve nanw "${brief[@]}" --run.fault=nan:rank=2,step=15,tensor=final_norm.weight --monitor.on_not_finite=rollback
    told rollback nanw | grep -q '^"update 15: loss nan, first in rank 2: weight final_norm.weight: back to the checkpoint of step 10'
    well_formed nanw 60
}

# Every bit of the mantissa, the exponent and the sign; weights and moments; found at the next look, before it has spread.
a_flipped_bit_is_named() {
    local status fault more=
    [ -z "${TEST_LONG:-}" ] || more='bit=12,index=100 bit=22,index=7 bit=31,index=1000 bit=23,of=exp_avg_sq,index=11'
    for fault in bit=0 bit=30 bit=15,of=exp_avg $more; do
        status=0
        ranks 3 twelve "flip-$fault" "${brief[@]}" --run.save_every=0 --monitor.agree_every=1 \
            --run.fault="flip:rank=2,step=7,tensor=layers.1.attn.out.weight,$fault" || status=$?
        cat "$work/flip-$fault.err"
        [ $status = 1 ]
        [ "$(grep -c 'error: ' "$work/flip-$fault.err")" = 1 ]
        grep -q "^rank 0: error: step 7: the ranks' .* are not the same: layers.1.attn.out.weight differs on rank 2 (" "$work/flip-$fault.err"
    done
    status=0
    ranks 2 gpt flip-two "${brief[@]}" --run.fault=flip:step=7,tensor=final_norm.bias || status=$? # at the checkpoint of step 10
    cat "$work/flip-two.err"
    [ $status = 1 ]
    grep -q "^rank 0: error: step 10: .* differs between ranks 0 and 1 (" "$work/flip-two.err"
    ranks 2 gpt whole "${brief[@]}" --monitor.agree_every=1 --run.steps=5 --run.save_every=0 # and no false alarm
    local copies=(--monitor.agree_every=1 --run.steps=5 --run.save_every=0 --batch.micro=1 --parallel.shard=2)
    status=0 # a shard has copies where sharding is hybrid
    ranks 4 gpt flip-shard "${brief[@]}" "${copies[@]}" --parallel.zero=3 \
        --run.fault=flip:rank=2,step=3,tensor=final_norm.weight,bit=3 || status=$?
    cat "$work/flip-shard.err"
    [ $status = 1 ]
    grep -q "^rank 0: error: step 3: the ranks' weights are not the same: its shard differs between ranks 0 and 2 (" "$work/flip-shard.err"
    ranks 4 gpt copies "${brief[@]}" "${copies[@]}" --parallel.zero=2
}

# A checkpoint that cannot be written is reported, the one before stays, the run goes on and saves the next.
a_full_disk() {
    train gpt full "${brief[@]}" $wide --run.fault=enospc:step=20
    cat "$work/full.out" | grep NOT
    grep -q 'checkpoint of step 20 NOT saved: .*model.*safetensors: .*; the run goes on' "$work/full.out"
    [ ! -e "$(checkpoint full 20)" ]
    [ -f "$(checkpoint full 10)/manifest.json" ] && [ -f "$(checkpoint full 30)/manifest.json" ]
    same_state full clean 60
    local status=0
    train gpt full-end "${brief[@]}" --run.fault=enospc:step=60 || status=$? # the last one: the exit status shows it
    [ $status = 1 ]
}

a_slow_disk() {
    local began=${EPOCHREALTIME/./}
    train gpt slow "${brief[@]}" $wide --run.fault=slowdisk:step=20,seconds=0.7
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -ge 700 ]
    same_state slow clean 60
}

# Weights that become NaN are never saved, push out no good checkpoint, and end the run with an error: caught by the loss
# (one of several ranks), and by the tensor itself where no loss has seen it yet (a moment, in the update that is saved).
# What starts it again goes back past the harm.
harm_is_not_saved() {
    local status name option=
    for name in weight moment beside; do
        status=0
        case $name in
        weight) ranks 2 gpt weight "${brief[@]}" --ckpt.keep=1 --batch.micro=4 --run.stop_at=33 \
            --run.fault=nan:rank=1,step=25,tensor=layers.0.attn.q.weight || status=$? ;;
        *)  [ $name = beside ] && option=--ckpt.async=true
            # shellcheck disable=SC2086 # none, or one
            train gpt $name "${brief[@]}" --ckpt.keep=1 --run.stop_at=33 $option \
                --run.fault=nan:step=30,tensor=layers.0.attn.q.weight,of=exp_avg || status=$?
            grep -q 'step 30 NOT saved: tensor .*layers.0.attn.q.weight holds a number that is not finite' "$runs/$name/log.txt" ;;
        esac
        cat "$work/$name.err"
        [ $status = 1 ]
        grep -q 'error: .*step 33 is not saved .the run ends without a finite loss' "$work/$name.err"
        [ "$(cd "$runs/$name/checkpoints" && echo step_*)" = step_00000020 ]
    done
    status=0 # every update asks for a rollback, and there is no checkpoint: counted all the same
    train gpt nowhere-nan "${brief[@]}" --monitor.on_not_finite=rollback --run.fault='nan:step=2,tensor=layers.0.attn.q.weight;kill:rank=1,step=3' || status=$?
    [ $status = 1 ]
    grep -q 'run.fault: rank=1: the run has ranks 0 to 0, so nothing will happen' "$work/nowhere-nan.out"
    grep -q '^error: step 11: 10 updates in a row had no finite loss' "$work/nowhere-nan.err"
    PAUSE=0 scripts/run_forever.sh "$BUILD/train" "$work/gpt.toml" --run.name=past "${brief[@]}" --ckpt.keep=2 \
        --run.fault=nan:step=25,tensor=layers.0.attn.q.weight >"$work/past.out" 2>"$work/past.err"
    grep -q 'run_forever: .*attempt 2, from step_00000020' "$work/past.err"
    [ "$(value end val_loss "$runs/past/metrics.jsonl" | grep -c "^[0-9]")" = 1 ]
}

# A run that was killed is started again by run_forever.sh until it is done, and is the run that was not.
again_and_again() {
    LAUNCH="$launcher -n 2" PAUSE=0 scripts/run_forever.sh "$BUILD/train" "$work/gpt.toml" --run.name=forever "${brief[@]}" \
        --batch.micro=4 --run.fault=kill:rank=1,step=33 >"$work/forever.out" 2>"$work/forever.err"
    ranks 2 gpt unbroken "${brief[@]}" --batch.micro=4
    same_state forever unbroken 60
    grep -q 'run_forever: .*attempt 2' "$work/forever.err"
    grep -q 'rank 1: error: .* was killed by signal 9' "$work/forever.err"
    # what the user did wrong is not tried again
    local status=0
    PAUSE=0 scripts/run_forever.sh "$BUILD/train" "$work/gpt.toml" --run.name=wrong --optim.lr=x >"$work/wrong.out" 2>"$work/wrong.err" ||
        status=$?
    [ $status = 1 ]
    if grep -q 'attempt 2' "$work/wrong.err"; then return 1; fi
    # nor what makes no progress
    status=0
    PAUSE=0 scripts/run_forever.sh bash -c 'kill -9 $$' --run.name=none --run.dir="$runs" 2>"$work/stuck.err" || status=$?
    [ $status != 0 ]
    grep -q 'run_forever: 3 attempts .* no new checkpoint' "$work/stuck.err"
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
sed 's/^tokens = 512/tokens = 384/; s/^micro = 8/micro = 4/' "$work/gpt.toml" >"$work/twelve.toml"
passes 'a spike is rolled back' a_spike_is_rolled_back
passes 'rollbacks are counted' rollbacks_are_counted
passes 'a drill, and on two ranks' a_drill_on_two_ranks
deeper passes 'the same drill twice' the_same_drill_twice
deeper passes 'a drill resumes' a_drill_resumes
deeper passes 'saves on their way' with_saves_on_their_way
passes 'past a damaged checkpoint' past_a_damaged_one
passes 'nowhere to go back to' nowhere_to_go
passes 'a NaN is named' a_nan_is_named
passes 'a flipped bit is named' a_flipped_bit_is_named
passes 'harm is not saved' harm_is_not_saved
passes 'a full disk' a_full_disk
deeper passes 'a slow disk' a_slow_disk
deeper passes 'again and again' again_and_again
exit $failed
