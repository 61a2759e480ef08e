# test/data_common.sh: what the end-to-end tests of the data programs share. Sourced after set -u, in the repository
# root.
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/data.XXXXXX") || exit 1
unset OMP_NUM_THREADS
export OMP_WAIT_POLICY=passive LC_ALL=C
trap '[ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

pipefail=1
# shellcheck source=test/passes_common.sh
. test/passes_common.sh
