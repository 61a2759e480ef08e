# book.awk: pages of HTML from what cmark-gfm printed and from source files. scripts/book.sh calls it; doc/book.md explains.
#
# Parts, in this order:
#   files, folders, order   lists of paths: what has a page; the chapters as they follow each other
#   terms                   doc/glossary.md: rows | term | meaning | chapter |
#   definitions             C files: at which line each function, type and macro is defined
#   titles, pages           the chapters' HTML, twice: the first pass learns titles and headings
#   code                    source files
#   end                     nothing: the folders' pages, the index of concepts and the words for the search are written

# ---- paths

# Where a file's page is: doc/x.md: x.html; a/README.md: code/a/index.html; others: code/PATH.html.
function page_of(path) {
    if (path == "doc/README.md") return "index.html"
    if (path == "README.md") return "start.html"
    if (path == "CONTRIBUTING.md") return "contributing.html"
    if (path ~ /^doc\/[a-z0-9_]+\.md$/) { sub(/^doc\//, "", path); sub(/md$/, "html", path); return path }
    if (path ~ /^doc\/[^\/]*\.svg$/) { sub(/^doc\//, "", path); return path }
    if (path in folder) return "code/" path "/index.html"
    if (path ~ /\/README\.md$/) { sub(/README\.md$/, "index.html", path); return "code/" path }
    return "code/" path ".html"
}
function up_from(page,   s) { s = page; gsub(/[^\/]/, "", s); gsub(/\//, "../", s); return s }
function folder_of(path) { return sub(/\/[^\/]*$/, "", path) ? path : "" }

# a/b/../c: a/c
function join(dir, path,   n, part, i, m, keep, s) {
    s = dir == "" ? path : dir "/" path
    n = split(s, part, "/"); m = 0
    for (i = 1; i <= n; i++) {
        if (part[i] == "" || part[i] == ".") continue
        if (part[i] == "..") { if (m) m--; continue }
        keep[++m] = part[i]
    }
    s = ""
    for (i = 1; i <= m; i++) s = s (i > 1 ? "/" : "") keep[i]
    return s
}

# ---- text

function escape(s) { gsub(/&/, "\\&amp;", s); gsub(/"/, "\\&quot;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); return s }
function plain(s) {
    gsub(/<[^>]*>/, "", s); gsub(/&quot;/, "\"", s); gsub(/&lt;/, "<", s); gsub(/&gt;/, ">", s); gsub(/&amp;/, "\\&", s)
    return s
}
# The anchor that GitHub gives a heading.
function slug_of(s) { s = tolower(plain(s)); gsub(/[^a-z0-9 _-]/, "", s); gsub(/ /, "-", s); return s }
function quoted(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" }

# ---- one page's frame

function head(page, title,   up) {
    up = up_from(page)
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" \
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" \
        "<title>" title "</title><link rel=\"stylesheet\" href=\"" up "book.css\">\n" \
        "<script src=\"" up "book.js\" data-up=\"" up "\"></script></head>\n<body>\n" \
        "<header><a class=\"home\" href=\"" up "index.html\">pretrain.c</a> <a href=\"" up "concepts.html\">Index</a>" \
        " <a href=\"" up "code/index.html\">Code</a>" \
        " <input type=\"search\" id=\"search\" placeholder=\"Search\" aria-label=\"Search the book\">" \
        " <button id=\"light\" title=\"light or dark\" aria-label=\"light or dark\">&#9680;</button></header>\n" \
        "<div id=\"found\" hidden></div>\n"
}
function foot() { return "</body></html>\n" }

# ---- input

function new_file(   path) {
    path = FILENAME
    if (part == "titles" || part == "pages") path = substr(FILENAME, length(html) + 2)
    if (part == "titles") { source = path; page = page_of(path); split("", slug_seen) }
    if (part == "pages") { finish(); begin_page(path) }
    if (part == "code") { finish(); begin_code(path) }
    if (part == "definitions") source = FILENAME
}
FNR == 1 { new_file() }

part == "files" { file[$0]; file_order[++n_files] = $0; next }
part == "folders" { folder[$0]; folder_order[++n_folders] = $0; next }
part == "order" { chapter[++n_chapters] = $0; next }
part == "terms" {
    if (!/^\| / || /^\| term / || /^\|--/) next
    split($0, cell, / *\| */)
    term[++n_terms] = cell[2]; meaning[n_terms] = cell[3]; term_chapter[n_terms] = cell[4]
    next
}

part == "definitions" {
    name = ""
    if (/^[A-Za-z_][A-Za-z0-9_ *]*[ *][A-Za-z_][A-Za-z0-9_]*\(/ && !/;[ \t]*(\/\/.*)?$/ && !/^(return|else|if)/) {
        name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
    } else if (/^} [A-Z][A-Za-z0-9_]*;/) { name = $2; sub(/;.*/, "", name) }
    else if (/^#define [A-Za-z]/) { name = $2; sub(/\(.*/, "", name) }
    if (length(name) < 4 || name ~ /_H$/ || name == "main") next
    if (!(name in at_file)) { at_file[name] = FILENAME; at_line[name] = FNR }
    # src/ before programs and workshops; defined at several places there: no link
    else if (at_file[name] !~ /^src\// && FILENAME ~ /^src\//) { at_file[name] = FILENAME; at_line[name] = FNR }
    else if (at_file[name] ~ /^src\// && FILENAME !~ /^src\//) { }
    else if (FILENAME != at_file[name]) twice[name]
    next
}

part == "titles" {
    if (/^<h1>/ && !(page in title)) { title[page] = $0; gsub(/<\/?h1>/, "", title[page]) }
    next
}

# ---- chapters

function begin_page(path,   i) {
    source = path; page = page_of(path); dir = folder_of(path); up = up_from(page); in_pre = 0; body = ""; toc = ""
    split("", slug_seen); section_id = ""; section_text = ""; section_title = ""; writing = "page"
    if (!(page in title)) title[page] = path
}

# A section is over: its words, and the terms it uses.
function end_section(   s, n, i, w, word_list) {
    s = tolower(plain(section_text))
    if (s !~ /[a-z]/) { section_text = ""; return }
    section[++n_sections] = page (section_id != "" ? "#" section_id : "")
    section_of[n_sections] = page; section_name[n_sections] = plain(section_title)
    if (page !~ /^code\//)
        for (i = 1; i <= n_terms; i++)
            if (page != "glossary.html" && uses(s, low_term(i)) && !((i, page) in used)) {
                used[i, page]; uses_of[i] = uses_of[i] " " n_sections
            }
    gsub(/[^a-z0-9_]+/, " ", s)
    n = split(s, word_list, " ")
    for (i = 1; i <= n; i++) {
        w = word_list[i]
        if (length(w) < 2 || length(w) > 32 || w ~ /^[0-9_]+$/ || w in stop || (last_in[w] == n_sections)) continue
        sections_with[w] = sections_with[w] (sections_with[w] != "" ? "," : "") in36(n_sections - last_in[w])
        last_in[w] = n_sections
    }
    section_text = ""
}
function in36(n,   s, d) {
    s = ""
    do { d = n % 36; s = substr("0123456789abcdefghijklmnopqrstuvwxyz", d + 1, 1) s; n = (n - d) / 36 } while (n)
    return s
}
function low_term(i,   s) { s = tolower(term[i]); sub(/ \(.*/, "", s); sub(/,.*/, "", s); return s }
function uses(s, t,   i, before, after) {
    while ((i = index(s, t))) {
        before = i == 1 ? " " : substr(s, i - 1, 1)
        after = substr(s, i + length(t), 1)
        if (before !~ /[a-z0-9_]/ && after !~ /[a-rt-z0-9_]/) return 1
        s = substr(s, i + length(t))
    }
    return 0
}

function link(href,   anchor, path, to) {
    if (href ~ /^[a-z]+:/ || href ~ /^#/) return href
    anchor = ""
    if (match(href, /#/)) { anchor = substr(href, RSTART); href = substr(href, 1, RSTART - 1) }
    path = join(dir, href)
    to = page_of(path)
    if (to ~ /^code\// && source !~ /README/) cited[path, page] || cite(path)
    return up to anchor
}
function cite(path) { cited[path, page] = 1; cites[path] = cites[path] " " page }

# href="..." and src="..." of a line; names in code that are defined somewhere
function relink(line,   done, s) {
    done = ""
    while (match(line, /(href|src)="[^"]*"/)) {
        s = substr(line, RSTART, RLENGTH)
        done = done substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        match(s, /"/)
        done = done substr(s, 1, RSTART) link(substr(s, RSTART + 1, length(s) - RSTART - 1)) "\""
        if (s ~ /^src/) done = done " loading=\"lazy\""
    }
    return done line
}
function name_code(line,   done, s, name, anchor) {
    done = ""
    while (match(line, /<code>[^<]*<\/code>/)) {
        s = substr(line, RSTART, RLENGTH)
        done = done substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        name = substr(s, 7, length(s) - 13)
        if (!sub(/\([^()]*\)$/, "", name) && name !~ /_/ && name !~ /^[A-Z].*[a-z]/) name = "" # an ordinary word
        if (name in at_file && !(name in twice) && line !~ /^<\/a>/)
            s = "<a class=\"name\" href=\"" up "code/" at_file[name] ".html#L" at_line[name] "\">" s "</a>"
        done = done s
    }
    return done line
}

part == "pages" {
    line = $0
    if (line ~ /^<!-- raw HTML omitted -->$/) next
    if (line ~ /^<pre>/) in_pre = 1
    if (!in_pre) {
        if (match(line, /^<h[1-6]>/)) {
            level = substr(line, 3, 1)
            text = substr(line, 5, length(line) - 9)
            id = slug_of(text)
            if (id in slug_seen) id = id "-" slug_seen[id]++
            else slug_seen[id] = 1
            if (level > 1) {
                end_section(); section_id = id; section_title = text
                if (level == 2) toc = toc "<li><a href=\"#" id "\">" plain_html(text) "</a></li>\n"
            }
            line = "<h" level " id=\"" id "\">" text " <a class=\"here\" href=\"#" id "\" aria-label=\"link to this section\">#</a></h" level ">"
        }
        gsub(/<table>/, "<div class=\"wide\"><table>", line); gsub(/<\/table>/, "</table></div>", line)
        sub(/^<p><img /, "<p class=\"picture\"><img ", line)
        line = name_code(relink(line))
        if (page == "index.html") line = titled(line)
    }
    section_text = section_text " " $0
    body = body line "\n"
    if ($0 ~ /<\/pre>/) in_pre = 0
    next
}
function plain_html(s) { gsub(/<\/?a[^>]*>/, "", s); return s }

# In the contents a chapter has its title in place of its file's name.
function titled(line,   p) {
    if (match(line, />[a-z0-9_]+\.md<\/a>/)) {
        p = substr(line, RSTART + 1, RLENGTH - 8) ".html"
        if (p in title) line = substr(line, 1, RSTART) plain_html(title[p]) substr(line, RSTART + RLENGTH - 4)
    }
    return line
}

function around(page,   i, s, before, after) {
    for (i = 1; i <= n_chapters; i++) if (page_of(chapter[i]) == page) break
    if (page == "index.html") { before = ""; after = page_of(chapter[1]) }
    else if (i > n_chapters) return ""
    else { before = i == 1 ? "index.html" : page_of(chapter[i - 1]); after = i < n_chapters ? page_of(chapter[i + 1]) : "" }
    s = "<nav class=\"around\">"
    if (before != "") s = s "<a rel=\"prev\" href=\"" before "\">&larr; " plain_html(title[before]) "</a>"
    if (after != "") s = s "<a rel=\"next\" href=\"" after "\">" plain_html(title[after]) " &rarr;</a>"
    return s "</nav>\n"
}

function finish(   path, nav, name) {
    if (writing == "page") {
        end_section()
        path = out "/" page
        if (page ~ /^code\//) body = body listing(folder_of(source))
        nav = around(page)
        printf "%s<div class=\"page\">\n", head(page, plain(title[page]) " - pretrain.c") >path
        if (toc != "" && page != "index.html")
            printf "<aside><nav><b>On this page</b><ul>\n%s</ul></nav></aside>\n", toc >path
        printf "<main>\n%s%s</main>\n</div>\n%s", body, nav, foot() >path
        close(path)
        made[page]
    } else if (writing == "code") {
        printf "</pre></main>\n%s", foot() >code_path
        close(code_path)
    }
    else if (writing == "try") { printf "</main></div>\n%s", foot() >code_path; close(code_path) }
    writing = ""
}

# ---- source files

function begin_code(path,   n, part_of, i, s, crumb, from) {
    if (path ~ /\/README\.md$/ || path == "README.md" || path == "CONTRIBUTING.md") { writing = ""; return }
    page = page_of(path); code_path = out "/" page; up = up_from(page); writing = "code"
    style = path ~ /\.(c|h|cu|cuh|cc|js)$/ ? "c" : path ~ /\.(sh|awk|py|toml)$|Makefile|\/ci\// ? "sh" : ""
    n = split(path, part_of, "/")
    crumb = "<a href=\"" up "code/index.html\">code</a>"; s = ""
    for (i = 1; i < n; i++) { s = s (i > 1 ? "/" : "") part_of[i]; crumb = crumb "/<a href=\"" up "code/" s "/index.html\">" part_of[i] "</a>" }
    printf "%s<main class=\"code\">\n<h1>%s/%s</h1>\n", head(page, path " - pretrain.c"), crumb, part_of[n] >code_path
    if (path in cites) {
        printf "<p class=\"muted\">Chapters:" >code_path
        n = split(cites[path], from, " ")
        for (i = 1; i <= n; i++) printf "%s <a href=\"%s\">%s</a>", (i > 1 ? "," : ""), up from[i], plain_html(title[from[i]]) >code_path
        print "</p>" >code_path
    }
    print "<pre>" >code_path
    opening = ""
}
part == "code" {
    if (writing != "code") next
    line = escape($0)
    if (style == "c" && match(line, /^[ \t]*\/\/.*|[ \t]\/\/ .*|^ *\/?\*.*/) || style == "sh" && match(line, /^[ \t]*#.*/))
        line = substr(line, 1, RSTART - 1) "<i>" substr(line, RSTART, RLENGTH) "</i>" substr(line, RSTART + RLENGTH)
    printf "<a id=\"L%d\" href=\"#L%d\"></a>%s\n", FNR, FNR, line >code_path
    if (FNR < 4 && !(FILENAME in about) && match($0, /^(\/\/|#) *[A-Za-z0-9_.\/-]+( \[[^]]*\])*: /)) {
        about[FILENAME] = substr($0, RLENGTH + 1)
    }
    next
}

# ---- the end

function listing(path,   i, s, name, n) {
    s = ""
    for (i = 1; i <= n_folders; i++)
        if (folder_of(folder_order[i]) == path) {
            name = folder_order[i]; sub(/.*\//, "", name)
            s = s "<li><a href=\"" up page_of(folder_order[i]) "\">" name "/</a></li>\n"
        }
    for (i = 1; i <= n_files; i++)
        if (folder_of(file_order[i]) == path && file_order[i] !~ /\.md$/) {
            name = file_order[i]; sub(/.*\//, "", name)
            s = s "<li><a href=\"" up page_of(file_order[i]) "\">" name "</a></li>\n"
        }
    return "<h2 id=\"files\">Files</h2>\n<ul class=\"files\">\n" s "</ul>\n"
}

function folders(   i, p) {
    for (i = 0; i <= n_folders; i++) {
        p = i ? folder_order[i] : ""
        page = "code/" (p == "" ? "" : p "/") "index.html"
        if (page in made) continue
        up = up_from(page)
        printf "%s<div class=\"page\"><main>\n<h1>%s</h1>\n%s</main></div>\n%s", head(page, (p == "" ? "code" : p) " - pretrain.c"),
            p == "" ? "The code" : p, listing(p), foot() >(out "/" page)
        close(out "/" page)
    }
}

# The page, and perhaps the section, that explains a term.
function term_link(i,   s) {
    s = term_chapter[i]; sub(/.*\]\(/, "", s); sub(/\).*/, "", s); sub(/\.md/, ".html", s)
    return s
}

function concepts(   i, j, n, s, id, list, path, c, letter, k, rank) {
    path = out "/concepts.html"
    for (i = 1; i <= n_terms; i++) rank[i] = i
    for (i = 2; i <= n_terms; i++) # in the order of the alphabet
        for (j = i; j > 1 && tolower(term[rank[j]]) < tolower(term[rank[j - 1]]); j--) { k = rank[j]; rank[j] = rank[j - 1]; rank[j - 1] = k }
    printf "%s<div class=\"page\"><main>\n<h1>Index of concepts</h1>\n<p>%d terms. The first link is the chapter that explains a term; " \
        "the others are the places that use it.</p>\n<dl class=\"terms\">\n", head("concepts.html", "Index - pretrain.c"), n_terms >path
    for (k = 1; k <= n_terms; k++) {
        i = rank[k]
        s = term_link(i); c = s; sub(/#.*/, "", c)
        printf "<dt id=\"term-%s\">%s</dt><dd>%s<br><a href=\"%s\"><b>%s</b></a>", slug_of(term[i]), escape(term[i]), inline(meaning[i]), s,
            plain_html(title[c]) >path
        n = split(uses_of[i], list, " ")
        for (j = 1; j <= n; j++)
            if (section_of[list[j]] != c)
                printf " &middot; <a href=\"%s\">%s</a>", section[list[j]], plain_html(title[section_of[list[j]]]) >path
        print "</dd>" >path
    }
    printf "</dl>\n</main></div>\n%s", foot() >path
}
function inline(s,   n, p, i, r) { # `code` of Markdown
    n = split(escape(s), p, "`"); r = p[1]
    for (i = 2; i <= n; i++) r = r (i % 2 ? "</code>" : "<code>") p[i]
    return r
}

function search_index(   path, i, w, sep, s, c) {
    path = out "/search_index.js"
    print "// Sections, and for each word the sections that have it: differences of numbers, in base 36." >path
    printf "book_index = {sections: [" >path
    for (i = 1; i <= n_sections; i++)
        printf "%s\n[%s,%s,%s]", (i > 1 ? "," : ""), quoted(section[i]), quoted(plain(title[section_of[i]])), quoted(section_name[i]) >path
    printf "],\nterms: [" >path
    for (i = 1; i <= n_terms; i++) {
        s = term_link(i); c = s; sub(/#.*/, "", c)
        printf "%s\n[%s,%s,%s]", (i > 1 ? "," : ""), quoted(term[i]), quoted(s), quoted(plain(title[c])) >path
    }
    printf "],\nfiles: [" >path
    for (i = 1; i <= n_files; i++)
        if (file_order[i] !~ /\.md$/)
            printf "%s\n[%s,%s]", sep++ ? "," : "", quoted(file_order[i]), quoted(substr(about[file_order[i]], 1, 90)) >path
    printf "],\nwords: {" >path
    sep = 0
    for (w in sections_with) printf "%s\n\"%s\":\"%s\"", sep++ ? "," : "", w, sections_with[w] >path
    print "}};" >path
}

BEGIN { n = split("a an and are as at be by for from has have if in is it its not of on or that the their they this to was which with", w0, " ")
    for (i = 1; i <= n; i++) stop[w0[i]] }
END { finish(); folders(); concepts(); search_index() }
