# scripts/sources.awk: awk -f scripts/sources.awk FILE...   one line a file, fields between tabs: path, lines of code
# (neither blank nor comment), and what the file is, from its opening line "// name: what it is."
function finish() {
    if (file == "") return
    sub(/^\/\/ */, "", opening)
    sub(/^[A-Za-z0-9_.\/]+: */, "", opening)
    sub(/ *Layer [0-9][. ].*/, "", opening)
    sub(/ *Layer [0-9]$/, "", opening)
    sub(/ See [a-z_\/]+\.h.*/, "", opening)
    if (match(opening, /\.( |$)/)) opening = substr(opening, 1, RSTART - 1)
    gsub(/\t/, " ", opening)
    printf "%s\t%d\t%s\n", file, code, opening
}
FNR == 1 { finish(); file = FILENAME; code = inside = 0; opening = ""; opens = 1 }
FNR <= 4 && opens {
    if ($0 !~ /^\/\/ /) opens = 0
    else { text = $0; if (FNR > 1) sub(/^\/\//, "", text); opening = opening text }
}
/^[[:space:]]*$/ || /^[[:space:]]*\/\// { next }
/^[[:space:]]*\/\*/ { inside = 1 }
inside { if (/\*\//) inside = 0; next }
{ code++ }
END { finish() }
