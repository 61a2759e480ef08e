#!/bin/bash
# dev/cuda_on_cpu/mutate.sh: makes small mistakes in the CUDA files of src/, one at a time, and sees the kernels' tests
# notice.
#
# Which mistakes: mutants.awk. For each the file's test program is built and run, plain (in order, then in reverse) and,
# while nothing is noticed, under the checker and under the sanitizers. A mistake that nobody notices must stand in
# mutants.txt with the reason why it changes nothing.
#
# usage: mutate.sh [FILE...]     src/ops/norm.cu ...; none: all
#        SKIP_LISTED=1: what stands in mutants.txt is not tried
#        mutate.sh --check       only: does each line of mutants.txt still name a mistake that mutants.awk makes?
#
# The last line is "N caught, N equivalent, N survived, N noticed though listed". The exit status is 0 only when the
# last two are 0. ONLY, an extended regular expression, picks mistakes by what they are: ONLY='sync|cp_async' takes out
# barriers and waits. JOBS mistakes are tried side by side, one a core unless set.
set -u
cd "$(dirname "$0")/../.." || exit 1
here=dev/cuda_on_cpu
. $here/twins.sh || exit 1
known=$here/mutants.txt

# Test programs, the files that each tests, and what they are linked with. A file that stands with two is tried with both,
# in this order.
programs=(unit attention_kernels table)
device=$(echo src/ops/*.cu | tr " " "\n") # of comm_*.cu the mutations are in test/mutations
declare -A files=(
    [unit]=src/base/gpu.h
    [attention_kernels]="src/ops/attention.cu src/ops/flash.cu"
    [table]="$(echo $device)"
)
programs_of() { # FILE
    local program found=1
    for program in "${programs[@]}"; do
        case " ${files[$program]} " in *" $1 "*) echo "$program"; found=0 ;; esac
    done
    [ $found = 0 ] || echo "error: mutate.sh: $1: no test program is known (the table is in mutate.sh)" >&2
    return $found
}
sources_of() { # PROGRAM: what is compiled
    echo "$here/tests/$1.cu $(kernels_of "$1" | tr '\n' ' ')"
}
mistakes() { # FILE
    # Of gpu.h: the functions that kernels are made of, which stand behind the wrappers.
    local lines=.
    [ "$1" != src/base/gpu.h ] || lines='syncthreads|lane < warps'
    awk -v pick=0 -f $here/mutants.awk "$1" | grep -E "$lines"
}
listed() { # FILE WHAT SOURCE: is it in mutants.txt (FILE | WHAT | SOURCE | reason)?
    awk -v key="$1 | $2 | $3 | " 'index($0, key) == 1 { found = 1 } END { exit !found }' $known
}

if [ "${1:-}" = --check ]; then
    stale=0
    while IFS= read -r line; do
        file=${line%% | *}
        mistakes "$file" | awk -F '|' -v file="$file" -v line="$line" '
            {
                rest = $0
                sub(/^[0-9]+\|[0-9]+\|/, "", rest)
                at = index(rest, "|")
                if (index(line, file " | " substr(rest, 1, at - 1) " | " substr(rest, at + 1) " | ") == 1) found = 1
            }
            END { exit !found }' && continue
        echo "$known: no mutant is: $line"
        stale=1
    done < <(grep -v -e '^#' -e '^$' $known)
    exit $stale
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/mutants.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
unset "${!EMU_@}"
ulimit -c 0
library=${BUILD:-build}/cuda_on_cpu/cpu/libpretrain.a # kept from one run to the next
export BUILD=$work/build EMU_MEMORY=512 EMU_TIMEOUT=60 OMP_NUM_THREADS=1
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
[ $# != 0 ] || set -- $device src/base/gpu.h

passes() { # PROGRAM [SETTING...]
    env "${@:2}" timeout 300 "$1" >"$1.log" 2>&1 && ! grep -q -e '^not ok' -e cuda_on_cpu: "$1.log"
}
first_word() { # PROGRAM: of its log
    grep -m1 -oE '^error: .*|cuda_on_cpu: [a-z-]+|^not ok .*|runtime error.*|AddressSanitizer: [a-z-]*' "$1.log"
}
run() { # MODE PREFIX PROGRAM: prints what noticed
    case $1 in
    plain)
        passes "$2" || { echo "$3, plain: $(first_word "$2")"; return 0; }
        passes "$2" EMU_ORDER=reverse || { echo "$3, reverse: $(first_word "$2")"; return 0; } ;;
    *) passes "$2" || { echo "$3, $1: $(first_word "$2")"; return 0; } ;;
    esac
    return 1
}

# The programs without a mistake: they must pass, and their objects are the mutants' other objects.
compile_twins "$work" attention_kernels || exit 1
# The whole table is compared with the whole device of the CPU.
link() { # PROGRAM: its twins' objects
    if [ "$1" = table ]; then echo "$library -- -fopenmp -lm"; else twin_objects "$work" "$1"; fi
}
declare -A used=()
for file; do
    list=$(programs_of "$file") || exit 1
    for program in $list; do used[$program]=1; done
done
[ -z "${used[table]:-}" ] || make -s B="${library%/*}" EXTRA_CFLAGS= "$library" >/dev/null || exit 1
for program in "${!used[@]}"; do
    for mode in plain checker asan; do
        # shellcheck disable=SC2046
        $here/build.sh $mode "$work/$program-$mode" $(sources_of "$program") $(link "$program") || exit 1
        if noticed=$(run $mode "$work/$program-$mode" "$program"); then
            echo "error: mutate.sh: without a mistake: $noticed" >&2
            exit 1
        fi
    done
done

try() { # FILE NUMBER LINE WHAT SOURCE: one line to $work/verdict.FILE.NUMBER
    local file=$1 program mode other objects noticed tree
    tree=$work/$(basename "$file").$2
    mkdir -p "$tree/dev"
    cp -rs "$PWD/src" "$tree/src" && cp -rs "$PWD/$here" "$tree/dev/" && rm "$tree/$file" || exit 1
    awk -v pick="$2" -f $here/mutants.awk "$file" >"$tree/$file"
    noticed=
    for program in $(programs_of "$file"); do for mode in plain checker asan; do
        objects=()
        for other in $(sources_of "$program"); do
            if [ "$file" = src/base/gpu.h ] || [ "$file" = "$other" ]; then objects+=("$tree/$other")
            else objects+=("$work/$program-$mode.$(basename "$other").o")
            fi
        done
        # shellcheck disable=SC2046
        if ! "$tree/$here/build.sh" $mode "$tree/$mode" "${objects[@]}" $(link "$program") >"$tree/log" 2>&1; then
            noticed='the compiler'
            break 2
        fi
        noticed=$(run $mode "$tree/$mode" "$program") && break 2
    done; done
    if [ -n "$noticed" ]; then
        if listed "$file" "$4" "$5"; then echo "NOTICED though listed: $file:$3: $4: $noticed"
        else echo "caught $file:$3: $4: $noticed"
        fi
    elif listed "$file" "$4" "$5"; then echo "equivalent $file:$3: $4"
    else echo "SURVIVED $file:$3: $4: $5"
    fi >"$work/verdict.$(basename "$file").$(printf %04d "$2")"
    rm -rf "$tree"
}
for file; do
    while IFS='|' read -r number line what source; do
        [ -n "${SKIP_LISTED:-}" ] && listed "$file" "$what" "$source" && continue
        try "$file" "$number" "$line" "$what" "$source" &
        [ "$(jobs -rp | wc -l)" -lt "$jobs" ] || wait -n
    done < <(mistakes "$file" | awk -F '|' -v only="${ONLY:-.}" '$3 ~ only')
done
wait
cat "$work"/verdict.*
count() { grep -c "^$1" <(cat "$work"/verdict.*); }
survived=$(count SURVIVED) noticed=$(count NOTICED)
echo "$(count caught) caught, $(count equivalent) equivalent, $survived survived, $noticed noticed though listed"
[ "$survived$noticed" = 00 ]
