#!/bin/bash
# test/test_parallel.sh: build/train on several ranks (mpiexec) against one process. In deterministic mode weights,
# optimizer, losses, evaluations, samples and dumps are the same bytes on any layout, and a run goes on from any layout on any
# other. Errors, signals and killed ranks end the job. (test_parallel_account.sh: bytes held and sent.)
# deeper: more layouts
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# Everything that ranks could do differently: dropout, documents, clipping of every update, evaluations in batches that do
# not divide by the ranks.
exact=(--numerics.deterministic=true --model.dropout=0.1 --data.document_mask=true --optim.clip=0.1 --run.stop_at=4
    --run.eval_every=2 --eval.tokens=1300 --run.sample_every=4 --run.dump=2)

reference() { # CONFIG NAME [OPTION...]: one process
    train "$@"
    [ ! -s "$work/$2.err" ]
}

# ranks N CONFIG NAME AGAINST [OPTION...]: the same bytes as the run AGAINST; rank 0 alone has written.
same_bytes() {
    local n=$1 file=$2 name=$3 against=$4
    shift 4
    ranks "$n" "$file" "$name" "$@"
    [ ! -s "$work/$name.err" ]
    grep -q "parallel.dp  *$n " "$work/$name.out"
    same_state "$name" "$against" 4
    history "$name" >"$work/history"
    [ "$(wc -l <"$work/history")" = 6 ] # 4 steps, an evaluation, the end
    history "$against" | cmp - "$work/history"
    cmp "$runs/$name/samples.txt" "$runs/$against/samples.txt"
    "$BUILD/diff" "$runs/$name" "$runs/$against" --exact | tail -n 1 | grep '^identical: '
    cmp <(files "$name") <(files "$against")
    # some optimizers need whole tensors; copies of hybrid sharding write whole units in turn
    case "$n $*" in 1\ * | *optim.name* | *parallel.shard*) ;; *) shards "$n" "$name" ;; esac
}

files() { # NAME: all but those that a checkpoint is cut into
    (cd "$runs/$1" && find . ! -path './checkpoints/*.safetensors' ! -path './dump/*/*' | sort)
}

# Each rank has written its part of weights and state, and they are about as large.
shards() { # N NAME
    local dir kind rank sizes
    dir=$(checkpoint "$2" 4)
    for kind in model optim; do
        for ((rank = 0; rank < $1; rank++)); do [ -s "$dir/${kind}_0000$rank.safetensors" ]; done
        sizes=$(stat -c %s "$dir/$kind"_*.safetensors | sort -n)
        [ "$(wc -l <<<"$sizes")" = "$1" ]
        [ "$(tail -n 1 <<<"$sizes")" -lt $((2 * $(head -n 1 <<<"$sizes"))) ]
    done
    [ ! -e "$dir/model.safetensors" ]
}

# After a second start all ranks write only to the new folder.
a_name_is_taken() {
    local kept options=(--run.stop_at=1 --batch.micro=2 --parallel.zero=3 --memory.offload=disk --sample.count=0)
    ranks 4 gpt taken "${options[@]}"
    kept=$(find "$runs/taken" -type f -exec cksum {} + | sort)
    ranks 4 gpt taken "${options[@]}"
    [ ! -s "$work/taken.err" ]
    head -n 1 "$work/taken.out" | grep -q "^$runs/taken holds a run already: this new one is $runs/taken-2 "
    [ "$(find "$runs/taken" -type f -exec cksum {} + | sort)" = "$kept" ]
    same_state taken taken-2 1
    ! ranks 2 gpt nothing "${options[@]}" --ckpt.resume=true
    grep -q 'ckpt.resume = true, but there is no checkpoint' "$work/nothing.err"
    [ ! -e "$runs/nothing" ]
}

