#!/bin/bash
# circle: course
# test/test_course.sh: the course's kit (build/course): a student's way through an assignment, grading, Gradescope, what a
# hand-out contains, and that the check of the graders notices bad ones.
# deeper: answers that attack the judge; bad graders; several files; `build/course check` on every assignment.
# limit: 2400 s, for the deeper form.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
if nm "$BUILD/libpretrain.a" 2>/dev/null | grep -q __asan_; then
    echo 'skip the course (the library is built for a sanitizer)'
    exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/the course.XXXXXX") || exit 1 # names of folders may have spaces
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp"
export TMPDIR=$work/tmp
given=dev/course/15_clipping course=$BUILD/course
export COURSE_SECONDS=10 # 40 million elements take 3 where others work too

# shellcheck source=test/passes_common.sh
. test/passes_common.sh
says() { # STATUS WORDS COMMAND...
    local status=0
    "${@:3}" >"$work/said" 2>&1 || status=$?
    cat "$work/said"
    [ "$status" = "$1" ] && grep -qE -- "$2" "$work/said"
}

# What doc/course.md shows, in a folder outside of the tree.
a_student() {
    says 0 'read handout.md, write clipping.c' "$course" start 15 "$work/mine"
    cd "$work/mine"
    local mine="env -u BUILD ./course" # without the tree
    says 1 '^points 0 of 7$' $mine test 15
    [ "$(grep -c '^not ok' "$work/said")" = 4 ]
    grep -qx '(clipping.c: as handed out, nothing is filled in)' "$work/said"
    sed -i 's/return 0;/int none; while (tensors) {} return 0;/' 15_clipping/clipping.c
    says 1 'not run: two tests before it did not end' env COURSE_SECONDS=1 $mine test 15
    sed '/^points 0/,$!d' "$work/said" | grep -q 'unused variable .none' # below the verdict, and there alone
    [ "$(grep -c 'unused variable' "$work/said")" = 1 ]
    cp 15_clipping/given/clipping.c 15_clipping
    says 0 'hint 1 of 3' $mine hint 15
    says 0 'hint 2 of 3' $mine hint 15
    says 2 'every answer is still the stub' $mine submit 15
    echo 'int wrong' >>15_clipping/clipping.c
    says 1 'clipping.c:[0-9:]* error:' $mine test 15
    [ "$(grep -c '^not ok' "$work/said")" = 4 ]
    sed 's/clip_by_global_norm(/clip_by_norm(/' "$OLDPWD/$given/clipping.c" >15_clipping/clipping.c
    says 1 'not run: clip_by_global_norm is missing' $mine test 15
    sed 's/double sum = 0;/int big = 2147483647; puts("a line"), big += tensors; double sum = big * 0.0;/; 1i #include <stdio.h>' \
        "$OLDPWD/$given/clipping.c" >15_clipping/clipping.c
    says 1 'undefined behaviour: signed integer overflow.*, in clipping.c:[0-9]+:[0-9]+$' $mine test 15
    [ "$(grep -c '^    | a line$' "$work/said")" -ge 4 ]
    sed 's/double sum = 0;/float few[1], copy[4] = {1}; memcpy(few, copy, 4 * (size_t)tensors + 4); double sum = few[0] * 0;/; 1i #include <string.h>' \
        "$OLDPWD/$given/clipping.c" >15_clipping/clipping.c
    says 1 'stack-buffer-overflow, in clip_by_global_norm clipping.c:[0-9]+' $mine test 15
    cp "$OLDPWD/$given/clipping.c" 15_clipping
    says 0 '^points 7 of 7$' $mine test 15
    grep -qx '(hidden tests give the other 3 of 10 points)' "$work/said"
    says 0 '^15 .* 10 +1 +c +7 of 7$' $mine list
    says 0 'clipping.c  [0-9]* bytes, visible tests: 7 of 7' $mine submit 15
    touch -d '+1 minute' 15_clipping/clipping.c
    says 0 'visible tests: not run since a file was changed' $mine submit 15
    says 0 'stays as it is' $mine start 15
    says 0 '^  ./course test N ' $mine --help
    if grep -E 'staff|build/' "$work/said"; then return 1; fi
    cd "$OLDPWD"
    says 0 '^points 10 of 10$' "$course" grade 15 "$work/mine/submit_15_clipping.tar.gz"
}

