# test/cuda_steps.sh: what the test_cuda_*.sh share; they source it from the repository root.
#
# It sets $here, $BUILD, $work (gone at the end), and an environment without settings of the emulation. Steps run in
# parallel, one a core, and print in the order in which they were begun: end with `finish`. ONLY, an extended regular
# expression: of the steps after the builds, those whose names match; ONLY='fp8|named' test/test_train_gpu.sh
here=dev/cuda_on_cpu
. $here/twins.sh || exit 1
cxx=${CXX:-g++}
command -v "$cxx" >/dev/null 2>&1 || { echo "skip $(basename "$0") (no C++ compiler)"; exit 0; }
export DEBUG_INFO=${DEBUG_INFO:--g1} # no gdb here
export BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/cuda.XXXXXX") || exit 1
trap 'kill $(jobs -rp) 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
unset "${!EMU_@}"
ulimit -c 0
export LC_ALL=C # awk writes 0.5, not 0,5
export EMU_MEMORY=256 # MiB; address space is scarce in containers
cores=$(nproc 2>/dev/null || echo 2)
steps=0
# With TEST_LONG (make test-long) in all modes of the emulation and in many orders of threads and streams; without it in
# the plain mode, in order and in one other order.
modes=(plain)
[ -z "${TEST_LONG:-}" ] || modes=(plain asan checker)
deeper() { [ -z "${TEST_LONG:-}" ] || "$@"; }

step() { # NAME COMMAND [ARGUMENT...]: "ok NAME" when the command succeeds, otherwise what it said, and wrote to $log
    local name=$1 out
    shift
    [ -z "${built:-}" ] || [[ $name =~ ${ONLY:-} ]] || return 0
    printf -v out '%s/step.%04d' "$work" $((++steps))
    {
        if (log=$out.run; "$@" >"$out.said" 2>&1) 2>/dev/null; then echo "ok $name"
        else
            echo "not ok $name"
            { grep -a 'error' "$out.run" 2>/dev/null | head -n 10 # what a run prints first are its settings
                cat "$out".{said,run} 2>/dev/null; } | sed 's/^/  /' | head -n 30
        fi >"$out"
    } &
    [ "$(jobs -rp | wc -l)" -lt "$cores" ] || wait -n
}
skip() { # WHAT
    local out
    printf -v out '%s/step.%04d' "$work" $((++steps))
    echo "skip $1" >"$out"
}
said() { cat "$work"/step.[0-9][0-9][0-9][0-9]; }
all_built() { # ends where a build failed: the rest would say it a hundred times
    wait
    ! said | grep -q '^not ok' || { said; exit 1; }
    built=1
}
finish() {
    wait
    said
    ! said | grep -q '^not ok'
    exit
}
