#!/bin/bash
# circle: docs
# test/test_guide_map.sh: what doc/guide_map.txt says of the tree holds.
#
#     test/test_guide_map.sh                    the tests
#     test/test_guide_map.sh --against FILE     whether it has every heading of FILE, an index of the guides of your own:
#                                               lines that begin with an ID (G1-07) and a tab; other lines are passed over.
#                                               An index of numbers (id, heading_id, kind, thing, verdict): whether each row
#                                               is computed, or answered under its heading, and called wrong if it is, and
#                                               whether each configuration and piece of code has a command beside it
#
# Files and chapters exist, functions are defined in the files named, sections are there. A command that needs nothing is
# run: it must end with status 0 and print what its row says. Of any other command the program, the settings (build/plan
# takes those of build/train) and the options must be accepted.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/guide_map.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
table=doc/guide_map.txt failed=0

of_table() { awk -f scripts/guide_map.awk -v mode="$1" "$2"; } # MODE FILE

# Compares with an index of the guides' numbers: fields ID, heading, kind, thing, verdict. A number, formula or table must
# be a row of build/plan guides; anything else must stand under a heading that is answered here, and if it is wrong, there
# or in the chapter of errors. A configuration or code needs a command too, one with its letter under `rows`. Rows of ours
# that begin with P are of papers.
against_numbers() { # FILE
    "$BUILD/plan" guides | awk -F ' *[|] *' 'NR > 2 { print $2 }' | sort >"$work/rows"
    grep -oE '^\| G[0-9]-[A-Za-z0-9.]+-[a-z] ' doc/guide_numbers.md | tr -d '| ' | sort -u >"$work/told"
    of_table claims $table | awk -F '\t' '$1 == "run" || $1 == "read" { print $2 }' | sort -u >"$work/answered"
    of_table claims $table | awk -F '\t' '$1 == "rows" { print $2 }' | sort -u >"$work/beside"
    awk -F '\t' -v OFS='\t' -v work="$work" '
        function read_all(name, into,   line) { while ((getline line <(work "/" name)) > 0) into[line] = 1 }
        BEGIN { read_all("rows", rows); read_all("told", told); read_all("answered", answered); read_all("beside", beside) }
        FNR == 1 { next }
        {
            n++
            listed[$1] = 1
            if ($3 ~ /^(number|formula|table)$/ && !($1 in rows)) print "not a row of plan guides: " $1
            else if (!($1 in rows) && !($2 in answered)) print "its heading is not answered: " $1
            else if ($3 ~ /^(config|code)$/ && !($1 in beside)) print "no command beside it: " $1
            else if ($5 ~ /^wrong/ && !($1 in rows) && !($1 in told)) print "wrong, and not said so: " $1
            else good++
        }
        END {
            for (id in rows) if (id !~ /^P-/ && !(id in listed)) { print "not in the index: " id; n++ }
            if (good == n) print "all " n " rows are answered"
            exit good != n
        }' "$1"
}

