#!/bin/bash
# test/check_headers.sh: the rules of the house that a compiler does not check. Prints "ok NAME", "not ok
# NAME" and "warn ..." lines.
#
# 1. Every src/*.h compiles alone, as C11 and as C++17, without a warning.
# 2. Every header says "Layer N" in its opening lines, and neither src/NAME.h nor src/NAME.c includes a header
#    of a higher layer.
# 3. A public function is called after the file where it lives: NAME_something is declared in src/NAME.h or
#    defined in src/NAME.c, so that a reader of train.c knows which file to open.
# 4. The budget: 400 lines of code a file, 60 a function, 120 columns (doc/architecture.md). Over it is a
#    warning, far over it fails (tests aside).
# 5. Every src/*.c opens with a comment that says what it does.
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
includes=-Isrc
[ -d /usr/include/openblas ] && includes="$includes -I/usr/include/openblas"
warn='-Wall -Wextra -Wno-unused-function -Werror -fopenmp -fsyntax-only' # inline functions are unused here
for header in src/*.h; do
    # shellcheck disable=SC2086
    $cc -x c -std=c11 $warn $includes "$header" >"$tmp/log" 2>&1 || [ -s "$tmp/log" ] || echo "$cc failed" >"$tmp/log"
    verdict "$header alone as C11" "$tmp/log"
    if [ -n "$cxx" ] && command -v "${cxx%% *}" >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        $cxx -x c++ -std=c++17 $warn $includes "$header" >"$tmp/log" 2>&1 || [ -s "$tmp/log" ] || echo "$cxx failed" >"$tmp/log"
        verdict "$header alone as C++17" "$tmp/log"
    else
        echo "skip $header alone as C++17 (no C++ compiler)"
    fi
done

# ---- 2: layers
for header in src/*.h; do
    layer=$(sed -n '1,12s/^\/\/.*[Ll]ayer \([0-9]\).*/\1/p' "$header" | head -n 1)
    if [ -n "$layer" ]; then echo "$(basename "$header") $layer"
    else echo "$header: no line '// name: what it is. Layer N.' in its opening comment" >&2
    fi
