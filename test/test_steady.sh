#!/bin/bash
# test/test_steady.sh: test/steady.sh, with throw-away tests: one fails where the name of its folder has a space, one on one
# core, one as another user, one where a comma is the decimal point; and one never. Each must be reported, with its
# condition and round.
# shellcheck source=test/train_common.sh
# shellcheck disable=SC2016 # conditions of the tests' own shells
. "$(dirname "$0")/train_common.sh"
tree=$work/tree

throw_away() { # NAME CONDITION: a test that fails where the condition (of the shell) holds
    printf '#!/bin/bash\nif %s; then echo "not ok it"; else echo "ok it"; fi\n' "$2" >"$tree/test/test_$1.sh"
}

make_tree() {
    mkdir -p "$tree/test" "$tree/build/test" "$work/tmp" "$work/bin"
    chmod a+rx "$work" "$tree" "$tree"/* "$tree/build/test"
    cp test/run.sh test/steady.sh test/lsan.sh "$tree/test/"
    throw_away space "[[ \${TMPDIR#'$work'} = *' '* ]]" # this script's own condition does not count
    throw_away core "[ \$(nproc) != $(nproc) ]"
    throw_away user "[ \$(id -un) != $(id -un) ]"
    throw_away comma '[ "$LC_ALL" = de_DE.UTF-8 ] && [ ! -d "$HOME" ]'
    throw_away never false
    # the real one takes a second
    printf '#!/bin/bash\nmkdir -p "${@: -1}"\n' >"$work/bin/localedef"
    chmod a+rx "$tree"/test/*.sh "$work/bin/localedef"
}

steady() { # what steady.sh says, in $work/said
    status=0
    PATH=$work/bin:$PATH BUILD=build JOBS=2 TMPDIR=$work/tmp LC_ALL=C "$tree/test/run.sh" --steady "$@" >"$work/said" 2>&1 || status=$?
    cat "$work/said"
}

reported() { # TEST ROUND CONDITION
    [ "$(grep -c "^    *test_$1 .*\[round $2: $3\]$" "$work/said")" = 1 ]
}

each_is_reported() {
    local all=20 bad=2
    CONDITIONS='space user core locale none' steady 5 test_space test_user test_core test_comma test_never
    [ $status = 1 ]
    reported space 1 space
    reported comma 4 locale
    if grep -q '^not run: user' "$work/said"; then all=$((all - 5)); else reported user 2 user; bad=$((bad + 1)); fi
    if grep -q '^not run: core' "$work/said"; then all=$((all - 5))
    elif [ "$(nproc)" != 1 ]; then reported core 3 core; bad=$((bad + 1))
    fi
    grep -q '^not run: none (no such condition)$' "$work/said"
    [ "$(tail -n 1 "$work/said")" = "$((all - bad)) passed, $bad failed" ]
    grep -q 'not ok it' "$(sed -n 's/.*their output: //p' "$work/said")/round_1.space.txt"
}

nothing_fails() { # and then nothing stays
    rm -rf "$work/tmp/"*
    CONDITIONS=load steady 1 test_never
    [ $status = 0 ] && [ -z "$(ls -A "$work/tmp")" ]
}

make_tree
passes 'what fails under a condition is reported, with its round' each_is_reported
passes 'where nothing fails, nothing stays' nothing_fails
exit $failed
