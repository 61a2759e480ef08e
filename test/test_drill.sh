#!/bin/bash
# test/test_drill.sh: a run of four ranks through thirty kills, hangs and dead hosts ends with the bytes of one without a
# failure, and its goodput is within 8% of what build/plan predicts from the measured times (scripts/drill.sh).
# long: about five minutes
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"

drilled() {
    local status=0 row
    LAUNCHER=$launcher scripts/drill.sh 30 >"$work/drill" 2>&1 || status=$?
    cat "$work/drill"
    [ $status = 0 ]
    grep -q '^step [0-9]*: the bytes of the run without a failure; each step and its samples once$' "$work/drill"
    row=$(grep -A2 'goodput, measured' "$work/drill" | tail -n 1 | tr -d '%')
    close_to "$(cut -d'|' -f8 <<<"$row" | tr -d ' ')" "$(cut -d'|' -f9 <<<"$row" | tr -d ' ')" 0.08
}

passes 'a drill of thirty failures' drilled
exit $failed
