# table.awk: a table, with tabs between its columns, as initializers in C of an array's rows. Comments begin with "#".
#
# The first line names the members of the struct. Of "x" the cells are strings, of any other name expressions of C; with
# x# the expression's text goes into x_text too, and the cells of * are initializers as they stand. What is empty is left out.
BEGIN { FS = "\t" }
/^#/ { next }
!n { n = split($0, name); next }
function quoted(text) { gsub(/"/, "\\\"", text); return "\"" text "\"" }
{
    printf "#line %d \"%s\"\n{", FNR, FILENAME
    for (i = 1; i <= n; i++) {
        member = name[i]
        if ($i == "") continue
        if (member == "*") printf "%s, ", $i
        else if (gsub(/"/, "", member)) printf ".%s = %s, ", member, quoted($i)
        else if (sub(/#$/, "", member)) printf ".%s = %s, .%s_text = %s, ", member, $i, member, quoted($i)
        else printf ".%s = %s, ", member, $i
    }
    print "},"
}
