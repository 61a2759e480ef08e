#!/bin/bash
# test/test_parallel_account.sh: what every rank of a run holds, and what it sends in a step, against the plan and against
# the formulas of the guides, to the byte: ZeRO stages 0 to 3 on 2, 3 and 4 ranks, in fp32 and bf16, with several
# optimizers. The formulas are written out here once more, in P, N and M.
# deeper: more stages, more plans
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

sum() { # TAG FILE of memory_lines: over the ranks
    awk -v tag="$1" '$2 == tag { n += $3; seen++ } END { if (seen) printf "%.0f\n", n }' "$2"
}

# traffic GROUP KIND FIELD FILE: over the ranks
traffic() {
    awk -v group="$1" -v kind="$2" -v field="$3" -F '[":, ]+' '
        /"traffic"/ { on = 1 }
        /[{]$/ { match($0, /^ */); if (RLENGTH == 6) in_group = $2; if (RLENGTH == 8) in_kind = $2 }
        on && in_group == group && in_kind == kind && $2 == field { n += $3 }
        END { printf "%.0f\n", n }' "$4"
}

same_number() { # WHAT WANT GOT
    echo "$1: $2 $3"
    [ "$2" = "$3" ]
}

# as_planned N FAMILY NAME [OPTION...]: one update holds what was planned, rank by rank, and stderr is empty
as_planned() {
    local n=$1 family=$2 name=$3
    shift 3
    ranks "$n" "$family" "$name" --run.stop_at=1 --run.account=true --eval.tokens=64 --sample.count=0 "$@"
    [ ! -s "$work/$name.err" ]
    "$BUILD/plan" memory "$work/$family.toml" "$@" --ranks "$n" --json | memory_lines >"$work/planned"
    [ "$(wc -l <"$work/planned")" = $((9 * n)) ] # 7 tags, total, peak
    memory_lines <"$runs/$name/account.json" | cmp - "$work/planned"
    "$BUILD/plan" memory "$work/$family.toml" "$@" --ranks "$n" >"$work/table" # checks its formulas
    P=$("$BUILD/plan" params "$work/$family.toml" "$@" | awk '$2 == "parameters" { print $1 }')
}

# The guides' table: N ranks between them hold N or 1 times the weights (x bytes a parameter), gradients (4) and
# optimizer state (k, with fp32 weights where x is 2); the dp group sends (N - 1) P elements for each time that all
# of them are exchanged, M times a step or once. Nothing is padded, so these are equal, not close.
stage() { # STAGE N M DTYPE [OPTION...]
    local zero=$1 n=$2 m=$3 dtype=$4 x=4 k=8 g=4 sequences=16 more=0 name kind gathers weights grads state file
    shift 4
    name=stage$zero-$n-$m-$dtype-$(tr -dc a-z0-9 <<<"$*") # of its own, or the run of another row would be read
    if [ "$dtype" = bf16 ]; then x=2 k=12; fi
    if [[ "$*" == *reduce_dtype=storage* ]]; then g=2; fi
    if [ "$n" = 3 ]; then sequences=12; fi
    as_planned "$n" gpt "$name" --parallel.zero="$zero" --numerics.dtype="$dtype" --batch.micro=$((sequences / n / m)) \
        --batch.tokens=$((sequences * 32)) "$@"
    file=$runs/$name/account.json
    weights=$((zero < 3 ? n : 1)) grads=$((zero < 2 ? n : 1)) state=$((zero < 1 ? n : 1))
    same_number parameters $((weights * x * P)) "$(sum parameters "$work/planned")"
    same_number gradients $((grads * 4 * P)) "$(sum gradients "$work/planned")"
    same_number optimizer $((state * k * P)) "$(sum optimizer "$work/planned")"

    local all_reduce=0 reduce_scatter=0 all_gather=0 table=0
    if [[ "$*" == *embed_dtype=fp32* ]]; then table=$((4 * (512 + 32) * 64)); fi # once a step: tokens and positions
    if [[ "$*" == *ramp_from=256* ]]; then m=$((m / 2)); fi     # of 512 tokens
    if [[ "$*" == *noise_every=1* ]]; then more=1; fi           # one micro-batch once more, with a reduction of its own
    gathers=$((2 * (m + more)))
    if [[ "$*" == *reshard=false* ]]; then gathers=1; fi # they stay until the next update
    case $zero in
    0) all_reduce=$((2 * g * (1 + more))) ;;
    1) reduce_scatter=$((g * (1 + more))) all_gather=$x ;;
    2) reduce_scatter=$((g * (m + more))) all_gather=$x ;;
    3) reduce_scatter=$((g * (m + more))) all_gather=$((gathers * x)) ;;
    esac
    for kind in all_reduce reduce_scatter all_gather; do
        [ $kind = all_gather ] && more=$table || more=0
        same_number "$kind sent" $(((n - 1) * (P * ${!kind} + more))) "$(traffic dp $kind sent "$file")"
        same_number "$kind received" $(((n - 1) * (P * ${!kind} + more))) "$(traffic dp $kind received "$file")"
    done
    for kind in broadcast all_to_all send recv barrier; do same_number $kind 0 "$(traffic dp $kind calls "$file")"; done
    [ "$(traffic control all_reduce sent "$file")" -lt $((1000 * n)) ] # numbers

    # The printed table: no difference in any row with a formula; those of traffic are the counters.
    grep -q "^account: stage $zero, N = $n ranks, P = $P parameters, M = $m " "$work/$name.out"
    awk '/^  bytes held/ { on = 1 } on && /^  [a-z].* P[ ]/ { n++; bad += $(NF - 1) != 0; print } END { exit bad || n < 5 }' \
        "$work/$name.out"
    [ "$(awk '/^  bytes sent/ { on = 1 } on && /^  [a-z].* P / { n += $(NF - 2) } END { printf "%.0f\n", n }' "$work/$name.out")" = \
        $(((n - 1) * (P * (all_reduce + reduce_scatter + all_gather) + table))) ]
}

