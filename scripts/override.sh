#!/bin/bash
# scripts/override.sh: compiles one file to a shared library for numerics.override (doc/override.md): FILE.so, beside
# it. Prints the setting that uses it.
#
# usage: scripts/override.sh FILE.c                 for build/train
#        scripts/override.sh FILE.cu                for build/train_gpu_on_cpu, the emulation
#        scripts/override.sh FILE.cu checker        for build/train_gpu_checked, the emulation that looks for races
#        scripts/override.sh FILE.cu gpu            for build/train_gpu, by nvcc
#
# -Bsymbolic: a function of the file that has the name of one in the program is the file's own.
set -eu
stop() { echo "error: override.sh: $*" >&2; exit 1; }
[ $# = 1 ] || [ $# = 2 ] || stop 'usage: scripts/override.sh FILE.c | FILE.cu [checker | gpu]'
[ -f "$1" ] || stop "$1: no such file"
given=${1%.*}.so file=$(cd "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
out=${file%.*}.so
cd "$(dirname "$0")/.."
flags() { ${MAKE:-make} -s --no-print-directory "$1"; } # as the program was compiled
case $file-${2:-} in
*.c-)
    # shellcheck disable=SC2046 # a list of words
    $(flags print-compile) -shared -fPIC -Wl,-Bsymbolic "$file" -o "$out"
    ;;
*.cu- | *.cu-checker)
    dev/cuda_on_cpu/build.sh "${2:-plain}" "$out" "$file"
    rm -f "$out.$(basename "$file").o"{,.d}
    ;;
*.cu-gpu)
    # shellcheck disable=SC2046
    $(flags print-nvcc) -Xcompiler -fPIC -shared -Xlinker -Bsymbolic "$file" -o "$out"
    ;;
*) stop "$1 ${2:-}: FILE.c, FILE.cu, FILE.cu checker or FILE.cu gpu" ;;
esac
ops=$(nm -D --defined-only "$out" | sed -n 's/.* \(.*\)_override$/\1/p')
[ -n "$ops" ] || stop "$1 does not say OVERRIDE(OP, \"TYPES\") for any op (src/check/override.h)"
echo "--numerics.override=$(for op in $ops; do echo "$op:$given"; done | paste -sd ,)"
