#!/bin/bash
# scripts/matmul_ladder.sh: builds dev/matmul with the Makefile's own flags and prints its two tables: the
# versions of a matrix product, from naive to fast, and src/ops/gemm.c against OpenBLAS on the products of
# GPT-2 124M. Under a minute on two quiet cores. Arguments go to the program: --threads N, --rows N (4096
# takes longer). For doc/gemm.md: scripts/matmul_ladder.sh >runs/matmul_ladder.txt, then make docs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
rule="$build/matmul_ladder: $(echo dev/matmul/*.[ch]) $build/libpretrain.a
	@echo '  LD' \$@
	\$(Q)\$(CC) \$(FLAGS) \$(filter %.c %.a,\$^) \$(LDLIBS) -o \$@"
make --no-print-directory B="$build" --eval="$rule" "$build/matmul_ladder" >&2
echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 |
    sed 's/^ *//'), $(nproc) cores"
echo
"$build/matmul_ladder" "$@"