# 2 ranks, stage 3; one process; 2 stages of 2 tensor-parallel ranks; 4 ranks, stage 3 in two copies; 4 ranks, stage 1;
# against one process that never stopped.
resume_anywhere() {
    local options=("${exact[@]}" --run.steps=6 --run.eval_every=2 --run.dump=0 --sample.count=0)
    reference gpt straight "${options[@]}" --run.stop_at=6
    ranks 2 gpt moved "${options[@]}" --run.stop_at=2 --parallel.zero=3 --batch.micro=4
    train gpt moved "${options[@]}" --run.stop_at=3 --ckpt.resume=true --ckpt.async=true --run.save_every=1
    ranks 4 gpt moved "${options[@]}" --run.stop_at=4 --ckpt.resume=true --parallel.tp=2 --parallel.pp=2 --batch.micro=2
    ranks 4 gpt moved "${options[@]}" --run.stop_at=5 --ckpt.resume=true --parallel.zero=3 --parallel.shard=2 --batch.micro=2
    ranks 4 gpt moved "${options[@]}" --run.stop_at=6 --ckpt.resume=true --parallel.zero=1 --batch.micro=2 \
        --ckpt.async=true --run.save_every=1
    [ ! -s "$work/moved.err" ]
    same_state moved straight 6
    history moved | grep '"train"' | cmp - <(history straight | grep '"train"')
}

# A batch that grows by 6 sequences at a time: 2 ranks, then 3, against one process.
grows() {
    local options=(--numerics.deterministic=true --model.dropout=0.1 --run.steps=8 --batch.tokens=768 --batch.ramp_from=192
        --batch.ramp_tokens=2000 --run.eval_every=3 --eval.tokens=100 --sample.count=0)
    reference gpt grown "${options[@]}" --batch.micro=6
    ranks 2 gpt growing "${options[@]}" --batch.micro=3 --run.stop_at=4
    ranks 3 gpt growing "${options[@]}" --batch.micro=2 --parallel.zero=2 --ckpt.resume=true
    [ ! -s "$work/growing.err" ]
    [ "$(value train tokens "$runs/growing/metrics.jsonl" | awk '{ print $1 - n; n = $1 }' | sort -nu | wc -l)" -ge 3 ]
    same_state growing grown 8
    history growing | cmp - <(history grown)
}

# fp8: scales are made of the largest magnitudes of all ranks, so what rank 0 saves is what every rank goes on with. The
# first step has no such scales and each rank's own differ, so the layout is the same here.
fp8_goes_on() {
    local options=(--numerics.dtype=fp8 --batch.micro=4 --parallel.zero=1 --eval.tokens=200 --sample.count=0)
    ranks 2 gpt fp8 "${options[@]}" --run.stop_at=4
    ranks 2 gpt fp8-halves "${options[@]}" --run.stop_at=2
    ranks 2 gpt fp8-halves "${options[@]}" --run.stop_at=4 --ckpt.resume=true
    same_state fp8 fp8-halves 4
}

# The length of a run is measured by rank 0, and all ranks end together.
minutes() {
    ranks 2 gpt minutes --run.steps=0 --run.minutes=0.0005 --batch.micro=4 --eval.tokens=200 --parallel.zero=2
    [ "$(value train step "$runs/minutes/metrics.jsonl" | tail -n 1)" = \
        "$(sed -n 's/^steps = \([0-9]*\).*/\1/p' "$runs/minutes/config.toml")" ]
}

# refused N WORDS [OPTION...]: one line by rank 0, before anything is written
refused() {
    local n=$1 words=$2 status=0
    shift 2
    rm -rf "$runs/refused"
    ranks "$n" gpt refused "$@" || status=$?
    cat "$work/refused.err"
    [ $status = 1 ]
    [ "$(grep -c 'error: ' "$work/refused.err")" = 1 ]
    grep -qE "^rank 0: error: .*($words)" "$work/refused.err"
    [ ! -e "$runs/refused" ]
}

# A preset's micro-batch of 8 does not stop 4 ranks with 4 sequences each; one that is asked for does (mistakes).
micro_fits() {
    ranks 4 gpt fits --run.stop_at=1 --eval.tokens=64 --sample.count=0
    grep -qE '^batch\.micro +4 +derived' "$work/fits.out"
}

