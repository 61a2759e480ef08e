# calls.awk: writes the calls between tests and answer (apart.c) in C, from what gcc -aux-info says of the tests.
#
#   awk -v answer="NAMES" -v grader="NAMES" -v headers="FILES" -f calls.awk AUX-INFO
# A declaration `void f_each(size_t n, R *result, const X *x [, const Y *y]);` in the tests makes n calls of f in one.
BEGIN {
    n = split(answer, name, " "); for (i = 1; i <= n; i++) side[name[i]] = "ANSWER"
    n = split(grader, name, " "); for (i = 1; i <= n; i++) side[name[i]] = "GRADER"
    n = split(headers, name, " "); for (i = 1; i <= n; i++) print "#include \"" name[i] "\""
    print "#include \"grade.h\""
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
    fields = params = given = taken = pointers = constants = ""
    for (i = 0; i < n; i++) {
        sub(/^ */, "", args[i])
        fields = fields "__typeof__(" args[i] ") a" i "; "; params = params (i ? ", " : "") "__typeof__(" args[i] ") a" i
        given = given (i ? ", " : "") ".a" i " = a" i; taken = taken (i ? ", " : "") "b->a" i
        bit = " | (uint64_t)1 << offsetof(Block_" f ", a" i ") / 8"
        # A struct by value: all of its words may be pointers.
        pointers = pointers (args[i] ~ /\*/ ? bit : args[i] ~ /^(const )?[A-Z]/ ? " | APART_WORDS(Block_" f ", a" i ")" : "")
        if (args[i] ~ /^const .*\*/) constants = constants bit
    }
    empty = type ~ /^void *$/
    if (type ~ /\*/) pointers = pointers " | (uint64_t)1 << offsetof(Block_" f ", result) / 8"
    print "typedef struct { " fields (empty ? "char" : type) " result; } Block_" f ";\n#ifdef " side[f]
    if (each in side) {
        print "void " f "(" params ")\n{\n    for (size_t i = 0; i < a0; i++) a1[i] = " each "(a2[i]" (n > 3 ? ", a3[i]" : "") ");\n}"
    }
    print "static void run_" f "(void *p)\n{\n    Block_" f " *b = p;\n    " (empty ? "(void)b, " : "b->result = ") f "(" taken ");\n}"
    print "#else\nstatic void (*const run_" f ")(void *) = 0;\n" type f "(" (n ? params : "void") ")\n{\n    Block_" f " b = {" (n ? given : "0") "};"
    print "    apart_call(" k + 0 ", &b);\n" (empty ? "" : "    return b.result;\n") "}\n#endif"
    row[k++] = "    {run_" f ", (void *)" f ", sizeof(Block_" f "), 0" pointers ", 0" constants "},"
}
END {
    print "const ApartCall apart_call_table[] = {"
    for (i = 0; i < k; i++) print row[i]
    print "    {0}};\nconst int apart_calls = " k + 0 ";"
}
