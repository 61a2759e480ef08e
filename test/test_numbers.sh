#!/bin/bash
# test/test_numbers.sh: every numeric setting at the ends of its range and just past them, and settings and the numeric
# options of plan and stories at the numbers where C's types end, under UBSan: refused in one line, or used without a
# report, a crash, a hang or memory without bound. Nothing trains: plan forecasts the run, and train ends at data that
# are not there.
# long: builds programs under UBSan; some thousand runs
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
ubsan=$BUILD/ubsan
export UBSAN_OPTIONS=print_stacktrace=1
programs='plan train stories'
edges='0 -1 2147483647 2147483648 9007199254740992 9223372036854775807 9223372036854775808 1e30 nan -inf 5e-324'

builds() {
    # shellcheck disable=SC2046,SC2086
    ${MAKE:-make} --no-print-directory B="$ubsan" WERROR= $(printf "$ubsan/%s " $programs) \
        EXTRA_CFLAGS='-O1 -fno-omit-frame-pointer -fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all'
}

# Lines KEY LOW HIGH of the numeric settings, from the help; an end that is not there is empty.
settings() {
    "$BUILD/train" --help | tr -s '\n ' ' ' | sed 's/ --/\n--/g' | sed -nE \
        's/^--([a-z_.0-9]+)=.*\((integer|number)( (>=|>|in) ?([^,;)]*)(, ([0-9.e_]+)[])])?)?.*/\1 \5 \7/p' | tr -d '[('
}

# One run: at most 20 s of processors and 4 GB; an error is one line.
attempt() { # COMMAND...
    local status=0
    (ulimit -v 4000000 -t 20; exec timeout -k 1 300 "$@") >"$work/said" 2>"$work/err" </dev/null || status=$?
    if [ $status = 0 ] || { [[ $status = [12] ]] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q '^error: ' "$work/err"; }; then return; fi
    echo "status $status: $*"
    head -n 3 "$work/err"
    echo x >>"$work/bad"
}

all_settings() { # COMMAND...: each numeric setting in turn
    local key low high value
    : >"$work/bad"
    settings >"$work/settings"
    [ "$(wc -l <"$work/settings")" -ge 80 ] # the help is understood
    while read -r key low high; do
        for value in $edges $low ${low:+"$low.5"} ${low:+"-$low"} $high ${high:+"${high}0"} ${high:+"${high}.5"}; do
            attempt "$@" "--$key=$value"
        done
    done <"$work/settings"
    [ ! -s "$work/bad" ]
}

# An option's value may be a number; what it means is of no importance here.
options() { # COMMAND... -- OPTION...
    local command=() option value
    while [ "$1" != -- ]; do command+=("$1"); shift; done
    shift
    : >"$work/bad"
    for option; do
        for value in $edges; do attempt "${command[@]}" "$option" "$value"; done
    done
    [ ! -s "$work/bad" ]
}

passes 'the programs build under UBSan' builds
[ $failed = 0 ] || exit 1
model=(tiny --model.vocab=512 --run.steps=100)
for what in memory time schedule; do passes "plan $what" all_settings "$ubsan/plan" $what "${model[@]}"; done
passes 'train' all_settings "$ubsan/train" "${model[@]}" "--data.train=$work/none" --run.dir="$runs"
for what in time traffic layout cluster; do
    passes "plan $what: options" options "$ubsan/plan" $what "${model[@]}" -- --gpus --tp --pp --cp --dp --vpp --micro --batch --zero \
        --price --tokens --save --restart --mtbf --days --jitter --seed
done
for what in time cluster; do passes "plan $what: --interval" options "$ubsan/plan" $what "${model[@]}" -- --interval; done
passes 'plan memory: options' options "$ubsan/plan" memory "${model[@]}" -- --ranks
passes 'plan scaling' options "$ubsan/plan" scaling -- --flops --params --tokens --served --loss --mfu --price
passes 'stories' options "$ubsan/stories" --out "$work/text" --bytes 1000 -- --seed
exit $failed