if [ "${1:-}" = --against ]; then
    [ $# = 2 ] && [ -f "$2" ] || { echo 'usage: test/test_guide_map.sh --against FILE'; exit 2; }
    if head -n 1 "$2" | grep -q '^id.heading_id.kind'; then against_numbers "$2"; exit; fi
    of_table ids $table | sort >"$work/ours"
    cut -f 1 "$2" | grep -E '^G[0-9]+-' | sort >"$work/theirs"
    [ -s "$work/theirs" ] || { echo "error: $2: no line begins with an ID such as G1-07"; exit 2; }
    comm -13 "$work/ours" "$work/theirs" | sed 's/^/missing here: /'
    comm -23 "$work/ours" "$work/theirs" | sed 's/^/not in the index: /'
    cmp -s "$work/ours" "$work/theirs" || exit 1
    echo "all $(wc -l <"$work/ours") headings are here"
    exit 0
fi

# "FILE NAME" for each function or macro that FILE defines: a name before "(" on a line that begins at the margin and
# does not end in ";".
definitions() { # FILE...
    awk '/^[A-Za-z]/ && /\(/ && !/;[ \t]*$/ {
             name = $0
             sub(/\(.*/, "", name); sub(/.*[^A-Za-z0-9_]/, "", name)
             print FILENAME " " name
         }' "$@"
}

# The section names of a chapter, as links have them.
sections() { # FILE
    awk '/^```/ { fence = !fence } !fence && /^#+ / {
             sub(/^#+ /, ""); $0 = tolower($0); gsub(/[^a-z0-9 _-]/, ""); gsub(/ /, "-"); print
         }' "$1"
}

# Runs COMMAND as it stands, with the programs of $BUILD; once, however many rows have it.
answer_of() { # COMMAND: sets answer (a file) and status
    local key
    key=$(printf '%s' "$1" | cksum | tr ' ' _)
    answer=$work/run.$key
    if [ ! -f "$answer.status" ]; then
        timeout 60 bash -c "${1//build\//$BUILD/}" >"$work/answer" 2>&1 </dev/null
        echo $? >"$answer.status"
        tr -s ' ' <"$work/answer" >"$answer"
    fi
    status=$(cat "$answer.status")
}

# Says what is wrong with the words of a command that is not run.
words_wrong() { # COMMAND
    local words word program ranks=1 part why
    read -ra words <<<"${1%% && *}"
    if [ "${words[0]}" = mpiexec ]; then
        [ "${words[1]}" = -n ] || { echo 'mpiexec without -n'; return; }
        ranks=${words[2]}
        words=("${words[@]:3}")
    fi
    program=${words[0]}
    case $program in
    make)
        word=${words[1]}
        case $word in build/test/*) [ -f "test/${word##*/}.c" ] || echo "no test/${word##*/}.c"; return ;; esac
        grep -q "^$word:" Makefile || echo "no target $word" ;;
    build/train)
        why=$("$BUILD/plan" memory "${words[@]:1}" --model.vocab=4096 --ranks "$ranks" 2>&1 >/dev/null) || echo "$why" ;;
    build/*)
        [ -x "$BUILD/${program#build/}" ] || { echo "no $program"; return; }
        case $program in build/show | build/prepare) part=${words[1]} ;; *) part='' ;; esac # a part has options of its own
        "$BUILD/${program#build/}" ${part:+"$part"} --help >"$work/help" 2>&1
        for word in "${words[@]:1}"; do
            case $word in --*) grep -qe "$word" "$work/help" || echo "no option $word" ;; esac
        done ;;
    scripts/example.sh)
        [ "${words[1]}" != full ] || words=("${words[@]:1}")
        [ -f "scripts/examples/${words[1]}.toml" ] || echo "no example ${words[1]}" ;;
    *) [ -x "$program" ] || echo "no $program" ;;
    esac
}

# Prints "ID: WHY" for each claim of TABLE that does not hold.
complaints() { # TABLE
    local kind id a b c why answer status
    of_table claims "$1" | tr '\t' '\037' >"$work/claims"
    awk -F '\037' '$1 == "code" { print $3 }' "$work/claims" | sort -u | while read -r a; do
        [ -f "$a" ] && definitions "$a"
    done >"$work/defined"
    while IFS=$'\037' read -r kind id a b c; do
        why=
        case $kind in
        wrong) why=$a ;;
        code)
            if [ ! -f "$a" ]; then why="there is no file $a"
            elif [ -n "$b" ] && ! grep -qxF "$a $b" "$work/defined"; then why="$a does not define $b"
            fi ;;
        read)
            if [ ! -f "doc/$a.md" ]; then why="there is no chapter doc/$a.md"
            elif [ -n "$b" ] && ! sections "doc/$a.md" | grep -qxF -- "$b"; then why="doc/$a.md has no section $b"
            fi ;;
        run)
            if [ -n "$c" ]; then why=$(words_wrong "$a")
            else
                answer_of "$a"
                if [ "$status" != 0 ]; then why="$a ends with status $status: $(tail -n 1 "$answer")"
                elif [ -n "$b" ] && ! grep -qF -- "$b" "$answer"; then why="$a does not print: $b"
                fi
            fi ;;
        esac
        [ -z "$why" ] || printf '%s: %s\n' "$id" "$why"
    done <"$work/claims"
}

verdict() { # NAME: ok when $work/log, the list of complaints, is empty
    if [ ! -s "$work/log" ]; then echo "ok $1"; return; fi
    echo "not ok $1"
    sed 's/^/  /' "$work/log"
    failed=1
}

# ---- a small table: headings whose ID has "w" are wrong, each in one way
cat >"$work/small" <<'END'
guide G9 A guide
G9-1 Right
  here  clipping, and
        a line that goes on
  code  src/train/grads.c: grads_clip_factor; src/base/rng.c
  read  clip plan#operations
  run   build/plan formats
  says  65504
  guide 65504
  run   mpiexec -n 4 build/train tiny --parallel.tp=2 --parallel.pp=2
  needs data
  run   build/show loader
  rows  a c
  needs time
  run   make scaling SMALL=1
  needs time
G9-2 Right
  here  a label
  gone  nothing stands under it
END
# and one heading for each of these, which is wrong
n=0
while IFS= read -r rows; do
    printf 'G9-w%d A heading\n  here  x\n' $((++n)) >>"$work/small"
    tr ';' '\n' <<<"$rows" >>"$work/small"
done <<'END'
  code  train.c: grads_clip_factor;  read  clip
  code  src/train/gone.c;  read  clip
  read  gone
  read  clip#gone
  run   build/plan gone
  run   build/plan formats;  says  65505
  run   build/train tiny --optim.gone=1;  needs data
  run   mpiexec -n 3 build/train tiny --parallel.tp=2;  needs data
  run   build/show loader --gone;  needs time
  run   build/gone;  needs time
  run   make gone;  needs time
  gone  because;  run   build/plan formats
  run   scripts/example.sh gone;  needs time
  run   build/plan formats;  rows  a, b
  text  y;  read  clip
END
printf 'G9-w0 Without an answer\n  here  x\n' >>"$work/small"
complaints "$work/small" | sed 's/: .*//' >"$work/found"
of_table ids "$work/small" | grep w | sort >"$work/meant"
sort -u "$work/found" | diff "$work/meant" - >"$work/log"
verdict 'wrong rows of a small table are found, and only those'
of_table ids "$work/small" | sed 's/$/\ta heading/' >"$work/index"
(
    "$0" --against "$work/index"
    of_table ids $table >"$work/index"
    "$0" --against "$work/index" | grep -v "^all $(wc -l <"$work/index") headings are here$"
    sed -i 1d "$work/index"
    echo G1-99 >>"$work/index"
    "$0" --against "$work/index" && echo 'an index with other headings passes'
) 2>&1 | grep -v '^\(missing here\|not in the index\): G' >"$work/log"
verdict 'an index is compared'

