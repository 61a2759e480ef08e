#!/bin/bash
# scripts/budget.sh [--list]: is each folder within its row of budget.tsv? Prints what is not, and ends with status 1.
#
# A row has a folder, its most files and most lines, and why it was raised. A file counts for the longest row that its path
# begins with, and for the whole tree, the row ".". Drawings (.svg) do not count. --list prints what is there, as rows.
# TREE is another tree.
set -euo pipefail
export LC_ALL=C # wc's word for the total
cd "${TREE:-$(dirname "$0")/..}" || exit 1
files() { # the files of the tree, tracked and new, with a zero byte after each
    git=(git -c safe.directory='*') # whoever owns the tree
    if "${git[@]}" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        "${git[@]}" ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
            [ ! -f "$file" ] || printf '%s\0' "$file" # a deleted one is listed until the next commit
        done
    else
        find . \( -name .git -o -name 'build*' -o -name runs -o -name course-work \) -prune -o -type f -printf '%P\0'
    fi | grep -zv '[.]svg$'
}
files | xargs -0 wc -l | sed '/ total$/d; s/^ *\([0-9]*\) \(.*\)/\2\t\1/' | awk -F '\t' -v list="${1:-}" '
    FNR == NR { if (/^[^#]/) { rows[++n] = $1; most_files[$1] = $2; most_lines[$1] = $3 } next }
    {
        row = $1
        while (!(row in most_lines) && sub(/\/[^\/]*$/, "", row)) continue
        if (row in most_lines) { files[row]++; lines[row] += $2 }
        files["."]++
        lines["."] += $2
    }
    function over(row, has, most, what) {
        if (has <= most) return
        printf "budget.tsv: %s has %d %s, %d are allowed (take some out, or raise the row and say why)\n", row, has, what, most
        bad = 1
    }
    END {
        for (i = 1; i <= n; i++) {
            if (list) { printf "%s\t%d\t%d\n", rows[i], files[rows[i]], lines[rows[i]]; continue }
            over(rows[i], files[rows[i]], most_files[rows[i]], "files")
            over(rows[i], lines[rows[i]], most_lines[rows[i]], "lines")
        }
        exit bad
    }' budget.tsv -
