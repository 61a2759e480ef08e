#!/bin/bash
# scripts/blank.sh FILE FUNCTION: takes the body out of a function, for someone to write it (doc/course.md).
#
# The function then ends the program with a message. Unused parameters and helpers are no longer errors in
# FILE. git checkout FILE brings the body back.
set -u
[ $# = 2 ] && [ -f "$1" ] || { echo 'usage: scripts/blank.sh FILE FUNCTION' >&2; exit 2; }
new=$(mktemp) || exit 1
trap 'rm -f "$new"' EXIT
awk -v name="$2" '
    NR == 1 {
        for (i = split("parameter function variable const-variable", kind, " "); i > 0; i--)
            print "#pragma GCC diagnostic ignored \"-Wunused-" kind[i] "\""
        print "#include \"base/check.h\""
    }
    inside { if (/^}/) { inside = 0; print } next }
    /^[A-Za-z].*\(/ { word = $0; sub(/\(.*/, "", word); sub(/.*[ *]/, "", word) }
    { print }
    /^{/ && word == name { print "    die(\"" name ": not written yet\");"; inside = found = 1 }
    END { exit !found }' "$1" >"$new" || { echo "error: $1 defines no function $2" >&2; exit 1; }
cat "$new" >"$1"
