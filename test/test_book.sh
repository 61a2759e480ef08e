#!/bin/bash
# circle: docs
# test/test_book.sh: the book of scripts/book.sh (doc/book.md).
#
# 1. It is built, and each chapter of doc/ has a page; without cmark-gfm one line says what to install.
# 2. Each link of each page leads to a page of the book, and to an anchor of it; nothing is loaded from elsewhere.
# 3. Each chapter has a picture or a command.
#    doc/weeks.md hands in each assignment of the course once, with its hours.
# 4. Each term of doc/glossary.md leads to a chapter, is there once, and is in the index.
# 5. The search leads from each term to its chapter (node). In a browser (chromium) it finds words, the switch makes the
#    page dark, and on paper it is light.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/testbook.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
book=$work/book
verdict() { # NAME FILE: ok when FILE, the list of complaints, is empty
    if [ -s "$2" ]; then
        echo "not ok $1"
        sed 's/^/  /' "$2" | head -n 30
        failed=1
    else echo "ok $1"
    fi
}

# ---- 4, of the source
awk -F ' *[|] *' '
    !/^\| / || $2 == "term" || $2 ~ /^--/ { next }
    seen[tolower($2)]++ { print FILENAME ":" FNR ": " $2 " is there already" }
    NF != 5 || $3 == "" { print FILENAME ":" FNR ": not a row | term | meaning | chapter |" }
    !match($4, /\]\([a-z0-9_]+\.md(#[a-z0-9-]+)?\)/) { print FILENAME ":" FNR ": " $2 " has no link to a chapter"; next }
    { to = substr($4, RSTART + 2, RLENGTH - 3); sub(/#.*/, "", to)
      if ((getline line < ("doc/" to)) < 0) print FILENAME ":" FNR ": " $2 ": there is no chapter doc/" to
      close("doc/" to); n++ }
    END { if (n < 100) print FILENAME ": only " n + 0 " terms" }' doc/glossary.md >"$work/log"
verdict 'each term of the glossary has a meaning and a chapter' "$work/log"

mkdir "$work/none"
for tool in bash awk dirname realpath env mktemp rm; do ln -s "$(command -v $tool)" "$work/none/$tool"; done
if PATH=$work/none scripts/book.sh "$work/nothing" >"$work/said" 2>&1; then echo 'built without cmark-gfm' >"$work/log"
else grep -q '^error: book: cmark-gfm is missing (.*apt-get install cmark-gfm' "$work/said" && [ "$(wc -l <"$work/said")" = 1 ] &&
    : >"$work/log" || cp "$work/said" "$work/log"
fi
verdict 'without cmark-gfm one line says what to install' "$work/log"
mkdir "$work/full" && touch "$work/full/mine"
if command -v cmark-gfm >/dev/null 2>&1; then
    { scripts/book.sh "$work/full" >/dev/null 2>&1 || [ ! -f "$work/full/mine" ]; } && echo 'a folder with other files was replaced' >"$work/log"
    verdict 'a folder with other files is refused' "$work/log"
else
    echo 'skip the book (cmark-gfm is missing: apt-get install cmark-gfm)'
    exit $failed
fi

# ---- 1
begun=$SECONDS
if ! scripts/book.sh "$book" >"$work/said" 2>&1; then
    echo 'not ok the book is built'
    sed 's/^/  /' "$work/said"
    exit 1
fi
: >"$work/log"
[ $((SECONDS - begun)) -lt 60 ] || echo "warn the book took $((SECONDS - begun)) s (other work on this machine?)"
for chapter in doc/*.md; do
    page=$(basename "$chapter" .md).html
    [ "$page" = README.html ] && page=index.html
    if ! [ -s "$book/$page" ]; then echo "$chapter has no page (is it in doc/README.md?)" >>"$work/log"
    elif [ $page != index.html ] && ! grep -q "href=\"$page\"" "$book/index.html"; then echo "the contents do not name $page" >>"$work/log"
    elif [ $page != index.html ] && ! grep -q 'rel="prev"' "$book/$page"; then echo "$page has no page before it" >>"$work/log"
    fi
done
verdict 'the book is built, with a page for each chapter' "$work/log"

# ---- 2
find "$book" -name '*.html' -printf '%P\n' | sort >"$work/pages"
find "$book" -type f -printf '%P\n' >"$work/all"
cat >"$work/links.awk" <<'AWK'
function join(dir, path,   n, part, i, m, keep, s) {
    n = split(dir path, part, "/")
    for (i = 1; i <= n; i++) {
        if (part[i] == "..") m--
        else if (part[i] != "" && part[i] != ".") keep[++m] = part[i]
    }
    for (i = 1; i <= m; i++) s = s (i > 1 ? "/" : "") keep[i]
    return s
}
FILENAME == list { exists[$0]; next }
FNR == 1 { page = substr(FILENAME, length(book) + 2); dir = page; if (!sub(/[^\/]*$/, "", dir)) dir = "" }
{
    line = $0
    while (match(line, / id="[^"]*"/)) {
        id = page "#" substr(line, RSTART + 5, RLENGTH - 6)
        if (id in anchor) print page ": the anchor " id " is there twice"
        anchor[id]
        line = substr(line, RSTART + RLENGTH)
    }
    line = $0
    while (match(line, /<[a-z]+ [^>]*>/)) {
        tag = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (tag ~ /^<a id="L[0-9]+" href="#L/ || !match(tag, / (href|src|srcset|action|data)="[^"]*"/)) continue
        to = substr(tag, RSTART, RLENGTH)
        sub(/^[^"]*"/, "", to); sub(/"$/, "", to)
        if (to ~ /^(https?:|mailto:)/ && tag ~ /^<a /) continue
        if (to ~ /^[a-z]+:|^\/\// && to !~ /^data:/) { print page ": loads " to; continue }
        path = to; at = ""
        if (match(to, /#/)) { path = substr(to, 1, RSTART - 1); at = substr(to, RSTART) }
        target = path == "" ? page : join(dir, path)
        if (!(target in exists)) print page ": the link " to " leads nowhere"
        else if (at != "" && at != "#") { wanted[target at] = page; n++ }
        links++
    }
}
END {
    for (w in wanted) if (!(w in anchor)) print wanted[w] ": there is no anchor " w
    if (links < 10000 || n < 1000) print "only " links + 0 " links, " n + 0 " of them with anchors"
}
AWK
sed "s|^|$book/|" "$work/pages" | xargs -n 100000 awk -v book="$book" -v list="$work/all" -f "$work/links.awk" "$work/all" | sort -u >"$work/log"
verdict 'every link leads to a page and an anchor, and nothing is loaded from elsewhere' "$work/log"
grep -HnE '(@import|url\()|https?:' "$book"/*.css "$book"/book.js | grep -v 'www.w3.org' | cut -c 1-200 >"$work/log"
verdict 'styles and scripts load nothing' "$work/log"

# ---- 3
for chapter in doc/*.md; do
    page=$book/$(basename "$chapter" .md).html
    [ -f "$page" ] || continue
    grep -qE '<(img|svg|pre)|<code>(build/|make |mpiexec|scripts/|test/)' "$page" || echo "$chapter has no picture and no command" >>"$work/log"
done
verdict 'each chapter has a picture or a command' "$work/log"

awk '
    FILENAME ~ /handout/ && match($0, /Hours: [0-9]+/) { split(FILENAME, p, /[\/_]/); hours[p[3]] = substr($0, RSTART + 7, RLENGTH - 7); next }
    FILENAME ~ /handout/ { next }
    /^- \*\*Hand in\*\*/ { due(); match($0, /\([0-9]+ hours\)/); said = substr($0, RSTART + 1, RLENGTH - 8); on = FNR }
    /^- \*\*Then/ || /^$/ { due() }
    on { s = $0
         while (match(s, /\[[0-9][0-9]\]\(..\/dev\/course\/[0-9][0-9]/)) {
             n = substr(s, RSTART + 1, 2); seen[n]++; sum += hours[n]
             if (substr(s, RSTART + RLENGTH - 2, 2) != n) print "doc/weeks.md:" FNR ": " n " leads to another assignment"
             s = substr(s, RSTART + RLENGTH)
         } }
    function due() { if (on && said != sum) print "doc/weeks.md:" on ": " said " hours, the assignments have " sum; on = sum = 0 }
    END { due()
          for (n in hours) { all++; if (seen[n] != 1) print "doc/weeks.md hands in assignment " n " " seen[n] + 0 " times" }
          if (all < 20) print "only " all + 0 " assignments" }' dev/course/[0-9]*/handout.md doc/weeks.md >"$work/log"
verdict 'twelve weeks hand in each assignment once, with its hours' "$work/log"

# ---- 4, of the page
awk -F ' *[|] *' '/^\| / && $2 != "term" && $2 !~ /^--/ { print $2 }' doc/glossary.md | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' |
    while read -r term; do grep -qF ">$term</dt>" "$book/concepts.html" || echo "$term is not in concepts.html"; done >"$work/log"
awk '/<dt / { n++ } / &middot; / { used++ } END { if (used < n / 2) print "only " used + 0 " of " n + 0 " terms are used in a chapter besides their own" }' \
    "$book/concepts.html" >>"$work/log"
verdict 'every term is in the index, with the places that use it' "$work/log"

# ---- 5
if ! command -v node >/dev/null 2>&1; then echo 'skip the search for terms (node is missing)'
else
    node test/test_book.js "$book" >"$work/log" 2>&1 || echo 'node failed' >>"$work/log"
    verdict 'the search leads from each term to its own chapter first' "$work/log"
fi
browser=
for name in chromium chromium-browser google-chrome; do command -v $name >/dev/null 2>&1 && { browser=$name; break; }; done
if [ -z "$browser" ]; then
    echo 'skip the search in a browser (no chromium)'
    exit $failed
fi
dom() { # PAGE?QUERY: the page after its scripts have run
    HOME=$work timeout 100 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
        --virtual-time-budget=8000 --dump-dom "file://$book/$1" 2>"$work/browser"
}
found() { # PAGE QUERY HREF...: searching there finds these
    local to
    dom "$1?q=$2" | grep -o '<div id="found".*' >"$work/found"
    for to in "${@:3}"; do grep -qE "href=\"([.][.]/)*$to" "$work/found" || echo "searching $2 on $1 does not find $to"; done
}
{ found index.html bubble pipeline.html; found optim.html loss%20scale precision.html
    found code/src/net/block.c.html yarn rope.html; found index.html pipeline_table.c code/src/parallel/pipeline_table.c.html; } >"$work/log"
if [ -s "$work/log" ]; then tail -n 3 "$work/browser" >>"$work/log"; fi
verdict 'the search finds words, on chapters and on pages of code' "$work/log"
dom 'index.html?q=qqxyzzy' | grep -q 'Nothing has all of these words' || echo 'a word that is nowhere is found' >"$work/log"
verdict 'a word that is nowhere is not found' "$work/log"
# A copy of a page that clicks the switch: light, dark, light.
: >"$work/log"
sed 's|</body>|<script>addEventListener("load", () => { const b = document.getElementById("light"), see = () => getComputedStyle(document.body).backgroundColor; let s = see(); for (let i = 0; i < 2; i++) { b.click(); s += " " + see(); } document.title = s; })</script></body>|' \
    "$book/zero.html" >"$book/switched.html"
dom switched.html | grep -oE '<title>.*</title>' | grep -qE '<title>(rgb[^)]*\)) (rgb[^)]*\)) \1</title>' || echo 'the colours do not change and return' >"$work/log"
dom switched.html | grep -qE '<title>(rgb[^)]*\)) \1 ' && echo 'the switch does nothing' >>"$work/log"
rm "$book/switched.html"
verdict 'the switch makes a page dark, and light again' "$work/log"
# A dark page on paper: with the style's rules for paper and for the screen exchanged, the screen shows what is printed.
cp "$book/book.css" "$work/book.css"
sed 's/@media print/@media PAPER/; s/@media screen/@media print/; s/@media PAPER/@media screen/' "$work/book.css" >"$book/book.css"
sed 's|</body>|<script>document.documentElement.dataset.light = "dark"; addEventListener("load", () => { const see = (e, k) => getComputedStyle(e)[k]; document.title = [see(document.body, "backgroundColor"), see(document.documentElement, "colorScheme"), see(document.querySelector("main img"), "filter"), see(document.querySelector("header"), "display")].join("/"); })</script></body>|' \
    "$book/zero.html" >"$book/printed.html"
dom printed.html | grep -oE '<title>.*</title>' >"$work/log"
[ "$(cat "$work/log")" = '<title>rgb(255, 255, 255)/light/none/none</title>' ] && : >"$work/log"
cp "$work/book.css" "$book/book.css" && rm "$book/printed.html"
verdict 'a dark page is light on paper, and its pictures too' "$work/log"
exit $failed
