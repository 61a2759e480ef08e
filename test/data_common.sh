# test/data_common.sh: what the end-to-end tests of the data programs share. Sourced after set -u, in the repository
# root.
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/data.XXXXXX") || exit 1
failed=0
unset OMP_NUM_THREADS
export OMP_WAIT_POLICY=passive LC_ALL=C
trap '[ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

passes() { # NAME FUNCTION: the function in a subshell, where the first command that fails ends it
    local name=$1 status
    shift
    (
        set -eE -o pipefail
        trap 'echo "failed: $BASH_COMMAND (line ${BASH_LINENO[0]}, status $?)"' ERR
        "$@"
    ) >"$work/log" 2>&1
    status=$?
    if [ $status = 0 ]; then echo "ok $name"
    else
        echo "not ok $name"
        tail -n 30 "$work/log" | sed 's/^/  /'
        failed=1
    fi
}
