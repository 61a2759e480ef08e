#!/bin/bash
# test/tsan.sh: the code with threads, under ThreadSanitizer (make tsan). The programs are built with clang, whose
# OpenMP library reports its barriers to the sanitizer through libarcher; gcc's does not, and each barrier would look
# like a race. Libraries that are not built for the sanitizer (BLAS, MPI) are left out of the reports. The first check
# is that a race is detected at all.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
: "${CC:=clang}"
archer=$(ls /usr/lib/llvm-*/lib/libarcher.so /usr/lib*/libarcher.so 2>/dev/null | head -n 1)
export OMP_TOOL_LIBRARIES=$archer OMP_NUM_THREADS=2 PRETRAIN_BLAS=ours # the last: no restart
export TSAN_OPTIONS="halt_on_error=1 exitcode=66 ignore_noninstrumented_modules=1 history_size=4 report_thread_leaks=0"

# A race between two threads of OpenMP, and one of pthreads, each in one line; without -DRACE none.
probe() {
    cat >"$work/probe.c" <<'END'
#include <pthread.h>
static int sum, other;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *add(void *at)
{
    if (at) pthread_mutex_lock(&lock);
    other++;
    if (at) pthread_mutex_unlock(&lock);
    return 0;
}
int main(int n, char **arg)
{
    pthread_t thread[2];
    int part[2] = {0};
#pragma omp parallel for num_threads(2)
    for (int i = 0; i < 2; i++) part[i] = i;
    for (int i = 0; i < 2; i++) sum += part[i];
    if (n > 1 && **++arg == 'o')
#pragma omp parallel num_threads(2)
        sum++;
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], 0, add, n > 1 && **arg == 'p' ? 0 : &lock);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], 0);
    return sum == 0;
}
END
    "$CC" -O1 -g -fopenmp -fsanitize=thread "$work/probe.c" -o "$work/probe"
    local status
    "$work/probe"
    for kind in openmp pthreads; do
        status=0
        "$work/probe" $kind >"$work/race" 2>&1 || status=$?
        cat "$work/race"
        [ $status = 66 ]
        grep -q 'ThreadSanitizer: data race' "$work/race"
    done
}

# Two threads of OpenMP, a thread that writes checkpoints, one that moves offloaded layers, and a third that is delayed.
trains() { # NAME [OPTION...]
    train gpt "$@" --run.threads=2 --run.steps=6 --optim.decay_steps=6 --run.save_every=1 --ckpt.async=true \
        --eval.tokens=200 --sample.count=1 --sample.tokens=5 || { cat "$work/$1.err"; return 1; }
    [ ! -s "$work/$1.err" ]
}

prepares() {
    OMP_NUM_THREADS=4 "$BUILD/prepare" tokens --train "$work/text/train.txt" --val-file "$work/text/val.txt" \
        --vocab 600 --out "$work/again"
}

if [ -z "$archer" ] || ! command -v "$CC" >/dev/null; then
    echo 'skip ThreadSanitizer (needs clang and libarcher: apt install clang libomp-dev)'
    exit
fi
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'a race is seen' probe
[ $failed = 0 ] || exit 1
for program; do passes "$program" "$BUILD/test/$program"; done
passes 'train: saves beside training' trains async
passes 'train: offloaded to a file' trains offload --memory.offload=disk
passes 'train: LLaMA, bf16' trains bf16 --numerics.dtype=bf16 \
    --model.norm=rmsnorm --model.activation=swiglu --model.position=rope
passes 'train: deterministic' trains fixed --numerics.deterministic=true
passes 'train: Muon, documents' trains muon --optim.name=muon --data.document_mask=true
passes 'prepare' prepares
exit $failed
