#!/bin/bash
# test/test_override.sh: numerics.override: an op from a shared library runs in place of the device's own, in every
# dtype that it declares and on ranks; numerics.check compares it with the project's own, and names the element of a
# seeded bug; what does not fit is refused with one line. CUDA: test_override_cuda.sh.
# shellcheck source=test/train_common.sh
# deeper: more layouts
. "$(dirname "$0")/train_common.sh"
. test/ranks_common.sh
template=dev/override/norm_forward

# library NAME [SED SCRIPT]: the template, changed, as $work/NAME.so
library() {
    sed "${2:-}" $template.c >"$work/$1.c"
    if [ $# != 1 ] && cmp -s $template.c "$work/$1.c"; then return 1; fi
    scripts/override.sh "$work/$1.c"
}
short=(--run.steps=1 --run.eval_every=0 --run.sample_every=0 --sample.count=0 --eval.tokens=64 --numerics.check=true)
within() { grep -qE ' ops, 0 beyond their bound' "$1" && grep -qE '^norm_forward +[0-9]+ ' "$1"; }
# Row 5, channel 7 of every output is 0, of the config's 32 channels.
bug='s/^        rstd\[n\] = r;/&\n        if (n == 5) put(dev, out, n * C + 7, 0);/'
blamed() { # FILE: that element, and no other op
    grep -qE '^norm_forward +[0-9]+ .* out\[167\] of [0-9]+ in call [0-9]+: -?0, should be -?[0-9.e-]+ within [0-9.e-]+' "$1"
    grep -qE ' ops, 1 beyond their bound' "$1"
}

template_is_right() {
    local dtype
    library mine
    for dtype in fp32 bf16 fp16 fp8; do
        train gpt "gpt-$dtype" "${short[@]}" --numerics.override="norm_forward:$work/mine.so" --numerics.dtype=$dtype
        within "$work/gpt-$dtype.out"
    done
    train llama llama "${short[@]}" --numerics.override="norm_forward:$work/mine.so"
    within "$work/llama.out"
}

# Two ops from two libraries; the path without a slash is one in this directory.
bug_is_named() {
    local dtype status here=$PWD
    library bug "$bug"
    cat >"$work/add.c" <<'EOF'
#include "src/check/override.h"
void add(Dev *dev, X *out, const X *a, const X *b, size_t n)
{
    (void)dev;
    for (size_t i = 0; i < n; i++) ((float *)out)[i] = ((const float *)a)[i] + ((const float *)b)[i];
}
OVERRIDE(add, "fp32");
EOF
    scripts/override.sh "$work/add.c"
    for dtype in fp32 bf16; do
        status=0
        train gpt "bug-$dtype" "${short[@]}" --numerics.override="norm_forward:$work/bug.so" --numerics.dtype=$dtype ||
            status=$?
        [ $status = 1 ]
        blamed "$work/bug-$dtype.out"
        grep -q '^error: numerics.check: rank 0: an op left its bound' "$work/bug-$dtype.err"
    done
    program=$(cd "$BUILD" && pwd)/train status=0
    cd "$work"
    "$program" gpt.toml "${short[@]}" --numerics.override=norm_forward:bug.so,add:add.so >two.out 2>two.err || status=$?
    cd "$here"
    [ $status = 1 ]
    blamed "$work/two.out"
    grep -qE '^add +[0-9]+ +0 *$' "$work/two.out"
}

on_ranks() { # [OPTION...]
    local status=0
    [ -n "$launcher" ]
    ranks 4 gpt ranks "${short[@]}" --run.threads=1 --numerics.override="norm_forward:$work/mine.so" "$@"
    within "$work/ranks.out"
    ranks 4 gpt ranks-bug "${short[@]}" --run.threads=1 --numerics.override="norm_forward:$work/bug.so" "$@" || status=$?
    [ $status != 0 ]
    blamed "$work/ranks-bug.out"
}

# The start-up table, the run's config.toml; and a run without numerics.check takes the library's results.
on_record() {
    local library=$work/'a folder with spaces in its name and longer than a line of the table is wide'/mine.so
    mkdir -p "${library%/*}" && cp "$work/mine.so" "$library"
    train gpt record --run.steps=1 --numerics.override="norm_forward:$library"
    grep -qF "override=\"norm_forward:$library\"" "$work/record.out" # in one piece
    grep -qF "override = \"norm_forward:$library\"" "$runs/record/config.toml"
    train gpt record-bug --run.steps=1 --numerics.override="norm_forward:$work/bug.so"
    train gpt record-none --run.steps=1
    [ "$(history record | head -n 1)" != "$(history record-bug | head -n 1)" ]
    close_to "$(value train loss "$runs/record/metrics.jsonl")" "$(value train loss "$runs/record-none/metrics.jsonl")" 1e-5
}

never_called() { # an op that this model does not use was not checked
    local status=0
    printf '%s\n' '#include "src/check/override.h"' 'void swiglu_forward(Dev *d, X *o, const X *g, size_t N, size_t F)' \
        '{ (void)d, (void)o, (void)g, (void)N, (void)F; }' 'OVERRIDE(swiglu_forward, "fp32");' >"$work/unused.c"
    scripts/override.sh "$work/unused.c"
    train gpt unused "${short[@]}" --numerics.override="swiglu_forward:$work/unused.so" || status=$?
    [ $status = 1 ]
    [ "$(wc -l <"$work/unused.err")" = 1 ]
    grep '^error: numerics.override: swiglu_forward was never called, so it was not checked' "$work/unused.err"
}

refused() { # WORDS LIST [OPTION...]
    fails_with 1 "numerics.override: $1" "$BUILD/train" "$work/gpt.toml" --run.name=refused --numerics.override="$2" "${@:3}"
    [ ! -e "$runs/refused" ]
}
mistakes() {
    local so=$work/mine.so
    refused "no op 'norm_foward' .the nearest is norm_forward" "norm_foward:$so"
    refused "'norm_forward' is not OP:FILE" norm_forward
    refused "'' is not OP:FILE" "norm_forward:$so,,add:$so"
    refused 'norm_forward is given twice' "norm_forward:$so,norm_forward:$so"
    refused 'cannot load .*none.so: .*No such file' "norm_forward:$work/none.so"
    refused 'cannot load .*mine.c: .*ELF' "norm_forward:$work/mine.c"
    refused '.*mine.so has no function norm_backward' "norm_backward:$so"
    library one 's/"fp32 bf16 fp16"/"fp32"/'
    refused 'norm_forward of .*one.so takes fp32, and this run stores bf16' "norm_forward:$work/one.so" --numerics.dtype=bf16
    library silent '/^OVERRIDE/d' 2>"$work/said" && return 1
    grep -q 'does not say OVERRIDE' "$work/said"
    refused '.*silent.so does not say OVERRIDE.norm_forward' "norm_forward:$work/silent.so"
    by_hand() { # MEMBERS: of what the macro writes
        library "$1" "s/^OVERRIDE.*/const Override norm_forward_override = {$2, \"fp32\"};/"
    }
    by_hand old 'DEV_VERSION - 1, OVERRIDE_TARGET'
    refused '.*old.so was compiled with version' "norm_forward:$work/old.so"
    by_hand gpu 'DEV_VERSION, "a GPU"'
    refused '.*gpu.so is for a GPU, this program for the CPU' "norm_forward:$work/gpu.so"
}

wrong_type() { # of the function: the compiler says so
    library wrong 's/size_t N, size_t C, NormKind/int N, size_t C, NormKind/' 2>"$work/said" && return 1
    grep -q 'norm_forward has not the type that ops/dev.h says' "$work/said"
}

# A library carries DEV_VERSION, which must change when declarations of dev.h do (comments aside).
version='12 926167895'
versions() {
    local number sum
    number=$(sed -n 's/.*DEV_VERSION = \([0-9]*\).*/\1/p' src/ops/dev.h)
    sum=$(sed 's,//.*,,' src/ops/dev.h | tr -d ' \n' | cksum)
    [ "$number ${sum%% *}" = "$version" ] ||
        { echo "src/ops/dev.h has changed: raise DEV_VERSION there, and write '$number ${sum%% *}' with the new one here"; return 1; }
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'the template is right in fp32, bf16, fp16, fp8' template_is_right
passes 'a seeded bug: op, element, values and bound' bug_is_named
passes 'four ranks, tp and pp' on_ranks --parallel.tp=2 --parallel.pp=2
deeper passes 'four ranks, ZeRO-3' on_ranks --parallel.zero=3 --batch.micro=4
deeper passes 'four ranks, cp' on_ranks --parallel.cp=2 --parallel.tp=2 --parallel.sp=true
passes 'it is on record, and runs without the check' on_record
passes 'an op that is never called has no verdict' never_called
passes 'wrong lists and libraries' mistakes
passes 'a function of another type does not compile' wrong_type
passes 'DEV_VERSION follows dev.h' versions
exit $failed
