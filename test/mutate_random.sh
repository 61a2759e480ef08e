#!/bin/bash
# test/mutate_random.sh: how many bugs would the tests notice? Changes operators and small constants of src and data,
# one at a time, at places chosen by chance, and runs the tests of that file. (`make mutate-random`, doc/mutate.md)
#
# mutate_random.awk says what a mutant is, and how a sample is drawn: one of the same SEED stays the same where the code
# does. mutants_tests.txt says which tests judge the mutants of a file. mutants_equivalent.txt lists those that change
# no result, with the reason; they are named and not counted.
#
# The library is built once, with AddressSanitizer and UBSan at -O1, in build/mutants. For each mutant only its file is
# compiled, and the tests are linked with it, which comes before the library's. Programs run in the order of their time,
# then scripts, until one fails; one that runs ten times as long as without a mutant (and 20 s at least) has failed. A
# test that fails without a mutant too is reported as BROKEN and judges nothing. Where the kernel lets us, a mutant runs
# in a mount and process namespace of its own, in which it can write to its own directory alone and signal only itself.
#
# usage: test/mutate_random.sh [ID...]     judge these; none: N by chance
#        test/mutate_random.sh --show ID   the line for mutants_equivalent.txt, and the change as a diff
#        test/mutate_random.sh --list      all mutants: id, file, line, change, the line's text
#        test/mutate_random.sh --check     the tables name what exists: "ok NAME" or "not ok NAME"
# N mutants (300), SEED (7), ROOM=TEXT: only of files whose path has TEXT; JOBS at a time (one a core);
# MUTANTS=DIRECTORY: instead of build/mutants. The exit status is 0 when 97 % of those that count are caught.
# shellcheck disable=SC2046,SC2086,SC2016 # lists of words are meant to be split; another shell expands '...'
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
unset MAKEFLAGS MAKELEVEL BUILD TEST_LONG
export LC_ALL=C OMP_WAIT_POLICY=passive
export LSAN_OPTIONS="suppressions=$PWD/test/lsan.supp:print_suppressions=0"
export ASAN_OPTIONS=max_allocation_size_mb=4096:hard_rss_limit_mb=6144
n=${N:-300} seed=${SEED:-7} room=${ROOM:-} jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
base=${MUTANTS:-build/mutants} goal=97
files=(src/*/*.c data/*/*.c data/*.c)
work=$(mktemp -d "${TMPDIR:-/tmp}/mutants.XXXXXX") || exit 1
trap 'jobs -p | xargs -r kill 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

stop() {
    echo "error: test/mutate_random.sh: $*" >&2
    exit 1
}
mutants() { awk -f test/mutate_random.awk -v seed="$seed" "${files[@]}" | sort -n; } # rank, id, file, line, from, to, text
tests_of() { sed -n "s|^$1: ||p" test/mutants_tests.txt; }                       # FILE
find_mutant() { # ID: its row
    mutants | awk -F '\t' -v id="$1" '$2 "" == id { print; found = 1 } END { exit !found }' ||
        stop "no mutant has the id $1"
}

check() {
    local failed=0 id rest file tests test wrong
    mutants | cut -f 2 | sort >"$work/ids"
    while read -r id rest; do
        wrong=''
        grep -qx "$id" "$work/ids" || wrong='no mutant has this id any more: was the line changed?'
        case $rest in [sd]*.c:*' -> '*': '*': '?*) ;; *) wrong="${wrong:-no reason is given}" ;; esac
        if [ -z "$wrong" ]; then echo "ok equivalent mutant $id"
        else
            printf 'not ok equivalent mutant %s\n  test/mutants_equivalent.txt: %s\n  %s\n' "$id" "$wrong" "$rest"
            failed=1
        fi
    done < <(grep -v '^#' test/mutants_equivalent.txt)
    wrong=$(sort "$work/ids" | uniq -d)
    for file in "${files[@]}"; do [ -n "$(tests_of "$file")" ] || wrong+=" $file:no_tests"; done
    while IFS=': ' read -r file tests; do
        [ -f "$file" ] || wrong+=" $file:no_such_file"
        for test in $tests; do [ -f "test/$test" ] || [ -f "test/$test.c" ] || wrong+=" $test:no_such_test"; done
    done < <(grep -v '^#' test/mutants_tests.txt)
    if [ -z "$wrong" ]; then echo 'ok the tests of mutants'
    else printf 'not ok the tests of mutants\n  test/mutants_tests.txt:%s\n' "$wrong"; failed=1
    fi
    return $failed
}

show() { # ID
    local file line from to text
    IFS=$'\t' read -r _ _ file line from to text < <(find_mutant "$1" | sed 's/\t\t/\t \t/g')
    [ -n "$file" ] || exit 1
    echo "$1 $file: $from -> $to: $text: REASON"
    awk -f test/mutate_random.awk -v apply="$1" "$file" | diff -u --label "$file" --label "$file, line $line" "$file" -
}

case ${1:-} in
--check) check; exit ;;
--list) mutants | cut -f 2-; exit ;;
--show) [ $# = 2 ] || stop '--show: which mutant?'; show "$2"; exit ;;
--*) stop "$1: no such option" ;;
esac

# ---- a place of its own, not below /tmp: a mutant gets another /tmp
mkdir -p "$base" && exec {lock}>"$base/lock" 3>&1
flock -w 15 $lock || stop "another run uses $base (MUTANTS=DIRECTORY takes another)"
rmdir "$work" && work=$(mktemp -d "$(realpath "$base")/run.XXXXXX") || exit 1

# ---- what is going to be judged, in the order of the ranks
mutants | awk -F '\t' -v room="$room" 'index($3, room)' | sed 's/\t\t/\t \t/g' >"$work/all" # read joins tabs
if [ $# != 0 ]; then
    for id; do grep -P "^\d+\t$id\t" "$work/all" || stop "no mutant has the id $id"; done >"$work/chosen" || exit 1
    mv "$work/chosen" "$work/all"
    n=$#
fi
[ -s "$work/all" ] || stop "no file has '$room' in its path"

# ---- the build without a mutant
make_it() { # with the flags of `make asan`
    make --no-print-directory B="$base" WERROR= "$@" \
        EXTRA_CFLAGS='-O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all'
}
# What a test runs: itself, and the programs that it or what it reads names.
parts_of() { # TEST
    case $1 in
    *.sh) cat "test/$1" $(grep -oE '[a-z_]+_common\.sh' "test/$1" | sort -u | sed 's|^|test/|') |
        grep -oE '\$\{?BUILD\}?"?/(test/)?[a-z_]+' | sed 's|.*BUILD}*"*/||' | sort -u
        grep -qE 'test/mpi_comm' "test/$1" && echo test/mpi_comm
        grep -qE 'BUILD/\$|in \*\.c|/\*\.c' "test/$1" && make_it -s print-programs ;;
    *) echo "test/$1" && sed -n 's/^\(#define PROGRAM \| *use(\)"\(.*\)".*/\2/p' "test/$1.c" ;;
    esac | sort -u
}
compile() { "${cc[@]}" "$@"; }
link() { # DIRECTORY PART [OBJECT]: the program DIRECTORY/PART, with a mutant's object; $program: it is that program
    local piece=$base/pieces/$2.o object=${3:-}
    [ -f "$piece" ] || return 0
    if [ -n "$object" ] && [ -n "${program:-}" ]; then
        [ "$2" != "$program" ] || piece=$object
        object=
    fi
    compile "$piece" ${object:+"$object"} "$base/libpretrain.a" "${libraries[@]}" -lcmocka -o "$1/$2" 2>"$1/log"
}
link_test() { # DIRECTORY TEST [OBJECT]
    local part
    mkdir -p "$1/test" && ln -sfn "$PWD/scripts" "${1%/*}/scripts" # a program finds its presets above itself
    # shellcheck disable=SC2013
    for part in $(cat "$work/parts/$2"); do [ -x "$1/$part" ] || link "$1" "$part" "${3:-}" || return 1; done
}

