# scripts/guide_map.awk: reads doc/guide_map.txt, which says what its lines are.
#
# usage: awk -f scripts/guide_map.awk [-v mode=MODE] FILE
#        page    (default) the tables of doc/guide_map.md: one a guide, a row a heading
#        count   a line a guide: headings, and how many are answered by a command, by text, not here
#        ids     one a line
#        claims  a line for each thing that can be checked, fields between tabs:
#                wrong ID WHY | code ID FILE [NAME] | read ID CHAPTER [SECTION] | run ID COMMAND SAYS NEEDS | rows ID-LETTER

function complain(why) { wrong[++wrongs] = (id == "" ? "line " FNR : id) "\t" why }
function trimmed(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }

# Ends the heading: what was read of it must be complete.
function finish() {
    if (id == "") return
    if (!((id, "here") in text)) complain("says nothing under `here`")
    if (!runs[id] && !((id, "read") in text) && !((id, "gone") in text)) complain("is answered by nothing: run, read or gone")
    if ((id, "gone") in text && (runs[id] || (id, "code") in text)) complain("is not here (gone), and has code or a command")
}

function take(key, value) {
    if (key == "run") { run[id, ++runs[id]] = value; last = id SUBSEP "run" SUBSEP runs[id] }
    else if (key == "says" || key == "guide" || key == "needs" || key == "rows") {
        if (!runs[id]) { complain(key " without a run above it"); return }
        if (key == "rows" && value !~ /^[a-z]( [a-z])*$/) complain("rows are letters: " value)
        last = id SUBSEP key SUBSEP runs[id]
        if (last in of_run) complain("two lines `" key "` of one run")
        of_run[last] = value
    } else if (key == "here" || key == "code" || key == "read" || key == "gone") {
        if ((id, key) in text) complain("two lines `" key "`")
        text[id, key] = value
        last = id SUBSEP key
    } else complain("no such key: " key)
}

function go_on(value,   part, n) { # with the line above
    n = split(last, part, SUBSEP)
    if (n == 2) text[last] = text[last] " " value
    else if (part[2] == "run") run[part[1], part[3]] = run[part[1], part[3]] " " value
    else of_run[last] = of_run[last] " " value
}

/^#/ || /^[ \t]*$/ { next }
/\t/ { complain("a tab") }
/^guide / { finish(); id = ""; guide[++guides] = $2; title[$2] = trimmed(substr($0, 7 + length($2))); next }
/^        / { if (last == "") complain("goes on with nothing"); else go_on(trimmed($0)); next }
/^  [a-z]/ {
    if (id == "") complain("a line of no heading")
    else take($1, trimmed(substr($0, 3 + length($1))))
    next
}
{
    finish()
    id = $1
    last = ""
    if (index(id, guide[guides] "-") != 1) complain("is not one of guide " guide[guides])
    if (id in heading) complain("comes twice")
    heading[id] = trimmed(substr($0, length(id) + 1))
    of[id] = guides
    ids[++n_ids] = id
}
END { finish(); if (mode == "") mode = "page"; if (mode == "page" && wrongs) mode = "claims"; print_all() }

# ---- what is printed

function kind_of(id) { return runs[id] ? "command" : (id, "gone") in text ? "gone" : "text" }

function count_kinds(g,   i, k) {
    count["all"] = count["command"] = count["text"] = count["gone"] = 0
    for (i = 1; i <= n_ids; i++) if (of[ids[i]] == g || g == 0) { count["all"]++; count[kind_of(ids[i])]++ }
}
function counted() {
    return count["all"] " headings: " count["command"] " with a command, " count["text"] " by text, " count["gone"] " not here"
}

