#!/bin/bash
# test/test_layouts.sh [random N [SEED] | any N [SEED] | WORD]: the layouts of layouts.tsv against one rank, the plan and each other, in one
# process (layouts.c). `make test-long` has all rows, and eight drawn at random; `make layouts` draws 60 (SEED 1). A layout at
# random is a function of the seed and its number; `any` draws those too that deterministic mode may refuse (`make test-long`: 60).
# WORD: the rows that have it.
# deeper: all rows, and a dozen of them with each of OpenBLAS' kernels that the machine runs
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

# draw N: one of 0 .. N-1 into $drawn. Park and Miller's generator; low bits are poor, so high ones are taken.
draw() {
    state=$((state * 48271 % 2147483647))
    drawn=$(((state >> 8) % $1))
}

pick() { # VARIABLE WORD...: one of them into the variable
    local -n picked=$1
    shift
    draw $#
    shift "$drawn"
    picked=$1
}

# Two lines of a table, or false where the sizes cannot be: more than 8 ranks, fewer micro-batches than stages
# (doc/pipeline.md), layers that do not fill the chunks.
layout() {
    local dp tp cp pp zero micro layers schedule family dtype recipe recompute sp reshard without='' options chunks=1 n
    pick dp 1 1 2 4 && pick tp 1 1 2 4 && pick cp 1 1 2 && pick pp 1 1 2 4 && pick zero 0 1 2 3 && pick micro 1 2 4
    pick layers 4 5 8 && pick schedule gpipe 1f1b interleaved zb-h1 zb-v v-half v-min && pick family gpt odd experts
    pick dtype fp32 fp32 bf16 && pick recipe muon adamw 'adafactor optim.agc=0.01' adamw8bit
    pick recompute none selective attention full sqrt && pick sp true false && pick reshard true false
    n=$((dp * tp * cp * pp)) options="batch.micro=$micro memory.recompute=$recompute"
    [ $n -gt 1 ] && [ $n -le 8 ] || return 1
    if [ "$tp" -gt 1 ]; then options+=" parallel.tp=$tp parallel.sp=$sp"; fi
    if [ "$cp" -gt 1 ]; then options+=" parallel.cp=$cp"; fi
    if [ "$zero" -gt 0 ]; then
        [ $((dp * cp)) -gt 1 ] || return 1
        options+=" parallel.zero=$zero"
        if [ "$zero" = 3 ]; then options+=" parallel.reshard=$reshard"; fi
    fi
    if [ "$pp" -gt 1 ]; then
        case $schedule in interleaved | zb-v | v-*) chunks=2 ;; esac
        [ $((16 / dp / micro)) -ge "$pp" ] || return 1
        case $schedule in zb-v) [ $((16 / dp / micro)) -ge $((2 * pp)) ] || return 1 ;; esac
        [ $((layers % (pp * chunks))) = 0 ] || { [ "$layers" = 5 ] && [ "$pp" = 2 ] && [ $chunks = 1 ]; } || return 1
        options+=" parallel.pp=$pp parallel.schedule=$schedule"
    fi
    [ "$zero$recompute" = 3none ] || without+=g # see the table
    [ "$tp" = 1 ] || [ "$dtype$tp" = fp322 ] || [ "$dtype$family" = fp32gpt ] || without+=d # refused
    printf 'one\t1\t%s\tmodel.layers=%s numerics.dtype=%s optim.name=%s\n' "$family" "$layers" "$dtype" "$recipe"
    printf 'long\t%s\t%s\t%s\n' $n "$without" "$options"
}

