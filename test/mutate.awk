# mutate.awk: reads the tables of seeded bugs (test/mutations/*.txt) and puts bugs into files. Used by mutate.sh, which
# says what a table looks like. Every file is read once; one is written only after all texts of a bug were found.
#
# usage: awk -f test/mutate.awk -v mode=MODE [-v pick=NAMES] [-v exact=1] [-v sources=LIST] [-v root=DIR/]
#            [-v only=FILE] TABLE...
#        list    one line a bug, between tabs: name, file, tests, bug, seen, names; "-" for what the table does not say
#        check   "ok NAME applies" or "not ok NAME applies" and why
#        apply   puts the bug into the files below root
#        renew   a text is in another file than the table says: writes the right `file:` into the table
# NAMES are the beginnings of names, whole names with exact=1. LIST is a file that names the files in which a lost text
# is looked for, one a line. FILE is that of bugs without a line `file:`. The exit status is 0 only when all is well.
#
# Bug b has the sections first[b] to last[b], one for each line `file:`. A section has the pairs pair_from[s] to
# pair_to[s]: a text to look for and what to make of it. A pair has the rows row_from[p] to row_to[p]: what to take out
# (-), to put in (+) and to leave alone (a space).

function complain(text) { if (wrong[b] == "") wrong[b] = FILENAME ":" FNR ": " text }
function stop(text) { print "error: " text | "cat 1>&2"; stopped = 1; exit 1 }
function begin_section(path) {
    last[b] = ++sections
    file[sections] = path
    line_of[sections] = FILENAME SUBSEP FNR
    pair_from[sections] = pairs + 1
    pair_to[sections] = pairs
    in_pair = 0
}
function bare(text) { sub(/^[ \t]+/, "", text); return text }
function indent_of(text) { return substr(text, 1, length(text) - length(bare(text))) }

FNR == 1 { b = 0; in_pair = 0 }
/^#/ { next }
/^$/ { in_pair = 0; next }
/^bug [A-Za-z0-9_]+: ./ {
    b = ++bugs
    name[b] = substr($2, 1, length($2) - 1)
    bug[b] = substr($0, length($2) + 6)
    if (name[b] in known) complain("there are two bugs called " name[b])
    known[name[b]] = 1
    first[b] = sections + 1
    last[b] = sections
    in_pair = 0
    next
}
b == 0 { stop(FILENAME ":" FNR ": a bug begins with a line \"bug NAME: what it is\"") }
/^seen: ./ { seen[b] = substr($0, 7); next }
/^tests: ./ { tests[b] = substr($0, 8); next }
/^names: ./ { names[b] = substr($0, 8); next }
/^says: ./ { seen[b] = substr($0, 7); tests[b] = "grader"; next } # an assignment: what the grader answers (doc/course.md)
/^file: ./ { begin_section(substr($0, 7)); next }
/^[-+ ]( |$)/ {
    if (last[b] < first[b] && only != "") begin_section(only)
    if (last[b] < first[b]) { complain("a text before the line \"file: ...\""); next }
    if (!in_pair) { pair_to[sections] = ++pairs; row_from[pairs] = rows + 1 }
    in_pair = 1
    row_to[pairs] = ++rows
    sign[rows] = substr($0, 1, 1)
    row[rows] = substr($0, 3)
    plain[rows] = bare(row[rows])
    if (sign[rows] != " ") changes[pairs] = 1
    if (sign[rows] != "+" && !(pairs in head)) { head[pairs] = rows; wanted[plain[rows]] = 1 }
    next
}
{ complain("not a line of the table: " $0) }

# The lines of a file, read once. where[PATH, TEXT]: the lines that are this text, of those that a pair begins with.
function load(path,    line, n) {
    if (path in length_of) return
    length_of[path] = -1
    while ((getline line < (root path)) > 0) {
        content[path, ++n] = line
        line = bare(line)
        stripped[path, n] = line
        if (line in wanted) where[path, line] = where[path, line] " " n
    }
    close(root path)
    if (n) length_of[path] = n
}

