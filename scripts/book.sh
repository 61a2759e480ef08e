#!/bin/bash
# scripts/book.sh [FOLDER]: the chapters as a book of HTML pages in build/book, or in FOLDER. (`make book`, doc/book.md)
#
# cmark-gfm turns each chapter into HTML. dev/book/book.awk makes pages of that: headings get anchors, links go to pages,
# names in backticks go to the line that defines them, and each source file is a page with an anchor a line. It also writes
# the index of concepts and the words for the search. TREE is another tree.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C.UTF-8
out=$(realpath -m "${1:-${BUILD:-build}/book}")
cd "${TREE:-$here/..}" || exit 1
if ! command -v cmark-gfm >/dev/null 2>&1; then
    echo 'error: book: cmark-gfm is missing (Debian, Ubuntu: apt-get install cmark-gfm; Fedora: dnf install cmark-gfm)' >&2
    exit 1
fi
case $out in /|"$PWD") echo "error: book: $out is not a folder for pages" >&2; exit 2 ;; esac
if [ -e "$out" ] && [ ! -f "$out/search_index.js" ] && [ -n "$(ls -A "$out")" ]; then
    echo "error: book: $out has files that are not a book's (name another folder, or remove it)" >&2
    exit 2
fi
tmp=$(mktemp -d "${TMPDIR:-/tmp}/book.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

# What becomes a page: every text file of the tree.
find . -type d \( -name .git -o -path ./build -o -path ./runs -o -path "$out" \) -prune -o -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o \
    -name '*.cc' -o -name '*.sh' -o -name '*.awk' -o -name '*.py' -o -name '*.toml' -o -name '*.md' -o -name '*.js' -o -name '*.css' -o -name '*.html' -o \
    -name Makefile -o -name LICENSE -o -name '*.txt' -o -name '*.tsv' -o -path './scripts/ci/*' \) -size -600k -print | sed 's|^\./||' | sort >"$tmp/files"
# Chapters in the order of the contents.
sed -nE 's/^\| [^|]*\| \[([a-z0-9_]+)\.md\]\(.*/doc\/\1.md/p' doc/README.md >"$tmp/order"
{ echo doc/README.md; cat "$tmp/order"; grep -E '(^|/)[A-Z]+\.md$' "$tmp/files" | grep -v '^doc/README'; } >"$tmp/pages"

mkdir -p "$tmp/html" "$tmp/new"
while read -r page; do
    [ -f "$page" ] || { echo "error: book: doc/README.md names $page, which does not exist" >&2; exit 1; }
    mkdir -p "$(dirname "$tmp/html/$page")"
    cmark-gfm -e table -e strikethrough -e autolink "$page" >"$tmp/html/$page"
done <"$tmp/pages"

# A page for each folder too.
sed -nE 's|/[^/]*$||p' "$tmp/files" | awk '{ while (1) { print; if (!sub(/\/[^\/]*$/, "")) break } }' | sort -u >"$tmp/folders"
sed "s|^|$tmp/new/code/|" "$tmp/folders" | xargs mkdir -p
cp dev/book/book.css dev/book/book.js "$tmp/new/"
cp doc/*.svg "$tmp/new/"
sed "s|^|$tmp/html/|" "$tmp/pages" >"$tmp/converted"
# shellcheck disable=SC2046
awk -v out="$tmp/new" -v html="$tmp/html" -f "$here/../dev/book/book.awk" part=files "$tmp/files" part=folders "$tmp/folders" \
    part=order "$tmp/order" part=terms doc/glossary.md part=definitions $(grep -E '^(src|data|dev|[a-z_]+\.).*\.(c|h|cu)$|^train' "$tmp/files") \
    part=titles $(cat "$tmp/converted") part=pages $(cat "$tmp/converted") \
    part=code $(grep -v '^doc/.*\.md$' "$tmp/files") part=end /dev/null

rm -rf "$out"
mkdir -p "${out%/*}"
mv "$tmp/new" "$out"
printf 'book: %s chapters, %s pages, %s: open %s/index.html\n' "$(wc -l <"$tmp/order")" "$(find "$out" -name '*.html' | wc -l)" \
    "$(du -sh "$out" | cut -f 1)" "$out"
