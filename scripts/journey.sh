#!/bin/bash
# scripts/journey.sh: the reading list of a command: files and functions that it ran, in the order of their first call.
#
#   make journey RUN='mpiexec -n 2 build/train tiny --parallel.zero=3'
#
# RUN        the command; it names its programs as build/NAME
# BASE       another command: first the files that RUN runs and BASE does not, then those in which RUN runs more lines
# FUNCTIONS  1: every function with its line, not only the first few
# MARKDOWN   1: a table with links, for a chapter in doc/
# KEEP       a folder to keep what was measured: counts (gcov's files), calls, lines
#
# The library and the programs are compiled once more, in $BUILD/journey (BUILD is build unless set), without
# optimisation, so that gcov counts lines of C as they are written, and with scripts/journey_hook.c, which notes each
# function's first call. The command runs in a temporary folder that looks like this one: build/ is $BUILD/journey, and
# runs/ is new and holds a small corpus of generated stories, so nothing in your runs/ is read or written. With several
# ranks, lines are counted over all ranks, and the order is rank 0's.
set -euo pipefail
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C
cc=${CC:-gcc} top=$PWD
case $cc in *gcc*) ;; *) cc=gcc ;; esac # gcov reads gcc's counts
fail() { printf 'error: journey: %s\n' "$*" >&2; exit 1; }
say() { printf 'journey: %s\n' "$*" >&2; }

[ -n "${RUN:-}" ] || fail "which command? make journey RUN='build/train tiny' (BASE='command' FUNCTIONS=1 MARKDOWN=1)"
programs=$(printf '%s %s\n' "$RUN" "${BASE:-}" |
    grep -oE '(^|[^A-Za-z0-9_./-])(\./)?build/[A-Za-z0-9_]+' | sed 's/.*build\///' | sort -u) || true
[ -n "$programs" ] || fail "the command names no program as build/NAME: $RUN"
gcov=${cc/gcc/gcov}
command -v "$gcov" >/dev/null || fail "$gcov is missing; it comes with gcc"
command -v nm >/dev/null || fail 'nm is missing; it comes with the binutils'
build=$(realpath -m "${BUILD:-build}")/journey
mkdir -p "$build"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/journey.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

# ---- programs that count
counting='--coverage -fprofile-update=prefer-atomic -finstrument-functions -falign-functions=16'
counting+=' -finstrument-functions-exclude-file-list=/usr/'
build_programs() {
    local hook=$build/journey_hook.o name targets=()
    if [ ! "$hook" -nt scripts/journey_hook.c ]; then
        find "$build" -maxdepth 1 -type f -perm /111 -delete # they hold the old one
        $cc -std=gnu11 -O2 -Wall -Wextra -Werror -c scripts/journey_hook.c -o "$hook"
    fi
    for name in stories prepare $programs; do targets+=("$build/$name"); done
    say "building $* in ${build#"$top"/}"
    # train_gpu_on_cpu gets its flags from EXTRA_LDFLAGS. A make that called a test must not count its jobs.
    # shellcheck disable=SC2086
    ${MAKE:-env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make} --no-print-directory B="${build#"$top"/}" CC="$cc" \
        CFLAGS='-O0 -g' WERROR= EXTRA_CFLAGS="$counting" EXTRA_LDFLAGS="$counting -Wl,--wrap=_exit,${hook#"$top"/}" "${targets[@]#"$top"/}" >"$tmp/make" 2>&1 || {
        tail -n 20 "$tmp/make" >&2
        fail "cannot build $programs"
    }
}

# A small corpus, where the presets look for one. It is made once.
make_data() {
    local data=$build/corpus # build/data has the objects of data/
    [ -f "$data/manifest.json" ] && [ "$data/manifest.json" -nt "$build/stories" ] && return
    rm -rf "$data"
    mkdir -p "$tmp/aside"
    GCOV_PREFIX=$tmp/aside "$build/stories" --bytes 400000 --primer 100000 --val-bytes 40000 --seed 1 --out "$data" \
        >"$tmp/data" 2>&1 &&
        GCOV_PREFIX=$tmp/aside "$build/prepare" tokens --train "$data/train.txt" --val-file "$data/val.txt" --vocab 1024 \
            --out "$data" >>"$tmp/data" 2>&1 || {
        cat "$tmp/data" >&2
        fail 'cannot make a small corpus'
    }
}

# ---- the run
# travel NAME COMMAND: leaves $tmp/NAME.calls (file, function, line; in order of first call) and $tmp/NAME.lines
# (file, line; each that was executed).
travel() {
    local place=$tmp/$1 entry status=0
    mkdir -p "$place/at/runs/stories" "$place/counts"
    for entry in *; do
        case $entry in build | runs) ;; *) ln -s "$top/$entry" "$place/at/$entry" ;; esac
    done
    ln -s "$build" "$place/at/build"
    cp -r "$build/corpus" "$place/at/runs/stories/data"
    say "running $2"
    (
        cd "$place/at" || exit 1
        export GCOV_PREFIX=$place/counts JOURNEY_CALLS=$place/calls
        export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
        bash -o pipefail -c "$2" >"$place/said" 2>&1 </dev/null
    ) || status=$?
    if [ $status != 0 ]; then
        tail -n 20 "$place/said" >&2
        fail "the command ended with status $status: $2"
    fi
    [ -f "$place/calls.0" ] || fail "no function was called by rank 0: $2"
    find_calls "$place" >"$tmp/$1.calls"
    find_lines "$place" >"$tmp/$1.lines"
    [ -s "$tmp/$1.lines" ] || fail "no counts were written: $2"
}

