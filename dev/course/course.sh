#!/bin/bash
# course: the assignments of this tree: hands them out, tests answers, grades them. (doc/course.md)
#
#   build/course list                    number, title, points, hours, and your points
#   build/course start N [DIR]           your own folder with assignment N; without DIR: course-work
#   build/course test N [DIR]            your answer against the visible tests
#   build/course hint N [DIR]            one hint more each time
#   build/course submit [N] [DIR]        what is to be handed in, as an archive with a manifest
# For staff:
#   build/course export --students DIR   all assignments, without an answer or a hidden test
#   build/course grade N FILE            a file, folder or archive against the visible and hidden tests
#   build/course marks DIR [N]           one submission an entry of DIR: a table as CSV
#   build/course similar DIR N           the submissions that resemble each other
#   build/course check [N]               the graders themselves: on empty, right and wrong answers
#   build/course gradescope N OUT.zip    an autograder for Gradescope
#   build/course autograde ZIP SUBMISSION ROOT [--setup]    runs it as Gradescope does, in the folder ROOT
#
# A folder that was handed out has a copy of this file, ./course, and needs gcc (g++ for CUDA), bash and awk. An answer is
# compiled with the address and undefined-behaviour sanitizers and runs as grade.c describes. Before that its assembly is
# looked at: nothing may run before main, no machine code may be written by hand, and only functions that compute,
# allocate and print may be called. Of its own functions the tests see only those of the empty stub: one that is called
# main, fail or sqrt changes nothing.
set -u -o pipefail
export LC_ALL=C # some of the compiler's messages are read
here=$(dirname "$(readlink -f "$0")")
case $here in */dev/course) root=$(cd "$here/../.." && pwd) tree=1 ;; *) root=$here tree='' ;; esac
build=${BUILD:-build} cc=${CC:-gcc} cxx=${CXX:-g++} me=$0
case $build in /*) ;; *) build=$root/$build ;; esac
work=$(mktemp -d "${TMPDIR:-/tmp}/course.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
sanitize='-fsanitize=address,undefined -fno-sanitize-recover=undefined'

stop() { echo "error: course: $*" >&2; exit 2; }
usage() { # of a folder that was handed out: the student's commands
    if [ -n "$tree" ]; then sed -n '2,/^# A folder/{/^# A folder/d;s/^# \{0,1\}//;p}' "$here/course.sh"
    else
        sed -n '2,/^# For staff/{/^# For staff/d;s/^# \{0,1\}//;p}' "$here/course" |
            sed 's| (doc/course.md)$||;s|build/course|./course|;s|; without DIR: course-work||'
    fi
}

# ---- an assignment: sets name, folder, files (to hand in), file (the first of them), kind, tests
find_assignment() { # N
    local number found
    [[ ${1:-} =~ ^0*([0-9]+)(_.*)?$ ]] || stop "which assignment? ($me list)"
    number=$(printf '%02d' "${BASH_REMATCH[1]}")
    found=("$here/${number}_"*/)
    [ -f "${found[0]}/handout.md" ] || stop "there is no assignment $1 here ($me list names them)"
    folder=${found[0]%/} name=$(basename "${found[0]}")
    mapfile -t files < <(handout 's/^Hand in: \(.*\) Hours:.*/\1/p' | grep -o '`[^`]*`' | tr -d '`')
    file=${files[0]:-}
    case $file in
    *.c) kind=c ;; *.cu) kind=cuda ;; *.txt) kind=written ;;
    *) stop "$name/handout.md: no line \"Hand in: \`x.c\`.\"" ;;
    esac
    [ ${#files[@]} = 1 ] || kind=debug # files of the tree, with a bug in each
    tests=$folder/tests.c
    [ $kind != cuda ] || tests=$folder/tests.cu
    set_c_flags
}
handout() { sed -n "$1" "$folder/handout.md" | head -n 1; }
# The tests that students see: without the line that hides the rest, which the tree's have once, and without the rest.
visible_tests() { # FOLDER: writes them there
    [ -z "$tree" ] || [ "$(grep -c '^#include "[.][.]/hidden.h"$' "$tests")" = 1 ] || stop "$name: ${tests##*/} has no line, or two, that begins the hidden tests"
    mkdir -p "$1" && sed '/^#include "[.][.]\/hidden.h"/,$d' "$tests" >"$1/${tests##*/}"
}
each_assignment() { # COMMAND...: with each number
    local path
    for path in "$here"/[0-9][0-9]_*/handout.md; do
        [ -f "$path" ] || stop "no assignment in $here"
        path=$(basename "$(dirname "$path")")
        "$@" "${path%%_*}"
    done
}
all_points() {
    if [ -f "$folder/given/points" ]; then cat "$folder/given/points"
    else sed -nE 's/^(GPU_)?(TEST|PROBLEM)\([A-Za-z0-9_]+, *([0-9.]+),.*/\3/p' "$tests" | awk '{ n += $1 } END { print n + 0 }'
    fi
}
# Of debug, bugs.txt says for each file which mutation of test/mutations it has: the reference is the tree's own file. Of a
# mutation in a header, it says in which .c file the header then stands in place of its #include.
source_of() { "$root/test/mutate.sh" --list "$(mutation_of "$1")" | cut -f 2; }
mutation_of() { awk -v file="$1" '$1 == file { print $2 }' "$folder/bugs.txt"; }
with_header() { # FILE SOURCE: the source, and what includes it
    local outer
    outer=$(awk -v file="$1" '$1 == file { print $3 }' "$folder/bugs.txt")
    if [ -z "$outer" ]; then cat "$2"
    else sed -e "\\|#include \"ops/${2##*/}\"|{ r $2" -e 'd; }' "$root/$outer"
    fi
}
reference() { # FILE
    if [ $kind = debug ]; then with_header "$1" "$root/$(source_of "$1")"; else cat "$folder/$1"; fi
}
stub() { # FILE: what a student begins with
    local at=$work/seeded/$1
    if [ -f "$folder/given/$1" ]; then cat "$folder/given/$1"
    elif [ $kind = debug ]; then
        mkdir -p "$(dirname "$at/$(source_of "$1")")" && cp "$root/$(source_of "$1")" "$at/$(source_of "$1")" &&
            "$root/test/mutate.sh" --apply "$(mutation_of "$1")" "$at" >&2 && with_header "$1" "$at/$(source_of "$1")"
    elif [ $kind = written ] && ! grep -q '//\[$' "$folder/$1"; then sed 's/=.*/=/' "$folder/$1"
    else awk '/\/\/\[$/ { s = 1; next } /\/\/\]$/ { s = 0; next } s && /\/\/\+ / { sub(/\/\/\+ /, ""); print; next } !s' "$folder/$1"
    fi
}
each_file() { # COMMAND FOLDER: writes what the command says of each file
    local f
    mkdir -p "$2" || return 1
    for f in "${files[@]}"; do "$1" "$f" >"$2/$f" || return 1; done
}

# ---- building
need_compiler() {
    [ $kind = cuda ] && { command -v "$cxx" >/dev/null || stop "no $cxx here: install g++ (Debian: apt-get install g++)"; }
    command -v "$cc" >/dev/null || stop "no $cc here: install gcc (Debian: apt-get install gcc libc6-dev)"
    command -v objcopy >/dev/null || stop 'no objcopy here: install binutils'
    echo 'int main(void) { return 0; }' >"$work/try.c"
    # shellcheck disable=SC2086
    $cc $sanitize "$work/try.c" -o "$work/try" 2>"$work/log" ||
        stop "$cc cannot build with $sanitize: $(head -n 1 "$work/log")"
}
set_c_flags() { # of the assignment: an array, for names of folders may have spaces
    local sanitizers
    read -ra sanitizers <<<"$sanitize"
    c_flags=(-std=gnu11 -g -O1 -fno-omit-frame-pointer "${sanitizers[@]}" -Wall -Wextra "-I$folder" "-I$here")
    [ $kind != debug ] || c_flags+=(-fopenmp "-I$root/src")
}
emulated() { # PROGRAM FILE... [-- FLAG...]
    local flags=(-- "-I$folder" "-I$work/include")
    [[ " $* " == *' -- '* ]] && flags=("${flags[@]:1}")
    # shellcheck disable=SC2046
    BUILD=${tree:+$build} BUILD=${BUILD:-$work} "$root/dev/cuda_on_cpu/build.sh" checker "$@" "${flags[@]}"
}
# The judge (grade.c): the tests, and the stub. The objects of the tests stay for the answers.
build_judge() { # [visible]
    local part
    need_compiler
    if [ "${1:-}" = visible ]; then visible_tests "$work/visible" && tests=$work/visible/${tests##*/}; fi
    mkdir -p "$work/include/dev" && ln -sfn "$here" "$work/include/dev/course"
    graders=("$work/grade.o")
    each_file stub "$work/stub" || stop "the stub of $name cannot be made"
    if [ $kind = cuda ]; then
        $cc -O1 -g -c "$here/grade.c" -o "$work/grade.o" || stop 'grade.c does not compile'
        emulated "$work/judge" "$work/grade.o" "$tests" "$work/stub/$file" || stop "the tests of $name do not build"
        graders+=("$work/judge.tests.cu.o")
        return
    fi
    $cc "${c_flags[@]}" -c "$here/grade.c" -o "$work/grade.o" || stop 'grade.c does not compile'
    $cc "${c_flags[@]}" ${strict:+-Werror} -c "$tests" -o "$work/tests.o" || stop "$name/tests.c does not compile"
    graders+=("$work/tests.o")
    [ $kind = written ] && objects=() || objects=("${files[@]/%/.o}")
    for part in ${objects[@]+"${files[@]}"}; do
        $cc "${c_flags[@]}" ${strict:+-Werror} -c "$work/stub/$part" -o "$work/stub/$part.o" || stop "the stub of $name does not compile"
    done
    if [ $kind != written ]; then
        nm -g --defined-only "${objects[@]/#/$work/stub/}" | awk 'NF == 3 { print $3 }' >"$work/keep"
        allowed_calls >"$work/calls"
    fi
    if [ $kind = c ]; then calls_between && link "$work/judge" && graders=("$work/ANSWER.calls.o" "$work/ANSWER.apart.o")
    else link "$work/judge" "${objects[@]/#/$work/stub/}"
    fi || stop "the tests of $name do not link"
}
# The judge calls the answer, and is called back, in another process (apart.c).
calls_between() {
    local side to_grader
    to_grader=$(nm -g --defined-only "$work/tests.o" | awk 'NF == 3 { print $3 }')
    $cc "${c_flags[@]}" -w -fsyntax-only -aux-info "$work/aux" "$tests" &&
        awk -v answer="$(tr '\n' ' ' <"$work/keep")" -v grader="${to_grader//$'\n'/ }" \
            -f "$here/calls.awk" "$folder"/*.h "$work/aux" >"$work/calls.c" &&
        cp "$here/apart.c" "$work" || return 1
    for side in GRADER ANSWER; do
        $cc -std=gnu11 -g -O1 -D$side "-I$folder" "-I$here" -c "$work/calls.c" -o "$work/$side.calls.o" &&
            $cc -std=gnu11 -g -O1 -D$side "-I$here" -c "$work/apart.c" -o "$work/$side.apart.o" || return 1
    done
    graders+=("$work/GRADER.calls.o" "$work/GRADER.apart.o")
}

link() { # PROGRAM OBJECT...: with the graders
    # shellcheck disable=SC2046
    $cc $sanitize "${graders[@]}" "${@:2}" $([ $kind = debug ] && echo -fopenmp) -pthread -lm -o "$1"
}

# What an answer may call: mathematics, strings, memory, printing, sorting, threads that wait; what its header declares;
# and what the reference and the right answers call.
calls='(v?(f|s|sn)?printf|puts|putchar|fputs|fputc|putc|fwrite|fflush|__isoc99_sscanf|sscanf|stdout|stderr|perror'
calls+='|_{0,2}f?l?abs|mem(cpy|move|set|cmp|chr)|str[a-z_]*|_{0,2}strto[a-z]+|ato[fil]l?|malloc|calloc|realloc|free|aligned_alloc|posix_memalign'
calls+='|qsort|bsearch|s?rand(_r)?|random|exit|abort|__assert_fail|is[a-z]+|to(upper|lower)|__ctype_[a-z_]+|__errno_location|clock(_gettime)?|time'
calls+='|(a?(sin|cos|tan)h?|atan2|sincos|exp(2|10|m1)?|log(2|10|1p|b)?|ilogb|pow|sqrt|cbrt|hypot|erfc?|[lt]gamma|fma|fm(ax|in|od)|fdim'
calls+='|floor|ceil|l?l?r(int|ound)|trunc|nearbyint|round(even)?|modf|frexp|ldexp|scal(b|bl)n|copysign|remainder|remquo|next(after|toward)|nan|__(finite|isnan|isinf|signbit|fpclassify))[fl]?'
calls+='|pthread_(mutex|cond|barrier|create|join)[a-z_]*|omp_[a-z_]+|GOMP_[a-z_]+|__(asan|ubsan|stack_chk)_[A-Za-z0-9_]+|_GLOBAL_OFFSET_TABLE_|__tls_get_addr'
calls+='|__(mul|div)[sdt]c3|__(mul|div|udiv|mod|umod|float|floatun|fix|fixuns|extend|trunc)[a-z0-9]+[23]?)'
cuda_calls='(_Z[0-9]+(cuda|emu_)[A-Z_a-z].*|_ZN3emu.*|__tsan_.*|emu_mem[a-z]+|_Z(n|d)[aw].*|__gxx_personality_v0|_Unwind_Resume|(block|grid)(Dim|Idx)|threadIdx|warpSize|__cxa_[a-z_]+)'
undefined() { nm -u "$1" | awk '{ print $NF }' | sed 's/@.*//'; } # OBJECT
allowed_calls() {
    local plain=(-std=gnu11 -w -fopenmp "-I$folder" "-I$here" "-I$root/src" -c -o "$work/plain.o") other
    if [ -f "$folder/given/calls" ]; then cat "$folder/given/calls"; return; fi
    $cc "${plain[@]}" "$tests" && nm -g --defined-only "$work/plain.o" | awk 'NF == 3 { print $3 }'
    known_answers
    for other in "${files[@]/#/$work/stub/}" "$folder/$file" "$work"/known/right_*.c; do
        [ -f "$other" ] && [ "${other##*/}" != right_trainer.c ] || continue
        $cc "${plain[@]}" "$other" && { undefined "$work/plain.o" | grep -vxE "$calls" || :; }
    done | sort -u
}
# A compiler that reads an answer may wait, or take all memory.
bounded() { (ulimit -v 6000000 -f 400000 && exec timeout "${COMPILE_SECONDS:-120}" "$@" </dev/null); }
refuse() { echo "not run: $*"; return 1; }

# The files that a source includes. -M knows also what is embedded; where it fails, -E has said what it had read until then:
# the compiler's errors must show no line of the tests.
included() { # SOURCE
    local how=("$cc" "${c_flags[@]}" "-I$root")
    [ $kind != cuda ] || how=("$cxx" -x c++ -std=gnu++17 "-I$root/src" "-I$root/dev/cuda_on_cpu/include" "${c_flags[@]:1}" "-I$root")
    { bounded "${how[@]}" -M "$1" | of_rule; bounded "${how[@]}" -E "$1" | sed -n 's/^# [0-9]* "\(.*[^/]\)".*/\1/p'; } 2>/dev/null |
        grep / | sort -u | xargs -r -d '\n' realpath -m --
}
of_rule() { sed 's/\\ /\x01/g; s/ *\\$//' | tr ' ' '\n' | tr '\001' ' '; } # the names in a rule of make that the compiler wrote
not_allowed() { # SOURCE: of the files that it includes, those that an answer may not
    local file
    included "$1" | while IFS= read -r file; do
        case $file in /usr/* | "$here"/*.h | "$1" | "$root"/src/*.h | "$root"/dev/cuda_on_cpu/*.h) ;; *) echo "$file" ;; esac
    done
}
# What no compiler writes for an answer that computes: a name given by asm("...") may have lines of assembly in it.
odd_assembly() { # FILE.s
    awk -v cuda="$([ $kind != cuda ] || echo 1)" '
        /^#(NO_)?APP/ { own = /^#A/; next }
        own && !/^#/ && !/^\t\.cfi_[a-z_]+ [%a-z0-9]+$/ { print "machine code (asm)" } # the launch of a kernel has .cfi
        $1 == ".section" && $2 ~ /^\.text/ && !/^\t\.section\t\.text[A-Za-z0-9_.]*,"axG?",@progbits(,[^,]*,comdat)?$/ { print "machine code among its data" }
        { gsub(/"([^"\\]|\\.)*"/, "") }
        /[";]/ || /^[^\t#]/ && !/^[A-Za-z_.$0-9]+:$/ { print "an odd line in its assembly" }
        /gnu_indirect_function/ { print "a function that is chosen while loading (ifunc)" }
        $1 ~ /^[.]/ && !/:$/ && $1 !~ /^\.(cfi_[a-z_]+|align|p2align|balign|byte|value|[24]byte|long|quad|zero|string|ascii|[us]leb128|text|data|bss|section|globl|local|weak|hidden|comm|set|type|size|file|loc|ident)$/ {
            print "an odd line in its assembly" }
        $1 == ".section" && $2 !~ "^[.](text|rodata|data|bss|tdata|tbss|debug|note|gnu|asan|comment|eh_frame|" (cuda ? "gcc_except_table|init_array)" : "(init|fini)_array[.]00099)") { print "a section " $2 }
        $1 ~ /^\.(section|text|data|bss)$/ { early = /(init|fini)_array/; text = /\.text/ }
        text && /^\t\.(byte|value|[24]byte|long|quad|zero|string|ascii)[ \t]/ || /^\t(syscall|sysenter|int|svc)([ \t]|$)/ { print "machine code among its data" }
        !cuda && early && /^\t\.(quad|xword|8byte|long|word)/ && $2 !~ /^_sub_[ID]_00099_[0-9]$/ { print "a constructor: something that runs before the tests" }' "$1"
}
# A file of an answer becomes an object, or is told why not: the compiler's own words, or ours.
compile_answer() { # FILE
    local source=$work/answer/$1 bad
    bad=$(not_allowed "$source" | head -n 1)
    [ -z "$bad" ] || { refuse "it includes $(basename "$bad"); only system headers and those of the assignment can be"; return; }
    [ $kind = cuda ] && return
    bounded $cc "${c_flags[@]}" -fdiagnostics-color=never -S "$source" -o "$source.s" 2>&1 || {
        [ $? != 124 ] || refuse 'it takes too long to compile'
        return 1
    }
    bad=$({ bounded $cc "${c_flags[@]}" -E -P "$source" 2>/dev/null | grep -oE '__builtin_(return_address|extract_return_addr|frob_return_addr|frame_address|dwarf_cfa|eh_return|longjmp|setjmp|apply|unwind_init)\>|\<_sub_[ID]_[0-9]*'
        odd_assembly "$source.s"
    } | head -n 1)
    [ -z "$bad" ] || { refuse "it has $bad"; return; }
    $cc -c "$source.s" -o "$source.o" 2>&1 || return 1
    bad=$(undefined "$source.o" | grep -vxE "$calls" | grep -vxFf "$work/calls" | head -n 1)
    if [ -n "$bad" ] && grep -qx "$bad" "$work/keep"; then refuse "$bad is missing: the handout says what it is"; return; fi
    [ -z "$bad" ] || { refuse "it calls $bad; an answer computes, allocates and prints, and calls what its header declares"; return; }
    objcopy --keep-global-symbols="$work/keep" "$source.o" 2>&1
}
build_answer() { # PROGRAM: of the files in $work/answer
    local f bad
    for f in "${files[@]}"; do compile_answer "$f" || return 1; done
    if [ $kind != cuda ]; then
        link "$1" "${objects[@]/#/$work/answer/}" >"$work/log" 2>&1 && return
        bad=$(sed -n 's/.*undefined reference to `\(.*\)'"'"'.*/\1/p' "$work/log" | head -n 1)
        [ -z "$bad" ] || { refuse "$bad is missing: the handout says what it is"; return; }
        cat "$work/log"
        return 1
    fi
    (ulimit -t 60 -v 6000000 -f 400000 && emulated "$1" "${graders[@]}" "$work/answer/$file") 2>&1 || return 1
    bad=$(undefined "$1.$file.o" | grep -vxE "$calls|$cuda_calls" | head -n 1)
    [ -z "$bad" ] || { refuse "it calls $bad, and an answer may not"; return; }
    bounded "$cxx" -x c++ -std=gnu++17 -O1 "-I$root/src" "-I$root/dev/cuda_on_cpu/include" "-I$folder" "-I$here" "-I$root" -S "$work/answer/$file" -o "$work/answer/$file.s"
    bad=$(odd_assembly "$work/answer/$file.s" | head -n 1)
    [ -z "$bad" ] || refuse "it has $bad, and an answer may not"
}
build_trusted() { # PROGRAM FILE: the right answer called trainer, which calls the trainer's own library
    [ $kind = cuda ] && { emulated "$1" "${graders[@]}" "$2" "$build/libpretrain.a" -- -fopenmp -lopenblas -lm; return; }
    # shellcheck disable=SC2046
    $cc "${c_flags[@]}" -fopenmp "-I$root/src" "-I$root" "$2" "${graders[@]}" "$build/libpretrain.a" \
        $(${MAKE:-make} -s --no-print-directory -C "$root" B="$build" print-libraries) -pthread -lm -o "$1" 2>&1
}

# Runs the judge on an answer: all tests are listed, whatever happens. After build_judge.
judge() { # FILE or FOLDER [OPTION OF grade.c...]
    local how=build_answer f missing=''
    [ "$1" = "$work/known/right_trainer.${file##*.}" ] && how=build_trusted
    rm -rf "$work/answer" "$work/warnings" && mkdir "$work/answer" || return 2
    for f in "${files[@]}"; do
        if [ -d "$1" ]; then cp "$1/$f" "$work/answer"; else cp "$1" "$work/answer/$f"; fi 2>/dev/null
        [ -s "$work/answer/$f" ] || missing=${missing:-$f}
    done
    if [ -n "$missing" ]; then echo "not run: $missing is missing or empty" >"$work/refused"
    elif [ $kind = written ]; then
        cd "$work/answer" && "$work/judge" "${@:2}"
        return
    elif $how "$work/program" "$1" >"$work/refused"; then
        sed "s|$work/answer/||g" "$work/refused" >"$work/warnings"
        cd "$work" && "$work/judge" --program "$work/program" --seconds "${COURSE_SECONDS:-20}" "${@:2}"
        return
    fi
    sed "s|$work/answer/||g" "$work/refused" >"$work/why"
    cat "$work/why"
    "$work/judge" --refused "$work/why" "${@:2}"
}

# What is said below the verdict: an answer that nobody has begun, and what the compiler warned of.
below() {
    untouched && echo "(${files[*]}: as handed out, nothing is filled in)"
    [ ! -s "$work/warnings" ] || { echo 'The compiler warns:' && cat "$work/warnings"; }
    return 0
}
untouched() { # of the answer that was judged
    local f
    for f in "${files[@]}"; do cmp -s "$work/answer/$f" "$work/stub/$f" || return 1; done
}

# ---- students
# A page without its links into the tree.
unlinked() { sed -E 's/(^|[^!])\[([^][]*)\]\([^)# ]*\.(md|c|h|cu|sh|txt|py)(#[^)]*)?\)/\1\2/g' "$1"; } # FILE
# Copies what a student gets; DIR is complete without this tree.
give() { # DIR
    local other header
    mkdir -p "$1/$name/given" "$1/doc" || return 1
    cp "$here"/*.h "$here/grade_gpu.cuh" "$here"/{grade,apart}.c "$here/calls.awk" "$1"
    [ -n "$tree" ] && install -m 755 "$here/course.sh" "$1/course" || [ "$here" -ef "$1" ] || install -m 755 "$here/course" "$1/course"
    rm -f "$1/hidden.h"
    visible_tests "$1/$name" || return 1
    unlinked "$folder/handout.md" >"$1/$name/handout.md"
    for header in "$folder"/*.h "$folder"/*.cuh; do [ -f "$header" ] && cp "$header" "$1/$name"; done
    each_file stub "$1/$name/given" || return 1
    all_points >"$1/$name/given/points"
    if [ $kind = c ] || [ $kind = debug ]; then
        need_compiler && each_file stub "$work/stub" && allowed_calls >"$work/calls" && mv "$work/calls" "$1/$name/given"
    fi
    [ $kind != debug ] || $cc -MM "-I$root/src" "$folder"/*.c "$1/$name"/given/*.c | of_rule | grep '[.]h$' | sort -u >"$work/headers"
    [ $kind != debug ] || while IFS= read -r other; do
        case $other in "$root"/src/*) install -Dm 644 "$other" "$1/${other#"$root"/}" ;; esac
    done <"$work/headers"
    for other in $(grep -ho 'doc/[a-z_]*\.md' "$folder/handout.md" | sort -u); do unlinked "$root/$other" >"$1/$other"; done
    [ $kind = cuda ] || return 0
    mkdir -p "$1/dev/cuda_on_cpu" "$1/src/base"
    cp "$root"/src/base/*.h "$1/src/base"
    cp -r "$root"/dev/cuda_on_cpu/{include,build.sh,README.md,*.cc,*.h} "$1/dev/cuda_on_cpu"
}
begin() { # N DIR
    local verb=write
    find_assignment "$1"
    if ! [ "$here" -ef "$2" ]; then give "$2" || return 1; fi
    [ $kind != debug ] || verb=mend
    if [ -e "$2/$name/$file" ]; then echo "$file is there already; it stays as it is"
    else each_file stub "$2/$name" || return 1
    fi
    echo "$2/$name: read handout.md, $verb ${files[*]}"
}
own() { # [DIR]: sets mine, the student's folder
    mine=${1:-$([ -n "$tree" ] && echo course-work || echo "$here")}
    [ -d "$mine" ] || stop "$mine: no such folder ($me start N makes it)"
    mine=$(cd "$mine" && pwd)
}
own_files() { [ -f "$mine/$name/$file" ] || stop "$mine/$name/$file: no such file ($me start ${name%%_*} makes it)"; }

list_one() { # N
    local done=-
    find_assignment "$1"
    [ -f "${mine:-course-work}/.course/$name.points" ] && done=$(cat "${mine:-course-work}/.course/$name.points")
    printf '%-3s %-52s %6s %5s  %-8s %s\n' "$1" "$(handout '1s/^# *[0-9]*[.] *//p')" "$(all_points)" \
        "$(handout 's/^Hand in:.*Hours: *\([0-9.]*\)[.] .*/\1/p')" "$kind" "$done"
}
test_own() { # N [DIR]
    local status
    find_assignment "$1"
    own "${2:-}"
    own_files
    build_judge visible
    judge "$mine/$name" --prints yes | tee "$work/said"
    status=${PIPESTATUS[0]}
    sed -n '$s/^points .* of //p' "$work/said" |
        awk -v all="$(all_points)" '$1 < all { print "(hidden tests give the other " all - $1 " of " all " points)" }'
    below
    mkdir -p "$mine/.course"
    sed -n '$s/^points //p' "$work/said" >"$mine/.course/$name.points"
    return "$status"
}
hints() { sed -n '/^<details>/,/^<\/details>/p' "$folder/handout.md" | sed -n '/^1[.] /,/^</{/^</!p}'; }
hint() { # N [DIR]
    local seen n
    find_assignment "$1"
    own "${2:-}"
    mkdir -p "$mine/.course"
    seen=$(cat "$mine/.course/$name.hints" 2>/dev/null || echo 0)
    n=$(hints | grep -c '^[0-9]')
    seen=$((seen < n ? seen + 1 : n))
    echo "$seen" >"$mine/.course/$name.hints"
    hints | awk -v last="$seen" -v n="$n" '/^[0-9]/ { if (++k > last) exit; print (k > 1 ? "\n" : "") "hint " k " of " n } { print substr($0, 4) }'
    [ "$seen" != "$n" ] || echo '(this was the last one)'
}
submit() { # [N] [DIR]
    local what=all path out f points
    [[ ${1:-} =~ ^[0-9] ]] && { find_assignment "$1"; what=$name; shift; }
    own "${1:-}"
    mkdir "$work/pack"
    : >"$work/pack/MANIFEST"
    for path in "$mine"/[0-9][0-9]_*/handout.md; do
        [ -f "$path" ] || continue
        path=$(basename "$(dirname "$path")")
        [ $what = all ] || [ "$what" = "$path" ] || continue
        find_assignment "$path"
        for f in "${files[@]}"; do cmp -s "$mine/$name/$f" "$mine/$name/given/$f" || break; done &&
            cmp -s "$mine/$name/$f" "$mine/$name/given/$f" && continue
        [ -f "$mine/$name/$file" ] || continue
        mkdir "$work/pack/$name" && cp "${files[@]/#/$mine/$name/}" "$work/pack/$name" || exit 2
        points=$(cat "$mine/.course/$name.points" 2>/dev/null)
        for f in "${files[@]}"; do
            [ ! "$mine/$name/$f" -nt "$mine/.course/$name.points" ] || points='not run since a file was changed'
        done
        [ -e "$mine/.course/$name.points" ] || points='not run'
        for f in "${files[@]}"; do
            echo "$(sha256sum <"$mine/$name/$f" | cut -d ' ' -f 1)  $name/$f  $(wc -c <"$mine/$name/$f") bytes," \
                "visible tests: $points" >>"$work/pack/MANIFEST"
        done
    done
    [ -s "$work/pack/MANIFEST" ] || stop "nothing to hand in: every answer is still the stub"
    out=$mine/submit_$what.tar.gz
    tar -C "$work/pack" -czf "$out" . && cat "$work/pack/MANIFEST" && echo "hand in $out"
}

# ---- staff
staff() { [ -n "$tree" ] || stop "$1 works in the tree of the course only"; }
export_one() { find_assignment "$2" && give "$1" && cp "${files[@]/#/$1/$name/given/}" "$1/$name"; } # DIR N
student_page() {
    echo '# Assignments'
    sed -n '/^## A student/,/^## A teacher/{/^## /d;s|build/course|./course|g;s|course-work/||g;p}' "$root/doc/course.md"
}
export_students() { # DIR
    staff export
    [ ! -e "$1" ] || [ -z "$(ls -A "$1")" ] || stop "$1 is not empty"
    mkdir -p "$1" && each_assignment export_one "$1" &&
        student_page >"$1/README.md" && echo "$1: ./course list"
}
# A file to grade out of what was handed in: itself, or in a folder or archive, where given/ has the stub.
handed_in_file() { # SUBMISSION FILE
    local found
    case $1 in
    *.zip)
        command -v unzip >/dev/null || stop 'no unzip here'
        found=$(unzip -Z1 "$1" 2>/dev/null | grep -E "(^|/)$2\$" | grep -vE '(^|/)given/' | head -n 1)
        [ -n "$found" ] && unzip -p "$1" "$found" ;;
    *.tar | *.tar.gz | *.tgz)
        found=$(tar -tf "$1" 2>/dev/null | grep -E "(^|/)$2\$" | grep -vE '(^|/)given/' | head -n 1)
        [ -n "$found" ] && tar -xOf "$1" "$found" ;;
    *)
        if [ -d "$1" ]; then
            found=$(find "$1" -maxdepth 4 -type f -name "$2" ! -path '*/given/*' | sort | head -n 1)
            if [ -n "$found" ]; then cat "$found"
            else # in an archive that lies there: Gradescope unpacks .zip alone
                find "$1" -maxdepth 2 -type f \( -name '*.tar.gz' -o -name '*.tgz' -o -name '*.tar' -o -name '*.zip' \) | sort |
                    while IFS= read -r found; do
                        handed_in_file "$found" "$2" >"$work/inner"
                        [ -s "$work/inner" ] && cat "$work/inner" && break
                    done
            fi
        elif [ -f "$1" ] && { [ ${#files[@]} = 1 ] || [ "${1##*/}" = "$2" ]; }; then
            case $1 in *."${2##*.}") cat "$1" ;; esac
        fi ;;
    esac 2>/dev/null | head -c 1000000
}
handed_in() { # SUBMISSION: copies its files to $work/handed; false when there are none
    local f
    rm -rf "$work/handed" && mkdir "$work/handed"
    for f in "${files[@]}"; do handed_in_file "$1" "$f" >"$work/handed/$f"; done
    [ -n "$(find "$work/handed" -type f -size +0)" ]
}
grade_one() { # N FILE
    local points
    find_assignment "$1"
    [ -e "${2:-}" ] || stop "${2:-}: no such file (course grade N FILE)"
    handed_in "$2"
    build_judge
    (judge "$work/handed")
    points=$?
    below
    return $points
}
marks_of() { # DIR N [all]: all, also who handed in nothing
    local entry note points
    find_assignment "$2"
    build_judge
    for entry in "$1"/*; do
        note=$(basename "$entry")
        handed_in "$entry" || { [ -z "${3:-}" ] || echo "${note%%.*},$name,0,$(all_points),nothing was handed in"; continue; }
        (judge "$work/handed") >"$work/said" 2>&1
        points=$(sed -n '$s/^points \(.*\) of \(.*\)/\1,\2/p' "$work/said")
        note=$(sed -n '/^not run/{p;q}; /error:/{s/.*error/error/p;q}; /^not ok/{n;s/^ *//p;q}' "$work/said" | tr -d '",')
        # Points for what a student has seen alone may be written for those tests.
        [ "${points%%,*}" = 0 ] || ! grep -q '(hidden)$' "$work/said" || grep -q '^ok .*(hidden)$' "$work/said" ||
            note="visible tests alone: $note"
        ! untouched || note='as handed out: nothing is filled in'
        entry=$(basename "$entry")
        echo "${entry%%.*},$name,${points:-0,$(all_points)},$note"
    done
}
marks() { # DIR [N]
    staff marks
    [ -d "${1:-}" ] || stop "${1:-}: no such folder (course marks DIR [N])"
    echo 'student,assignment,points,of,note'
    if [ -n "${2:-}" ]; then marks_of "$1" "$2" all; else each_assignment marks_of "$1"; fi
}
similar() { # DIR N
    local entry
    staff similar
    [ -d "${1:-}" ] || stop "${1:-}: no such folder (course similar DIR N)"
    find_assignment "${2:-}"
    mkdir "$work/all"
    for entry in "$1"/*; do
        handed_in "$entry" && entry=$(basename "$entry") && cat "$work"/handed/* >"$work/all/${entry%%.*}"
    done
    each_file stub "$work/stub" && cat "$work"/stub/* >"$work/base"
    (cd "$work/all" && "$build/grades" similar --base "$work/base" ./* | sed 's|  [.]/|  |g')
}

# ---- the graders themselves
expect() { # WHAT FILE POINTS [WORDS]: all tests are listed, and these are the points; with WORDS, fewer, and the words
    local what=$1 points words=${4:-}
    (judge "$2") >"$work/said" 2>&1
    points=$(sed -n '$s/^points \(.*\) of .*/\1/p' "$work/said")
    if [ "$(grep -cE '^(not )?ok [0-9.]+ of ' "$work/said")" != "$n_tests" ]; then echo "$what: not all $n_tests tests were run"
    elif [ -n "$words" ] && [ "${points:-0}" = "$3" ]; then echo "$what: passes all tests"
    elif [ -n "$words" ] && ! grep -qE -- "$words" "$work/said"; then echo "$what: nothing says '$words'"
    elif [ -z "$words" ] && [ "$points" != "$3" ]; then echo "$what: $points points, not $3"
    else return 0
    fi
    sed 's/^/    /' "$work/said" | tail -n 30
    return 1
}
# right_and_wrong.txt, in $work/known: changes.txt has its bugs; a whole file, of a line "==== wrong NAME: what it is" and
# those up to the next of that kind, becomes wrong_NAME.c, and what the grader must say of it wrong_NAME.c.says.
known_answers() {
    rm -rf "$work/known" && mkdir "$work/known" && awk -v to="$work/known/" -v ending=".${file##*.}" '
        BEGIN { printf "" >(path = to "changes.txt") }
        /^====/ && !/^==== (right|wrong) [a-z0-9_]+(: .+)?$/ { print FILENAME ":" FNR ": not a head: " $0 >"/dev/stderr"; exit 1 }
        /^====/ { close(path); sub(/:$/, "", $3); path = to $2 "_" $3 ending; printf "" >path; next }
        path ~ /\/wrong_[^\/]*$/ && /^says: / { print substr($0, 7) >(path ".says"); next }
        { print >path }' "$folder/right_and_wrong.txt"
}
bugs() { awk -v only="$file" -f "$root/test/mutate.awk" "$@" "$work/known/changes.txt"; } # VARIABLE=VALUE...
changed() { # WHAT BUG: the reference with its changes, in $work/WHAT/BUG
    mkdir -p "$work/$1" && cp -r "$work/reference" "$work/$1/$2" && bugs mode=apply exact=1 pick="$2" root="$work/$1/$2/"
}
check_one() { # N
    local bad=0 wrong=0 right=0 bug says other all strict=1
    find_assignment "$1"
    build_judge >"$work/log" 2>&1 || { echo "not ok $name"; sed 's/^/  /' "$work/log"; return 1; }
    all=$(all_points)
    n_tests=$("$work/judge" --refused /dev/null | grep -cE '^not ok')
    {
        [ "$("$work/judge" --refused /dev/null | sed -n '$s/.* of //p')" = "$all" ] || { echo "not all TEST lines were counted"; bad=1; }
        (visible_tests "$work/visible") || bad=1
        [ $kind = cuda ] || $cc "${c_flags[@]}" -Werror -c "$work/visible/tests.c" -o "$work/visible/tests.o" || bad=1
        expect 'the stub' "$work/stub" 0 || bad=1
        each_file reference "$work/reference"
        expect 'the reference' "$work/reference" "$all" || bad=1
        known_answers || bad=1
        while IFS=$'\t' read -r bug _ _ _ says _; do # one that does not say what is wrong is right
            if [ "$says" = 'a common slip' ]; then
                right=$((right + 1))
                changed right "$bug" && expect "right $bug" "$work/right/$bug" "$all" || bad=1
            else
                wrong=$((wrong + 1))
                changed wrong "$bug" && expect "wrong $bug" "$work/wrong/$bug" "$all" "$says" || bad=1
            fi
        done < <(bugs mode=list)
        for other in "$work"/known/wrong_*."${file##*.}"; do
            [ -f "$other" ] || continue
            wrong=$((wrong + 1))
            says=$(cat "$other.says")
            [ -n "$says" ] && expect "${other##*/}" "$other" "$all" "$says" || { echo "${other##*/}"; bad=1; }
        done
        for other in "$work"/known/right_*."${file##*.}"; do
            [ -f "$other" ] || continue
            right=$((right + 1))
            expect "${other##*/}" "$other" "$all" || bad=1
        done
        [ $wrong -ge 5 ] || { echo "$wrong wrong answers, fewer than 5"; bad=1; }
    } >"$work/report" 2>&1
    [ $bad = 0 ] && echo "ok $name: stub 0 of $all, reference whole, $wrong wrong answers fail, $right right ones pass" && return
    echo "not ok $name"
    sed 's/^/  /' "$work/report"
    return 1
}
check_all() {
    local passed failed
    each_assignment echo | xargs -P "${JOBS:-2}" -n 1 "$me" check | tee "$work/all"
    passed=$(grep -c '^ok ' "$work/all") failed=$(grep -c '^not ok ' "$work/all")
    [ $((passed + failed)) = "$(each_assignment echo | wc -l)" ] || { echo 'not ok: a check did not end'; failed=$((failed + 1)); }
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

# ---- Gradescope: https://gradescope-autograders.readthedocs.io/en/latest/specs/
gradescope() { # N OUT.zip
    local out zip=$work/zip
    staff gradescope
    find_assignment "$1"
    command -v zip >/dev/null || stop 'no zip here (apt-get install zip)'
    case ${2:-} in *.zip) ;; *) stop 'where to? (course gradescope N OUT.zip)' ;; esac
    [ -d "$(dirname "$2")" ] || stop "$(dirname "$2"): no such folder"
    out=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
    give "$zip" && cp "$here/hidden.h" "$zip" && cp "$tests" "$zip/$name" || stop "$name cannot be copied"
    rm -r "$zip/doc"
    cat >"$zip/setup.sh" <<END
#!/bin/bash
set -e
apt-get update
apt-get install -y --no-install-recommends $([ $kind = cuda ] && echo 'g++ gcc' || echo gcc) libc6-dev binutils
END
    cat >"$zip/run_autograder" <<END
#!/bin/bash
here=\$(cd "\$(dirname "\$0")" && pwd)
chmod -R go= "\$here/source"
exec "\$here/source/course" results ${name%%_*} "\$here/submission" "\$here/results/results.json"
END
    chmod 755 "$zip/setup.sh" "$zip/run_autograder"
    rm -f "$out"
    (cd "$zip" && zip -qrX "$out" .) && echo "$out: upload it as the autograder; the points are $(all_points)"
}
results() { # N SUBMISSION JSON
    local board
    find_assignment "$1"
    handed_in "$2"
    build_judge
    read -ra board <<<"$(handout 's/^Leaderboard: *\(.*\) \(asc\|desc\)[.]*$/\2 \1/p')"
    if [ ${#board[@]} -gt 1 ]; then judge "$work/handed" --json "$3" --leaderboard "${board[*]:1}" "${board[0]}"
    else judge "$work/handed" --json "$3"
    fi
    return 0
}
autograde() { # ZIP SUBMISSION ROOT [--setup]
    local a
    [ -f "${1:-}" ] && [ -e "${2:-}" ] && [ -n "${3:-}" ] || stop 'course autograde ZIP SUBMISSION ROOT [--setup]'
    a=$3/autograder
    rm -rf "$a/submission" # of another time
    mkdir -p "$a"/{source,submission,results} && unzip -qo "$1" -d "$a/source" && cp -r "$2" "$a/submission" || exit 2
    for script in setup.sh run_autograder; do [ -x "$a/source/$script" ] || stop "$1 has no $script at its top"; done
    cp "$a/source/run_autograder" "$a"
    if [ "${4:-}" = --setup ]; then "$a/source/setup.sh" || stop 'setup.sh failed'; fi
    rm -f "$a/results/results.json"
    (cd "$a" && timeout 600 ./run_autograder >results/stdout 2>&1)
    [ -f "$a/results/results.json" ] || { tail -n 20 "$a/results/stdout" >&2; stop 'run_autograder left no results.json'; }
    grep -m 1 -E '^not run|error: ' "$a/results/stdout"
    "$build/grades" results "$a/results/results.json"
}

command=${1:-} && [ $# = 0 ] || shift
case $command in
list) mine=${1:-} && [ -n "$tree" ] || mine=$here
      [ -n "$mine" ] || mine=course-work
      printf '%-3s %-52s %6s %5s  %-8s %s\n' N title points hours kind done && each_assignment list_one ;;
start) begin "${1:-}" "${2:-$([ -n "$tree" ] && echo course-work || echo "$here")}" ;;
test) test_own "${1:-}" "${2:-}" ;;
hint) hint "${1:-}" "${2:-}" ;;
submit) submit "$@" ;;
export) [ "${1:-}" = --students ] && [ -n "${2:-}" ] || stop 'course export --students DIR'
        export_students "$2" ;;
grade) staff grade && grade_one "${1:-}" "${2:-}" ;;
marks) marks "$@" ;;
similar) similar "$@" ;;
check) staff check && if [ $# = 0 ]; then check_all; else check_one "$1"; fi ;;
gradescope) gradescope "${1:-}" "${2:-}" ;;
results) results "$@" ;;
autograde) autograde "$@" ;;
--help | -h | help) usage ;;
*) [ -z "$command" ] || echo "error: course: $command: no such command" >&2
   usage >&2
   exit 2 ;;
esac
