# mutate_random.awk: finds the places in C files where an operator or a small constant can be changed, and makes one of
# those changes. Used by mutate_random.sh.
#
# usage: awk -f test/mutate_random.awk -v seed=SEED FILE.c...
#            one line a mutant, between tabs: rank, id, file, line, what was there, what comes there, the line's text
#        awk -f test/mutate_random.awk -v apply=ID FILE.c
#            the file with this mutant in it; the exit status is 1 when it has no such mutant
#
# A mutant is known by its file, the text of its line, which of the lines with this text it is, which of the changes on
# that line, and the change itself. The id is a hash of these, so it stays as it is when other lines change. The rank is
# a hash of the id's parts and of the seed: the mutants with the smallest ranks are a sample by chance, and an edit
# elsewhere in the tree leaves the others of the sample as they are.
#
# Looked at: the bodies of functions, which begin with a line "{" and end with a line "}" (or are one line), without
# comments, strings, preprocessor lines and constant tables. An operator of two operands has a space on both sides here,
# which tells a product from a pointer and a difference from a sign. Left out is what cannot matter: < for <= in
# `a < b ? a : b` and `if (a < b) a = b`, and the 0 of `{0}`, which means "all zero".

BEGIN {
    for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i
    P = 2147483647 # hashes stay below 2^31, products below 2^53
    put("<", "<="); put("<=", "<"); put(">", ">="); put(">=", ">"); put("==", "!="); put("!=", "==")
    put("&&", "||"); put("||", "&&"); put("++", "--"); put("--", "++")
    put("+=", "-="); put("+=", "="); put("-=", "+="); put("*=", "/="); put("/=", "*=")
    put("+", "-"); put("-", "+"); put("*", "/"); put("/", "*")
    put("0", "1"); put("1", "0"); put("1", "2"); put("2", "1")
    put("0.0f", "1.0f"); put("1.0f", "0.0f"); put("0.0", "1.0"); put("1.0", "0.0")
}
function put(from, to) { becomes[from] = from in becomes ? becomes[from] " " to : to }

function hash(h, text, factor,    i, n) {
    n = length(text)
    for (i = 1; i <= n; i++) h = (h * factor + code[substr(text, i, 1)]) % P
    return h
}

# The line with comments as spaces and the characters of strings as S, so that columns stay.
function masked(text,    i, n, c, two, out, quote) {
    if (text !~ /["'\/*]/ && !in_comment) return text
    n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1)
        two = substr(text, i, 2)
        if (in_comment) {
            out = out " "
            if (two == "*/") { out = out " "; i++; in_comment = 0 }
        } else if (quote != "") {
            out = out "S"
            if (c == "\\") { out = out "S"; i++ }
            else if (c == quote) quote = ""
        } else if (two == "//") return out
        else if (two == "/*") { out = out "  "; i++; in_comment = 1 }
        else if (c == "\"" || c == "'") { quote = c; out = out "S" }
        else out = out c
    }
    return out
}

function ends(text, end) {
    return end != "" && substr(text, length(text) - length(end) + 1) == end &&
        substr(text, length(text) - length(end), 1) !~ /[A-Za-z0-9_.>]/
}
# Does `before < after` choose the smaller or larger of two, where a tie gives the same?
function picks(before, after,    q, c, a, b, x, y) {
    sub(/ +$/, "", before)
    sub(/^ +/, "", after)
    q = index(after, " ? ")
    c = index(after, " : ")
    if (q && c > q) {
        b = substr(after, 1, q - 1)
        x = substr(after, q + 3, c - q - 3)
        y = substr(after, c + 3)
        sub(/[;,)].*$/, "", y)
        return ends(before, x) && y == b || x == b && ends(before, y)
    }
    if (match(after, /\) [^ ]+ = [^ ]+[;,]$/)) { # if (a < b) a = b;
        b = substr(after, 1, RSTART - 1)
        y = substr(after, RSTART + 2, RLENGTH - 3)
        q = index(y, " = ")
        x = substr(y, 1, q - 1)
        y = substr(y, q + 3)
        return ends(before, x) && y == b || x == b && ends(before, y)
    }
    return 0
}

function mutant(column, from, to,    key, h, low, r, id) {
    key = "|" (++on_line[from, to]) "|" from "|" to
    h = hash(text_hash, key, 131)
    low = hash(text_low, key, 257)
    r = hash(h, "|" seed, 131) % 67108859
    id = sprintf("%08x%03x", h, low % 4093)
    if (apply == "") {
        printf "%.0f\t%s\t%s\t%d\t%s\t%s\t%s\n", (r * r + low) % P, id, FILENAME, FNR, from, to, text
    } else if (id == apply) {
        found = 1
        $0 = substr($0, 1, column - 1) to substr($0, column + length(from))
    }
}
function each(column, from,    n, i, to) {
    n = split(becomes[from], to, " ")
    for (i = 1; i <= n; i++) mutant(column, from, to[i])
}

function line(mask,    at, rest, token, before, after, spaced, i) {
    text = $0
    gsub(/\t/, " ", text)
    sub(/^ +/, "", text)
    i = ++with_text[text]
    text_hash = hash(7, FILENAME "|" text "|" i, 131)
    text_low = hash(11, FILENAME "|" text "|" i, 257)
    for (i in on_line) delete on_line[i]
    for (at = 1; at <= length(mask); at += length(token)) {
        rest = substr(mask, at)
        if (match(rest, /^ +/)) { token = substr(rest, 1, RLENGTH); continue }
        before = substr(mask, 1, at - 1)
        if (match(rest, /^[A-Za-z_][A-Za-z0-9_]*/)) {
            token = substr(rest, 1, RLENGTH)
            # `if (x)` and `while (x)`: the opposite
            if (before ~ /(^|[^A-Za-z0-9_])(if|while) \($/ && rest ~ /^[A-Za-z_][A-Za-z0-9_.>-]*\)/) mutant(at, "", "!")
            continue
        }
        if (match(rest, /^[0-9.]*[0-9]([eEpP][-+][0-9]+|[A-Za-z0-9.])*/)) {
            token = substr(rest, 1, RLENGTH)
            if (token in becomes && !(before ~ /\{$/ && rest ~ /^0\}/)) each(at, token) # not {0}
            continue
        }
        if (match(rest, /^(<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*\/%&|^]=)/)) {
            token = substr(rest, 1, RLENGTH)
        } else token = substr(rest, 1, 1)
        if (token == "!") { mutant(at, "!", ""); continue }
        if (!(token in becomes)) continue
        after = substr(mask, at + length(token))
        spaced = (before == "" || before ~ / $/) && (after == "" || after ~ /^ /)
        if (token ~ /^(\+\+|--)$/) each(at, token)
        else if (spaced && !(token ~ /^[<>]=?$/ && picks(before, after))) each(at, token)
    }
}

FNR == 1 { in_body = continued = in_comment = 0; for (t in with_text) delete with_text[t] }
{
    m = masked($0)
    if (continued || m ~ /^ *#/) continued = m ~ /\\$/
    else if (m ~ /^\{/) in_body = 1
    else if (m ~ /^\}/) in_body = 0
    else if (m ~ /^ *(static const|static_assert|_Static_assert)/ && m !~ /\) \{ .*\}$/) {}
    else if (in_body) line(m)
    else if (match(m, /^[a-z].*\) \{ .*\}$/)) {
        i = index(m, ") {")
        line(sprintf("%*s", i, "") substr(m, i + 1))
    }
    if (apply != "") print
}
END { if (apply != "" && !found) exit 1 }
