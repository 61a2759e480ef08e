#!/bin/bash
# test/test_environment.sh: environments that allow little. Under a limit on addresses, stacks or threads, with a small
# /dev/shm, and with absurd numbers of threads, a program works or ends soon with one line and a status that is not 0.
# disk: a /dev/shm of its own
# deeper: more limits, and every program
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. test/ranks_common.sh
ulimit -c 0
copy=$(mktemp -d /tmp/environment.XXXXXX) || exit 1 # where any user may look
trap 'rm -rf "$work" "$copy"' EXIT
unset OMP_STACKSIZE GOMP_STACKSIZE OPENBLAS_NUM_THREADS PRETRAIN_BLAS UCX_TLS
short=(--run.steps=1 --eval.tokens=100 --run.sample_every=0 --sample.count=0)
limit='' # what the shell limits before the program: "-v 300000"

# works_or_says WORDS COMMAND...: works, or says one line with WORDS, and ends within a minute (alone: a second; the machine
# may have other work); status, out and err are left.
# A line of the dynamic loader or of libgomp (which begins with an empty one) is such a line too.
works_or_says() {
    local words=$1
    shift
    status=0
    # shellcheck disable=SC2086
    (ulimit $limit; exec timeout -k 1 60 "$@") >"$work/out" 2>"$work/err" </dev/null || status=$?
    echo "-- $limit: $*: status $status"
    cat "$work/err"
    # OpenBLAS ends the program itself where it cannot start its threads, before main
    [ $status != 130 ] || { grep -q '^OpenBLAS blas_thread_init: pthread_create failed' "$work/err" && return; }
    case $status in 0 | 1 | 127) ;; *) return 1 ;; esac
    [ $status != 0 ] || return 0
    [ "$(grep -cE 'error: |error while loading|^libgomp: ' "$work/err")" = 1 ]
    grep -qE "$words|libgomp: Thread creation failed|loading shared libraries" "$work/err"
}

says() { # WORDS COMMAND...: does not work
    works_or_says "$@"
    [ $status = 1 ] && grep -qE "$1" "$work/err"
}

trains=("$BUILD/train" "$work/gpt.toml" --run.name=limit --run.peak=0 --run.threads=2 "${short[@]}")

addresses() { # KB...
    local kb
    for kb; do
        limit="-v $kb"
        works_or_says 'memory|threads: |no address' "${trains[@]}"
        works_or_says 'memory|threads: ' "$BUILD/plan" time "$work/gpt.toml"
    done
    limit='-v 150000' # OpenBLAS's own threads still ask for their buffers, and wait for ever at the end
    PRETRAIN_BLAS=keep says 'threads: Cannot allocate memory|memory: ' "${trains[@]}"
    limit='-v 300000'
    says 'OpenBLAS needs 3 buffers of 128 MiB for 2 threads' "${trains[@]}"
}

# OpenBLAS asks for its buffer again for ever, from the start and at exit.
each_program_under() { # KB...
    local kb
    for kb; do
        limit="-v $kb"
        works_or_says 'memory|threads: ' "$BUILD/bench" demo --steps 1 --threads 2
        works_or_says 'memory|threads: ' "$BUILD/show" offload need
        works_or_says 'memory|threads: ' "$BUILD/show" optimizers --help
        works_or_says 'memory|threads: ' "$BUILD/show" tp "$work/gpt.toml" 2
        works_or_says 'memory|threads: ' "$BUILD/show" zero --help
        works_or_says 'memory|threads: ' "$BUILD/show" collectives --help
    done
}

stacks() {
    limit='-s 128'
    says 'ulimit -s 128: the stack needs 1024 KiB|^$' "${trains[@]}" || [ $status = 0 ] # who may raise it does
    limit='-S -s 128'
    works_or_says nothing "${trains[@]}" --numerics.deterministic=true
    [ $status = 0 ]
    limit='-S -s 8192'
    OMP_STACKSIZE=200K says 'OMP_STACKSIZE = 200K: a thread needs 1024 KiB' "${trains[@]}" --numerics.deterministic=true
    OMP_STACKSIZE=65536B says 'OMP_STACKSIZE = 65536B: a thread needs' "${trains[@]}"
}