# An assignment of several files, which are the tree's own with bugs: outside of the tree there is nothing to compare with.
several_files() {
    says 0 'mend bug1.c bug2.c .* bug7.c$' "$course" start 27 "$work/hunt"
    local mine=$work/hunt/27_find_the_bug
    if find "$work/hunt" -name '*.txt' | grep .; then return 1; fi
    if sha256sum src/*/*.c | cut -d ' ' -f 1 | grep -F "$(sha256sum "$mine"/bug*.c | cut -d ' ' -f 1)"; then return 1; fi
    cd "$work/hunt"
    says 1 '^points 0 of 7$' env -u BUILD ./course test 27
    says 2 'every answer is still the stub' ./course submit 27
    sed -i 's/(double)step \/ (double)W/(double)(step + 1) \/ (double)W/' "$mine/bug1.c"
    says 1 '^points 1 of 7$' env -u BUILD ./course test 27
    says 0 'bug7.c  [0-9]* bytes, visible tests: 1 of 7' ./course submit 27
    cd "$OLDPWD"
    says 1 '^points 2 of 14$' "$course" grade 27 "$work/hunt/submit_27_find_the_bug.tar.gz"
    rm "$mine/bug3.c"
    says 1 'bug3.c is missing or empty' "$course" grade 27 "$mine"
}

errors() { # one line each
    says 2 '^error: .*there is no assignment 99' "$course" test 99
    says 2 '^error: .*no such folder' "$course" test 15 "$work/nowhere"
    says 2 '^error: .*which assignment' "$course" start
    says 2 '^error: .*no such file' "$course" grade 15 "$work/nothing.c"
    says 2 '^error: .*no no-gcc here: install gcc' env CC=no-gcc "$course" grade 15 $given/clipping.c
    [ "$(wc -l <"$work/said")" = 1 ]
    says 2 'no such command' "$course" grow
    says 2 'nowhere: no such folder' "$course" gradescope 15 "$work/nowhere/grader.zip"
    : >"$work/empty.c"
    says 1 'clipping.c is missing or empty' "$course" grade 15 "$work/empty.c"
}

# In a copy of the course alone, so that its assignment can be spoiled.
copied() {
    rm -rf "$work/tree" && mkdir -p "$work/tree/dev/course" "$work/tree/test"
    cp dev/course/{course.sh,calls.awk,*.[ch],*.cuh} "$work/tree/dev/course"
    cp -r $given "$work/tree/dev/course" && sed -i '/^==== right trainer/,$d' "$work/tree/$given/right_and_wrong.txt"
    cp test/mutate.awk "$work/tree/test"
}
bad_graders_are_noticed() {
    local here=$work/tree/$given check=$work/tree/dev/course/course.sh
    copied
    says 0 '^ok 15_clipping: stub 0 of 10, reference whole, 6 wrong answers fail, 1 right ones pass$' "$check" check 15
    says 0 '^1 passed, 0 failed$' "$check" check
    sed -i '1i bug harmless: it is right\nsays: anything\nfile: clipping.c\n- double sum = 0;\n+ double sum = 0.0;\n' "$here/right_and_wrong.txt"
    says 1 'wrong harmless: passes all tests' "$check" check 15
    says 1 '^0 passed, 1 failed$' "$check" check
    copied
    sed -i 's/^says: multiplied by norm/says: divided by the moon/' "$here/right_and_wrong.txt"
    says 1 "wrong upside_down: nothing says 'divided by the moon" "$check" check 15
    copied
    sed -i 's/^    \/\/+ return 0;/    \/\/+ return 5;/' "$here/clipping.c"
    says 1 'the stub: [1-9][0-9]* points, not 0' "$check" check 15
    copied
    printf '==== right not: It is not.\n#include "clipping.h"\ndouble clip_by_global_norm(float **g, const size_t *n, int t, double c)\n{\n    return g && n && t && c < 9 ? 0 : 1;\n}\n' >>"$here/right_and_wrong.txt"
    says 1 'right_not.c: 0 points, not 10' "$check" check 15
    copied
    sed -i '/^==== right one_loop/s/right/wrong/; /^==== /a says: anything' "$here/right_and_wrong.txt"
    says 1 'wrong_one_loop.c: passes all tests' "$check" check 15
    copied
    sed -i 's/^==== right one_loop/==== rihgt one_loop/' "$here/right_and_wrong.txt"
    says 1 'not a head: ==== rihgt one_loop' "$check" check 15
    copied
    sed -i '/hidden.h/d' "$here/tests.c"
    says 1 'tests.c has no line, or two, that begins the hidden tests' "$check" check 15
}

a_grade_is_a_sum() {
    sed 's/norm > clip) {/clip > 0) {/' $given/clipping.c >"$work/always.c" # scales up
    says 1 '^points 8 of 10$' "$course" grade 15 "$work/always.c"
    grep -q 'clipping only ever shortens' "$work/said"
}

a_table_of_marks() {
    mkdir -p "$work/all/ann" "$work/all/bob"
    cp $given/clipping.c "$work/all/ann"
    sed 's/\<sum\>/total/g; s/\<norm\>/length/g; s/double factor/ double   by/; s/factor/by/' $given/clipping.c >"$work/all/bob/clipping.c"
    sed -n '/^==== right one_loop/,/^====/{/^====/!p}' $given/right_and_wrong.txt >"$work/all/cleo.c"
    mkdir -p "$work/all/dan" "$work/all/eve" "$work/pack/15_clipping"
    sed 's/norm > clip) {/clip > 0) {/' $given/clipping.c >"$work/pack/15_clipping/clipping.c"
    tar -C "$work/pack" -czf "$work/all/dan/submit_15_clipping.tar.gz" . # as `course submit` makes it
    sed 's/double sum/float sum/; s/clip > 0 && //' $given/clipping.c >"$work/all/fay.c" # what is not seen fails
    cp "$work/mine/15_clipping/given/clipping.c" "$work/all/gus.c"
    says 0 '^student,assignment,points,of,note$' "$course" marks "$work/all" 15
    grep -q '^fay,15_clipping,7,10,visible tests alone: ' "$work/said"
    grep -qx 'gus,15_clipping,0,10,as handed out: nothing is filled in' "$work/said"
    [ "$(grep -c ',15_clipping,10,10,$' "$work/said")" = 3 ]
    grep -q '^dan,15_clipping,8,10,.*clipping only ever shortens' "$work/said"
    grep -qx 'eve,15_clipping,0,10,nothing was handed in' "$work/said"
    says 0 '^1\.00  ann  bob$' "$course" similar "$work/all" 15
    grep -qE '^0\.[0-6][0-9]  ann  cleo$' "$work/said"
}

gradescope() {
    local -x COURSE_SECONDS=20 # as there: 40 million elements take 3 seconds where others work too
    says 0 'the points are 10' "$course" gradescope 15 "$work/grader.zip"
    if unzip -l "$work/grader.zip" | grep -E 'right_|wrong'; then return 1; fi
    unzip -l "$work/grader.zip" | grep -qE ' run_autograder$'
    mkdir -p "$work/handed" && cp $given/clipping.c "$work/handed"
    says 0 '^valid: 10 of 10$' "$course" autograde "$work/grader.zip" "$work/handed" "$work/root"
    [ "$(grep -c after_published "$work/said")" = 2 ]
    [ "$(grep -c ', visible$' "$work/said")" = 4 ]
    tar -C "$work/handed" -czf "$work/handed.tar.gz" . # Gradescope leaves it as it is
    says 0 '^valid: 10 of 10$' "$course" autograde "$work/grader.zip" "$work/handed.tar.gz" "$work/root"
    echo 'double clip_by_global_norm(' >"$work/handed/clipping.c"
    says 0 '^valid: 0 of 10$' "$course" autograde "$work/grader.zip" "$work/handed" "$work/root"
    grep -q 'error: ' "$work/said"
    grep -q 'error: ' "$work/root/autograder/results/results.json"
    says 0 'the points are 10' "$course" gradescope 28 "$work/fast.zip" # with a leaderboard
    says 0 '^leaderboard: times as fast as three loops = [0-9.]+$' "$course" autograde "$work/fast.zip" dev/course/28_fast_matmul/fast.c "$work/root3"
    grep -q '"order": "desc"' "$work/root3/autograder/results/results.json"
    echo '{"tests": [{"score": 3, "max_score": 2}]}' >"$work/more.json"
    says 1 'more points than it has' "$BUILD/grades" results "$work/more.json"
}

no_answer_is_handed_out() {
    local path name
    "$course" export --students "$work/students"
    if find "$work/students" | grep -E '/(hidden|wrong|right[_.]|bugs[.]txt|mutations)'; then return 1; fi
    grep -q '^./course test 15 ' "$work/students/README.md"
    if grep -E '\]\([^h#][^)]*\)' "$work"/students/*/handout.md; then return 1; fi # links into the tree
    for path in dev/course/[0-9][0-9]_*; do
        name=$(basename "$path")
        [ -s "$work/students/$name/handout.md" ]
        sed '/^#include "..\/hidden.h"/,$d' "$path"/tests.* >"$work/visible"
        # Lines that the student writes and the hidden tests, unless the visible tests have the same.
        { awk '/\/\/\[$/ { s = 1; next } /\/\/\]$/ { s = 0 } s && !/\/\/\+ /' "$path"/*.[c]* 2>/dev/null; sed '1,/^#include "..\/hidden.h"/d' "$path"/tests.*; } |
            sed 's/^ *//' | awk 'length($0) >= 40' | grep -vFf <(cat "$work/visible" "$path"/*.h 2>/dev/null | sed 's/^ *//' | awk 'length($0) >= 20') >"$work/lines" || true
        grep -qE '^((GPU_)?TEST|PROBLEM)\(' "$work/lines"
        if grep -rFf "$work/lines" "$work/students/$name"; then return 1; fi
    done
    # And what is handed out is all that the visible tests need; a student may have one assignment without the others.
    if grep -rnE '^#include .*([0-9][0-9]_[a-z]|hidden)' "$work/students"; then return 1; fi
    [ "$(find "$work/students" -name calls | wc -l)" = $(($(find dev/course -name tests.c | wc -l) - 1)) ] # 26 calls nothing
    for name in 15 32 ${TEST_LONG:+$(ls "$work/students" | grep '^[0-9]')}; do
        says 1 '^points 0 of [0-9]+$' env -u BUILD "$work/students/course" test "$name"
    done
}

# Each of course_attacks.txt gets no point.
attacks() {
    local name words of bad=0
    copied
    cp -r dev/course/18_* "$work/tree/dev/course" # a few tests of both are enough
    sed -i '/^TEST(norm_of_all/,/^}/d; /^TEST(short_one/,/^}/d; /^TEST(many/,/^}/d' "$work/tree/$given/tests.c"
    mkdir "$work"/{15,18}
    sed 's/clip_by_global_norm/right/' $given/clipping.c >"$work/right15"
    sed 's/ring_all_reduce/right/' dev/course/18_*/ring.c >"$work/right18"
    awk -v to="$work/" -v tree="$(readlink -f "$work/tree")" '
        /^---- / { next }
        /^==== / { of = /^==== ring_/ ? 18 : 15; name = substr($2, 1, length($2) - 1); f = to of "/" name ".c"
                   while ((getline line <(to "right" of)) > 0) head[of] = head[of] line "\n"
                   printf "%s%s", shared, head[of] >f; next }
        !/^#( |$)/ {
            gsub(/[$]TREE/, tree)
            sub(/[$]F/, of == 18 ? "void ring_all_reduce(Link *link, float *x, size_t n) {" : "double clip_by_global_norm(float **g, const size_t *n, int t, double c) { (void)g, (void)n, (void)t, (void)c;")
            sub(/[$]RIGHT/, of == 18 ? "{ right(link, x, n); return; }" : "return right(g, n, t, c);")
            if (f) print >f; else shared = shared $0 "\n" }' test/course_attacks.txt
    for of in 15 18; do COURSE_SECONDS=5 COMPILE_SECONDS=8 "$work/tree/dev/course/course.sh" marks "$work/$of" $of </dev/null; done | tee "$work/said"
    while IFS=: read -r name words; do
        grep -qE "^$name,1[58]_[a-z_]*,0,[1-9][0-9]*,.*($words)" "$work/said" || { echo "$name: not 0 points, or not: $words"; bad=1; }
    done < <(sed -n 's/^==== \([a-z_0-9]*\): /\1:/p' test/course_attacks.txt)
    return $bad
}
# The tests of CUDA run beside the answer: one that exits, or writes machine code, passes none.
attacks_of_cuda() {
    local code words
    while IFS='|' read -r words code; do
        printf '#include "softmax.h"\n#include <cstdio>\n#include <cstdlib>\n%s\n' "$code" |
            sed 's/[$]F/__global__ void softmax_kernel(float *, float *, const float *, int, int)/' >"$work/attack.cu"
        says 1 "$words" "$course" grade 32 "$work/attack.cu"
        grep -q '^points 0 of 10$' "$work/said"
    done <<'END'
did not run|$F { exit(0); }
ended with status 0|struct Early { Early() { exit(0); } } early; $F {}
machine code|$F { __asm__ volatile("syscall" : : "a"(231L), "D"(0L)); }
it calls raise|extern "C" int raise(int); $F { raise(12); }
it calls [sf]|struct E { E() { char p[33]; fgets(p, 33, stdin); puts(p); } } e; $F {}
END
}
passes 'a student, from start to submission' a_student
passes 'errors in a line' errors
passes 'points of a wrong answer' a_grade_is_a_sum
passes 'marks and similar submissions' a_table_of_marks
if command -v zip >/dev/null && command -v unzip >/dev/null; then passes 'an autograder for Gradescope' gradescope
else echo 'skip an autograder for Gradescope (no zip and unzip here)'; fi
passes 'no answer is handed out' no_answer_is_handed_out
passes 'attacks' attacks
if [ -n "${TEST_LONG:-}" ]; then
    passes 'an assignment of several files' several_files
    passes 'bad graders are noticed' bad_graders_are_noticed
    passes 'attacks of CUDA answers' attacks_of_cuda
    # A minute each; COURSE_QUARTER=0 to 3: every fourth assignment.
    for name in $(ls dev/course | sed -n 's/^\([0-9][0-9]\)_.*/\1/p' | awk -v k="${COURSE_QUARTER:-}" 'k == "" || NR % 4 == k'); do
        "$course" check "$name" | grep -E '^(ok|not ok|  )' && [ "${PIPESTATUS[0]}" = 0 ] || failed=1
    done
fi
exit $failed
