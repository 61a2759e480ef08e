#!/bin/bash
# test/check_headers.sh: the project's rules that a compiler does not check. Prints "ok NAME", "not ok
# NAME" and "warn ..." lines.
#
# deeper: each header alone
#
# 1. The headers of the rooms (src/ROOM, data/ROOM, dev/ROOM) compile as C11 (-pedantic) and as C++17 without a warning:
#    a room's together, and each alone (deeper).
# 2. An include names its room, and who may include whom is fixed: base <- tools, formats <- tokenizer <- text, ops, comm, record <-
#    narrow <- net <- ckpt, eval <- train <- parallel <- check <- train.c, train <- models. data/ uses base, tools, tokenizer, text and comm,
#    dev/ uses anything, and src/ uses neither.
# 3. A public function is named after its file: NAME_something is declared in NAME.h or defined in
#    NAME.c, so that a reader of train.c knows which file to open.
# 4. The budget: a room has at most 32 files, a file 800 lines of code, a function 60, a line 120 columns
#    (doc/architecture.md). Only a file over 1000 lines of code fails (tests never); the rest is a warning. The files and
#    lines of each folder are within budget.tsv (scripts/budget.sh).
# 5. Every .c file opens with a comment that says what it does; in src and data it has at most 25 lines.
# 6. Text files name nothing outside this tree, and links in the chapters lead somewhere.
set -u
cd "$(dirname "$0")/.." || exit 1
cc=${CC:-gcc} failed=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/headers.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

verdict() { # NAME FILE: ok when FILE, the list of complaints, is empty
    if [ -s "$2" ]; then
        echo "not ok $1"
        sed 's/^/  /' "$2" | head -n 40
        failed=1
    else
        echo "ok $1"
    fi
}

# ---- 1: alone, as C11 and C++17
cxx=
case $cc in *clang*) cxx=${cc/clang/clang++} ;; esac
for candidate in $cxx g++ clang++; do
    command -v "${candidate%% *}" >/dev/null 2>&1 && { cxx=$candidate; break; }
done
includes='-Isrc -I.'
rooms='src/*/*.h data/*/*.h dev/plan/*.h dev/check/*.h dev/draw/*.h dev/show/*.h' sources='src/*/*.c data/*/*.c dev/plan/*.c dev/check/*.c dev/draw/*.c dev/show/*.c'
[ -d /usr/include/openblas ] && includes="$includes -I/usr/include/openblas"
warn='-Wall -Wextra -Wno-unused-function -Werror -fopenmp -fsyntax-only' # inline functions are unused here
mkdir "$tmp/aux"
list= # gcc lists every declaration it saw, with its file: for 3
: | $cc -x c -aux-info "$tmp/none" -fsyntax-only - >/dev/null 2>&1 && list=yes
# A room's together, as C11 in the order of their names and as C++17 in the opposite one; each alone: deeper.
[ -n "$cxx" ] && command -v "${cxx%% *}" >/dev/null 2>&1 || { cxx=; echo 'skip headers as C++17 (no C++ compiler)'; }
together() { printf '#include "%s"\n' "$@"; }
for room in $(dirname $rooms | sort -u); do
    # shellcheck disable=SC2086
    together stddef.h "$room"/*.h | $cc -x c -std=c11 -pedantic ${list:+-aux-info "$tmp/aux/${room//\//_}"} $warn $includes - \
        >"$tmp/log" 2>&1 || [ -s "$tmp/log" ] || echo "$cc failed" >"$tmp/log"
    verdict "the headers of $room as C11" "$tmp/log"
    [ -z "$cxx" ] && continue
    # shellcheck disable=SC2086
    together "$room"/*.h | tac | $cxx -x c++ -std=c++17 $warn $includes - >"$tmp/log" 2>&1 || [ -s "$tmp/log" ] || echo "$cxx failed" >"$tmp/log"
    verdict "the headers of $room as C++17" "$tmp/log"
done
[ -z "${TEST_LONG:-}" ] || for header in $rooms; do
    # shellcheck disable=SC2086
    $cc -x c -std=c11 -pedantic -include stddef.h $warn $includes "$header" >"$tmp/log" 2>&1 || [ -s "$tmp/log" ] || echo "$cc failed" >"$tmp/log"
    verdict "$header alone as C11" "$tmp/log"
    [ -z "$cxx" ] && continue
    # shellcheck disable=SC2086
    $cxx -x c++ -std=c++17 $warn $includes "$header" >"$tmp/log" 2>&1 || [ -s "$tmp/log" ] || echo "$cxx failed" >"$tmp/log"
    verdict "$header alone as C++17" "$tmp/log"
done

# ---- 2: rooms
awk '
    BEGIN {
        n = split("base / tools formats / tokenizer / text ops comm record / narrow / net / ckpt / eval / train / parallel / models / check", name, " ")
        for (i = 1; i <= n; i++) if (name[i] == "/") level++; else order[name[i]] = level + 0
    }
    function room(path) { sub(/^src\//, "", path); return path ~ /^(data|dev)\// ? substr(path, 1, index(path, "/") - 1) : substr(path, 1, index(path, "/") - 1) }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        of = $0; sub(/^[^"]*"/, "", of); sub(/".*/, "", of)
        if (of ~ /^[.][.]/) next # the emulation of CUDA, see gpu.h
        if (of !~ /\//) { print FILENAME ": include \"" of "\" does not name its room"; next }
        from = room(FILENAME); to = room(of)
        if (from == to || from == "dev") next
        if (from == "data" && (to == "base" || to == "tools" || to == "tokenizer" || to == "text" || to == "comm")) next
        if (from != "data" && (to in order) && order[to] < order[from]) next
        print FILENAME ": includes " of ": " from " may not use " to " (move the code down, or pass it in)"
    }' $rooms $sources src/*/*.cu >"$tmp/log"
