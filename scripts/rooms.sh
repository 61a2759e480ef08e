#!/bin/bash
# scripts/rooms.sh [--check]: writes ROOM/README.md for each room of the tree (scripts/rooms_common.sh says what a room is).
#
# Above the line <!-- room --> the page is written by hand: the title, and what the room is in a sentence or a few. The
# part down to <!-- /room --> is made here: a table of the room's components in reading order, each after those that it
# includes. A row has what the component is, from its file's opening line. --check changes
# nothing; it names the pages that are out of date and ends with status 1. A room without a first paragraph is an error.
# TREE is another tree.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
check=0 status=0
[ "${1:-}" = --check ] && check=1
cd "${TREE:-$here/..}" || exit 1
# shellcheck source=scripts/rooms_common.sh
. "$here/rooms_common.sh"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/rooms.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
room_files >"$tmp/files"
room_includes "$tmp/files" >"$tmp/includes"
cut -f 2 "$tmp/files" | xargs awk -f "$here/sources.awk" >"$tmp/sources"

# write_room ROOM README: the file as it should be
write_room() {
    sed '/^<!-- room -->$/,$d' "$2"
    echo '<!-- room -->'
    awk -F '\t' -v room="$1" -f "$here/order.awk" -f "$here/rooms.awk" part=files "$tmp/files" part=sources "$tmp/sources" \
        part=includes "$tmp/includes"
    echo '<!-- /room -->'
    sed '1,/^<!-- \/room -->$/d' "$2" # what was written below stays
}

for room in $(cut -f 1 "$tmp/files" | sort -u); do
    case $room in src | programs) continue ;; esac # a folder that is still flat has no page
    readme=$(room_folder "$room")/README.md
    if ! [ -f "$readme" ] || ! sed '/^<!-- room -->$/,$d' "$readme" | grep -q '^[^#[:space:]]'; then
        echo "error: $readme: write it: a title, and what is in this room, above a line <!-- room -->" >&2
        status=1
        continue
    fi
    write_room "$room" "$readme" >"$tmp/new"
    cmp -s "$tmp/new" "$readme" && continue
    if [ $check = 1 ]; then
        echo "$readme is out of date (run make docs)"
        diff "$readme" "$tmp/new" | head -n 10 || true
        status=1
    else
        cat "$tmp/new" >"$readme" && echo "$readme rewritten"
    fi
done
exit $status
