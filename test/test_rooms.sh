#!/bin/bash
# test/test_rooms.sh: the drawing of the rooms (scripts/house.sh), their pages (scripts/rooms.sh) and their budget
# (scripts/budget.sh), on a small tree that is made here, so that everything about it is known.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/rooms.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
export TREE=$work/tree

# shellcheck source=test/passes_common.sh
. test/passes_common.sh

# base <- ops <- net, data/prep, dev/plan; programs on top. dev/fuzz is no room.
mkdir -p "$TREE"/{src/base,src/ops,src/net,data/prep,dev/plan,dev/fuzz}
cd "$TREE" || exit 1
printf '// rng: random numbers. Layer 0.\nint rng(void);\n' >src/base/rng.h
printf '// rng: how. See rng.h.\n#include "base/rng.h"\n\nint rng(void)\n{\n    return 4;\n}\n' >src/base/rng.c
printf '// dev: the ops | a table. Layer 1.\n#include "base/rng.h"\nint dev(void);\n' >src/ops/dev.h
printf '// add: adds, on the CPU.\n#include "ops/dev.h"\n#include "base/rng.h"\nint add;\n' >src/ops/add.c
printf '// add: adds, on a GPU.\nint add_gpu;\n' >src/ops/add.cu
printf '// unit: a layer. It is large. Layer 3.\n#include "ops/dev.h"\n/* more\n   words */\nint unit(void);\n' >src/net/unit.h
printf '// mix: mixes texts.\n#include "base/rng.h"\nint mix;\n' >data/prep/mix.c
printf '// plan: plans. Layer 5.\n#include "net/unit.h"\n#include <stdio.h>\nint plan;\n' >dev/plan/plan.h
printf '// fuzz: breaks. \n#include "base/rng.h"\nint fuzz;\n' >dev/fuzz/fuzz.c
printf '// train: trains.\n#include "net/unit.h"\nint main(void);\n' >train.c
printf '// prepare: prepares.\n#include "data/prep/mix.h"\n#include "base/rng.h"\nint main(void);\n' >data/prepare.c
printf '// mix: mixes. Layer 0.\nint mixes(void);\n' >data/prep/mix.h
for room in src/base src/ops src/net data/prep dev/plan; do
    printf '# %s\n\nWhat %s is for.\n\n<!-- room -->\nold\n<!-- /room -->\n' "$room" "$room" >"$room/README.md"
done
cd - >/dev/null || exit 1

arrows() { sed -n 's/.*<title>\([^ ]* includes [^ ]*\)<\/title>.*/\1/p' "$1"; }

draws() {
    scripts/house.sh "$work/house.svg"
    arrows "$work/house.svg" | sort | cmp - <(printf '%s\n' 'data/prep includes base' 'dev/plan includes net' 'net includes ops' \
        'ops includes base' 'programs includes base' 'programs includes data/prep' 'programs includes net')
    grep -q '>2 files<' "$work/house.svg" # src/base
    grep -q '>includes: data/prep, net, base<' "$work/house.svg"
    [ "$(grep -c '^<rect' "$work/house.svg")" = 7 ] # six rooms and the frame
    if grep -E 'fuzz|c0392b' "$work/house.svg"; then return 1; fi
    # From above: every room stands over what it includes.
    sed -n 's/.*font-size="14"[^>]*>\([^<]*\)<.*/\1/p' "$work/house.svg" | paste -sd ' ' |
        grep -qE '^programs dev/plan .*src/net.* src/ops .*src/base$'
    awk '/<svg /, /<\/svg>/ { opened += gsub(/<(svg|title|text|path)[ >]/, "&"); closed += gsub(/<\/(svg|title|text|path)>/, "&") }
        END { exit opened != closed || !opened }' "$work/house.svg"
}

# An arrow from below to above is red, and is counted. A line of code more changes nothing.
arrows_up_are_red() {
    scripts/house.sh "$work/house.svg"
    echo 'int more;' >>"$TREE/src/base/rng.c"
    scripts/house.sh "$work/more.svg"
    cmp "$work/house.svg" "$work/more.svg"
    sed -i '$d' "$TREE/src/base/rng.c"
    echo '#include "net/unit.h"' >>"$TREE/src/base/rng.c"
    scripts/house.sh "$work/ring.svg"
    sed -i '$d' "$TREE/src/base/rng.c"
    grep '<path' "$work/ring.svg" | grep c0392b | sed 's/.*<title>\(.*\)<\/title>.*/\1/' | cmp - <(echo 'base includes net')
    grep -q '>1 include of a room above: red.<' "$work/ring.svg"
}

