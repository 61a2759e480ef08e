#!/bin/bash
# circle: course
# test/test_gradescope.sh: an autograder of the course in a bare root, as Gradescope runs it: a fresh system in which
# /autograder/source has the zip, setup.sh installs what is needed, and run_autograder is started in /autograder once for
# each submission, with nothing of this tree or machine in sight. Right, wrong, empty and hostile answers.
# (https://gradescope-autograders.readthedocs.io/en/latest/specs/)
# long: it downloads a Debian.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build} course=$BUILD/course given=dev/course/15_clipping
skip() { echo "skip an autograder in a bare root ($*)"; exit 0; }
[ "$(id -u)" = 0 ] || skip 'not root'
for tool in debootstrap unshare chroot zip unzip; do
    command -v $tool >/dev/null || skip "no $tool here"
done
unshare -m -p -f true 2>/dev/null || skip 'no namespaces here'
# The system of this machine, from where it gets its own packages.
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    awk '/^#/ { next } $1 == "URIs:" { print $2; exit } $1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }')
work=$(mktemp -d "${TMPDIR:-/tmp}/gradescope.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root failed=0

# In the root, with namespaces of its own: what it mounts and starts is gone when it ends.
# shellcheck disable=SC2016
inside() { unshare -m -p -f --kill-child env -u TMPDIR chroot "$root" /bin/sh -c 'mount -t proc proc /proc && cd /autograder && exec "$@"' sh "$@"; }

debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$work/log" 2>&1 || skip "no network? debootstrap: $(tail -n 1 "$work/log")"
"$course" gradescope 15 "$work/grader.zip" >/dev/null || { echo 'not ok the zip is made'; exit 1; }
mkdir -p "$root"/autograder/{source,submission,results} && unzip -qo "$work/grader.zip" -d "$root/autograder/source" &&
    cp "$root/autograder/source/run_autograder" "$root/autograder" || exit 1
if inside ./source/setup.sh >"$work/log" 2>&1; then echo 'ok setup.sh installs what is needed'
else
    echo 'not ok setup.sh installs what is needed'
    tail -n 20 "$work/log" | sed 's/^/  /'
    exit 1
fi

# The submission is what is in $work/handed. The results are valid, of all six tests, and have these points and words.
graded() { # NAME POINTS WORDS
    local a=$root/autograder
    rm -rf "$a/submission" "$a/results" && mkdir "$a/submission" "$a/results" && cp "$work"/handed/* "$a/submission"
    inside timeout 300 ./run_autograder >"$a/results/stdout" 2>&1
    if "$BUILD/grades" results "$a/results/results.json" >"$work/said" 2>&1 && grep -qx "valid: $2 of 10" "$work/said" &&
        [ "$(grep -cE '^[0-9.]+ of [0-9.]+  ' "$work/said")" = 6 ] && grep -qE -- "$3" "$a/results/results.json"; then
        echo "ok $1"
    else
        echo "not ok $1"
        tail -n 20 "$work/said" "$a/results/results.json" "$a/results/stdout" | sed 's/^/  /'
        failed=1
    fi
    if grep -qE 'hidden\.h|40 million elements of 0.5"' "$a/results/results.json"; then
        echo "not ok $1: the results show a line of the hidden tests"
        failed=1
    fi
}
answer() { # CODE: $F is the head of the function
    local head='double clip_by_global_norm(float **g, const size_t *n, int t, double c) { (void)g, (void)n, (void)t, (void)c;'
    rm -rf "$work/handed" && mkdir "$work/handed"
    printf '%s\n' '#include "clipping.h"' '#include <stdio.h>' "${1//\$F/$head}" >"$work/handed/clipping.c"
}
mkdir "$work/handed" && cp $given/clipping.c "$work/handed"
graded 'a right answer' 10 '"status": "passed"'
sed -i 's/norm > clip) {/clip > 0) {/' "$work/handed/clipping.c"
graded 'a wrong answer' 8 'clipping only ever shortens'
answer '$F return 0; }'
graded 'the stub' 0 'expected 5, got 0'
rm "$work/handed/clipping.c" && echo 'I had no time.' >"$work/handed/read.me"
graded 'no answer' 0 'clipping.c is missing or empty'
answer '$F for (;;) puts("{\"score\": 10}"); }'
graded 'an answer that never ends' 0 'did not end within 20 seconds'
answer '$F FILE *f = fopen("/autograder/source/15_clipping/tests.c", "r"); return f ? fgetc(f) : 0; }'
graded 'an answer that reads the tests' 0 'it calls f(open|getc)'
answer '#include "/autograder/source/15_clipping/tests.c"
    $F return 0; }'
graded 'an answer that includes the hidden tests' 0 'it includes tests.c'
answer '#include <stdlib.h>
    __attribute__((constructor)) static void early(void) { FILE *f = fopen("/autograder/results/results.json", "w"); fputs("{\"score\": 10}", f), exit(0); }
    $F return 5; }'
graded 'an answer that writes the results' 0 'it has a section'
exit $failed
