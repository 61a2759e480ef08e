# calls.awk: writes the calls between tests and answer (apart.c) in C, from the structs of the assignment's headers and
# from what gcc -aux-info says of the tests.
#
#   awk -v answer="NAMES" -v grader="NAMES" -f calls.awk HEADER... AUX-INFO
# A declaration `void f_each(size_t n, R *result, const X *x [, const Y *y]);` in the tests makes n calls of f in one.
function known(name) { return name in leads ? leads[name] : 0 }
BEGIN {
    n = split(answer, name, " "); for (i = 1; i <= n; i++) side[name[i]] = "ANSWER"
    n = split(grader, name, " "); for (i = 1; i <= n; i++) side[name[i]] = "GRADER"
    print "#include \"grade.h\""
}
FNR == 1 && FILENAME ~ /[.]h$/ { path = FILENAME; sub(/.*\//, "", path); print "#include \"" path "\"" }
# How many pointers in a row a struct leads to.
FILENAME ~ /[.]h$/ {
    sub(/\/\/.*/, "")
    if (/^typedef (struct|enum)/) { inside = 1; most = 0 }
    if (inside) for (n = split($0, piece, /[,;]/); n; n--) {
        hops = gsub(/[*]/, "", piece[n])
        if (match(piece[1], /[A-Z][A-Za-z0-9]*/)) hops += known(substr(piece[1], RSTART, RLENGTH))
        if (hops > most) most = hops
    }
    if (inside && match($0, /} [A-Za-z0-9]+;/)) { leads[substr($0, RSTART + 2, RLENGTH - 3)] = most; inside = 0 }
    next
}
/:NC \*\/ extern / {
    sub(/^.*:NC \*\/ extern /, ""); sub(/;.*$/, "")
    at = index($0, " ("); head = substr($0, 1, at - 1); list = substr($0, at + 2, length($0) - at - 2)
    if (!match(head, /[A-Za-z_0-9]+$/)) next
    f = substr(head, RSTART); type = substr(head, 1, RSTART - 1)
    each = f ~ /_each$/ ? substr(f, 1, length(f) - 5) : ""
    if (each in side) side[f] = "ANSWER"
    if (!(f in side) || done[f]++) next
    n = depth = 0; part = ""
    for (i = 1; i <= length(list) + 1; i++) {
        c = substr(list, i, 1)
        depth += (c == "(") - (c == ")")
        if (c == "" || (c == "," && !depth)) { if (part != "void") args[n++] = part; part = "" } else part = part c
    }
    fields = params = given = taken = pointers = ""
    for (i = 0; i < n; i++) {
        sub(/^ */, "", args[i])
        type_of = "__typeof__(" args[i] ") a" i; comma = i ? ", " : ""
        fields = fields type_of "; "; params = params comma type_of
        given = given comma ".a" i " = a" i; taken = taken comma "b->a" i
        stars = gsub(/[*]/, "*", args[i]); base = args[i]; sub(/^const /, "", base); sub(/[ *].*/, "", base)
        hops = base in leads ? leads[base] + stars : base ~ /^([A-Z].*[a-z]|struct$)/ ? 0 : stars
        if (stars || hops) pointers = pointers "{offsetof(Block_" f ", a" i "), sizeof(__typeof__(" args[i] ")), " \
            hops ", " (args[i] ~ /^const .*\*/) "}, "
    }
    empty = type ~ /^void *$/
    print "typedef struct { " fields (empty ? "char" : type) " result; } Block_" f ";\n#ifdef " side[f]
    if (each in side) {
        print "void " f "(" params ")\n{"
        print "    for (size_t i = 0; i < a0; i++) a1[i] = " each "(a2[i]" (n > 3 ? ", a3[i]" : "") ");\n}"
    }
    print "static void run_" f "(void *p)\n{\n    Block_" f " *b = p;"
    print "    " (empty ? "(void)b, " : "b->result = ") f "(" taken ");\n}"
    print "#else\n#define run_" f " NULL"
    print type f "(" (n ? params : "void") ")\n{\n    Block_" f " b = {" (n ? given : "0") "};"
    print "    apart_call(" k + 0 ", &b);\n" (empty ? "" : "    return b.result;\n") "}\n#endif"
    print "static const ApartArg args_" f "[] = {" pointers "{0}};"
    row[k++] = "    {run_" f ", sizeof(Block_" f "), args_" f "},"
}
END {
    print "const ApartCall apart_call_table[] = {"
    for (i = 0; i < k; i++) print row[i]
    print "    {0}};\nconst int apart_calls = " k + 0 ";"
}