mistakes() {
    refused 2 'batch\.tokens 512 is not a multiple of 2 ranks \* batch\.micro 12 \* model\.context 32 = 768 .nearest: 768' \
        --batch.micro=12
    refused 3 'batch\.tokens 512 is not a multiple of 3 ranks' --batch.micro=1
    refused 2 'run\.noise_every: measures with 1 micro-batches' --batch.micro=8 --run.noise_every=2
    fails_with 1 'parallel\.reshard has no effect when parallel\.zero is 2' "$BUILD/train" "$work/gpt.toml" \
        --parallel.zero=2 --parallel.reshard=false
    fails_with 1 'parallel\.prefetch has no effect when parallel\.zero is 2' "$BUILD/train" "$work/gpt.toml" \
        --parallel.zero=2 --parallel.prefetch=0
    fails_with 1 'parallel\.keep has no effect when parallel\.reshard is false' "$BUILD/train" "$work/gpt.toml" \
        --parallel.zero=3 --parallel.reshard=false --parallel.keep=1000
    fails_with 1 'parallel\.dp cannot be set' "$BUILD/train" "$work/gpt.toml" --parallel.dp=2
    SLURM_STEP_NUM_TASKS=4 fails_with 1 'srun started 4 processes.*--mpi=pmi2' "$BUILD/train" "$work/gpt.toml"
    # ranks that another MPI's launcher starts: the first one says it, the others end quietly
    OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 "$BUILD/train" "$work/gpt.toml" >"$work/out" 2>"$work/err" && return 1
    cat "$work/err"
    [ "$(grep -c "^rank 0: error: launch: Open MPI's mpiexec started 4 processes" "$work/err") $(wc -l <"$work/err")" = '1 1' ]
    OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 "$BUILD/train" "$work/gpt.toml" >"$work/out" 2>&1 && return 1
    [ ! -s "$work/out" ]
}

# What one rank alone finds wrong ends the job too, and is said by that rank.
one_rank_fails() {
    local status=0 began=${EPOCHREALTIME/./}
    "$launcher" -n 1 "$BUILD/train" "$work/gpt.toml" --run.name=odd --batch.micro=8 : \
        -n 1 "$BUILD/train" "$work/gpt.toml" --run.name=odd --batch.micro=8 --data.train="$work/none.bin" \
        >"$work/odd.out" 2>"$work/odd.err" </dev/null || status=$?
    cat "$work/odd.err"
    echo "$(((${EPOCHREALTIME/./} - began) / 1000)) ms"
    [ $status = 1 ]
    [ "$(grep -c 'error: ' "$work/odd.err")" = 1 ]
    grep -q '^rank 1: error: .*none\.bin' "$work/odd.err"
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -le $((budget)) ]
}

# Ranks that were started with different settings: the first difference is named, with both values.
settings_differ() { # KEY VALUE VALUE
    local status=0 own=("$BUILD/train" "$work/gpt.toml" --run.name=differ --batch.micro=4)
    rm -rf "$runs/differ"
    timeout 60 "$launcher" -n 1 "${own[@]}" --"$1=$2" : -n 1 "${own[@]}" --"$1=$3" >"$work/differ.out" 2>"$work/differ.err" \
        </dev/null || status=$?
    cat "$work/differ.err"
    [ $status = 1 ]
    [ "$(grep -c 'error: ' "$work/differ.err")" = 1 ]
    grep -q "^rank 1: error: $1 is $3 on this rank, and $2 on rank 0 " "$work/differ.err"
    [ ! -e "$runs/differ" ]
}

killed() { # STAGE
    local status=0 began
    in_the_middle 4 "killed$1" --parallel.zero="$1"
    began=${EPOCHREALTIME/./}
    kill -KILL "${process[2]}"
    wait $pid || status=$?
    echo "status $status after $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
    cat "$work/killed$1.err"
    [ $status != 0 ]
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -le 2000 ]
    [ "$(grep -c 'error: ' "$work/killed$1.err")" = 1 ]
    grep -q "^rank 2: error: process ${process[2]} on [^ ]* was killed by signal 9 (Killed), at step" "$work/killed$1.err"
    nobody_left
}

# A signal to one rank stops all of them after the same step, which is saved.
stopped() {
    in_the_middle 2 stopped --parallel.zero=2
    kill -TERM "${process[1]}"
    wait $pid
    grep -q 'stopped by a signal after step' "$work/stopped.out"
    [ ! -s "$work/stopped.err" ]
    local last
    last=$(value train step "$runs/stopped/metrics.jsonl" | tail -n 1)
    [ -f "$(checkpoint stopped "$last")/manifest.json" ]
    nobody_left
}

