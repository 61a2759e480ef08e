# test/passes_common.sh: passes NAME FUNCTION [ARGUMENT...] runs one test in a subshell under `set -e`: the first command
# that fails ends it, and is reported under its "not ok" line; what it left in the background is killed. Needs $work, and
# sets failed=1; with $pipefail set, a pipe fails with any of its commands. Sourced.
failed=0
passes() {
    local name=$1 status
    shift
    (
        set -eE ${pipefail:+-o pipefail}
        trap 'jobs -p | xargs -r kill -KILL 2>/dev/null || :' EXIT
        trap 'echo "failed: $BASH_COMMAND (line ${BASH_LINENO[0]} of ${BASH_SOURCE[1]:-?}, status $?)"' ERR
        "$@"
    ) >"$work/log" 2>&1
    status=$? # not of an `if`: in its condition bash ignores set -e
    if [ $status = 0 ]; then
        echo "ok $name"
    else
        echo "not ok $name"
        tail -n 30 "$work/log" | sed 's/^/  /'
        failed=1
    fi
}
