#!/bin/bash
# dev/cuda_on_cpu/build.sh: builds a CUDA program for the CPU.
#
# usage: build.sh plain|asan|checker PROGRAM FILE.cu... [FILE.o FILE.a...] [-- FLAG...]     flags: of compiler and linker
#
# plain: -Og -g, for gdb (DEBUG_INFO=-g1: lines alone, sooner built). asan: the same under AddressSanitizer and UBSan.
# checker: every load and store is looked at.
# Objects are kept in $BUILD/cuda_on_cpu/ (BUILD is build unless set): the emulator's own, and those of files that are
# given by a relative path, until a file that they were made of changes. A PROGRAM that ends in .so becomes a shared
# library for a program that was built in the same mode: it has no emulator of its own. CXX is g++ unless set, 12 or
# later (clang++: 14). A cross compiler such as aarch64-linux-gnu-g++ will do.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=$1 program=$2
shift 2
files=()
while [ $# != 0 ] && [ "$1" != -- ]; do files+=("$1"); shift; done
[ $# != 0 ] && shift
of_compiler=() # what an object depends on
for flag; do case $flag in -l* | -L* | -Wl,*) ;; *) of_compiler+=("$flag") ;; esac; done
cxx=${CXX:-g++}
objects=${BUILD:-build}/cuda_on_cpu/$(basename "$cxx")-$mode
flags=(-std=gnu++17 "${DEBUG_INFO:--g}" -Wall -Wextra -Werror -Wno-unknown-pragmas -fno-strict-aliasing -fno-omit-frame-pointer
    "-I$here/../../src" "-I$here/../.." "-I$here/include")
machine=("${flags[@]}" -O2) kernel=("${flags[@]}" -Og) parts=(fiber block warp memory report stream) link=(-ldl -Wl,--export-dynamic)
# A kernel with large local arrays must touch the page below its stack, not jump over it.
case $cxx-$(uname -m) in *clang*-aarch64) ;; *) kernel+=(-fstack-clash-protection) ;; esac
case $mode in
plain) ;;
asan)
    machine+=(-fsanitize=address,undefined -fno-sanitize-recover=undefined)
    kernel+=(-fsanitize=address,undefined -fno-sanitize-recover=undefined)
    link+=(-fsanitize=address,undefined)
    ;;
checker)
    kernel+=(-O2 -fsanitize=thread)
    parts+=(checker)
    ;;
*) echo "error: build.sh: $mode: one of plain, asan, checker" >&2; exit 2 ;;
esac
# -Bsymbolic: a function of the library that has the name of one in the program is the library's own.
case $program in *.so) kernel+=(-fPIC) parts=() link+=(-shared -Wl,-Bsymbolic) ;; esac

mkdir -p "$objects"
list=()
part() { # NAME[-WAY] [FLAG...]: an object of the emulator, compiled where it is not there yet
    local object=$objects/$1.o source=$here/${1%-*}.cc newest
    list+=("$object")
    newest=$(ls -tL "$here"/*.h "$here"/include/*.h "$source" "$here/build.sh" "$here/../../src/formats/formats.h" | head -n 1)
    if [ ! "$object" -nt "$newest" ]; then
        "$cxx" "${machine[@]}" "${@:2}" -c "$source" -o "$object.tmp$$"
        mv "$object.tmp$$" "$object"
    fi
}
for name in "${parts[@]}"; do part "$name"; done
made_of() { # OBJECT: is it there, and newer than all that it was made of?
    local list
    mapfile -t list < <(sed 's/^[^ ]*: *//; s/ *\\$//' "$1.d" 2>/dev/null | tr -s ' ' '\n' | grep .)
    [ ${#list[@]} != 0 ] && ! find -L "${list[@]}" -newer "$1" 2>&1 | grep -q .
}
sources=()
for file in "${files[@]}"; do
    case $file in *.o | *.a) sources+=("$file"); continue ;; esac
    object=$program.$(basename "$file").o
    kept=$objects/$(tr / _ <<<"$file").$(cksum <<<"$PWD ${kernel[*]} ${of_compiler[*]}" | tr -d ' ')
    case $file in /*) kept=$object ;; esac
    if ! { [ "$kept" != "$object" ] && [ "$kept" -nt "$here/build.sh" ] && made_of "$kept"; }; then
        "$cxx" "${kernel[@]}" "${of_compiler[@]}" -MMD -MF "$kept.$$.d" -x c++ -c "$file" -o "$kept.$$"
        if [ "$mode" = checker ]; then # the C library's copies are accesses too
            case $cxx in *-g++) objcopy=${cxx%g++}objcopy ;; *) objcopy=objcopy ;; esac
            "$objcopy" --redefine-sym memcpy=emu_memcpy --redefine-sym memmove=emu_memmove \
                --redefine-sym memset=emu_memset "$kept.$$"
        fi
        mv "$kept.$$.d" "$kept.d"
        mv "$kept.$$" "$kept"
    fi
    [ "$kept" = "$object" ] || ln -f "$kept" "$object" 2>/dev/null || cp "$kept" "$object"
    sources+=("$object")
done
calls() { [ ${#parts[@]} != 0 ] && nm -Cu "${sources[@]}" | grep -q "U $1[A-Z]"; }
words() { printf '%s\n' "$@"; } # one a line
if calls nccl; then # on MPI, with the flags that its compiler wrapper would pass
    mpi=$(for m in mpicc.mpich mpicc /usr/lib64/mpich/bin/mpicc; do command -v $m && break; done) ||
        { echo "error: build.sh: $program calls NCCL, which needs MPI here (MPICH)" >&2; exit 2; }
    mapfile -t mpi < <("$mpi" -show | tr ' ' '\n')
    mapfile -t include < <(words "${mpi[@]}" | grep '^-I')
    mapfile -t -O ${#link[@]} link < <(words "${mpi[@]}" | grep -E '^(-L|-l|-Wl,-rpath)')
    part nccl "${include[@]}"
    part ranks "${include[@]}"
fi
if calls cublas; then # on OpenBLAS where it is, unless OPENBLAS=no
    part cublas
    blas=()
    [ -d /usr/include/openblas ] && blas=(-I/usr/include/openblas)
    if [ "${OPENBLAS:-}" != no ] && echo 'int main() { cblas_sgemm; }' |
        "$cxx" "${blas[@]}" -include cblas.h -x c++ - -lopenblas -o "$program.blas" 2>/dev/null; then
        rm -f "$program.blas"
        part blas -DWITH_OPENBLAS "${blas[@]}"
        link+=(-lopenblas)
    else part blas-loops; fi
fi
"$cxx" "${sources[@]}" "${list[@]}" "${link[@]}" "$@" -o "$program"