function fits(path, at, p,    r) { # does pair p's text stand in the file from line `at` on?
    for (r = row_from[p]; r <= row_to[p]; r++) {
        if (sign[r] == "+") continue
        if (at > length_of[path] || stripped[path, at] != plain[r]) return 0
        at++
    }
    return 1
}
function count(path, p,    n, i, lines, found) { # how often the text stands there; spot: the line of the last place
    if (!(p in head) || !((path, plain[head[p]]) in where)) return 0
    n = split(where[path, plain[head[p]]], lines, " ")
    for (i = 1; i <= n; i++) if (fits(path, lines[i] + 0, p)) { found++; spot = lines[i] + 0 }
    return found + 0
}
function has(path, from, to,    p) { # the texts of these pairs, each once
    for (p = from; p <= to; p++) if (count(path, p) != 1) return 0
    return 1
}
function title(path) { sub(/.*\//, "", path); return path }

# Another file that has the pairs `from` to `to` of a section: the only one, or, where the file is gone, the only one of
# that name. n_others: how many there are.
function elsewhere(s, from, to,    i, same, only, moved) {
    n_others = 0
    for (i = 1; i <= n_sources; i++) if (source[i] != file[s] && has(source[i], from, to)) {
        n_others++
        only = source[i]
        if (title(source[i]) == title(file[s])) { same++; moved = source[i] }
    }
    if (n_others == 1) return only
    return same == 1 && length_of[file[s]] < 0 ? moved : ""
}

function exists(path,    line, status) { status = (getline line < path); close(path); return status >= 0 }
function inspect_head(b,    i, n, test) { # what the stanza lacks; "": nothing
    if (wrong[b] != "") return wrong[b]
    if (tests[b] == "") return "no line \"tests: ...\""
    n = split(tests[b], test, " ")
    for (i = 1; i <= n; i++)
        if (test[i] != "grader" && !exists("test/" test[i]) && !exists("test/" test[i] ".c")) return "no such test: " test[i]
    if (last[b] < first[b]) return "no line \"file: ...\""
    return ""
}
function inspect_pair(s, p,    n, text, other) {
    if (!(p in head) || !(p in changes)) return "a text needs lines to look for, and lines - or + that change it"
    n = count(file[s], p)
    if (n == 1) return ""
    text = ": " plain[head[p]]
    if (n > 1) return file[s] " has this text " n " times (add a line beside it)" text
    other = elsewhere(s, p, p)
    if (other != "") text = text "\n  " other " has it (test/mutate.sh --renew writes that into the table)"
    else if (n_others) text = text "\n  " n_others " other files have it"
    return file[s] (length_of[file[s]] < 0 ? " (no such file)" : "") " does not have this text" text
}
# A line that is put in. It is as far to the right of a line of the text, the model, as the table shows.
function indented(line, model, place,    now, by) {
    if (bare(line) == "") return ""
    now = indent_of(line)
    by = length(now) - length(indent_of(model))
    place = indent_of(place)
    return (by >= 0 ? place substr(now, 1, by) : substr(place, 1, length(place) + by)) bare(line)
}
# Notes what pair p takes out of the file and puts in. The model of what is put in is the first line that it replaces,
# or else the line before it.
function edit(b, path, p,    at, r, model, place) {
    count(path, p)
    at = spot
    model = row[head[p]]
    place = content[path, at]
    for (r = row_from[p]; r <= row_to[p]; r++) {
        if (sign[r] == "+") {
            added[b, path, at] = added[b, path, at] indented(row[r], model, place) "\n"
            continue
        }
        if ((b, path, at) in taken) return "two texts overlap in " path
        taken[b, path, at] = sign[r]
        if (plain[r] != "" && (sign[r] == " " || r == row_from[p] || sign[r - 1] != "-")) {
            model = row[r]
            place = content[path, at]
        }
        at++
    }
    return ""
}
function inspect(b,    s, p, why) { # why a bug does not apply; "": it does
    why = inspect_head(b)
    for (s = first[b]; s <= last[b] && why == ""; s++) {
        if (pair_to[s] < pair_from[s]) why = "no text below file: " file[s]
        for (p = pair_from[s]; p <= pair_to[s] && why == ""; p++) {
            why = inspect_pair(s, p)
            if (why == "") why = edit(b, file[s], p)
        }
    }
    return why
}

function apply(b,    s, i, path) {
    for (s = first[b]; s <= last[b]; s++) {
        path = file[s]
        if (path in written) continue
        written[path] = 1
        printf "" > (root path)
        for (i = 1; i <= length_of[path] + 1; i++) {
            printf "%s", added[b, path, i] > (root path)
            if (i <= length_of[path] && taken[b, path, i] != "-") print content[path, i] > (root path)
        }
        close(root path)
    }
}

function renew(b,    s, p, gone, other) {
    if (wrong[b] != "") return
    for (s = first[b]; s <= last[b]; s++) {
        gone = 0
        for (p = pair_from[s]; p <= pair_to[s]; p++) if (!count(file[s], p)) gone = 1
        if (!gone || (other = elsewhere(s, pair_from[s], pair_to[s])) == "") continue
        print name[b] ": " file[s] " -> " other
        file[s] = now_in[line_of[s]] = other
    }
}
function rewrite(table,    line, n, i, text, stale) {
    while ((getline line < table) > 0) {
        text[++n] = line
        if ((table, n) in now_in) { text[n] = "file: " now_in[table, n]; stale = 1 }
    }
    close(table)
    if (!stale) return
    for (i = 1; i <= n; i++) print text[i] > table
    close(table)
}

function selected(b,    i) {
    for (i = 1; i <= n_picks; i++) if (exact ? name[b] == picks[i] : index(name[b], picks[i]) == 1) return 1
    return !n_picks
}
function files_of(b,    s, text) {
    for (s = first[b]; s <= last[b]; s++) text = text (text == "" ? "" : " ") file[s]
    return text
}
function or_dash(text) { return text == "" ? "-" : text }
function list(b) {
    printf "%s\t%s\t%s\t%s\t", name[b], or_dash(files_of(b)), or_dash(tests[b]), bug[b]
    printf "%s\t%s\n", seen[b] == "" ? "a common slip" : seen[b], or_dash(names[b])
}
function verdict(b,    why) {
    why = inspect(b)
    if (why == "" && mode == "apply") apply(b)
    if (why != "") failed = 1
    if (mode != "apply") print (why == "" ? "ok " : "not ok ") name[b] " applies"
    if (why != "") print (mode == "apply" ? name[b] ": " : "  ") why
}

END {
    if (stopped) exit 1
    n_picks = split(pick, picks, " ")
    for (i = 1; i <= n_picks; i++) {
        for (b = 1; b <= bugs; b++) if (exact ? name[b] == picks[i] : index(name[b], picks[i]) == 1) break
        if (b > bugs) stop("test/mutate.sh: no bug called " picks[i] (exact ? "" : "*"))
    }
    if (!bugs) stop("test/mutate.sh: there are no bugs in the tables")
    if (mode != "list") {
        while (sources && (getline path < sources) > 0) load(source[++n_sources] = path)
        for (b = 1; b <= bugs; b++) if (selected(b)) for (s = first[b]; s <= last[b]; s++) load(file[s])
    }
    if (mode == "renew") {
        for (b = 1; b <= bugs; b++) if (selected(b)) renew(b)
        for (i = 1; i < ARGC; i++) if (ARGV[i] !~ /=/) rewrite(ARGV[i])
    }
    for (b = 1; b <= bugs; b++) {
        if (!selected(b)) continue
        if (mode == "list") list(b)
        else verdict(b)
    }
    exit failed
}