function cell(s) { gsub(/\|/, "\\|", s); return s }
function base(path) { sub(/.*\//, "", path); return path }

function code_cell(list,   part, n, i, file, names, name, m, j, out) {
    n = split(list, part, /; */)
    for (i = 1; i <= n; i++) {
        file = names = part[i]
        sub(/:.*/, "", file)
        out = out (i > 1 ? "; " : "") "[" base(file) "](../" file ")"
        if (!sub(/^[^:]*: */, "", names)) continue
        m = split(names, name, / +/)
        for (j = 1; j <= m; j++) out = out (j > 1 ? ", `" : ": `") name[j] "`"
    }
    return out
}

function read_cell(list,   part, n, i, file, section, out) {
    n = split(list, part, / +/)
    for (i = 1; i <= n; i++) {
        file = section = part[i]
        sub(/#.*/, "", file)
        if (!sub(/^[^#]*#/, "", section)) section = ""
        out = out (i > 1 ? ", " : "") "[" (section == "" || file != "guide_answers" ? file : section) "](" file ".md" \
            (section == "" ? "" : "#" section) ")"

    }
    return out
}

function run_cell(id,   i, s, key, out) {
    for (i = 1; i <= runs[id]; i++) {
        s = "`" cell(run[id, i]) "`"
        key = id SUBSEP "rows" SUBSEP i
        if (key in of_run) s = of_run[key] ": " s
        key = id SUBSEP "needs" SUBSEP i
        if (key in of_run) s = s (of_run[key] ~ /^data/ ? " *(" of_run[key] ")*" : " (" of_run[key] ")")
        key = id SUBSEP "says" SUBSEP i
        if (key in of_run) s = s ": `" cell(of_run[key]) "`"
        key = id SUBSEP "guide" SUBSEP i
        if (key in of_run) s = s ". Guide: " cell(of_run[key])
        out = out (i > 1 ? "<br>" : "") s
    }
    if ((id, "gone") in text) out = "not here: " text[id, "gone"]
    return out
}

function print_page(   g, i, name, number) {
    for (g = 1; g <= guides; g++) {
        count_kinds(g)
        print (g > 1 ? "\n" : "") "## " guide[g] ": " title[guide[g]] "\n\n" counted() ".\n"
        print "| section | here | code | command: what it prints |\n|---|---|---|---|"
        for (i = 1; i <= n_ids; i++) {
            if (of[ids[i]] != g) continue
            name = heading[ids[i]]
            number = substr(ids[i], length(guide[g]) + 2)
            if (index(name, number " ") == 1) name = substr(name, length(number) + 2)
            else if (index(name, number ". ") == 1) name = substr(name, length(number) + 3)
            print "| **" ids[i] "** " cell(name) " | " cell(text[ids[i], "here"]) \
                ((ids[i], "read") in text ? " (" read_cell(text[ids[i], "read"]) ")" : "") " | " \
                ((ids[i], "code") in text ? code_cell(text[ids[i], "code"]) : "") " | " run_cell(ids[i]) " |"
        }
    }
}

function print_claims(   i, j, k, n, m, part, name, file, names, section) {
    for (i = 1; i <= wrongs; i++) print "wrong\t" wrong[i]
    for (i = 1; i <= n_ids; i++) {
        id = ids[i]
        n = split(text[id, "code"], part, /; */)
        for (j = 1; j <= n; j++) {
            file = names = part[j]
            sub(/:.*/, "", file)
            print "code\t" id "\t" file
            if (!sub(/^[^:]*: */, "", names)) continue
            m = split(names, name, / +/)
            for (k = 1; k <= m; k++) print "code\t" id "\t" file "\t" name[k]
        }
        n = split(text[id, "read"], part, / +/)
        for (j = 1; j <= n; j++) {
            section = part[j]
            if (!sub(/^[^#]*#/, "", section)) section = ""
            sub(/#.*/, "", part[j])
            print "read\t" id "\t" part[j] "\t" section
        }
        for (j = 1; j <= runs[id]; j++) {
            print "run\t" id "\t" run[id, j] "\t" of_run[id SUBSEP "says" SUBSEP j] "\t" of_run[id SUBSEP "needs" SUBSEP j]
            m = split(of_run[id SUBSEP "rows" SUBSEP j], name, / +/)
            for (k = 1; k <= m; k++) print "rows\t" id "-" name[k]
        }
    }
}

function print_all(   i, g) {
    if (mode == "page") print_page()
    else if (mode == "claims") print_claims()
    else if (mode == "ids") for (i = 1; i <= n_ids; i++) print ids[i]
    else if (mode == "count") {
        for (g = 1; g <= guides; g++) { count_kinds(g); print guide[g] ": " counted() }
        count_kinds(0)
        print "all: " counted()
    }
}
