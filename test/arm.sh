#!/bin/bash
# test/arm.sh: the tree for AArch64, built and tested on another processor (make test-arm; Debian and Ubuntu). It needs
# gcc-aarch64-linux-gnu and qemu-user. Libraries and their headers are fetched as packages of arm64 and unpacked into
# $BUILD/arm/sysroot; nothing is installed. All programs are built; then come the unit tests that an emulation runs in
# seconds, and two steps of two models on one rank, whose losses must be this processor's up to rounding.
#
# Each program X is moved to X.elf, and X becomes a script that runs it by qemu: so programs that start others work too.
#
# usage: test/arm.sh [NAME...]     NAME: these unit tests instead
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
cpu=aarch64-linux-gnu arm=$BUILD/arm
sysroot=$(mkdir -p "$arm" && cd "$arm" && pwd)/sysroot
blas=$sysroot/usr/lib/$cpu/openblas-pthread
packages='libc6 libc6-dev linux-libc-dev libcrypt1 libgcc-s1 libgomp1 libgfortran5 libopenblas0-pthread libopenblas-pthread-dev
    libpcre2-8-0 libpcre2-dev libinih1 libinih-dev libcmocka0 libcmocka-dev libjansson4 libjansson-dev libutf8proc2 libutf8proc-dev libxxhash0 libxxhash-dev
    zlib1g zlib1g-dev libzstd1 libzstd-dev libsnappy1v5 libsnappy-dev libstdc++6 libmpich12 libmpich-dev libhwloc15 libudev1 libucx0 libslurm38 libnl-3-200
    libnl-route-3-200 libibverbs1 librdmacm1 libnuma1'
# Hours in an emulation (test_attention, test_mup, test_ops, test_plan), ranks of a launcher (test_drawings), and a program that
# starts itself past its script (test_blas).
left_out=' test_attention test_blas test_drawings test_mup test_ops test_plan '
# Minutes; by name only.
left_out+='test_ckpt_layouts test_cp test_dedup test_dedup_program '

for program in $cpu-gcc qemu-aarch64 apt-get dpkg; do
    command -v $program >/dev/null && continue
    echo "error: test/arm.sh: no $program here (Debian: apt install gcc-aarch64-linux-gnu qemu-user)" >&2
    exit 1
done

# In apt's folders of our own, as if nothing were installed: the machine's package lists and architectures stay.
fetch() {
    [ ! -f "$sysroot/complete" ] || return 0
    local apt=$arm/apt deb
    rm -rf "$apt" "$sysroot"
    mkdir -p "$apt"/state/lists/partial "$apt"/cache/archives/partial "$sysroot"
    : >"$apt/status"
    options=(-q -o Dir::State="$PWD/$apt/state" -o Dir::State::status="$PWD/$apt/status" -o Dir::Cache="$PWD/$apt/cache"
        -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    # shellcheck disable=SC2086
    (cd "$apt" && apt-get "${options[@]}" download $packages)
    for deb in "$apt"/*.deb; do dpkg -x "$deb" "$sysroot"; done
    rm -r "$apt"
    touch "$sysroot/complete"
}

builds() {
    # shellcheck disable=SC2046
    ${MAKE:-make} --no-print-directory -o "$arm/setup" B="$arm" CC="$cpu-gcc --sysroot=$sysroot" ARCH=-mcpu=cortex-a72 \
        EXTRA_CFLAGS="-I$sysroot/usr/include/$cpu/openblas-pthread" EXTRA_LDFLAGS="-L$blas -Wl,-rpath-link,$blas" \
        MPI_FLAGS="-I$sysroot/usr/include/$cpu/mpich" MPI_LIBS='-Wl,--as-needed -lmpich' all $(printf "$arm/test/%s " "$@")
    local program
    for program in "$arm"/* "$arm"/test/*; do
        case $program in *.elf | *.d | *.a) continue ;; esac
        [ -f "$program" ] && [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
        mv "$program" "$program.elf"
        printf '#!/bin/sh\nexec qemu-aarch64 -L "%s" -E LD_LIBRARY_PATH="%s" "%s.elf" "$@"\n' \
            "$sysroot" "$blas" "$(cd "$(dirname "$program")" && pwd)/${program##*/}" >"$program"
        chmod +x "$program"
    done
}

same_losses() { # FAMILY
    local short=(--run.steps=2 --optim.decay_steps=2 --run.eval_every=0 --run.sample_every=0 --sample.count=0 --eval.tokens=100)
    local step
    train "$1" "own-$1" "${short[@]}"
    BUILD=$arm train "$1" "arm-$1" "${short[@]}"
    [ "$(value train loss "$runs/arm-$1/metrics.jsonl" | wc -l)" = 2 ]
    for step in 1 2; do
        close_to "$(value train loss "$runs/arm-$1/metrics.jsonl" | sed -n ${step}p)" \
            "$(value train loss "$runs/own-$1/metrics.jsonl" | sed -n ${step}p)" 1e-5
    done
    local reader
    for reader in "$BUILD" "$arm"; do # each reads what the other wrote
        "$reader/export" "$(checkpoint "own-$1" 2)" --to state --out "$work/${reader##*/}.own"
        "$reader/export" "$(checkpoint "arm-$1" 2)" --to state --out "$work/${reader##*/}.arm"
    done
    cmp "$work/arm.own" "$work/${BUILD##*/}.own"
    cmp "$work/arm.arm" "$work/${BUILD##*/}.arm"
}

if [ $# = 0 ]; then
    for test in test/test_*.c; do
        name=$(basename "$test" .c)
        case $left_out in *" $name "*) ;; *) set -- "$@" "$name" ;; esac
    done
fi
# A program starts itself again to choose BLAS' kernels or how threads wait; the emulation has no choice to make.
export PRETRAIN_BLAS=keep
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
passes 'the libraries are there' fetch
[ $failed = 0 ] && passes 'the tree builds for AArch64' builds "$@"
[ $failed = 0 ] || exit 1
passes 'the same losses: gpt' same_losses gpt
passes 'the same losses: llama' same_losses llama
BUILD=$arm test/run.sh --units "$@" || failed=1
exit $failed