# Stage 3 with other slots, units that stay, and a host that updates: written with them and resumed without, and the other
# way; against one process that never stopped.
resume_other_slots() {
    local options=("${exact[@]}" --run.dump=0 --sample.count=0 --numerics.dtype=bf16 --run.eval_every=0 --batch.micro=4)
    local slots=(--parallel.zero=3 --parallel.prefetch=2 --parallel.keep=5000)
    local host=(--memory.offload=cpu --memory.offload_update=cpu)
    reference gpt slots.straight "${options[@]}"
    ranks 2 gpt slots "${options[@]}" --run.stop_at=1 "${slots[@]}" "${host[@]}"
    ranks 2 gpt slots "${options[@]}" --run.stop_at=2 --ckpt.resume=true --parallel.zero=3
    ranks 2 gpt slots "${options[@]}" --run.stop_at=3 --ckpt.resume=true --parallel.zero=3 --parallel.prefetch=0 "${host[@]}"
    train gpt slots "${options[@]}" --run.stop_at=4 --ckpt.resume=true
    [ ! -s "$work/slots.err" ]
    same_state slots slots.straight 4
    history slots | grep '"train"' | cmp - <(history slots.straight | grep '"train"')
}

# A run under the launcher with one rank is the same as a run without it.
launched_alone() {
    ranks 1 gpt launched "${exact[@]}"
    same_state launched gpt 4
    grep -qE 'with [0-9]+ threads' "$work/launched.out"
}

# One process with its optimizer offloaded, and one that moves there and back; two ranks whose host updates, there from
# the device's updates and back.
offloaded_alone() {
    train gpt offload "${exact[@]}" --memory.offload=disk
    same_state offload gpt 4
    local options=("${exact[@]}" --run.dump=0 --sample.count=0) dtype host=(--memory.offload=cpu --memory.offload_update=cpu)
    train gpt there "${options[@]}" --run.stop_at=2 --memory.offload=cpu --numerics.dtype=bf16
    train gpt there "${options[@]}" --run.stop_at=4 --ckpt.resume=true --numerics.dtype=bf16
    train gpt stayed "${options[@]}" --run.stop_at=4 --numerics.dtype=bf16
    same_state there stayed 4
    for dtype in fp32 bf16; do
        options=("${exact[@]}" --run.dump=0 --sample.count=0 --numerics.dtype=$dtype)
        train gpt host.$dtype "${options[@]}" --run.stop_at=1 --memory.offload=cpu
        ranks 2 gpt host.$dtype "${options[@]}" --run.stop_at=3 --ckpt.resume=true --parallel.zero=2 "${host[@]}"
        train gpt host.$dtype "${options[@]}" --run.stop_at=4 --ckpt.resume=true
        train gpt stayed.$dtype "${options[@]}" --run.stop_at=4 "${host[@]}"
        same_state host.$dtype stayed.$dtype 4
        [ $dtype = bf16 ] || same_state host.$dtype gpt 4
    done
    same_state stayed.bf16 stayed 4
    [ -z "$(find "$runs" -name 'offload_*')" ]
}

# A slow link: waiting for other ranks is a phase of its own.
phases_of_ranks() { # NAME [OPTION...]
    ranks 2 gpt "$@" --run.stop_at=6 --batch.micro=4 --sample.count=0 --eval.tokens=100 --comm.slow_alpha=2e-3
    phases_add_up "$1" data_ms forward_ms backward_ms comm_ms optim_ms
    value train comm_ms "$runs/$1/metrics.jsonl" | awk '!($1 >= 2) { exit 1 }'
}

{ prepare_corpus && uneven_corpus; } >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'one process: gpt' reference gpt gpt "${exact[@]}"
passes 'one process: llama, bf16' reference llama bf16 "${exact[@]}" --numerics.dtype=bf16 --memory.recompute=full
passes 'one process: fp16, Muon' reference gpt fp16 "${exact[@]}" --numerics.dtype=fp16 --optim.name=muon \
    --numerics.loss_scale=16777216
