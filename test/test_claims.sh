#!/bin/bash
# test/test_claims.sh: what chapters and comments say of the code is looked up in the code.
#
# 1. A file that is named (block.c, net/block.c, docs.sh) exists.
# 2. A name in backticks that has an underscore or ends in () occurs in code; with () it is called there.
# 3. "`a` and `b` are in [f.c](path)", "`a` in f.c" and "[f.c](path): `a`, `b`" (or "f.c: `a`") hold: f.c defines or
#    declares each of them. In comments the same without backticks: "x_y is in f.c", "f.c: x_y", "see x_y in f.c".
#
# Code is a source file without its comments. A name is defined in a file when it occurs there on a line that begins at
# the margin (functions, types, macros) or in a table (enum, struct). Chapters are doc/*.md and
# every README, without fenced blocks and generated parts. Other projects' names are listed below.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/claims.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

other_files='llm.c llama2.c pretrain.c cblas.h reverse.cu' # reverse.cu: the reader of cuda_on_cpu.md writes it
other_files+=" $(echo bug{1..7}.c)" # build/course makes them for assignment 27
other_names='permute_e offset_e reshard_after_forward'   # two formulas, and a name of PyTorch's

cat >"$work/claims.awk" <<'AWK'
function base(path) { sub(/.*\//, "", path); return path }

# Adds all endings of a path that begin after a slash: net/block.c for src/net/block.c
function add_path(path,   i) {
    exists[path]
    while ((i = index(path, "/"))) { path = substr(path, i + 1); exists[path] }
}

function add_code(line, file,   w) {
    if (line ~ /^\{/) body = 1
    if (line ~ /^\}/) body = 0
    while (match(line, /[A-Za-z_][A-Za-z0-9_]*/)) {
        w = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (length(w) < 3) continue
        word[w]
        if (line ~ /^\)? ?\(/) call[w]
        if (!body) at[file, w]
    }
}

# ---- claims

function complain(offset, what,   s, n) {
    s = substr(text, 1, offset)
    n = gsub(/\n/, "", s)
    print file ":" first + n ": " what
}

function file_exists(name) {
    while (name ~ /^\.\.?\//) sub(/^\.\.?\//, "", name)
    return name in exists
}

# The next place of a pattern in the rest of the text: s; the character before it; from: where it ends.
function find(pattern) {
    if (!match(rest, pattern)) return 0
    s = substr(rest, RSTART, RLENGTH)
    before = RSTART > 1 ? substr(rest, RSTART - 1, 1) : " "
    from += RSTART + RLENGTH - 1
    rest = substr(rest, RSTART + RLENGTH)
    return 1
}
function begin() { rest = text; from = 0 }

# 1: files
function check_files() {
    for (begin(); find("[A-Za-z0-9_./-]+\\.(c|h|cu|cuh|cc|sh|awk|py)");) {
        if (rest ~ /^[A-Za-z0-9_*{]/ || before ~ /[<*$@}:%~]/ || s ~ /^(build|runs|\/)/ || s ~ /(^|[_\/])[A-Z]+\./) continue
        if (s ~ /^-/ || base(s) ~ /^\./ || base(s) in other_file) continue
        if (!file_exists(s)) complain(from - 1, "there is no file " s)
    }
}

# 2: names in backticks
function check_names(   bare, w) {
    for (begin(); find("`[^`]*`");) {
        gsub(/`/, "", s)
        bare = s
        if (s ~ /^[a-z][a-z0-9_]*_\.\.\.$/) { # a_...: something begins so
            sub(/\.+$/, "", bare)
            for (w in word) if (index(w, bare) == 1) break
            if (index(w, bare) != 1) complain(from - 1, "nothing in the code begins with " bare)
            continue
        }
        sub(/\([^()]*\)$/, "", bare)
        if (bare !~ /^[A-Za-z_][A-Za-z0-9_]*$/ || bare in other_name) continue
        if (bare != s && bare ~ /_/ && !(bare in call)) complain(from - 1, "no function " bare "() in the code")
        else if (bare ~ /_[a-z0-9]/ && !(bare in word)) complain(from - 1, "no " bare " in the code")
    }
}

# Whether a name begins with the name of a component.
function of_component(name) {
    while (match(name, /_[^_]*$/)) {
        name = substr(name, 1, RSTART - 1)
        if (name in component) return 1
    }
    return 0
}

# 2, in comments: names of a component's things
function check_words() {
    for (begin(); find("[a-z][a-z0-9]*_[a-z0-9_]*[a-z0-9]");) {
        if (before ~ /[A-Za-z0-9_\/.{^-]/ || rest ~ /^[A-Za-z0-9_\/.*{-]/ || s in other_name || s in word) continue
        if (of_component(s)) complain(from - 1, "no " s " in the code")
    }
}

function names_of(list, where,   part) { # `a`, `b` or a_b
    while (where != "" && match(list, /[A-Za-z_][A-Za-z0-9_]*/)) {
        part = substr(list, RSTART, RLENGTH)
        list = substr(list, RSTART + RLENGTH)
        if (part == "and" || part == "or" || part ~ /NAME/ || part in other_name) continue
        if (!((where, part) in at)) complain(from - 1, part " is not in " where)
    }
}

# The one file of the tree that a name stands for; "": none, or several.
function resolve(name,   b) {
    while (name ~ /^\.\.?\//) sub(/^\.\.?\//, "", name)
    if (name in unique) name = unique[name]
    return name in is_code ? name : ""
}

function last_file(s,   f) { # the path in "... [f.c](path)" or "... f.c"
    f = s
    if (f ~ /\)$/) { sub(/.*\(/, "", f); sub(/\)$/, "", f) }
    else sub(/.*[^A-Za-z0-9_.\/-]/, "", f)
    return resolve(f)
}

# 3: "`a`, `b` are in F" and "F: `a`, `b`"
function check_in(name, F,   list, of, in_file) {
    in_file = "[ \n]+((is|are|stands?|lives?)[ \n]+)?in[ \n]+" F
    for (begin(); find(name "((,|,? and|,? or)[ \n]+" name ")*" in_file);) {
        list = s
        sub(in_file "$", "", list)
        names_of(list, last_file(s))
    }
    of = ":[ \n]+" name "((,|,? and)[ \n]+" name ")*"
    for (begin(); find(F of);) {
        list = s
        sub("^" F ":[ \n]+", "", list)
        sub(of "$", "", s)
        names_of(list, last_file(s))
    }
}

# 1, links: the text of a link that is a file's name is the name of the file that it leads to
function check_links(   to) {
    for (begin(); find("\\[[A-Za-z0-9_/-]+\\.(cu|c|h|sh|awk|py)\\]\\([^)# ]*\\)");) {
        to = s
        sub(/^\[/, "", s); sub(/\].*/, "", s); sub(/.*\(/, "", to); sub(/\)$/, "", to)
        if (base(s) != base(to)) complain(from - 1, "the link " s " leads to " to)
    }
}

function paragraph() {
    if (text != "") {
        check_files()
        if (file ~ /\.md$/) {
            check_names()
            check_links()
            check_in("`[A-Za-z_][A-Za-z0-9_]*(\\(\\))?`", "(\\[[^]\n]*\\]\\([^)# ]*\\)|[A-Za-z0-9_\\/-]+\\.(cu|c|h|sh))")
        } else {
            check_words()
            check_in("[a-z][a-z0-9]*_[A-Za-z0-9_]+(\\(\\))?", "[A-Za-z0-9_\\/-]+\\.(cu|c|h|sh)")
        }
    }
    text = ""
}

BEGIN {
    n = split(files, list, " "); for (i = 1; i <= n; i++) other_file[list[i]]
    n = split(names, list, " "); for (i = 1; i <= n; i++) other_name[list[i]]
    while ((getline path < tree) > 0) {
        sub(/^\.\//, "", path)
        add_path(path)
        if (path ~ /\.(c|h|cu|cuh|cc|sh|awk|py)$/ || path ~ /Makefile$/) is_code[path]
        if (path ~ /\.(c|h|cu|sh)$/) {
            b = base(path)
            sub(/\.[a-z]+$/, "", b)
            word[b]
            if (path ~ /^(src|data|dev)\/.*\.[ch]$/) component[b]
        }
        b = path
        for (;;) {
            if (b in unique) unique[b] = ""
            else unique[b] = path
            if (!(i = index(b, "/"))) break
            b = substr(b, i + 1)
        }
    }
    # the code
    for (path in is_code) {
        inside = body = 0
        while ((getline line < path) > 0) {
            if (path ~ /\.(c|h|cu|cuh|cc)$/) {
                if (inside) { if (line !~ /\*\//) continue; inside = 0; sub(/^.*\*\//, "", line) }
                if (line ~ /^[ \t]*\/\*/ && line !~ /\*\//) { inside = 1; continue }
                sub(/(^|[ \t;])\/\/.*/, "", line)
            } else sub(/(^|[ \t])#.*/, "", line)
            add_code(line, path)
        }
        close(path)
    }
    # the claims
    while ((getline file < claims) > 0) {
        number = fence = generated = 0
        text = ""
        while ((getline line < file) > 0) {
            number++
            if (file ~ /\.md$/) {
                if (line ~ /^```/) { fence = !fence; paragraph(); continue }
                if (line ~ /^<!-- \//) { generated = 0; continue }
                if (line ~ /^<!-- /) { generated = 1; paragraph(); continue }
                if (fence || generated) continue
                if (line ~ /^[ \t]*$/ || line ~ /^\|/ || line ~ /^    /) paragraph()
                if (line ~ /^[ \t]*$/ || line ~ /^    /) continue
            } else {
                if (line !~ /(^|[ \t;])\/\//) { paragraph(); continue }
                if (line !~ /^[ \t]*\/\//) paragraph()
                sub(/^.*\/\/ ?/, "", line)
                if (line == "") { paragraph(); continue }
            }
            if (text == "") { first = number; text = line } else text = text "\n" line
        }
        paragraph()
        close(file)
    }
}
AWK

# Prints the claims of the tree in the current directory that do not hold.
claims() {
    find . \( -path ./.git -o -path './build*' -o -path ./runs \) -prune -o -type f -print | sed 's/^\.\///' >"$work/tree"
    grep -E '\.md$|^(src|data|dev)/.*\.(c|h|cu)$|^train[^/]*$' "$work/tree" | sort >"$work/claims"
    awk -v tree="$work/tree" -v claims="$work/claims" -v files="$other_files" -v names="$other_names" -f "$work/claims.awk"
}

verdict() { # NAME: ok when $work/log, the list of complaints, is empty
    if [ ! -s "$work/log" ]; then echo "ok $1"; return; fi
    echo "not ok $1"
    sed 's/^/  /' "$work/log"
    failed=1
}

# ---- a small tree with right and wrong claims: lines that are wrong end in "wrong"
mkdir -p "$work/small/src/base" "$work/small/doc"
cat >"$work/small/src/base/rng.c" <<'C'
// rng: numbers. rng_next is in rng.c, and rng_seed in rng.c.
// See rng_gone in the list. wrong
// See seed.c. wrong
enum { RNG_ROUNDS = 10 };

int rng_next(int state)
{
    return rng_seed(state) + mix_up;
}

// rng.c: rng_next, rng_seed. wrong
int rng_of; // rng_seed is in rng.c wrong
C
cat >"$work/small/doc/rng.md" <<'MD'
# Numbers

`rng_next` in [rng.c](../src/base/rng.c), `RNG_ROUNDS` in base/rng.c and `rng_next()`; rng.c: `rng_next`.
llm.c has `x_i` and math.

`rng_lost` wrong
`rng_...` and `rng_lost_...` wrong
`mix_up()` wrong
`rng_next`,
`rng_seed` is in [rng.c](../src/base/rng.c). wrong
seeds.c wrong
[rng.c](../src/base/clock.c) wrong

```sh
other.c
```

| [rng.c](../src/base/rng.c): `rng_next`, `RNG_ROUNDS` |
| [rng.c](../src/base/rng.c): `rng_next`, `mix_up` | wrong
MD
(cd "$work/small" && other_names=x_i && claims) | sed 's/: .*//' | sort -u >"$work/found"
(cd "$work/small" && grep -rn 'wrong$' . | sed 's/^\.\///; s/^\([^:]*:[0-9]*\):.*/\1/' | sort -u; echo src/base/rng.c:1) | sort -u >"$work/meant"
diff "$work/meant" "$work/found" >"$work/log"
verdict 'wrong claims of a small tree are found, and only those'

# ---- this tree
claims >"$work/log"
verdict 'what chapters and comments say of the code holds'
exit $failed