flat_tree() { # before any file was moved
    mkdir -p "$work/flat/src"
    cp "$TREE/src/base/rng.h" "$work/flat/src"
    printf '// a: a.\n#include "rng.h"\n' >"$work/flat/train.c"
    TREE=$work/flat scripts/house.sh "$work/flat.svg"
    arrows "$work/flat.svg" | cmp - <(echo 'programs includes src')
    TREE=$work/flat scripts/rooms.sh --check
}

pages() {
    if scripts/rooms.sh --check >"$work/said"; then return 1; fi
    [ "$(grep -c 'README.md is out of date' "$work/said")" = 5 ]
    grep -q '^old$' "$TREE/src/ops/README.md" # --check wrote nothing
    scripts/rooms.sh
    scripts/rooms.sh --check
    cmp "$TREE/src/ops/README.md" - <<'END'
# src/ops

What src/ops is for.

<!-- room -->
| component | what it is |
|---|---|
| [dev](dev.h) | the ops \| a table |
| [add](add.c) | adds, on the CPU |

2 components.
<!-- /room -->
END
    grep -qF '| [unit](unit.h) | a layer |' "$TREE/src/net/README.md"
    grep -qF '| [mix](mix.h) | mixes |' "$TREE/data/prep/README.md"
    if [ -f "$TREE/dev/fuzz/README.md" ]; then return 1; fi
}

stale_page() {
    scripts/rooms.sh
    echo 'int more;' >>"$TREE/src/net/unit.h" # no page has sizes
    scripts/rooms.sh --check
    sed -i '1s/unit: a layer/unit: the layer/' "$TREE/src/net/unit.h"
    if scripts/rooms.sh --check >"$work/said"; then return 1; fi
    grep -qx 'src/net/README.md is out of date (run make docs)' "$work/said"
    echo 'By hand, below.' >>"$TREE/src/net/README.md"
    scripts/rooms.sh
    scripts/rooms.sh --check
    [ "$(tail -n 1 "$TREE/src/net/README.md")" = 'By hand, below.' ]
}

page_without_words() {
    printf '# plan\n\n<!-- room -->\n<!-- /room -->\n' >"$TREE/dev/plan/README.md"
    if scripts/rooms.sh 2>"$work/said"; then return 1; fi
    grep -q '^error: dev/plan/README.md: write it' "$work/said"
    rm "$TREE/dev/plan/README.md"
    if scripts/rooms.sh --check 2>"$work/said"; then return 1; fi
    grep -q '^error: dev/plan/README.md: write it' "$work/said"
}

# Of src, ops has a row of its own; base and net count together.
budget() {
    local tree=$work/budget
    mkdir -p "$tree"/src/{base,ops,net}
    printf '%s\n' 1 2 3 >"$tree/src/base/rng.c"
    printf '%s\n' 1 2 >"$tree/src/ops/add.c"
    printf '%s\n' 1 >"$tree/src/net/unit.c"
    printf '<svg>\n</svg>\n' >"$tree/drawing.svg"
    printf '# rows\n.\t4\t11\nsrc\t2\t4\nsrc/ops\t1\t2\n' >"$tree/budget.tsv"
    TREE=$tree scripts/budget.sh
    [ "$(TREE=$tree scripts/budget.sh --list | tr '\t\n' ' ;')" = '. 4 10;src 2 4;src/ops 1 2;' ]
    echo 3 >>"$tree/src/ops/add.c"
    if TREE=$tree scripts/budget.sh >"$work/said"; then return 1; fi
    cmp "$work/said" - <<<'budget.tsv: src/ops has 3 lines, 2 are allowed (take some out, or raise the row and say why)'
    sed -i '$d' "$tree/src/ops/add.c"
    : >"$tree/src/net/more.c"
    if TREE=$tree scripts/budget.sh >"$work/said"; then return 1; fi
    cmp "$work/said" - <<'END'
budget.tsv: . has 5 files, 4 are allowed (take some out, or raise the row and say why)
budget.tsv: src has 3 files, 2 are allowed (take some out, or raise the row and say why)
END
}

passes 'rooms, files and arrows' draws
passes 'arrows up are red, and sizes are not drawn' arrows_up_are_red
passes 'a tree without rooms' flat_tree
passes 'the pages of rooms' pages
passes 'a page that is out of date' stale_page
passes 'a page without its first paragraph' page_without_words
passes 'the budget' budget
exit $failed