verdict 'includes follow the order of the rooms' "$tmp/log"

# ---- 3: names
if [ -n "$list" ]; then
    awk -v rooms="$(echo $rooms)" 'BEGIN { split(rooms, name, " "); for (i in name) ours[name[i]] }
        / extern / && match($0, /[A-Za-z_0-9]+ \(/) {
            called = substr($0, RSTART, RLENGTH - 2); of = $2; sub(/:.*/, "", of); sub(/^[.][/]/, "", of)
            if (of in ours) print of, called }' "$tmp"/aux/* | sort -u >"$tmp/public"
    # A function may be called after the longest NAME of a src/NAME.c that it begins with, if that defines it. The
    # small list type of the tokenizer is the exception.
    awk '
        FILENAME == ARGV[1] { header[++n] = $1; called[n] = $2; next }
        FNR == 1 { base = FILENAME; sub(/.*\//, "", base); sub(/[.]c$/, "", base); bases[base] }
        /^[A-Za-z].*\(/ { word = $0; sub(/\(.*/, "", word); sub(/.*[ *]/, "", word); defined[base, word] }
        END {
            for (i = 1; i <= n; i++) {
                name = header[i]; sub(/.*\//, "", name); sub(/[.]h$/, "", name)
                if (called[i] == name || index(called[i], name "_") == 1) continue
                if (name == "tokenizer" && index(called[i], "token_ids_") == 1) continue
                home = ""
                for (b in bases) if (index(called[i] "_", b "_") == 1 && length(b) > length(home)) home = b
                if (home != "" && ((home, called[i]) in defined)) continue
                print header[i] ": " called[i] "() should be called " name "_..., or after the src/NAME.c that defines it"
            }
        }' "$tmp/public" $sources >"$tmp/log"
    [ -s "$tmp/public" ] || echo 'no public function was found' >>"$tmp/log"
    verdict 'public functions carry the name of their file' "$tmp/log"
else
    echo "skip public functions carry the name of their file ($cc has no -aux-info)"
fi

# ---- 4: budgets
awk '
    function over() {
        if (code > 800) print "warn " file ": " code " lines of code (budget 800)"
        if (code > 1000 && file !~ /^test/) print "far over: " file ": " code " lines of code (budget 800)"
    }
    FNR == 1 { over(); file = FILENAME; code = inside = 0; name = candidate = "" }
    length($0) > 120 { print "warn " file ":" FNR ": " length($0) " columns (budget 120)" }
    /^[[:space:]]*$/ || /^[[:space:]]*\/\// { next }
    /^[[:space:]]*\/\*/ { inside = 1 }
    inside { if (/\*\//) inside = 0; next }
    { code++ }
    /^[A-Za-z].*\(/ { candidate = $0; sub(/\(.*/, "", candidate); sub(/.*[ *]/, "", candidate) }
    /^{/ { name = candidate; start = code }
    /^}/ && name != "" { if (code - start > 60) print "warn " file ": " name "() has " code - start " lines (budget 60)"; name = "" }
    END { over() }' $rooms $sources data/*.c dev/*.c test/*.[ch] train.c >"$tmp/sizes"
for room in src/* data/*/ dev/plan dev/check dev/draw dev/show; do
    n=$(find "$room" -maxdepth 1 -name '*.[ch]*' | wc -l)
    [ "$n" -le 32 ] || echo "warn ${room%/}: $n files (budget 32)" >>"$tmp/sizes"
done
grep '^warn ' "$tmp/sizes"
sed -n 's/^far over: //p' "$tmp/sizes" >"$tmp/log"
verdict 'no file far over the budget' "$tmp/log"
scripts/budget.sh >"$tmp/log" 2>&1
verdict 'every folder is within budget.tsv' "$tmp/log"

# ---- 5: opening comments
awk 'FNR == 1 && !/^\/\/ / && !/^\/\*/ { print FILENAME ": does not open with a comment that says what it does" }' \
    $sources data/*.c dev/*.c train.c test/test_*.c >"$tmp/log"
verdict 'every file says what it does' "$tmp/log"
awk 'FNR == 1 { n = 0; head = 1 } !/^\/\// { head = 0 } head && ++n == 26 { print FILENAME ": its head has more than 25 lines (what belongs to one part stands there)" }' \
    src/*/*.[ch] src/*/*.cu data/*/*.[ch] data/*.c train.c >"$tmp/log"
verdict 'heads have at most 25 lines' "$tmp/log"

# ---- 6: paths and links
find . \( -path ./.git -o -path './build*' -o -path ./runs -o -path ./course-work \) -prune -o -type f \( -name '*.[ch]' -o -name '*.md' -o -name '*.sh' \
    -o -name '*.py' -o -name '*.toml' -o -name Makefile -o -path './.ci/*' \) -print | sort >"$tmp/texts"
{
    xargs grep -nHoE '(^|[^A-Za-z0-9_.])/(work|home|root|Users)/[A-Za-z0-9_.]+' <"$tmp/texts" | sed 's/$/: a path of one machine/'
    # In C only comments count: a string may be a path that a test wants refused.
    xargs awk '
        FILENAME ~ /[.][ch]$/ { if (!/\/\//) next; sub(/^.*\/\//, "") }
        { while (match($0, /(^|[^A-Za-z0-9_.\/$])([.][.]\/)+[A-Za-z0-9_.][A-Za-z0-9_.\/-]*/)) {
            path = substr($0, RSTART, RLENGTH); $0 = substr($0, RSTART + RLENGTH)
            sub(/^[^.]/, "", path); sub(/[.,;:]$/, "", path); print FILENAME, FNR, path } }' <"$tmp/texts" |
        while read -r file line path; do
            [ -e "${file%/*}/$path" ] || [ -e "./${path##*../}" ] || echo "$file:$line: $path is not in this tree"
        done
} >"$tmp/log"
verdict 'nothing outside this tree is named' "$tmp/log"
grep '\.md$' "$tmp/texts" | xargs grep -HnoE '\]\([^)# ]+' | while IFS=: read -r file line link; do
    link=${link#*](}
    case $link in http://* | https://* | mailto:*) continue ;; esac
    [ -e "${file%/*}/$link" ] || echo "$file:$line: the link $link leads nowhere"
done >"$tmp/log"
verdict 'links in the chapters lead somewhere' "$tmp/log"
exit $failed