# Paths from the top of the tree, without "..": compilers write them as they were told.
# shellcheck disable=SC2016
clean='function clean(path,   n, part, i, out, k) {
    if (index(path, top "/") == 1) path = substr(path, length(top) + 2)
    if (path ~ /^\//) return ""
    n = split(path, part, "/"); k = 0
    for (i = 1; i <= n; i++) {
        if (part[i] == "." || part[i] == "") continue
        if (part[i] == ".." && k) { k--; continue }
        out[++k] = part[i]
    }
    path = ""
    for (i = 1; i <= k; i++) path = path (i > 1 ? "/" : "") out[i]
    return path ~ /^dev\/cuda_on_cpu\// ? "" : path # the emulator stands for CUDA, which is no file of this tree
}
function plain(name) { # without what C++ and the compiler add to a name
    gsub(/\(anonymous namespace\)::|\[[^][]*\]/, "", name)
    while (gsub(/<[^<>()]*>|\([^()<>]*\)/, "", name)) { }
    sub(/[(<].*/, "", name)
    sub(/\.(_omp_fn|constprop|part|isra|cold).*/, "", name)
    if (name ~ /(^| )emu::/) return "" # of the emulator
    sub(/.* /, "", name)
    return name
}'

# What runs before main (constructors) does not say where to begin reading: it comes last.
find_calls() { # PLACE
    local program
    find "$1" -maxdepth 1 -name 'calls.[1-9]*' >"$1/others"
    { sort -n -k 1,1 "$1/calls.0"; [ ! -s "$1/others" ] || xargs -d '\n' sort -n -k 1,1 <"$1/others"; } |
        awk '!(($2, $3) in known) { known[$2, $3]; print $2, $3 }' >"$1/addresses"
    # nm -l says where a function is written; addr2line mistakes the file of an inline function for its caller's.
    for program in $(cut -d ' ' -f 1 "$1/addresses" | sort -u); do
        nm -l -C "$program" | awk -v program="$program" '
            NR == FNR { if ($1 == program) called[$2]; next }
            $2 ~ /^[tTwWuV]$/ {
                at = $1; sub(/^0+/, "", at); at = "0x" (at == "" ? "0" : at)
                if (!(at in called)) next
                name = $0; sub(/^[^ ]* [^ ]* /, "", name); place = name
                if (!sub(/.*\t/, "", place)) next
                sub(/\t.*/, "", name)
                print program "\t" at "\t" name "\t" place
            }' "$1/addresses" -
    done >"$1/names"
    awk -F '\t' -v top="$top" "$clean"'
        NR == FNR { called[$1 " " $2] = $3; place[$1 " " $2] = $4; next }
        $0 in called {
            name = plain(called[$0])
            at = place[$0]
            file = clean(substr(at, 1, match(at, /:[0-9?]*$/) - 1))
            if (file == "" || name == "" || (file, name) in known) next
            known[file, name]
            row = file "\t" name "\t" substr(at, RSTART + 1)
            if (name == "main") begun = 1
            if (begun) print row
            else before[++early] = row
        }
        END { for (i = 1; i <= early; i++) print before[i] }' "$1/names" "$1/addresses"
}

find_lines() { # PLACE: gcov wants its .gcno beside the counts
    local counts origin
    find "$1/counts" -name '*.gcda' >"$1/gcda"
    while IFS= read -r counts; do
        origin=${counts#"$1/counts"}
        ln -s "${origin%.gcda}.gcno" "${counts%.gcda}.gcno"
    done <"$1/gcda"
    xargs -d '\n' "$gcov" -t <"$1/gcda" 2>"$1/gcov" | awk -v top="$top" "$clean"'
        /^ *-: *0:Source:/ { sub(/^[^S]*Source:/, ""); file = clean($0); next }
        file != "" && match($0, /^ *[0-9][0-9]*[*]?: *[0-9]+:/) {
            split($0, part, ":"); line = part[2] + 0
            if (part[1] + 0 > 0 && line && !((file, line) in known)) { known[file, line]; print file "\t" line }
        }'
}

# ---- what is said about it
# shellcheck disable=SC2086
build_programs $programs
make_data
[ -z "${BASE:-}" ] || travel base "$BASE"
travel run "$RUN"
touch "$tmp/base.calls" "$tmp/base.lines"
cut -f 1 "$tmp/run.calls" "$tmp/run.lines" | sort -u | xargs awk -f scripts/sources.awk >"$tmp/sources"
if [ -n "${KEEP:-}" ]; then mkdir -p "$KEEP" && cp -rP "$tmp/." "$KEEP"; fi
awk -F '\t' -v functions="${FUNCTIONS:-}" -v markdown="${MARKDOWN:-}" -v based="${BASE:-}" -v run="$RUN" \
    -f scripts/journey.awk part=sources "$tmp/sources" part=base "$tmp/base.calls" part=baselines "$tmp/base.lines" \
    part=calls "$tmp/run.calls" part=lines "$tmp/run.lines"
