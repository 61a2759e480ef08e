#!/bin/sh
# setup: installs what the CPU build and its tests need. `make` calls it once per build folder; it is safe to
# call at any time, and returns within a second, without touching the network, when nothing is missing.
#
# The script does not look packages up, but tries them: it compiles, links and runs a program that includes
# every library's header. That works on any distribution and finds a half-installed package. On Debian and
# Ubuntu apt installs what is missing (as root, or through sudo). Elsewhere the script prints what to install,
# with the command where it knows it, and the exit status is 1.
#
# usage: scripts/setup.sh          (CC=clang scripts/setup.sh tries clang in place of gcc)
set -u
CC=${CC:-gcc}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

say() { printf 'setup: %s\n' "$*" >&2; }

# Fedora and others keep cblas.h in a folder of its own; the Makefile adds the same one.
include=
[ -d /usr/include/openblas ] && include=-I/usr/include/openblas

# MPI's compiler wrapper knows its flags (Fedora keeps it outside of PATH).
mpi_wrapper() {
    for candidate in mpicc.mpich mpicc /usr/lib64/mpich/bin/mpicc; do command -v $candidate && return; done
}

# One program that needs every library; the first line the compiler or linker complains about lands in
# $tmp/log.
works() {
    : >"$tmp/log"
    command -v make >/dev/null 2>&1 || { echo 'make: not found' >"$tmp/log"; return 1; }
    command -v "${CC%% *}" >/dev/null 2>&1 || { echo "$CC: not found" >"$tmp/log"; return 1; }
    command -v g++ >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1 ||
        { echo 'g++: not found (make check compiles each header as C++ too)' >"$tmp/log"; return 1; }
    mpi=$(mpi_wrapper) || { echo 'mpicc: not found (MPICH)'; return 1; } >"$tmp/log"
    mpi=$("$mpi" -show | tr ' ' '\n' | grep -E '^(-I|-L|-l|-Wl,-rpath)')
    cat >"$tmp/t.c" <<'EOF'
#define PCRE2_CODE_UNIT_WIDTH 8
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cblas.h>
#include <cmocka.h>
#include <ini.h>
#include <jansson.h>
#include <mpi.h>
#include <omp.h>
#include <pcre2.h>
#include <snappy-c.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>
int main(void)
{
    float x[1] = {1};
    uint32_t jit = 0;
    pcre2_config(PCRE2_CONFIG_JIT, &jit);
    int read = ini_parse("/dev/null", NULL, NULL);
    json_t *json = json_object();
    json_decref(json);
    int major, minor;
    MPI_Get_version(&major, &minor);
    assert_int_equal(read, 0);
    return (major < 3) + !(cblas_sdot(1, x, 1, x, 1) == 1) + (omp_get_max_threads() < 1) + (XXH3_64bits(x, 0) == 0) +
           !zlibVersion() + !ZSTD_versionNumber() + !utf8proc_version() + !snappy_max_compressed_length(1);
}
EOF
    # shellcheck disable=SC2086
    $CC $include ${EXTRA_CFLAGS:-} -fopenmp "$tmp/t.c" -o "$tmp/t" ${EXTRA_LDFLAGS:-} \
        -lopenblas -linih -ljansson -lpcre2-8 -lutf8proc -lxxhash -lz -lzstd -lsnappy -lcmocka -lm $mpi >"$tmp/log" 2>&1 && "$tmp/t"
}

works && exit 0
case $CC in
gcc | cc | clang) ;;
*) command -v "${CC%% *}" >/dev/null 2>&1 || { say "the compiler '$CC' (CC=) is not on this machine"; exit 1; } ;;
esac

distribution=unknown
[ -r /etc/os-release ] && distribution=$(. /etc/os-release && echo " ${ID:-} ${ID_LIKE:-} ")
[ "$(uname -s)" = Darwin ] && distribution=macos

apt_packages='gcc g++ make libc6-dev libopenblas-dev libpcre2-dev libinih-dev libcmocka-dev libjansson-dev libxxhash-dev'
apt_packages="$apt_packages libutf8proc-dev zlib1g-dev libzstd-dev libsnappy-dev mpich libmpich-dev"
case $CC in *clang*) apt_packages="$apt_packages clang libomp-dev" ;; esac

case $distribution in
*' debian '* | *' ubuntu '*) command -v apt-get >/dev/null 2>&1 && system=apt || system=other ;;
*' fedora '* | *' rhel '*) system=fedora ;;
*' arch '*) system=arch ;;
macos) system=macos ;;
*) system=other ;;
esac

if [ $system != apt ]; then
    say "something is missing: $(head -n 1 "$tmp/log" | sed 's|^.*/t\.c:[0-9:]* *||')"
    case $system in
    fedora) say 'run:  sudo dnf install gcc gcc-c++ make openblas-devel pcre2-devel inih-devel libcmocka-devel jansson-devel utf8proc-devel xxhash-devel zlib-devel libzstd-devel snappy-devel mpich-devel' ;;
    arch) say 'run:  sudo pacman -S --needed base-devel openblas pcre2 libinih cmocka jansson libutf8proc xxhash zlib zstd snappy mpich' ;;
    macos)
        say 'run:  brew install gcc@14 make openblas pcre2 inih cmocka jansson utf8proc xxhash zlib zstd snappy mpich'
        # shellcheck disable=SC2016
        say 'then: gmake CC=gcc-14 EXTRA_CFLAGS="-I$(brew --prefix)/include -I$(brew --prefix openblas)/include"' \
            'EXTRA_LDFLAGS="-L$(brew --prefix)/lib -L$(brew --prefix openblas)/lib"'
        ;;
    *) say 'install a C and a C++ compiler with OpenMP, GNU make, and the development files of:' \
        'OpenBLAS (with cblas.h), PCRE2 (8-bit), inih, cmocka, jansson, utf8proc, xxhash, zlib, zstd, snappy, and MPICH (or another MPI 3)' ;;
    esac
    exit 1
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        say 'packages are missing and this is neither root nor a machine with sudo; as root, run:'
        say "  apt-get update && apt-get install --no-install-recommends $apt_packages"
        exit 1
    fi
    as_root=sudo
fi
install_packages() {
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 \
        install --no-install-recommends $apt_packages >"$tmp/apt" 2>&1 </dev/null
}
say "installing what is missing by apt ($apt_packages)"
# The package lists may be absent (a bare image) or too old: they are fetched only when the first try fails.
if ! install_packages; then
    say 'fetching the package lists (apt-get update)'
    if ! $as_root apt-get -qq -o DPkg::Lock::Timeout=600 update >"$tmp/update" 2>&1 </dev/null || ! install_packages; then
        cat "$tmp/update" "$tmp/apt" >&2
        say 'apt-get did not succeed; its messages are above'
        exit 1
    fi
fi
if ! works; then
    cat "$tmp/log" >&2
    say 'the packages are installed, but a test program does not compile and run; the messages are above'
    exit 1
fi