# Two lines of a table: 2 to 8 ranks, of any numbers on every axis.
any_layout() {
    local dp tp cp pp ep=1 family dtype kv micro sp schedule zero tokens assign way recompute one options
    pick dp 1 1 2 2 3 4 && pick tp 1 1 1 2 2 3 4 5 6 7 8 && pick cp 1 1 1 2 2 3 4 && pick pp 1 1 1 2 2 3 4
    [ $((dp * tp * cp * pp)) -gt 1 ] && [ $((dp * tp * cp * pp)) -le 8 ] || return 1
    pick family gpt llama odd experts biased && pick dtype fp32 fp32 tf32 bf16 bf16 fp16 fp8 && pick kv 1 2 4 4
    pick micro 1 1 2 4 && pick sp true false && pick schedule gpipe 1f1b interleaved zb-h1 && pick zero 0 1 2 3
    pick assign zigzag zigzag contiguous && pick way ring gather && pick recompute none none full sqrt attention
    pick tokens 256 256 256 192 384
    case $family in experts | biased) pick ep 1 1 2 2 3 4 ;; esac
    options="batch.micro=$micro numerics.dtype=$dtype memory.recompute=$recompute"
    [ "$tp" = 1 ] || options+=" parallel.tp=$tp parallel.sp=$sp"
    [ "$cp" = 1 ] || options+=" parallel.cp=$cp parallel.cp_assign=$assign parallel.cp_way=$way"
    [ "$pp" = 1 ] || options+=" parallel.pp=$pp parallel.schedule=$schedule"
    [ "$ep" = 1 ] || options+=" parallel.ep=$ep"
    [ $((dp * cp)) = 1 ] || options+=" parallel.zero=$zero"
    one="numerics.dtype=${dtype/fp8/bf16} batch.micro=1 batch.tokens=$tokens"
    [ $family = gpt ] || one+=" model.kv_heads=$kv"
    printf 'one\t1\t%s\t%s\nany\t%s\t\t%s\n' $family "$one" $((dp * tp * cp * pp)) "$options"
}

at_random() { # N SEED FUNCTION: a table
    local i
    state=$((($2 * 7919 + 12345) % 2147483647))
    grep -E "^(all|family)$tab" test/layouts.tsv
    for ((i = 0; i < $1; )); do $3 && i=$((i + 1)); done
}

{
    "$BUILD/stories" --bytes 200000 --seed 3 --out "$work/text" &&
        "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" --vocab 509 --out "$work/data" &&
        uneven_corpus && "$BUILD/show" pipeline 1f1b --stages 2 --micro 4 --csv "$work/data/mine.csv"
} >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
circle=core random=0 any=0 tab=$'\t'
[ -z "${TEST_LONG:-}" ] || circle=long random=8 any=60
if [ "${1:-}" = random ]; then random=${2:-60} any=0
elif [ "${1:-}" = any ]; then random=0 any=${2:-500}
else
    [ $# = 0 ] || random=0 any=0
    "$BUILD/test/layouts" test/layouts.tsv $circle "$work/data" "$work" "${1:-}" || failed=1
fi
# A dozen rows with each of OpenBLAS' kernels: the bits of a product may depend on its shape (doc/deterministic.md).
if [ $random = 8 ]; then
    awk -F "$tab" '/^(all|family)/ { print } $1 == "one" { one = $0 "\n" }
        $1 == "core" && ++n % 4 == 0 { printf "%s%s\n", one, $0; one = "" }' test/layouts.tsv >"$work/dozen.tsv"
    for kernel in $(blas_kernels); do
        on_kernel "$kernel" "$BUILD/test/layouts" "$work/dozen.tsv" core "$work/data" "$work" >"$work/rows" || failed=1
        sed -E "s/^((not )?ok )/\1$kernel: /" "$work/rows"
    done
fi
if [ "$random" -gt 0 ]; then
    at_random "$random" "${3:-1}" layout >"$work/random.tsv"
    "$BUILD/test/layouts" "$work/random.tsv" long "$work/data" "$work" || failed=1
fi
if [ "$any" -gt 0 ]; then
    at_random "$any" "${3:-1}" any_layout >"$work/any.tsv"
    "$BUILD/test/layouts" "$work/any.tsv" long "$work/data" "$work" || failed=1
fi
exit $failed
