# scripts/house.awk: the picture of scripts/house.sh. Inputs after part=NAME: files (room, path), includes (path, path).
# Needs scripts/order.awk.
part == "files" {
    room[$2] = $1
    if (!($1 in files)) names[++rooms] = $1
    files[$1]++
}
part == "includes" && room[$1] != room[$2] { needs[room[$1], room[$2]] = 1 }

function group(name) { return name == "programs" ? "programs" : name ~ /^data\// ? "data" : name ~ /^dev\// ? "dev" : "src" }
function plural(n, word) { return n " " word (n == 1 ? "" : "s") }
function text(x, y, anchor, size, color, weight, words) {
    gsub(/&/, "\\&amp;", words); gsub(/</, "\\&lt;", words)
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\"%s>%s</text>\n", x, y, anchor, size, color,
        weight ? " font-weight=\"600\"" : "", words
}

# What a room includes, in lines of the box's width: "includes: ops, base".
function describe(name,   i, list, item, line) {
    said[name] = 0
    line = ""
    for (i = rooms; i >= 1; i--) {
        if (!needs[name, sorted[i]]) continue
        item = sorted[i]
        if (length(line) + length(item) > 58) { words[name, ++said[name]] = line ","; line = "" }
        line = line (line == "" ? (said[name] ? "" : "includes: ") : ", ") item
    }
    words[name, ++said[name]] = line == "" ? "includes no other room" : line
}

# The y of the next free port on a side of a room: ports stand in order, so that arrows do not begin or end in one point.
function port(name, side) { return top[name] + height[name] * ++taken[name, side] / (ports[name, side] + 1) }

function side_of(from, to) { return group(from) == "src" ? "right" : "left" }

function arrow(from, to,   side, x, y1, y2, reach, direction, color) {
    side = side_of(from, to)
    direction = side == "right" ? 1 : -1
    x = side == "right" ? box_x + box_w : box_x
    y1 = begins[from, to]
    y2 = ends[from, to]
    reach = 30 + (margin / 0.75 - 46) * (y2 > y1 ? y2 - y1 : y1 - y2) / bottom # a curve gets 3/4 of its reach away from the wall
    color = place[to] > place[from] ? "#c0392b" : shade[group(from)]
    printf "<path d=\"M %.1f %.1f C %.1f %.1f %.1f %.1f %.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-opacity=\"0.6\" stroke-width=\"1.6\">",
        x, y1, x + direction * reach, y1, x + direction * reach, y2, x + direction * 9, y2, color
    printf "<title>%s includes %s</title></path>\n", from, to
    printf "<polygon points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\" fill=\"%s\"/>\n", x, y2, x + direction * 10, y2 - 4.5,
        x + direction * 10, y2 + 4.5, color
}

# Each room's ports in the order of the other ends, so that arrows of one room do not cross at its wall.
function place_ports(   i, j, a, b) {
    for (i = 1; i <= rooms; i++) for (j = 1; j <= rooms; j++) if (needs[sorted[i], sorted[j]]) {
        ports[sorted[i], side_of(sorted[i], sorted[j])]++
        ports[sorted[j], side_of(sorted[i], sorted[j])]++
    }
    for (i = rooms; i >= 1; i--) { # rooms from above; arrows that come from above first, the far ones outside
        a = sorted[i]
        for (j = i + 1; j <= rooms; j++) { b = sorted[j]; if (needs[b, a]) ends[b, a] = port(a, side_of(b, a)); if (needs[a, b]) begins[a, b] = port(a, side_of(a, b)) }
        for (j = 1; j < i; j++) { b = sorted[j]; if (needs[a, b]) begins[a, b] = port(a, side_of(a, b)); if (needs[b, a]) ends[b, a] = port(a, side_of(b, a)) }
    }
}

END {
    shade["src"] = "#2b6cb0"; shade["data"] = "#2f855a"; shade["dev"] = "#b7791f"; shade["programs"] = "#4a5568"
    fill["src"] = "#ebf4fb"; fill["data"] = "#eaf6ef"; fill["dev"] = "#fdf5e3"; fill["programs"] = "#f1f3f5"
    # Where nothing decides: src below data, data below dev, programs on top.
    for (i = 1; i <= rooms; i++)
        weight[names[i]] = group(names[i]) == "src" ? 3 : group(names[i]) == "data" ? 2 : group(names[i]) == "dev" ? 1 : 0
    sort_by_needs(names, rooms, needs, weight, sorted)
    box_w = 420; margin = 200; box_x = margin; y = 84
    for (i = rooms; i >= 1; i--) {
        describe(sorted[i])
        place[sorted[i]] = i
        top[sorted[i]] = y
        height[sorted[i]] = 36 + 17 * said[sorted[i]]
        y += height[sorted[i]] + 18
    }
    bottom = y
    width = box_w + 2 * margin
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n", width, y + 8, width, y + 8
    print "<title>the rooms of the tree, and which includes which</title>"
    printf "<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#ffffff\" stroke=\"#d7dce1\"/>\n", width - 1, y + 7
    text(24, 32, "start", 15, "#1f2933", 1, "The rooms of the tree")
    text(24, 54, "start", 12, "#52606d", 0, "A room stands above the rooms that it includes.")
    for (i = 1; i <= rooms; i++) for (j = i + 1; j <= rooms; j++) up += needs[sorted[i], sorted[j]]
    if (up) text(24, 71, "start", 12, "#c0392b", 0, plural(up, "include") " of a room above: red.")
    place_ports()
    for (i = 1; i <= rooms; i++) for (j = 1; j <= rooms; j++) if (needs[sorted[i], sorted[j]]) arrow(sorted[i], sorted[j])
    for (i = rooms; i >= 1; i--) {
        name = sorted[i]
        printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\" stroke=\"%s\"/>\n", box_x, top[name], box_w,
            height[name], fill[group(name)], shade[group(name)]
        text(box_x + 14, top[name] + 22, "start", 14, "#1f2933", 1, group(name) == "src" && name != "src" ? "src/" name : name)
        text(box_x + box_w - 14, top[name] + 22, "end", 12, "#52606d", 0, plural(files[name], "file"))
        for (k = 1; k <= said[name]; k++) text(box_x + 14, top[name] + 24 + 17 * k, "start", 12, "#52606d", 0, words[name, k])
    }
    print "</svg>"
}
