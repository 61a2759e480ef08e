# test/ranks_common.sh: build/train on several ranks of this machine. Sourced after test/train_common.sh.
launcher=$(command -v mpiexec.mpich || command -v mpiexec || ls /usr/lib64/mpich/bin/mpiexec)
# MPICH keeps some memory until the process ends.
. test/lsan.sh

# ranks N CONFIG NAME [OPTION...]: as train, on N ranks
ranks() {
    local n=$1 file=$work/$2.toml name=$3
    shift 3
    timeout -k 10 120 "$launcher" -n "$n" "$BUILD/train" "$file" --run.name="$name" "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null
}

by_mpi() { # FUNCTION [ARGUMENT...]: where ranks do not read each other's memory
    export PRETRAIN_COMM=mpi
    "$@"
}

# A third of the training text becomes runs of 1000 end-of-text tokens. Between two of them nothing is predicted
# (packing.h), so sequences, and ranks, have very different numbers of targets that count; some have none.
uneven_corpus() {
    local eot i shard=$work/data/train_000000.bin
    eot=$(sed -n 's/.*"eot": \([0-9]*\).*/\1/p' "$work/data/manifest.json")
    for ((i = 0; i < 1000; i++)); do
        # shellcheck disable=SC2059
        printf "\\$(printf %o $((eot % 256)))\\$(printf %o $((eot / 256)))"
    done >"$work/run"
    for ((i = 0; i < 31; i++)); do # after the header of 1024 bytes, every 3000 tokens
        dd if="$work/run" of="$shard" bs=8 seek=$((128 + 750 * i)) conv=notrunc status=none
    done
}

ranks_of() { # FILE: sets process, the ranks' processes that a run has named there
    mapfile -t process < <(tr '\r' '\n' <"$1" 2>/dev/null | sed -n 's/^rank [0-9]*: process \([0-9]*\) on .*/\1/p')
}

family() { # PID: it and all processes under it
    ps -eo pid=,ppid= | awk -v root="$1" '
        { up[$1] = $2 }
        END { for (p in up) { for (q = p; q != root && q in up && q > 1;) q = up[q]; if (q == root) print p } }'
}

# in_the_middle N NAME [OPTION...]: starts an endless run; sets pid (the launcher's) and process (of the ranks),
# in training
in_the_middle() {
    local n=$1 name=$2
    shift 2
    (exec "$launcher" -n "$n" "$BUILD/train" "$work/gpt.toml" --run.name="$name" --run.steps=1000000 --optim.decay_steps=1000000 \
        --run.eval_every=0 --run.sample_every=0 --batch.micro=4 --eval.tokens=100 --sample.count=0 "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null) &
    pid=$!
    wait_for_step "$name" 3 "$pid"
    until ranks_of "$work/$name.out" && [ ${#process[@]} = "$n" ]; do # the launcher hands on what a rank prints when it comes to it
        kill -0 "$pid"; sleep 0.1
    done
}

events() { # NAME EVENT KEY: the key's value in each line of the event in elastic.jsonl
    sed -n "/\"event\":\"$2\"/s/.*\"$3\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$runs/$1/elastic.jsonl" 2>/dev/null
}

# A process that the launcher killed needs a moment to end; a dead one may wait for its parent or init to reap it (Z).
nobody_left() { # [PID...]: none: the ranks'
    local p i
    [ $# -gt 0 ] || set -- "${process[@]}"
    for p; do
        for ((i = 0; i < 600; i++)); do
            case $(ps -o stat= -p "$p" || true) in '' | Z*) continue 2 ;; esac
            sleep 0.05
        done
        echo "process $p is still there: $(ps -o pid,ppid,stat,comm -p "$p" | tail -n 1)"
        return 1
    done
}

blas_kernels() { # of OpenBLAS' kernels for x86 those that this machine runs
    local kernel
    for kernel in Prescott:pni Sandybridge:avx Haswell:avx2 Zen:avx2 SkylakeX:avx512vl; do
        if grep -qw "${kernel#*:}" /proc/cpuinfo 2>/dev/null; then echo "${kernel%:*}"; fi
    done
}

# On its own choice a program would correct the kernel (dev_cpu_choose_blas).
on_kernel() { PRETRAIN_BLAS=keep OPENBLAS_CORETYPE=$1 OPENBLAS_NUM_THREADS=1 "${@:2}"; } # KERNEL COMMAND [ARGUMENT...]
