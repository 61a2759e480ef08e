#!/bin/bash
# test/test_mutations.sh: every bug of test/mutations still applies to the tree, and test/mutate.sh tells caught from
# survived from broken. The second part runs it on a project of one file and one test, in a directory of its own.
# (Whether the mutations are caught is `make mutate`, which builds the tree once per mutation.)
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/mutations.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0
unset MAKEFLAGS MAKELEVEL
export LC_ALL=C # one order of the tables

complain() { # WHAT FILE: it did not
    echo "not ok $1"
    sed 's/^/  /' "$2"
    failed=1
}
same() { # WHAT: $work/log has the lines of standard input
    if diff - "$work/log" >"$work/diff"; then echo "ok $1"
    else complain "$1" "$work/diff"
    fi
}

test/mutate.sh --check || failed=1

# ---- mutants by chance: the tables of mutate_random.sh; then what a mutant is, on a file of its own
test/mutate_random.sh --check || failed=1
mkdir "$work/chance"
cat >"$work/chance/a.c" <<'EOF'
static const int table[] = {1, 0};
static int one(void) { return 7 + 1; }
int f(const char *text, int *p)
{
    // a < b, 0
    if (p) puts("a < b, 0 */");
#define SKIPPED 1
    int n = -3 * (text[4] == '0'); /* 1 */
    n = n + 1 < *p ? n + 1 : *p;
    if (n > *p) n = *p;
    return n - 5;
}
EOF
places() { (cd "$work/chance" && awk -f "$OLDPWD/test/mutate_random.awk" "$@"); }
places -v seed=7 a.c >"$work/places"
cut -f 3-6 "$work/places" | tr '\t' ' ' >"$work/log"
same 'the places of mutants' <<'END2'
a.c 2 + -
a.c 2 1 0
a.c 2 1 2
a.c 6  !
a.c 8 * /
a.c 8 == !=
a.c 9 + -
a.c 9 1 0
a.c 9 1 2
a.c 9 + -
a.c 9 1 0
a.c 9 1 2
a.c 11 - +
END2
id=$(awk -F '\t' '$4 == 8 && $5 == "*" { print $2 }' "$work/places")
{
    sed -i '1i // another line' "$work/chance/a.c"
    places -v seed=7 a.c | cut -f 1,2 | diff - <(cut -f 1,2 "$work/places") # a line above: the same ids and ranks
    places -v seed=8 a.c | cut -f 1 | cmp -s - <(cut -f 1 "$work/places") && echo 'the seed does not matter'
    places -v apply="$id" a.c | diff "$work/chance/a.c" - | sed -n 's/^> *//p'
    places -v apply=0000 a.c >"$work/log" && echo 'an id of no mutant is taken'
} >"$work/said" 2>&1
mv "$work/said" "$work/log"
same 'a mutant by chance' <<<"int n = -3 / (text[4] == '0'); /* 1 */"

# ---- a small project: answer() in src/answer.sh, and a test of it
mkdir -p "$work/tree/src" "$work/tree/test/mutations"
cp test/mutate.sh test/mutate.awk test/run.sh "$work/tree/test/"
printf 'all: ; @sh -n src/answer.sh && mkdir -p build\n' >"$work/tree/Makefile"
printf '%s\n' '# What is asked for.' 'answer() {' '    echo 42' '}' >"$work/tree/src/answer.sh"
cat >"$work/tree/test/test_answer.sh" <<'END'
#!/bin/sh
cd "$(dirname "$0")/.." && . src/answer.sh
if [ "$(answer)" = 42 ]; then echo 'ok the answer'; else echo 'not ok the answer'; fi
END
chmod +x "$work/tree/test/test_answer.sh"

bug() { # NAME ROW...: a bug in a table of its own
    { printf '%s\n' "bug $1: $1" 'seen: here' 'tests: test_answer.sh' 'file: src/answer.sh' && printf '%s\n' "${@:2}"
    } >"$work/tree/test/mutations/$1.txt"
}
# gives NAME VERDICT DETAIL STATUS: what the runner says about the bugs NAME*
gives() {
    local status=0
    MUTATE_TIMEOUT=2 "$work/tree/test/mutate.sh" "$1" >"$work/log" 2>&1 || status=$?
    if grep -q "^$2 *$1 .*$3" "$work/log" && [ $status = "$4" ]; then echo "ok the runner: $1: $2"
    else complain "the runner: $1: $2, status $status" "$work/log"
    fi
}

bug wrong '- echo 42' '+ echo 41'
bug hangs '- echo 42' '+ sleep 30'
bug comment '- # What is asked for.' '+ # What was asked for.'
bug syntax '- answer() {' '+ answer( {'
bug rotten '- echo 43' '+ echo 41'
gives wrong caught 'test_answer.sh: the answer' 0
gives hangs caught 'test_answer.sh: stopped after 2 s' 0
gives comment SURVIVED test_answer.sh 1
gives syntax BROKEN 'does not build' 1
gives rotten BROKEN 'src/answer.sh does not have this text: echo 43' 1

# All together: the counts, and the table of a whole run.
MUTATE_TIMEOUT=2 "$work/tree/test/mutate.sh" >"$work/log" 2>&1 && failed=1
if [ "$(tail -n 1 "$work/log")" = '2 caught, 1 survived, 2 broken' ] &&
    [ "$(grep -c '^| [a-z]* | [a-z]* | here | src/answer.sh |' "$work/tree/runs/mutate.md")" = 5 ]; then
    echo 'ok the runner: counts and table'
else complain 'the runner: counts and table' "$work/log"
fi

