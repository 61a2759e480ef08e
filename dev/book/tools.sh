#!/bin/bash
# dev/book/tools.sh FOLDER: compiles the book's tools to WebAssembly, as scripts that a page from a disk can load: in FOLDER
# NAME_tool.wasm.js and NAME_tool.js for each NAME_tool.c here. Prints the names of those made; none without clang's wasm32
# target and wasm-ld. Runs at the top of the tree.
set -euo pipefail
here=dev/book out=$1
CLANG=${CLANG:-clang}
command -v "$CLANG" >/dev/null 2>&1 && command -v wasm-ld >/dev/null 2>&1 || exit 0
compile=("$CLANG" --target=wasm32 -nostdlibinc -isystem "$here/libc" -Isrc -I. -O2 -ffreestanding -ffunction-sections -fdata-sections -nostdlib
    -Wl,--no-entry -Wl,--gc-sections -Wl,--allow-undefined -Wl,-z,stack-size=262144 -Wall -Werror)
files() { # NAME: what is linked
    case $1 in
    pipeline) echo src/parallel/pipeline_{table,time,check}.c ;;
    esac
}
for name in pipeline; do
    # shellcheck disable=SC2046
    "${compile[@]}" "$here/${name}_tool.c" "$here/libc/libc.c" $(files $name) -o "$out/$name.wasm"
    { echo "// ${name}_tool.c and what it uses, compiled."; echo "book_wasm = '$(base64 -w 0 "$out/$name.wasm")';"; } >"$out/${name}_tool.wasm.js"
    rm "$out/$name.wasm"
    cp "$here/${name}_tool.js" "$out/"
    echo "$name"
done
