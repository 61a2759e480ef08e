# scripts/journey.awk: prints the reading list that scripts/journey.sh measured. Its inputs, each after part=NAME on the
# command line: sources (path, code lines, what it is), base and baselines (calls and lines of BASE), calls (path,
# function, line, in order) and lines (path, line).
#
# Invariant: a file is listed if one of its lines was executed, and once.
function add(file) { if (!(file in place)) { place[file] = ++files; path[files] = file } }
part == "sources" { code[$1] = $2; about[$1] = $3 }
part == "base" { known[$1]; known_function[$1, $2] }
part == "baselines" { known[$1]; before[$1, $2] }
part == "calls" { add($1); n = ++calls[$1]; name[$1, n] = $2; where[$1, n] = $3 }
part == "lines" { add($1); lines[$1]++; if (!(($1, $2) in before)) fresh[$1]++ }

function room_of(file,   room) {
    room = file
    if (!sub(/\/[^\/]*$/, "", room)) return "."
    sub(/^src\//, "", room)
    return room
}
function cut(text, width) { return length(text) <= width ? text : substr(text, 1, width - 3) "..." }
function some(file, most,   i, list) { # the first functions, and how many follow
    for (i = 1; i <= calls[file] && i <= most; i++) list = list (i > 1 ? ", " : "") (markdown ? "`" name[file, i] "`" : name[file, i])
    if (!calls[file]) return "(inline)" # compiled into its callers
    return list (calls[file] > most ? (markdown ? " and " : " +") calls[file] - most (markdown ? " more" : "") : "")
}
function base_name(file) { sub(/.*\//, "", file); return file }

function link_to(file) { return "[" file "](../" file ")" }

function row(file,   i, link, what) {
    what = about[file]
    if (markdown) {
        gsub(/\|/, "\\|", what)
        link = link_to(file)
        printf "| %d | %s | %s | %d of %d | %s |\n", shown, link, what, lines[file], code[file], some(file, functions ? 1000000 : 3)
        return
    }
    printf "%3d  %-8s %-24s %4d of %4d  %-58s  %s\n", shown, room_of(file), base_name(file), lines[file], code[file],
        cut(what, 58), functions ? "" : some(file, 2)
    if (functions) for (i = 1; i <= calls[file]; i++) printf "       %s:%s  %s\n", file, where[file, i], name[file, i]
}

# Files that BASE runs too, of which RUN executes more; and the functions that BASE does not call.
function print_more(   i, k, n, file, list) {
    if (markdown) print "\n| more of a file that both run | lines more | functions that the other does not call |\n|---|---:|---|"
    else printf "\n%-36s %12s  %s\n", "more of files that both run", "lines more", "functions that the other does not call"
    for (i = 1; i <= files; i++) {
        file = path[i]
        if (!(file in known) || !fresh[file]) continue
        list = ""
        for (k = n = 0; k < calls[file]; ) {
            if ((file, name[file, ++k]) in known_function) continue
            if (++n <= 3 || functions) list = list (n > 1 ? ", " : "") (markdown ? "`" name[file, k] "`" : name[file, k])
        }
        if (n > 3 && !functions) list = list (markdown ? " and " n - 3 " more" : " +" n - 3)
        if (markdown) printf "| %s | %d | %s |\n", link_to(file), fresh[file], list
        else printf "%-36s %12d  %s\n", file, fresh[file], list
    }
}
function plural(n, word) { return n " " word (n == 1 ? "" : "s") }

function print_head(   i) {
    if (markdown) printf "```sh\nmake journey RUN=\047%s\047%s\n```\n\n", run, based == "" ? "" : " \\\n    BASE=\047" based "\047"
    else print run (based == "" ? "" : "\nwhat it adds to: " based) "\n"
    for (i = 1; i <= files; i++) if (lines[path[i]] && !(based != "" && path[i] in known)) any = 1
    if (!any) return
    if (!markdown) printf "%3s  %-8s %-24s %12s  %-58s  %s\n", "", "room", "file", "executed", "what it is",
        functions ? "functions" : "first functions"
    else print "| | file | what it is | lines executed, of code | " (functions ? "functions" : "first functions") " |\n|---:|---|---|---:|---|"
}

function print_totals(   i, roots) {
    if (!any) print "No file more."
    else {
        print ""
        if (rooms > 1 && !markdown) for (i = 1; i <= rooms; i++) if (order[i] != ".")
            printf "%-12s %s, %s\n", order[i], plural(of_room[order[i]], "file"), plural(in_room[order[i]], "executed line")
        roots = (library ? "src/" : "") (library && mains != "" ? " and " : "") mains
        printf "%s, %s of %s\n", plural(shown, "file"), plural(total, "executed line"), roots
    }
    if (lost != "") print "called, but no line was counted (the process may have been killed):" lost
    if (based == "") return
    print_more()
    printf "\nBeside this %s in %s that both run.\n", plural(more + 0, "line"), plural(shared + 0, "file")
}

END {
    print_head()
    for (i = 1; i <= files; i++) {
        file = path[i]
        if (!lines[file]) { lost = lost " " file; continue }
        if (based != "" && file in known) { if (fresh[file]) { shared++; more += fresh[file] } continue }
        shown++
        total += lines[file]
        room = room_of(file)
        if (!(room in of_room)) order[++rooms] = room
        of_room[room]++
        in_room[room] += lines[file]
        if (file ~ /^src\//) library = 1
        else mains = mains (mains == "" ? "" : ", ") file
        row(file)
    }
    print_totals()
}