# In a namespace of its own where that is allowed; the directory alone can be written to.
apart=(setsid)
if [ "${PWD#/tmp/}" = "$PWD" ] &&
    unshare -mpf --kill-child --mount-proc bash -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro /' "$work" \
        2>/dev/null; then
    apart=(unshare -mpf --kill-child --mount-proc bash -c
        'mount --bind "$0" "$0" && mount --bind "$0/asan/tmp" /tmp && mount -o remount,bind,ro / &&
            mount -t tmpfs shm /dev/shm && TMPDIR=/tmp exec "$@"')
fi
# Runs one test up to its first failure: 0 when it passes; else 1, and $why.
passes() { # DIRECTORY TEST LIMIT
    local mark='^not ok \|^\[  FAILED  \] ' status pid run=$1/test/$2
    case $2 in *.sh) run=test/$2 ;; esac
    rm -rf "$1/tmp" && mkdir "$1/tmp"
    { BUILD=$1 TMPDIR=$1/tmp timeout -s KILL "$3" "${apart[@]}" $([ ${#apart[@]} = 1 ] || echo "${1%/*}") "$run" \
        >"$1/log" 2>&1 </dev/null {lock}>&- & } 2>/dev/null
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if grep -aq "$mark" "$1/log"; then kill -HUP $pid 2>/dev/null; break; fi
        sleep 0.1
    done
    { wait $pid; } 2>/dev/null
    status=$?
    why=$(grep -a -m 1 "$mark" "$1/log" | sed "s/$mark//")
    if [ -z "$why" ] && [ $status = 0 ]; then # a program that ends with status 0 before its last test has failed
        case $2 in *.sh) return 0 ;; esac
        grep -aq "^\[  PASSED  \]" "$1/log" && return 0
        why="ran no test to its end"
    fi
    [ -z "$why" ] && [ $status = 137 ] && why="stopped after $3 s"
    [ -z "$why" ] && why=$(grep -a -m 1 -oE 'runtime error: .*|ERROR: (Address|Leak)Sanitizer:? [a-z-]*' "$1/log" |
        cut -c 1-60)
    why=${why:-exit status $status}
    return 1
}

tests=$(head -n $((n + n / 10)) "$work/all" | cut -f 3 | sort -u | while read -r file; do tests_of "$file"; done |
    tr ' ' '\n' | sort -u)
mkdir "$work/parts" "$work/seconds"
for test in $tests; do parts_of "$test" >"$work/parts/$test"; done
pieces=$(cat "$work"/parts/* | sort -u | while read -r part; do
    if [ -f "$part.c" ] || [ -f "data/$part.c" ] || [ -f "dev/$part.c" ]; then echo "$base/pieces/$part.o"; fi
done)
make_it "$base/libpretrain.a" $pieces >"$work/log" 2>&1 || { tail -n 40 "$work/log"; stop 'the tree does not build'; }
read -ra cc < <(make_it -s print-compile)
read -ra libraries < <(make_it -s print-libraries)
ld=$(for l in lld gold; do command -v ld.$l >/dev/null && echo "-fuse-ld=$l" && break; done)
cc+=(${ld:+"$ld"})

# Once for each test: its time without a mutant, in $work/seconds. One that fails then cannot judge.
first() { # TEST
    local time=$work/seconds/$1 dir=$work/first.$1/asan began why=''
    (
        flock 9
        [ -s "$time" ] && exit
        mkdir -p "$dir"
        if link_test "$dir" "$1" && began=$EPOCHREALTIME && passes "$dir" "$1" 900; then
            awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f\n", b - a }' >"$time"
        else
            printf 'BROKEN     %s without a mutant: %s\n' "$1" "${why:-does not link}"
            sed 's/^/      | /' "$dir/log" | tail -n 20
            echo fails >"$time"
        fi
        rm -rf "$work/first.$1"
    ) 9>"$time.lock"
    ! grep -q fails "$time"
}
# Programs by their time, then scripts.
in_order() { # FILE
    local test
    for test in $(tests_of "$1"); do
        case $test in *.sh) ;; *) first "$test" >&3 && echo "$(cat "$work/seconds/$test") $test" ;; esac
    done | sort -n | cut -d ' ' -f 2
    tests_of "$1" | tr ' ' '\n' | grep '\.sh$'
}

# ---- each mutant
judge() { # ID FILE LINE FROM TO
    local dir=$work/$1/asan file=$2 test verdict=SURVIVED by='' began=$SECONDS why='' object limit program=''
    object=$work/$1/$(basename "$2" .c).o
    case $2 in */*/*) ;; *) program=$(basename "$2" .c) ;; esac
    mkdir -p "$dir"
    if ! awk -f test/mutate_random.awk -v apply="$1" "$file" >"${object%.o}.c" ||
        ! compile -iquote "$(dirname "$file")" -c "${object%.o}.c" -o "$object" 2>"$dir/log"; then
        verdict=unbuilt
    elif reason=$(grep "^$1 " test/mutants_equivalent.txt); then verdict=equivalent by=${reason##*: }
    else
        for test in $(in_order "$file"); do
            first "$test" || continue
            if ! link_test "$dir" "$test" "$object"; then
                verdict=unbuilt by="$test: $(head -n 1 "$dir/log")"
                break
            fi
            limit=$(awk '{ printf "%d", $1 < 2 ? 20 : 10 * $1 }' "$work/seconds/$test")
            passes "$dir" "$test" "$limit" && continue
            verdict=caught by="$test: $why"
            break
        done
    fi
    printf '%-10s %s %s:%d  %s -> %s  %d s  %s\n' $verdict "$1" "$file" "$3" "$4" "$5" $((SECONDS - began)) \
        "${by:-$(tests_of "$file")}"
    echo "$verdict" >"$work/$1.verdict"
    rm -rf "${work:?}/$1"
}
count() { find "$work" -maxdepth 1 -name '*.verdict' -exec cat {} + | grep -c "^$1"; }
# N that build, the first of the order.
asked=0
while IFS=$'\t' read -r _ id file line from to _; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ] ||
        { [ $((asked - $(count unbuilt))) -ge "$n" ] && [ -n "$(jobs -rp)" ]; }; do wait -n; done
    [ $((asked - $(count unbuilt))) -lt "$n" ] || break
    asked=$((asked + 1))
    judge "$id" "$file" "$line" "${from# }" "${to# }" &
done <"$work/all"
wait
caught=$(count caught) survived=$(count SURVIVED) broken=$(grep -l fails "$work"/seconds/* | wc -l)
echo
printf '%-12s %5d\n' caught "$caught" survived "$survived" equivalent "$(count equivalent)" \
    'not built' "$(count unbuilt)"
awk -v c="$caught" -v s="$survived" -v broken="$broken" -v goal=$goal 'BEGIN {
    if (c + s) printf "%-12s %5.1f %% of those that count (goal: %d)\n", "caught", 100 * c / (c + s), goal
    exit !(c + s && !broken && 100 * c >= goal * (c + s)) }'