# On a deterministic device gradients are whole, with their tree, and are reduced once a step; a unit is gathered for every
# sequence's backward. Both are printed as such.
deterministic() {
    as_planned 4 gpt fixed --parallel.zero=3 --numerics.deterministic=true --batch.micro=2
    local file=$runs/fixed/account.json
    same_number gradients $((4 * 4 * P * 4)) "$(sum gradients "$work/planned")" # 4 ranks, 4 bytes, P, and 3 levels of 4 sequences
    same_number parameters $((4 * P)) "$(sum parameters "$work/planned")"
    same_number reduce_scatter $((3 * 4 * P)) "$(traffic dp reduce_scatter sent "$file")"
    same_number all_gather $((3 * 4 * P * 2 * (1 + 2))) "$(traffic dp all_gather sent "$file")"
    grep -q 'numerics.deterministic: gradients are whole' "$work/fixed.out"
}

# Where each rank has 3 sequences, gradients go by all_to_all, once for each of its bits; in stage 0 the sums come back.
dealt() { # STAGE
    as_planned 4 gpt "dealt$1" --parallel.zero="$1" --numerics.deterministic=true --batch.tokens=384 --batch.micro=3
    local file=$runs/dealt$1/account.json kind
    same_number all_to_all $((3 * 4 * P * 2)) "$(traffic dp all_to_all sent "$file")"
    [ "$1" = 0 ] && same_number all_gather $((3 * 4 * P)) "$(traffic dp all_gather sent "$file")"
    for kind in all_reduce reduce_scatter; do same_number $kind 0 "$(traffic dp $kind calls "$file")"; done
    awk '/^  bytes sent/ { on = 1 } on && /^  [a-z].* P[ ]/ { n++; bad += $(NF - 1) != 0; print } END { exit bad || n != 2 }' \
        "$work/dealt$1.out"
}

