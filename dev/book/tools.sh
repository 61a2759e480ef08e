#!/bin/bash
# dev/book/tools.sh FOLDER: compiles the book's tools to WebAssembly, as scripts that a page from a disk can load: in FOLDER
# NAME_tool.wasm.js and NAME_tool.js for each NAME_tool.c here. Prints the names of those made; none without clang's wasm32
# target and wasm-ld. Runs at the top of the tree.
set -euo pipefail
here=dev/book out=$1
CLANG=${CLANG:-clang}
command -v "$CLANG" >/dev/null 2>&1 && command -v wasm-ld >/dev/null 2>&1 || exit 0
compile=("$CLANG" --target=wasm32 -nostdlibinc -isystem "$here/libc" -Isrc -I. -O2 -ffreestanding -ffunction-sections -fdata-sections -nostdlib
    -Wl,--no-entry -Wl,--gc-sections -Wl,--allow-undefined -Wl,-z,stack-size=262144 -Wall -Wno-format -Wno-incompatible-library-redeclaration -Werror
    -mbulk-memory -U__SIZE_TYPE__ '-D__SIZE_TYPE__=unsigned long long') # bytes of a large model are more than 32 bits
files() { # NAME: what is linked
    case $1 in
    pipeline) echo src/parallel/pipeline_{table,time,check}.c ;;
    plan) echo dev/plan/{plan_layout,sharding}.c src/net/{model,model_table,recompute,unit,experts,linear,block,mup}.c src/base/{params,rng}.c \
        src/parallel/{tp,ep,pipeline,pipeline_table,pipeline_check}.c src/comm/mesh.c ;;
    esac
}
# The models whose section [model] has only what plan_tool.js knows.
presets() {
    grep -LE '^(experts|window|qk_norm|value_emb|rope_scaling)' scripts/presets/*.toml | xargs grep -lE '^vocab' | xargs awk '
        FNR == 1 { if (open) print "},"; name = FILENAME; gsub(/.*\/|\.toml$/, "", name); printf "\"%s\": {", name; open = 1; section = "" }
        /^\[/ { section = $1; next }
        section == "[model]" && /^[a-z_]+ = / { value = $3; gsub(/_/, "", value); printf "%s: %s, ", $1, value }
        END { print "}" }'
}
for name in pipeline plan; do
    # shellcheck disable=SC2046
    "${compile[@]}" "$here/${name}_tool.c" "$here/libc/libc.c" $(files $name) -o "$out/$name.wasm"
    { echo "// ${name}_tool.c and what it uses, compiled."; echo "book_wasm = '$(base64 -w 0 "$out/$name.wasm")';"; } >"$out/${name}_tool.wasm.js"
    if [ "$name" = plan ]; then { echo 'book_presets = {'; presets; echo '};'; } >>"$out/${name}_tool.wasm.js"; fi
    rm "$out/$name.wasm"
    cp "$here/${name}_tool.js" "$out/"
    echo "$name"
done
