#!/bin/bash
# dev/cuda_on_cpu/build.sh: builds a CUDA program for the CPU.
#
# usage: build.sh plain|asan|checker PROGRAM FILE.cu... [FILE.o...] [-- FLAG...]
#
# plain: -O1 -g, for gdb. asan: the same under AddressSanitizer and UBSan. checker: every load and store is looked at. The
# emulator's own objects are kept in $BUILD/cuda_on_cpu/ (BUILD is build unless set); CXX is g++ unless set, 12 or later
# (clang++: 14).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=$1 program=$2
shift 2
files=()
while [ $# != 0 ] && [ "$1" != -- ]; do files+=("$1"); shift; done
[ $# != 0 ] && shift
cxx=${CXX:-g++}
objects=${BUILD:-build}/cuda_on_cpu/$(basename "$cxx")-$mode
flags=(-std=gnu++17 -g -Wall -Wextra -Werror -Wno-unknown-pragmas -fno-strict-aliasing -fno-omit-frame-pointer "-I$here/../../src")
machine=("${flags[@]}" -O2) kernel=("${flags[@]}" -O1) parts=(fiber block warp memory report stream) link=(-ldl)
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

mkdir -p "$objects"
list=()
for part in "${parts[@]}"; do
    object=$objects/$part.o
    list+=("$object")
    newest=$(ls -t "$here"/*.h "$here/$part.cc" "$here/build.sh" "$here/../../src/formats.h" | head -n 1)
    if [ ! "$object" -nt "$newest" ]; then
        "$cxx" "${machine[@]}" -c "$here/$part.cc" -o "$object.tmp"
        mv "$object.tmp" "$object"
    fi
done
sources=()
for file in "${files[@]}"; do
    case $file in *.o) sources+=("$file"); continue ;; esac
    object=$program.$(basename "$file").o
    "$cxx" "${kernel[@]}" "$@" -x c++ -c "$file" -o "$object"
    if [ "$mode" = checker ]; then # the C library's copies are accesses too
        objcopy --redefine-sym memcpy=emu_memcpy --redefine-sym memmove=emu_memmove --redefine-sym memset=emu_memset "$object"
    fi
    sources+=("$object")
done
"$cxx" "${sources[@]}" "${list[@]}" "${link[@]}" -o "$program"
