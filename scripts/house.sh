#!/bin/bash
# scripts/house.sh FILE.svg: draws the rooms of the tree and which includes which: doc/house.svg.
#
# Each room is a box with its number of files. It is above the rooms that it includes, so arrows point down; an arrow that
# points up is red. Lines are not counted here (budget.tsv has them), so that the drawing changes only with what it shows.
# TREE draws another tree.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
[ $# = 1 ] || { echo 'usage: scripts/house.sh FILE.svg' >&2; exit 2; }
out=$(realpath -m "$1")
cd "${TREE:-$here/..}" || exit 1
# shellcheck source=scripts/rooms_common.sh
. "$here/rooms_common.sh"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/house.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
room_files >"$tmp/files"
[ -s "$tmp/files" ] || { echo "error: house: no source files in $PWD" >&2; exit 1; }
room_includes "$tmp/files" >"$tmp/includes"
awk -F '\t' -f "$here/order.awk" -f "$here/house.awk" part=files "$tmp/files" \
    part=includes "$tmp/includes" >"$tmp/svg"
cp "$tmp/svg" "$out"