# --check finds what has rotted, what is there twice, and what is not as a table should be.
rm "$work/tree/test/mutations/"*.txt
printf '%s\n' '# Two of a kind.' 'twice() {' '    echo 7' '    echo 8' '    echo 7' '}' >"$work/tree/src/twice.sh"
bug good '- echo 42' '+ echo 41'
bug indented '  answer() {' '-         echo 42' '+         echo 41' '+             echo 40'
bug several '- # What is asked for.' '' '  }' '+ # the end'
bug twice '- echo 7' '+ echo 6'
bug twice_in_context '  echo 8' '- echo 7' '+ echo 6'
sed -i '/^file:/s/answer/twice/' "$work/tree/test/mutations/twice"*.txt
bug rotten '- echo 43' '+ echo 41'
bug moved '- echo 8' '+ echo 6'
bug no_tests '- echo 42' '+ echo 41'
sed -i /^tests:/d "$work/tree/test/mutations/no_tests.txt"
bug no_such_test '- echo 42' '+ echo 41'
sed -i 's/^tests:.*/tests: test_question/' "$work/tree/test/mutations/no_such_test.txt"
bug no_text ''
bug no_change '  echo 42'
bug not_a_line '- echo 42' 'echo 41'
bug overlap '  answer() {' '- echo 42' '' '- echo 42' '+ echo 41'
cp "$work/tree/test/mutations/good.txt" "$work/tree/test/mutations/more.txt" # a second bug called good
"$work/tree/test/mutate.sh" --check >"$work/log" 2>&1
sed -i "s|$work/tree|TREE|" "$work/log"
same 'the check finds what has rotted' <<'END'
ok good applies
ok indented applies
not ok good applies
  TREE/test/mutations/more.txt:1: there are two bugs called good
not ok moved applies
  src/answer.sh does not have this text: echo 8
  src/twice.sh has it (test/mutate.sh --renew writes that into the table)
not ok no_change applies
  a text needs lines to look for, and lines - or + that change it
not ok no_such_test applies
  no such test: test_question
not ok no_tests applies
  no line "tests: ..."
not ok no_text applies
  no text below file: src/answer.sh
not ok not_a_line applies
  TREE/test/mutations/not_a_line.txt:6: not a line of the table: echo 41
not ok overlap applies
  two texts overlap in src/answer.sh
not ok rotten applies
  src/answer.sh does not have this text: echo 43
ok several applies
not ok twice applies
  src/twice.sh has this text 2 times (add a line beside it): echo 7
ok twice_in_context applies
END

# --apply: what is put in is indented as the text is; a bug that does not apply changes nothing.
mkdir -p "$work/other/src"
cp "$work/tree/src/answer.sh" "$work/other/src/"
{ (cd "$work" && tree/test/mutate.sh --apply indented other) && cat "$work/other/src/answer.sh"; } >"$work/log" 2>&1
{
    "$work/tree/test/mutate.sh" --apply several "$work/other" && cat "$work/other/src/answer.sh"
    "$work/tree/test/mutate.sh" --apply overlap
    "$work/tree/test/mutate.sh" --apply goo
    cat "$work/tree/src/answer.sh"
} >>"$work/log" 2>&1
same 'a bug is put into a file' <<'END'
# What is asked for.
answer() {
    echo 41
        echo 40
}
answer() {
    echo 41
        echo 40
}
# the end
overlap: two texts overlap in src/answer.sh
error: test/mutate.sh: no bug called goo
# What is asked for.
answer() {
    echo 42
}
END

# --renew: a file that moved, one that was cut in two, and then a text that two other files have.
mkdir "$work/tree/src/room"
mv "$work/tree/src/twice.sh" "$work/tree/src/room/"
sed -e 1d -e 's/^    /\t/' "$work/tree/src/answer.sh" >"$work/tree/src/room/question.sh"
sed -i 2,4d "$work/tree/src/answer.sh"
rm "$work/tree/test/mutations/more.txt"
"$work/tree/test/mutate.sh" --renew good moved rotten several twice_in >"$work/log" 2>&1
"$work/tree/test/mutate.sh" --list good indented several twice_in | cut -f 1-2 >>"$work/log" # indented: not asked for
"$work/tree/test/mutate.sh" --apply good && tail -n 2 "$work/tree/src/room/question.sh" >>"$work/log"
cp "$work/tree/src/room/twice.sh" "$work/tree/src/room/third.sh"
sed -i s/room.twice/twice/ "$work/tree/test/mutations/twice_in_context.txt"
sed -i s/room.twice/gone/ "$work/tree/test/mutations/moved.txt"
"$work/tree/test/mutate.sh" --renew moved twice_in >>"$work/log" 2>&1
same 'the table follows what has moved' <<'END'
good: src/answer.sh -> src/room/question.sh
moved: src/answer.sh -> src/room/twice.sh
twice_in_context: src/twice.sh -> src/room/twice.sh
ok good applies
ok moved applies
not ok rotten applies
  src/answer.sh does not have this text: echo 43
not ok several applies
  src/answer.sh does not have this text: }
  2 other files have it
ok twice_in_context applies
good	src/room/question.sh
indented	src/answer.sh
several	src/answer.sh
twice_in_context	src/room/twice.sh
	echo 41
}
twice_in_context: src/twice.sh -> src/room/twice.sh
not ok moved applies
  src/gone.sh (no such file) does not have this text: echo 8
  2 other files have it
ok twice_in_context applies
END
printf '%s\n' '# What is asked for.' 'answer() {' '    echo 40' '}' >"$work/tree/src/answer.sh"
bug comment '- # What is asked for.' '+ # What was asked for.'
if "$work/tree/test/mutate.sh" comment >"$work/log" 2>&1 || ! grep -q 'without any bug' "$work/log"; then
    complain 'the runner: a test that fails anyway' "$work/log"
else echo 'ok the runner: a test that fails anyway'
fi
exit $failed
