#!/bin/bash
# long: compiles the library a second time, with counters
# circle: docs
# test/test_journey.sh: scripts/journey.sh lists what a command ran: no file too many, none missing, gcov's own counts, in
# the order of first calls, with the lines of all ranks; and it says so when the command fails.
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
unset BASE FUNCTIONS MARKDOWN KEEP OMP_WAIT_POLICY
rows() { awk '$1 ~ /^[0-9]+$/ && $5 == "of" { print $3 "|" $4 " of " $6 }' "$1"; } # FILE|M of N
place() { rows "$1" | cut -d '|' -f 1 | grep -nxF "$2" | cut -d : -f 1; } # TABLE NAME: its row; "" when it is not listed
small='build/train tiny --run.steps=2 --run.eval_every=0 --eval.tokens=1000 --sample.count=0 --run.peak=100'

# What awk makes of calls and lines made up here.
by_hand() {
    printf 'src/a.c\t10\tthe first\nsrc/net/b.c\t20\tthe second\nmain.c\t5\ta program\nsrc/dead.c\t7\tnever run\n' >"$work/sources"
    printf 'main.c\tmain\t1\nsrc/net/b.c\tb\t2\nsrc/a.c\ta\t3\nsrc/net/b.c\tb2\t9\n' >"$work/calls"
    printf 'src/a.c\t3\nsrc/a.c\t4\nmain.c\t1\nsrc/net/b.c\t2\n' >"$work/lines"
    printf 'main.c\tmain\t1\nsrc/a.c\ta0\t1\n' >"$work/base"
    printf 'main.c\t1\nsrc/a.c\t3\n' >"$work/baselines"
    : >"$work/none"
    table() {
        awk -F '\t' -v run=R -v functions="$1" -v based="$2" -f scripts/journey.awk part=sources "$work/sources" part=base "$3" \
            part=baselines "$4" part=calls "$work/calls" part=lines "$work/lines" >"$work/table"
    }
    table '' '' "$work/none" "$work/none"
    rows "$work/table" | cmp - <(printf '%s\n' 'main.c|1 of 5' 'b.c|1 of 20' 'a.c|2 of 10')
    grep -qx '3 files, 4 executed lines of src/ and main.c' "$work/table"
    grep -qE '^ +2  net +b\.c .* b, b2$' "$work/table"
    table 1 '' "$work/none" "$work/none"
    grep -qE '^ +src/net/b\.c:9  b2$' "$work/table"
    table '' B "$work/base" "$work/baselines"
    rows "$work/table" | cmp - <(echo 'b.c|1 of 20')
    grep -qE '^src/a\.c +1  a$' "$work/table" # one line more, and a function that B did not call
    grep -qx 'Beside this 1 line in 1 file that both run.' "$work/table"
}

two_ranks() {
    ls -l runs 2>/dev/null >"$work/before" || :
    RUN="$launcher -n 2 $small --parallel.zero=3" KEEP=$work/kept scripts/journey.sh >"$work/table"
    ls -l runs 2>/dev/null | cmp - "$work/before" # nothing was written there
    [ "$(place "$work/table" train.c)" = 1 ]
    local name last=0 now
    for name in config.c matmul.c run.c model.c block.c; do
        now=$(place "$work/table" $name)
        [ "$now" -gt $last ] # in this order
        last=$now
    done
    for name in zero.c comm_mpi.c supervisor.c; do [ -n "$(place "$work/table" $name)" ]; done
    for name in dedup.c bpe_train.c plan.c stories.c prepare.c scaling_fit.c pipeline_table.c dev_check_rows.c; do
        [ -z "$(place "$work/table" $name)" ]
    done
    if grep 'no line was counted' "$work/table" || rows "$work/table" | grep '|0 of'; then return 1; fi
    rows "$work/table" | sort | uniq -d | cmp - /dev/null
    rows "$work/table" | awk -F '[| ]' '{ n += $2 } END { print NR " files, " n " executed lines" }' |
        cmp - <(tail -n 1 "$work/table" | sed "s/ of src.*//")
}

# The counts of some files against gcov's own summary, "Lines executed:61.54% of 130": how many is that?
gcov_agrees() {
    local name counts
    for name in train matmul config zero comm_mpi; do
        counts=$(find "$work/kept/run/counts" -name "$name.gcda" -o -name "train-$name.gcda")
        gcov -n "$counts" 2>/dev/null | awk -v name="$name.c" '
            /^File / { here = index($0, "/" name "\047") || index($0, "\047" name "\047") }
            /^Lines executed:/ && here { sub(/.*:/, ""); split($0, part, "% of "); printf "%s|%.0f\n", name, part[1] * part[2] / 100; here = 0 }'
    done >"$work/gcov"
    [ "$(wc -l <"$work/gcov")" = 5 ]
    while read -r name; do rows "$work/table" | grep -F "$name of "; done <"$work/gcov"
}

# A second rank adds few files, and no file of one process alone is called new.
what_ranks_add() {
    RUN="$launcher -n 2 $small" BASE=$small scripts/journey.sh >"$work/table"
    [ -n "$(place "$work/table" comm_mpi.c)" ]
    [ -z "$(place "$work/table" train.c)" ]
    [ "$(rows "$work/table" | wc -l)" -le 10 ]
    [ -n "$(place "$work/table" ddp.c)" ]
}

fails() { # WORDS COMMAND
    if RUN=$2 scripts/journey.sh >"$work/table" 2>"$work/err"; then return 1; fi
    [ ! -s "$work/table" ]
    tail -n 1 "$work/err" | grep -E "^error: journey: .*$1"
}

passes 'a list from calls and lines written by hand' by_hand
passes 'two ranks: the files that ran, in order, and no others' two_ranks
passes 'counts are those of gcov' gcov_agrees
passes 'what two ranks add to one' what_ranks_add
passes 'a command that fails' fails 'status 1: build/train nonesuch' 'build/train nonesuch'
passes 'a program that is not there' fails 'cannot build nonesuch' 'build/nonesuch'
passes 'no program at all' fails 'no program as build/NAME' 'echo hello'
passes 'no command' fails 'which command' ''
exit $failed