# ---- an index of numbers: ours alone passes; then a number that no row computes, code under a heading that is not here,
# advice that is wrong and that no chapter tells of, and code without a command beside it
{
    printf 'id\theading_id\tkind\tthing\tverdict\n'
    "$BUILD/plan" guides | awk -F ' *[|] *' -v OFS='\t' 'NR > 2 && $2 !~ /^P/ {
        heading = $2; sub(/-[a-z]$/, "", heading); print $2, heading, "number", "x", "ok" }'
} >"$work/index"
{
    "$0" --against "$work/index" | grep -v '^all [1-9][0-9]* rows are answered$'
    printf 'G1-28-z\tG1-28\tnumber\tx\tok\nG1-42-z\tG1-42\tcode\tx\tok\nG1-28-y\tG1-28\tadvice\tx\twrong (y)\nG1-28-x\tG1-28\tcode\tx\tok\n' >>"$work/index"
    sed -i 2d "$work/index"
    "$0" --against "$work/index" && echo 'an index with other rows passes'
} >"$work/found" 2>&1
printf '%s\n' 'its heading is not answered: G1-42-z' 'not a row of plan guides: G1-28-z' 'not in the index: G0-1.1-a' \
    'no command beside it: G1-28-x' 'wrong, and not said so: G1-28-y' | sort | diff - <(sort "$work/found") >"$work/log"
verdict 'an index of numbers is compared'

# Headings of the computed rows are those of the map.
"$BUILD/plan" guides | awk -F ' *[|] *' 'NR > 2 && $2 !~ /^P/ { sub(/-[a-z]$/, "", $2); print $2 }' | sort -u >"$work/ours"
of_table ids $table | sort | comm -13 - "$work/ours" >"$work/log"
verdict 'each row of build/plan guides has its heading'

# ---- the tree's own
complaints $table >"$work/log"
verdict 'the rows of doc/guide_map.txt hold'
exit $failed