enough_stack() { # of the threads, for the deepest call
    limit='-S -s 8192'
    OMP_STACKSIZE=1024 works_or_says nothing "${trains[@]}" --numerics.deterministic=true
    [ $status = 0 ]
}

short_files() {
    limit='-f 4' # the first files of a run are longer
    says 'File too large' "${trains[@]}"
}

a_million_threads() {
    limit='-S -s 8192'
    OMP_NUM_THREADS=999999 works_or_says nothing "${trains[@]}"
    [ $status = 0 ]
    [ "$(cat "$work/err")" = 'warning: OMP_NUM_THREADS = 999999: 1024 threads are used' ]
}

# A thread that OpenBLAS cannot create is one for which it waits. Root has no limit on threads, so another user.
few_threads() {
    chmod a+rx "$copy"
    cp -r "$work/data" "$work/gpt.toml" "$BUILD/train" "$copy"
    sed -i "s|$work|$copy|" "$copy/gpt.toml"
    chmod -R a+rwX "$copy"
    limit='-u 2'
    OPENBLAS_NUM_THREADS=1 says 'threads: Resource temporarily unavailable after 1 of 2 more' setpriv --reuid 54321 \
        --regid 54321 --clear-groups "$copy/train" "$copy/gpt.toml" --run.peak=0 --run.threads=2 "${short[@]}"
}

# shm SIZE N [COMMAND...]: the ranks with a /dev/shm of their own, after COMMAND in their name spaces
shm() {
    local size=$1 n=$2
    shift 2
    status=0
    "${spaces[@]}" bash -c "mount -t tmpfs -o $size none /dev/shm && ${*:-:} && exec timeout -k 1 60 '$launcher' \
        -n $n '$BUILD/train' '$work/gpt.toml' --run.name=shm --batch.micro=2 ${short[*]}" \
        >"$work/out" 2>"$work/err" </dev/null || status=$?
    echo "-- /dev/shm $size, $n ranks, $*: status $status"
    cat "$work/err"
}

shm_says() { # WORDS and what shm takes
    local words=$1
    shift
    shm "$@"
    [ $status != 0 ] && [ "$(grep -c . "$work/err")" = 1 ]
    grep -qE "^rank 0: error: /dev/shm: $words" "$work/err"
}

small_shm() {
    shm size=1m 2
    [ $status = 0 ] && [ ! -s "$work/err" ]
    shm_says '4 KiB free, and MPI needs 32 KiB for 2 ranks' size=8k 2
}

more_of_shm() {
    shm size=512k 4 && [ $status = 0 ]
    shm ro 2 && [ $status = 0 ]
    shm_says '[0-9]* KiB free, and MPI needs 128 KiB for 8 ranks' size=64k 8
    shm size=16m 2 'echo 0 >/proc/sys/kernel/shmall' && [ $status = 0 ]
    shm_says '.* MPI needs 36864 KiB for 8 ranks' size=16m 8 'echo 0 >/proc/sys/kernel/shmall'
    shm_says '0 KiB free, and MPI needs' ro 2 'echo 0 >/proc/sys/kernel/shmall'
}

if [ "${BUILD##*/}" = asan ]; then
    echo 'skip environment (the sanitizers need addresses without a limit)'
    exit
fi
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'little address space' addresses 150000
deeper passes 'address space of every size' addresses 50000 100000 150000 200000 250000 300000 400000 600000 1000000
passes 'every program that links OpenBLAS' each_program_under 150000
deeper passes 'every program, under more limits' each_program_under 100000 200000 250000 300000 400000 600000
passes 'small stacks' stacks
deeper passes 'a stack that is just enough' enough_stack
passes 'short files' short_files
passes 'a million threads' a_million_threads
if [ "$(id -u)" = 0 ] && setpriv --reuid 54321 --regid 54321 --clear-groups true 2>/dev/null; then
    passes 'threads that cannot be created' few_threads
else
    echo 'skip threads that cannot be created (needs root, and setpriv)'
fi
spaces=(unshare -m --ipc)
if [ "$(id -u)" = 0 ] && "${spaces[@]}" mount -t tmpfs none /dev/shm 2>/dev/null; then
    passes 'a small /dev/shm' small_shm
    deeper passes 'a small /dev/shm of more kinds' more_of_shm
else
    echo 'skip a small /dev/shm (needs name spaces)'
fi
exit $failed
