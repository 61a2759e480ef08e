#!/bin/bash
# test/test_parallel.sh: build/train on real processes: each transport and kind of layout once against one process, what a job
# of processes writes and names, and that errors, signals and killed ranks end it. (test_layouts.sh: all layouts.)
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# Everything that ranks could do differently: dropout, documents, clipping of every update, evaluations in batches that do
# not divide by the ranks.
exact=(--numerics.deterministic=true --model.dropout=0.1 --data.document_mask=true --optim.clip=0.1 --run.stop_at=2
    --run.eval_every=1 --eval.tokens=1300 --run.sample_every=2 --run.dump=2)
experts=(--model.experts=4 --model.experts_ffn=40)

# same_bytes N CONFIG NAME AGAINST [OPTION...]: the same bytes as the run AGAINST; rank 0 alone has written.
same_bytes() {
    local n=$1 file=$2 name=$3 against=$4
    shift 4
    ranks "$n" "$file" "$name" "${exact[@]}" "$@"
    [ ! -s "$work/$name.err" ]
    same_state "$name" "$against" 2
    history "$name" >"$work/history"
    [ "$(wc -l <"$work/history")" = 4 ] # 2 steps, an evaluation, the end
    history "$against" | cmp - "$work/history"
    cmp "$runs/$name/samples.txt" "$runs/$against/samples.txt"
    "$BUILD/diff" "$runs/$name" "$runs/$against" --exact | tail -n 1 | grep '^identical: '
    cmp <(files "$name") <(files "$against")
    if [ "$name" = zero3 ]; then shards "$n" "$name"; fi
}

files() { # NAME: all but those that a checkpoint is cut into
    (cd "$runs/$1" && find . ! -path './checkpoints/*.safetensors' ! -path './dump/*/*' | sort)
}

# Each rank has written its part of weights and state, and they are about as large.
shards() { # N NAME
    local dir kind rank sizes
    dir=$(checkpoint "$2" 2)
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
    ranks 2 gpt taken "${options[@]}"
    kept=$(find "$runs/taken" -type f -exec cksum {} + | sort)
    ranks 2 gpt taken "${options[@]}"
    [ ! -s "$work/taken.err" ]
    head -n 1 "$work/taken.out" | grep -q "^$runs/taken holds a run already: this new one is $runs/taken-2 "
    [ "$(find "$runs/taken" -type f -exec cksum {} + | sort)" = "$kept" ]
    same_state taken taken-2 1
    [ -z "$(find "$runs" -name 'offload_*')" ]
    ! ranks 2 gpt nothing "${options[@]}" --ckpt.resume=true
    grep -q 'ckpt.resume = true, but there is no checkpoint' "$work/nothing.err"
    [ ! -e "$runs/nothing" ]
}

# A trace has the actions of both stages.
traced() {
    ranks 2 gpt traced --run.stop_at=2 --sample.count=0 --eval.tokens=64 --batch.micro=4 --parallel.pp=2 --run.trace=2
    [ "$(grep -c '"ph":"X"' "$runs/traced/trace.json")" = 16 ] # 4 F and 4 B on 2 stages
    grep -q "stages' time idle" "$work/traced.out"
}

# The length of a run is measured by rank 0, and all ranks end together.
minutes() {
    ranks 2 gpt minutes --run.steps=0 --run.minutes=0.0005 --batch.micro=4 --eval.tokens=200 --parallel.zero=2
    [ "$(value train step "$runs/minutes/metrics.jsonl" | tail -n 1)" = \
        "$(value '\(start\|pace\)' steps "$runs/minutes/metrics.jsonl" | tail -n 1)" ]
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
    grep -qE '^batch .*derived:.*micro=4' "$work/fits.out"
}

mistakes() {
    refused 2 'batch\.tokens 512 is not a multiple of 2 ranks \* batch\.micro 12 \* model\.context 32 = 768 .nearest: 768' \
        --batch.micro=12
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
    [ $(((${EPOCHREALTIME/./} - began) / 1000)) -le 60000 ]
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

# A run under the launcher with one rank is the same as a run without it.
launched_alone() {
    ranks 1 gpt launched "${exact[@]}"
    same_state launched gpt 2
    grep -qE 'with [0-9]+ threads?' "$work/launched.out"
}

# A slow link: waiting for other ranks is a phase of its own.
phases_of_ranks() { # NAME [OPTION...]
    ranks 2 gpt "$@" --run.stop_at=6 --batch.micro=4 --sample.count=0 --eval.tokens=100 --comm.slow_alpha=2e-3
    phases_add_up "$1" data_ms forward_ms backward_ms comm_ms optim_ms
    value train comm_ms "$runs/$1/metrics.jsonl" | awk '!($1 >= 2) { exit 1 }'
}

channels=32
{ prepare_corpus && uneven_corpus; } >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'one process' train gpt gpt "${exact[@]}"
passes 'one process: experts' train llama experts "${exact[@]}" "${experts[@]}"
passes 'the same bytes: ZeRO-3' same_bytes 4 gpt zero3 gpt --parallel.zero=3 --batch.micro=2
passes 'the same bytes: shared sequences' same_bytes 2 gpt cp gpt --parallel.cp=2
passes 'the same bytes by MPI: replicas' by_mpi same_bytes 4 gpt mpi-dp gpt --batch.micro=2
passes 'the same bytes by MPI: tensors and stages' by_mpi same_bytes 4 gpt mpi-tp-pp gpt --parallel.tp=2 --parallel.sp=true \
    --parallel.pp=2 --batch.micro=2
passes 'the same bytes by MPI: experts' by_mpi same_bytes 4 llama mpi-ep experts "${experts[@]}" --parallel.ep=2 --parallel.zero=3 \
    --batch.micro=4
passes 'mpiexec -n 1 is one process' launched_alone
passes 'a second start takes a new folder' a_name_is_taken
passes 'phases of two ranks' phases_of_ranks phases
passes 'a trace of two stages' traced
passes 'run.minutes' minutes
passes 'a micro-batch fits a rank' micro_fits
passes 'mistakes' mistakes
passes 'a rank that fails ends the job' one_rank_fails
passes 'ranks whose numbers differ' settings_differ optim.lr 0.003 0.002
passes 'ranks whose layouts differ' settings_differ parallel.tp 2 1
passes 'a signal stops all ranks at the same step' stopped
exit $failed