done >"$tmp/layers" 2>"$tmp/log"
for file in src/*.h src/*.c; do
    own=$(awk -v h="$(basename "${file%.*}").h" '$1 == h { print $2 }' "$tmp/layers")
    [ -n "$own" ] || continue
    sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" | while read -r included; do
        awk -v file="$file" -v own="$own" -v h="$included" '
            $1 == h && $2 > own { print file ": layer " own " includes " h " of layer " $2 " (move the code up, or pass it in)" }' "$tmp/layers"
    done
done >>"$tmp/log"
verdict 'no include of a higher layer' "$tmp/log"

# ---- 3: names. gcc lists every declaration it saw, with its file.
command -v gcc >/dev/null 2>&1 && lister=gcc || lister=$cc
if : | $lister -x c -aux-info "$tmp/none" -fsyntax-only - >/dev/null 2>&1; then
    for header in src/*.h; do
        name=$(basename "$header" .h)
        # shellcheck disable=SC2086
        $lister -x c -std=gnu11 -fopenmp $includes -aux-info "$tmp/aux" -fsyntax-only "$header" >/dev/null 2>&1 || continue
        awk -v header="$header" '
            index($0, "/* " header ":") == 1 && / extern / && match($0, /[A-Za-z_0-9]+ \(/) { print substr($0, RSTART, RLENGTH - 2) }' \
            "$tmp/aux" | sort -u | while read -r function_name; do
            case $function_name in "$name" | "${name}_"*) continue ;; esac
            case "$name $function_name" in "tokenizer token_ids_"*) continue ;; esac # the small list type of the tokenizer
            home= # the longest NAME of a src/NAME.c that the function is called after
            for file in src/*.c; do
                base=$(basename "$file" .c)
                case $function_name in "${base}_"*) [ ${#base} -gt ${#home} ] && home=$base ;; esac
            done
            [ -n "$home" ] && grep -qE "^[A-Za-z].*[ *]$function_name\\(" "src/$home.c" && continue
            echo "$header: $function_name() should be called ${name}_..., or after the src/NAME.c that defines it"
        done
    done >"$tmp/log"
    verdict 'public functions carry the name of their file' "$tmp/log"
else
    echo "skip public functions carry the name of their file ($lister has no -aux-info)"
fi

# ---- 4: budgets
: >"$tmp/log"
for file in src/*.[ch] data/*.c dev/*.c test/*.c train.c; do
    [ -f "$file" ] || continue
    awk -v file="$file" '
        { length_now = length($0); if (length_now > 120) wide++ }
        /^[[:space:]]*$/ || /^[[:space:]]*\/\// { next }
        /^[[:space:]]*\/\*/ { inside = 1 }
        inside { if (/\*\//) inside = 0; next }
        { code++ }
        /^[A-Za-z].*\(/ { candidate = $0; sub(/\(.*/, "", candidate); sub(/.*[ *]/, "", candidate) }
        /^{/ { name = candidate; start = code }
        /^}/ && name != "" { if (code - start > 60) print "warn " file ": " name "() has " code - start " lines (budget 60)"; name = "" }
        END {
            if (code > 400) print "warn " file ": " code " lines of code (budget 400)"
            if (code > 600 && file !~ /^test/) print "far over: " file ": " code " lines of code (budget 400; cut it in two)"
            if (wide > 0) print "wide " file ": " wide
        }' "$file"
done >"$tmp/sizes"
grep '^warn ' "$tmp/sizes"
wide=$(sed -n 's/^wide //p' "$tmp/sizes" | tr '\n' ',' | sed 's/,$//; s/,/, /g')
[ -n "$wide" ] && echo "warn lines over 120 columns in $wide"
sed -n 's/^far over: //p' "$tmp/sizes" >"$tmp/log"
verdict 'no file far over the budget' "$tmp/log"

# ---- 5: opening comments
for file in src/*.c data/*.c dev/*.c train.c test/test_*.c; do
    [ -f "$file" ] || continue
    case $(head -n 1 "$file") in "// "* | "/*"*) ;; *) echo "$file: does not open with a comment that says what it does" ;; esac
done >"$tmp/log"
verdict 'every file says what it does' "$tmp/log"

# ---- 6: paths and links
find . \( -path ./.git -o -path './build*' -o -path ./runs \) -prune -o -type f \( -name '*.[ch]' -o -name '*.md' -o -name '*.sh' \
    -o -name '*.py' -o -name '*.toml' -o -name Makefile -o -path './.ci/*' \) -print | sort >"$tmp/texts"
while read -r file; do
    grep -nHoE '(^|[^A-Za-z0-9_.])/(work|home|root|Users)/[A-Za-z0-9_.]+' "$file" | sed 's/$/: a path of one machine/'
    # In C only comments count: a string may be a path that a test wants refused.
    case $file in *.[ch]) comments='/\/\//!s/.*//; s/^.*\/\///' ;; *) comments= ;; esac
    sed -E "$comments" "$file" | grep -noE '(^|[^A-Za-z0-9_./$])(\.\./)+[A-Za-z0-9_.][A-Za-z0-9_./-]*' |
        while IFS=: read -r line path; do
            path=${path#[^.]}
            path=${path%[.,;:]}
            [ -e "$(dirname "$file")/$path" ] || [ -e "./${path##*../}" ] ||
                echo "$file:$line: $path is not in this tree"
        done
done <"$tmp/texts" >"$tmp/log"
verdict 'nothing outside this tree is named' "$tmp/log"
grep '\.md$' "$tmp/texts" | while read -r file; do
    grep -noE '\]\([^)# ]+' "$file" | while IFS=: read -r line link; do
        link=${link#*](}
        case $link in http://* | https://* | mailto:*) continue ;; esac
        [ -e "$(dirname "$file")/$link" ] || echo "$file:$line: the link $link leads nowhere"
    done
done >"$tmp/log"
verdict 'links in the chapters lead somewhere' "$tmp/log"
exit $failed
