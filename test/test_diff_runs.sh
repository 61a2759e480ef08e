#!/bin/bash
# test/test_diff_runs.sh: build/diff over time: one update of two commands from the same state, the first update that
# differs, found by bisection, and two loss curves beside a third that only rounds.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"

verdict() { # WORDS STATUS ARGUMENT...: a line of diff begins so, and it ends with that status
    local words=$1 want=$2 status=0
    shift 2
    TMPDIR=$work "$BUILD/diff" "$@" >"$work/diff" 2>"$work/diff.err" || status=$?
    cat "$work/diff" "$work/diff.err"
    [ -z "$words" ] || grep -q "^$words" "$work/diff"
    [ $status = "$want" ]
    [ -z "$(find "$work" -maxdepth 1 -name 'twice.*')" ] # nothing is left behind
}

command="$BUILD/train '$work/gpt.toml' --run.steps=8" # of the shell

one_update() {
    verdict 'rounding: ' 0 --twice "$command --batch.micro=16" "$command"
    verdict 'rounding: ' 0 --twice "mpiexec -n 2 $command --batch.micro=4 --run.supervisor=false" "$command" --update 4
    verdict 'identical: ' 0 --twice "$command --run.threads=2" "$command" --update 3
    verdict 'cannot tell: the weights .*: COMMAND OF A --ckpt.init=MODEL.safetensors, and so B$' 3 \
        --twice "$command --data.shuffle=false --run.seed=9" "$command --data.shuffle=false" # whose runs are gone
    verdict 'DIFFERENT: first at state.exp_avg' 1 --twice "$command --optim.beta1=0.8" "$command"
}

# From update 4 on, or at once.
first_update() {
    verdict 'update 4 is the first that is different' 3 \
        --twice "$command --run.fault=spike:step=4,steps=99" "$command" --first 7
    grep -q '^cannot tell: other tokens, from sample 0, token 0 on' "$work/diff"
    verdict 'rounding: ' 0 --twice "$command --batch.micro=16" "$command" --first 3
}

curves() {
    local name
    train gpt one --run.steps=30 && train gpt micro --run.steps=30 --batch.micro=16
    train gpt other --run.steps=30 --batch.micro=4 && train gpt eps --run.steps=30 --optim.eps=1e-6
    train gpt short --run.steps=10
    verdict 'DIFFERENT: .*; A is after update 30, B after update 10' 1 "$runs/one" "$runs/short"
    verdict 'DIFFERENT: .*; if only the order of sums .* --twice' 1 "$runs/one" "$runs/micro"
    verdict 'identical: ' 0 --curves "$runs/one" "$runs/one"
    verdict 'cannot tell: the losses part at update ' 3 --curves "$runs/eps" "$runs/one"
    verdict 'rounding: the losses part at update ' 0 --curves "$runs/micro" "$runs/one" --third "$runs/other"
    verdict 'DIFFERENT: from update [1-9] on ' 1 --curves "$runs/eps" "$runs/one" --third "$runs/other"
}

mistakes() {
    verdict '' 1 --twice "$command --optim.lr=-1" "$command"
    grep -q "optim.lr" "$work/diff.err"
    grep -q "^error: diff: --twice: status 1 of: " "$work/diff.err"
    verdict '' 2 "$runs/one" "$runs/one" --update 3
    verdict '' 2 --curves --twice a b
    verdict '' 1 --curves "$runs/none" "$runs/one"
    grep -q "^error: $runs/none/metrics.jsonl: cannot open: No such file" "$work/diff.err"
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'one update by two commands, from the same state' one_update
passes 'the first update that differs' first_update
passes 'two curves and a third' curves
passes 'mistakes' mistakes
exit $failed
