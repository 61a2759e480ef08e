#!/bin/bash
# circle: hosts
# test/test_launchers.sh: the program built with Open MPI, by Open MPI's mpiexec: the weights that one process has, to the
# bit, in several layouts; ranks that fail are named; a launcher of another MPI is refused.
# long: builds the tree a second time, with mpicc.openmpi; skipped without it
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. test/ranks_common.sh

if ! command -v mpicc.openmpi >/dev/null || ! command -v mpiexec.openmpi >/dev/null; then
    echo 'skip Open MPI (no mpicc.openmpi; on Debian: libopenmpi-dev, openmpi-bin)'
    exit 0
fi
other=$BUILD/openmpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
options=(--run.steps=12 --run.eval_every=0 --sample.count=0 --numerics.deterministic=true)

builds() {
    ${MAKE:-make} --no-print-directory B="$other" MPICC=mpicc.openmpi "$other/train"
    ldd "$other/train" | grep -q "libmpi\.so"
}

ranks() { # N CONFIG NAME [OPTION...]
    local n=$1 file=$work/$2.toml name=$3
    shift 3
    timeout -k 10 120 mpiexec.openmpi -n "$n" "$other/train" "$file" --run.name="$name" "${options[@]}" "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null
}

layout() { # RANKS NAME [OPTION...]
    local n=$1 name=$2
    shift 2
    ranks "$n" gpt "$name" "$@" || { cat "$work/$name.out" "$work/$name.err"; return 1; }
    same_state one "$name" 12
}

by_tcp() { # no memory that is shared, as between machines
    export PRETRAIN_COMM=mpi OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1
    layout 4 tcp --parallel.zero=3
}

strangers() { # LAUNCHER PROGRAM LINE
    timeout 60 "$1" -n 2 "$2/train" "$work/gpt.toml" --run.name=strangers >"$work/out" 2>&1 && return 1
    cat "$work/out"
    [ "$(grep -cE "^rank 0: error: launch: $3" "$work/out")" = 1 ]
    [ "$(grep -c 'error: ' "$work/out")" = 1 ]
    [ ! -e "$runs/strangers" ]
}

killed() { # the rank is named, and nobody is left
    local pid status=0
    (exec mpiexec.openmpi -n 3 "$other/train" "$work/gpt.toml" --run.name=killed --run.steps=100000 --run.eval_every=0 \
        --batch.tokens=384 --batch.micro=1 --sample.count=0 >"$work/killed.out" 2>"$work/killed.err" </dev/null) &
    pid=$!
    wait_for_step killed 3 "$pid"
    ranks_of "$work/killed.out"
    [ ${#process[@]} = 3 ]
    kill -KILL "${process[1]}"
    wait $pid || status=$?
    cat "$work/killed.err"
    [ $status != 0 ]
    grep -qE 'rank 1.*(killed|signal 9)' "$work/killed.err"
    nobody_left
}

prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
train gpt one "${options[@]}"
passes 'the tree builds with Open MPI' builds
passes 'two ranks' layout 2 two
passes 'four ranks, zero = 3' layout 4 zero3 --parallel.zero=3
passes 'tensors and stages' layout 4 grid --parallel.tp=2 --parallel.pp=2
passes 'context' layout 2 cp --parallel.cp=2
passes 'by TCP alone' by_tcp
passes "MPICH's program, Open MPI's launcher" strangers mpiexec.openmpi "$BUILD" "Open MPI's mpiexec started 2 processes"
passes "Open MPI's program, MPICH's launcher" strangers mpiexec.mpich "$other" "MPICH's mpiexec started 2 processes"
passes 'a killed rank is named' killed
exit $failed
