# scripts/rooms.awk: the table of a room's README.md. Inputs after part=NAME: files (room, path), sources (path, lines of
# code, what it is), includes (path, path); room is the one to print. Needs scripts/order.awk.
#
# A component is all files of one name: NAME.h, NAME.c, NAME.cu. Its row links to the header, where there is one, and says
# what that says.
function component(path) { sub(/.*\//, "", path); sub(/[.][a-z]+$/, "", path); return path }
function kind(path) { sub(/.*[.]/, "", path); return path }
part == "files" && $1 == room {
    here[$2]
    name = component($2)
    if (!(name in first)) names[++n] = name
    if (!(name in first) || kind($2) == "h") first[name] = $2
    weight[name] = 0
}
part == "sources" && $1 in here { about[$1] = $3 }
part == "includes" && $1 in here && $2 in here && component($1) != component($2) { needs[component($1), component($2)]++ }

END {
    sort_by_needs(names, n, needs, weight, sorted)
    print "| component | what it is |"
    print "|---|---|"
    for (i = 1; i <= n; i++) {
        name = sorted[i]
        what = about[first[name]]
        gsub(/\|/, "\\|", what)
        file = first[name]
        sub(/.*\//, "", file)
        printf "| [%s](%s) | %s |\n", name, file, what
    }
    printf "\n%d component%s.\n", n, n == 1 ? "" : "s"
}