passes 'one process: 12 sequences' reference gpt twelve "${exact[@]}" --batch.tokens=384 --batch.micro=4
# micro 1, 2, 4, 8: 4, 2, 1 micro-batches on 4 ranks, 8, 4, 2, 1 on 2
layouts() { # of standard input
    local n zero micro file against options
    while read -r n zero micro file against options; do
        # shellcheck disable=SC2086
        passes "$against: the same bytes on $n ranks, stage $zero, micro-batches of $micro $options" \
            same_bytes "$n" "$file" "$against-$n-$zero-$micro" "$against" "${exact[@]}" --parallel.zero="$zero" \
            --batch.micro="$micro" $options
    done
}
layouts <<'END'
4 0 1 gpt gpt --comm.all_reduce=ring --comm.bucket=1000
2 1 2 gpt gpt --comm.checked=true
4 2 4 gpt gpt --parallel.overlap=false
2 3 2 gpt gpt --memory.recompute=sqrt
4 3 4 gpt gpt --parallel.reshard=false
4 3 2 gpt gpt --parallel.prefetch=3 --parallel.keep=1000 --memory.offload=cpu
2 2 4 llama bf16 --numerics.dtype=bf16 --memory.recompute=full
4 3 4 gpt fp16 --numerics.dtype=fp16 --optim.name=muon --numerics.loss_scale=16777216
3 3 2 gpt twelve --batch.tokens=384
4 2 3 gpt twelve --batch.tokens=384
4 3 2 gpt gpt --memory.offload=cpu
2 1 8 gpt gpt --memory.offload=cpu --memory.offload_update=cpu
4 3 3 gpt twelve --batch.tokens=384 --memory.offload=cpu --memory.offload_update=cpu
4 2 2 gpt gpt --parallel.shard=2
4 1 3 gpt twelve --batch.tokens=384 --parallel.shard=2
END
for zero in 0 3; do
    passes "gpt: the same bytes on 4 ranks, stage $zero, by MPI" by_mpi same_bytes 4 gpt "mpi-$zero" gpt "${exact[@]}" \
        --parallel.zero="$zero" --batch.micro=2
done
deeper layouts <<'END'
2 0 8 gpt gpt
4 1 4 gpt gpt
2 2 1 gpt gpt
4 3 1 gpt gpt
4 0 4 llama bf16 --numerics.dtype=bf16 --memory.recompute=full
4 3 2 llama bf16 --numerics.dtype=bf16 --memory.recompute=full
2 1 4 gpt fp16 --numerics.dtype=fp16 --optim.name=muon --numerics.loss_scale=16777216
3 0 4 gpt twelve --batch.tokens=384
2 0 6 gpt twelve --batch.tokens=384
4 1 1 gpt twelve --batch.tokens=384 --memory.offload=cpu
2 1 4 gpt gpt --memory.offload=disk
2 2 2 llama bf16 --numerics.dtype=bf16 --memory.recompute=full --memory.offload=cpu --memory.offload_update=cpu
2 3 2 llama bf16 --numerics.dtype=bf16 --memory.recompute=full --memory.offload=cpu --memory.offload_update=cpu
2 3 4 llama bf16 --numerics.dtype=bf16 --memory.recompute=full --memory.offload=disk
END
passes 'offload on one process' offloaded_alone
passes 'mpiexec -n 1 is one process' launched_alone
passes 'a second start takes a new folder' a_name_is_taken
passes 'phases of two ranks' phases_of_ranks phases
passes 'phases of two stages' phases_of_ranks stages --parallel.pp=2
passes 'a run moves from layout to layout' resume_anywhere
passes 'a run moves to other slots of stage 3, and to a host that updates' resume_other_slots
passes 'a growing batch, on 2 ranks and then on 3' grows
passes 'fp8 on two ranks goes on' fp8_goes_on
passes 'run.minutes' minutes
passes 'a micro-batch fits a rank' micro_fits
passes 'mistakes' mistakes
passes 'a rank that fails ends the job' one_rank_fails
passes 'ranks whose numbers differ' settings_differ optim.lr 0.003 0.002
passes 'ranks whose layouts differ' settings_differ parallel.tp 2 1
for zero in 0 3; do passes "stage $zero: a killed rank ends the job" killed $zero; done
passes 'a signal stops all ranks at the same step' stopped
exit $failed