# Hybrid sharding: two copies of what two ranks cut; in a row of two the formulas of 2 ranks, and the sum of the shards
# over the copies once a step, in 4 bytes. Where sequences are dealt, all four have all sums.
hybrid() { # STAGE [OPTION...]
    local zero=$1 name=hybrid$1$# m=2 file weights grads from=held rows=6
    shift
    as_planned 4 gpt "$name" --parallel.zero="$zero" --parallel.shard=2 --batch.micro=2 "$@"
    P=$("$BUILD/plan" params "$work/gpt.toml" | awk '$2 == "parameters" { print $1 }') # of one process, which has no shards
    file=$runs/$name/account.json
    weights=$((zero < 3 ? 4 : 2)) grads=$((zero < 2 ? 4 : 2))
    if [ $# = 0 ]; then
        same_number parameters $((weights * 4 * P)) "$(sum parameters "$work/planned")"
        same_number gradients $((grads * 4 * P)) "$(sum gradients "$work/planned")"
        same_number reduce_scatter $((2 * P * 4 * (zero < 2 ? 1 : m))) "$(traffic dp reduce_scatter sent "$file")"
        same_number all_gather $((2 * P * 4 * (zero < 3 ? 1 : 2 * m))) "$(traffic dp all_gather sent "$file")"
        same_number 'over copies' $((2 * P * 4)) "$(traffic copies all_reduce sent "$file")"
    else
        from=sent rows=2 # a tree of gradients is held
        same_number all_to_all $((3 * 4 * P * 2)) "$(traffic dp all_to_all sent "$file")"
        same_number 'over copies' 0 "$(traffic copies all_reduce sent "$file")"
    fi
    same_number optimizer $((2 * 8 * P)) "$(sum optimizer "$work/planned")"
    awk -v from=$from -v rows=$rows '$1 == "bytes" && $2 == from { on = 1 }
        on && /^  [a-z].* P[ ,]/ { n++; bad += $(NF - 1) != 0; print } END { exit bad || n < rows }' "$work/$name.out"
}

# A store: its bytes of a step, in the run's table and by formula. Where the device updates, state of s bytes a parameter
# goes there and back, and gaps of less than 16 bytes before each array; where the host does, 4 bytes of gradients go out,
# and x of weights in. In stage 3 a unit is gathered from the store twice in each micro-batch.
stored() { # STAGE N S X GATHERS [OPTION...]: S of the state that moves, 0 where the host updates
    local zero=$1 n=$2 s=$3 x=$4 gathers=$5 name=stored-$1-$2-$3-$4 copies least most out in out0 in0 planned
    shift 5
    as_planned "$n" gpt "$name" --parallel.zero="$zero" --batch.micro=4 "$@"
    awk '/^account/ { on = 1 } on && /^  [a-z].* (P|stored|gathers)[ ,]/ { n++; bad += $(NF - 1) != 0; print }
        END { exit bad || n < 4 }' "$work/$name.out"
    read -r out out0 in in0 < <(awk '/^  to a store/ { printf "%s %s ", $(NF - 2), $NF } /^  from a store/ { print $(NF - 2), $NF }' \
        "$work/$name.out")
    copies=$((zero ? 1 : n))
    least=$((copies * P * (s ? s : 4))) most=$((least + (s ? 48 * n * 10 : 0)))
    echo "$name: out $out, $least to $most; in $in"
    [ "$out" -ge $least ] && [ "$out" -le $most ]
    [ "$in" = $(((s ? out : zero == 3 ? 0 : copies * P * x) + gathers * P * x)) ]
    planned=$(awk '/^an update moves/ { print $4, $11 }' "$work/table") # of rank 0
    echo "$planned, of the run's $out0 $in0"
    [ "${planned% *}" = "$out0" ]
    [ "$gathers" != 0 ] || [ "${planned#* }" = "$in0" ]
}

# One process: the same object with one rank, and no traffic.
one_process() {
    train gpt alone --run.stop_at=1 --run.account=true --eval.tokens=64 --sample.count=0
    "$BUILD/plan" memory "$work/gpt.toml" --json | memory_lines | cmp - <(memory_lines <"$runs/alone/account.json")
    grep -q '"traffic": {' "$runs/alone/account.json"
    if grep -q '"sent"' "$runs/alone/account.json"; then return 1; fi
    grep -qE '^  model state  *16 P ' "$work/alone.out"
    "$BUILD/plan" memory "$work/gpt.toml" --ranks 1 --json | cmp - <("$BUILD/plan" memory "$work/gpt.toml" --json)
}

mistakes() {
    fails_with 1 'batch\.tokens 512 is not a multiple of 3 ranks' "$BUILD/plan" memory "$work/gpt.toml" --ranks 3
    fails_with 2 'no number of ranks' "$BUILD/plan" memory "$work/gpt.toml" --ranks 0
    fails_with 2 'no number of ranks' "$BUILD/plan" memory "$work/gpt.toml" --ranks
    fails_with 2 'only for plan memory' "$BUILD/plan" flops "$work/gpt.toml" --ranks 2
}

# A model that fits nowhere, on a thousand ranks: planned like any other, and between them they hold it once.
large() {
    local P
    P=$("$BUILD/plan" params gpt3-175b | awk '$2 == "parameters" { print $1 }')
    "$BUILD/plan" memory gpt3-175b --batch.tokens=131072 --batch.micro=1 --ranks 64 --parallel.zero=3 --json | memory_lines >"$work/large"
    same_number optimizer $((8 * P)) "$(sum optimizer "$work/large")"
    same_number parameters $((4 * P)) "$(sum parameters "$work/large")"
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
stages() { # of standard input
    local zero n m dtype options
    while read -r zero n m dtype options; do
        # shellcheck disable=SC2086
        passes "stage $zero, $n ranks, $m micro-batches, $dtype $options" stage "$zero" "$n" "$m" "$dtype" $options
    done
}
stages <<'END'
0 3 1 fp32 --comm.all_reduce=ring --comm.bucket=100000
0 4 4 bf16 --comm.all_reduce=tree
1 4 1 bf16 --parallel.overlap=false
2 2 4 fp32 --batch.ramp_from=256 --batch.ramp_tokens=9999
3 2 2 fp32 --run.noise_every=1
3 3 1 bf16 --memory.recompute=sqrt
3 4 2 fp32 --parallel.reshard=false
1 2 2 bf16 --parallel.reduce_dtype=storage
1 3 2 bf16 --numerics.embed_dtype=fp32
3 2 2 bf16 --numerics.embed_dtype=fp32 --memory.recompute=full
END
deeper stages <<'END'
0 2 2 fp32
1 3 2 fp32 --run.noise_every=1
2 2 4 fp32
2 4 1 bf16
2 3 2 fp32 --parallel.overlap=false
3 2 2 fp32 --memory.recompute=full
3 4 4 fp32
0 2 1 bf16 --parallel.reduce_dtype=storage --comm.bucket=50000
3 4 2 bf16 --parallel.reduce_dtype=storage
END
# Cuts that are uneven because of the optimizer, untied heads, masks: planned to the byte, rank by rank.
plans() { # of standard input
    local n family options
    while read -r n family options; do
        # shellcheck disable=SC2086
        passes "planned is held: $n ranks, $family $options" as_planned "$n" "$family" "planned-$n-$options" $options
    done
}
plans <<'END'
2 llama --parallel.zero=3 --optim.name=muon --batch.micro=4 --memory.compress=int8
4 gpt --parallel.zero=2 --optim.name=adamw8bit --batch.micro=4 --data.document_mask=true
3 gpt --parallel.zero=3 --optim.name=sgd --batch.micro=4 --batch.tokens=384 --optim.agc=0.01 --optim.clip=0
4 gpt --parallel.zero=0 --run.norms_every=1 --batch.micro=4
3 gpt --parallel.zero=1 --run.norms_every=1 --batch.micro=4 --batch.tokens=384
2 llama --parallel.zero=3 --memory.offload=cpu --numerics.dtype=bf16 --batch.micro=4
4 gpt --parallel.zero=3 --parallel.prefetch=2 --parallel.keep=1000 --batch.micro=2
2 llama --parallel.zero=3 --parallel.prefetch=0 --parallel.keep=40000 --memory.offload=cpu --batch.micro=4
END
deeper plans <<'END'
4 llama --parallel.zero=1 --optim.name=adafactor --batch.micro=2 --numerics.dtype=bf16
4 llama --parallel.zero=2 --optim.name=lion --batch.micro=4 --numerics.deterministic=true
2 gpt --parallel.zero=0 --memory.offload=disk --batch.micro=4
4 gpt --parallel.zero=1 --memory.offload=cpu --optim.name=adamw8bit --batch.micro=4
END
passes 'a deterministic run' deterministic
passes 'a deterministic run with 3 sequences a rank' dealt 0
passes 'the same in stage 3' dealt 3
passes 'hybrid sharding' hybrid 3
passes 'hybrid sharding, 3 sequences a rank' hybrid 1 --numerics.deterministic=true --batch.tokens=384 --batch.micro=3
deeper passes 'hybrid sharding, stage 1' hybrid 1
deeper passes 'hybrid sharding, stage 2' hybrid 2
passes 'a store: stage 1, the device updates' stored 1 2 8 4 0 --memory.offload=cpu
passes 'a store: one rank, bf16, the host updates' stored 0 1 0 2 0 --numerics.dtype=bf16 --memory.offload=cpu \
    --memory.offload_update=cpu
passes 'a store: stage 2, the host updates' stored 2 2 0 4 0 --memory.offload=cpu --memory.offload_update=cpu
passes 'a store: stage 3, bf16, the host updates' stored 3 2 0 2 4 --numerics.dtype=bf16 --memory.offload=cpu \
    --memory.offload_update=cpu
deeper passes 'a store: stage 3, the device updates' stored 3 2 12 4 4 --memory.offload=disk
deeper passes 'a store: two whole copies' stored 0 2 0 4 0 --memory.offload=cpu --memory.offload_update=cpu
passes 'one process' one_process
passes 'a large model' large
passes 'mistakes' mistakes
exit $failed
