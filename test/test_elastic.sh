#!/bin/bash
# test/test_elastic.sh: scripts/elastic.sh goes on without the host that failed, takes it back, and gives up when it
# should; its bytes are those of a run without a failure. The hosts are names for ranks of this machine.
# deeper: a rank that hangs, hosts that come back, two ranks a host, a job that does not leave, more signals to scripts
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
export EVERY=0.3 REST=100 PAUSE=0.1 TRIES=3
PATH=$work:$(dirname "$launcher"):$PATH # --probe and --mpiexec have words, and the name of a folder may be several

# elastic HOSTS NAME [OPTION...]: 16 sequences a step, in micro-batches of one. Its words are in $work/NAME.err.
elastic() {
    local hosts=$1 name=$2
    shift 2
    timeout -k 10 120 scripts/elastic.sh --local --hosts "$hosts" --min "${min:-1}" --ppn "${ppn:-1}" --mpiexec "${launcher##*/}" --probe probe "$BUILD/train" \
        "$work/sixteen.toml" --run.name="$name" "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null
}

# The batch of the runs with a fault, and of the one they are compared with, grows from 8 sequences to 16 in step 25,
# between the checkpoint and the fault.
grows=(--batch.ramp_from=64 --batch.ramp_tokens=1600)

# The host of rank 2 is c, which rests for longer than the run lasts. Of three hosts two take part: a power of two.
goes_on_without_it() {
    ranks 4 sixteen straight --run.steps=40 "${grows[@]}"
    elastic a,b,c,d smaller "${grows[@]}" --run.fault=kill:rank=2,step=30 --run.save_every=20
    cat "$work/smaller.err"
    same_state straight smaller 40
    [ "$(events smaller start hosts)" = "$(printf 'a b c d\na b')" ]
    [ "$(events smaller start step)" = "$(printf -- '-1\n20')" ]
    grep -q '"event":"failure",.*"why":"signal","rank":2,"host":"c","rest":100,"step":29,"saved":20}' "$runs/smaller/elastic.jsonl"
    [ ! -e "$runs/smaller/failure.jsonl" ]
}

# Two ranks a host: rank 2 is b's first.
two_ranks_a_host() {
    ppn=2 elastic a,b pairs "${grows[@]}" --run.fault=kill:rank=2,step=30 --run.save_every=20
    [ "$(events pairs start ranks) $(events pairs failure host)" = "$(printf '4\n2 b')" ]
    [ "$(events pairs start hosts)" = "$(printf 'a b\na')" ]
    same_state straight pairs 40
}

without_one_that_hangs() {
    elastic a,b,c,d hung "${grows[@]}" --run.fault=hang:rank=2,step=30 --run.hang_timeout=2 --run.save_every=20
    [ "$(events hung failure why) $(events hung failure host)" = 'hang c' ]
    [ "$(events hung start hosts)" = "$(printf 'a b c d\na b')" ]
    same_state straight hung 40
}

# Hosts that do not answer are left out, and taken in again as soon as they do: the job saves and starts anew.
takes_them_back() {
    touch "$work/down"/{a,c,d}
    (
        until grep -qs '"step":5,' "$runs/larger/metrics.jsonl"; do sleep 0.05; done
        rm "$work/down/a"
    ) &
    local back=$!
    elastic a,b,c,d larger --run.steps=400 --run.stop_at=200 --optim.decay_steps=40
    wait "$back"
    cat "$work/larger.err"
    [ "$(events larger start hosts)" = "$(printf 'b\na b')" ]
    [ "$(events larger grow hosts)" = 'a b' ]
    local at
    at=$(events larger start step | tail -n 1)
    [ "$at" -ge 5 ]
    [ "$at" -lt 200 ]
    well_formed larger 200
    ranks 4 sixteen long --run.steps=400 --run.stop_at=200 --optim.decay_steps=40
    same_state long larger 200
}

# A job that does not end when it is asked to is killed, and starts again with all hosts from its newest checkpoint.
does_not_leave() {
    touch "$work/down/a"
    printf '%s\n' '#!/bin/bash' 'trap : USR1' "'$launcher' \"\$@\" &" 'while kill -0 $! 2>/dev/null; do wait $!; done' >"$work/deaf"
    chmod +x "$work/deaf"
    (
        until grep -qs '"step":30,' "$runs/deaf/metrics.jsonl"; do sleep 0.05; done
        rm "$work/down/a"
    ) &
    local back=$!
    launcher=$work/deaf LEAVE=1 elastic a,b deaf --run.steps=400 --run.stop_at=200 --optim.decay_steps=40 --run.save_every=20
    wait "$back"
    cat "$work/deaf.err"
    [ "$(events deaf start hosts | tail -n 1)" = 'a b' ]
    [ "$(events deaf failure status | head -n 1)" = 137 ]
    well_formed deaf 200
}

waits_for_hosts() {
    touch "$work/down/a"
    (
        until grep -qs '"event":"wait"' "$runs/waits/elastic.jsonl"; do sleep 0.05; done
        rm "$work/down/a"
    ) &
    local back=$!
    elastic a waits --run.steps=2
    wait "$back"
    cat "$runs/waits/elastic.jsonl"
    [ "$(grep -c . "$runs/waits/elastic.jsonl")" = 2 ] # it says so once, and then starts
}

# 16 sequences in micro-batches of 4: 1, 2 and 4 ranks.
sizes_that_divide() {
    elastic a,b,c sizes --run.steps=2 --batch.tokens=128 --batch.micro=4
    [ "$(events sizes start ranks) $(events sizes start hosts)" = '2 a b' ]
    elastic a,b even --run.steps=2 --batch.tokens=160 --batch.micro=20
    [ "$(events even start ranks)" = 1 ]
}

# The fault comes again at every attempt, because there is no checkpoint: with TRIES = 3 the third is the last.
gives_up() {
    local status=0
    min=2 elastic a,b,c gone --run.fault=kill:rank=1,step=3 || status=$?
    cat "$work/gone.err"
    [ $status != 0 ]
    [ "$(events gone start attempt | tail -n 1)" = 3 ]
    [ "$(events gone failure host)" = "$(printf 'b\nc\nb')" ] # one after another rests, until too few are left
    [ "$(events gone failure rest)" = "$(printf '100\n100\n200')" ]
    grep -q 'elastic: .*: 3 attempts brought no new checkpoint: given up' "$work/gone.err"
}

mistakes() {
    local status=0
    elastic a,b wrong --optim.lrr=1 || status=$?
    cat "$work/wrong.err"
    [ $status = 2 ]
    grep -q "unknown key 'optim.lrr'" "$work/wrong.err"
    [ ! -e "$runs/wrong/elastic.jsonl" ]
    fails_with 2 'usage: ' scripts/elastic.sh --ppn 1 "$BUILD/train" tiny --run.name=x
    fails_with 2 'usage: ' scripts/elastic.sh --hosts a --ppn x "$BUILD/train" tiny --run.name=x
    fails_with 2 'elastic.sh: --bogus: no such option' scripts/elastic.sh --hosts a --bogus 3 "$BUILD/train" tiny --run.name=x
    fails_with 2 'elastic.sh: --probe: no value' scripts/elastic.sh --hosts a --probe
    fails_with 2 'elastic.sh: --hosts a a: a name is empty or there twice' scripts/elastic.sh --hosts a,a "$BUILD/train" tiny --run.name=x
    fails_with 2 'elastic.sh: --hosts a  b: a name is empty or there twice' scripts/elastic.sh --hosts a,,b "$BUILD/train" tiny --run.name=x
    fails_with 2 'elastic.sh: build/trian: no such program' scripts/elastic.sh --hosts a build/trian tiny --run.name=x
    fails_with 2 'elastic.sh: EVERY=abc: a number is wanted' env EVERY=abc scripts/elastic.sh --hosts a "$BUILD/train" tiny --run.name=x
    fails_with 2 'tinny: no such file' scripts/elastic.sh --hosts a "$BUILD/train" tinny
}

# A signal to the script: the job saves, and is not started again.
asked_to_stop() {
    local pid
    elastic a,b stopped --run.steps=100000 --optim.decay_steps=100000 &
    pid=$!
    wait_for_step stopped 3 "$pid"
    ranks_of "$work/stopped.out"
    [ ${#process[@]} = 2 ]
    kill -TERM "$(ps -o pid= --ppid "$pid" | tr -d ' ')" # timeout, which passes it on
    wait "$pid"
    cat "$work/stopped.err"
    [ -f "$(checkpoint stopped "$(value train step "$runs/stopped/metrics.jsonl" | tail -n 1)")/manifest.json" ]
    [ "$(events stopped start attempt)" = 1 ]
    nobody_left
}

# The program itself removes the report of an earlier job.
an_old_report() {
    mkdir -p "$runs/old"
    echo '{"rank":7}' >"$runs/old/failure.jsonl"
    ranks 2 sixteen old --run.steps=1
    [ ! -e "$runs/old/failure.jsonl" ]
}

# Every script that starts runs, from a folder with a hard name: when a signal ends it, so it does the run, and nothing
# was written elsewhere. The program is a stand-in that names its process and sleeps.
ends_with_its_script() { # SIGNAL WORD...: the script and its arguments
    local signal=$1 box="$work/it's \"a\" ü \$x *[b]"
    shift
    if [ ! -e "$box" ]; then
        mkdir -p "$box/at/build" "$box/tmp"
        cp -r scripts "$box/at"
        printf '%s\n' '#!/bin/bash' 'case " $*" in *" --print run.dir"*) printf "%s\n" runs "a  b"; exit ;; *" --print"*) exit ;; esac' \
            'echo $$ >>"$PROCESSES"; exec sleep 60' >"$box/at/build/train"
        for name in stories prepare plan show; do printf '#!/bin/sh\n' >"$box/at/build/$name"; done
        chmod +x "$box/at/build"/*
    fi
    rm -rf "$box/at/runs" "$work/processes"
    (cd "$box/at" && unset BUILD DIR && PROCESSES=$work/processes TMPDIR=$box/tmp STEPS=1 JOBS=2 EVERY=60 exec "$@" >"$work/out" 2>&1 </dev/null) &
    pid=$!
    until [ -s "$work/processes" ]; do kill -0 "$pid"; sleep 0.02; done
    kill "-$signal" "$pid"
    mapfile -t process <"$work/processes"
    nobody_left
    wait "$pid" || true
    [ "$(ls -A "$box")" = $'at\ntmp' ]
    [ "$(ls -A "$box/at")" = $'build\nruns\nscripts' ] || [ "$(ls -A "$box/at")" = $'build\nscripts' ]
}

channels=32
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
{
    sed 's/^tokens = 512/tokens = 128/; s/^context = 32/context = 8/; s/^micro = 8/micro = 1/; s/^eval_every.*/eval_every = 0/; s/^sample_every.*/sample_every = 0/' \
        "$work/gpt.toml"
    printf '%s\n' '[sample]' 'count = 0' '[numerics]' 'deterministic = true'
} >"$work/sixteen.toml"
mkdir "$work/down"
printf '%s\n' '#!/bin/sh' "[ ! -e \"$work/down/\$1\" ]" >"$work/probe"
chmod +x "$work/probe"
passes 'goes on without the host that failed' goes_on_without_it
deeper passes 'two ranks a host' two_ranks_a_host
deeper passes 'goes on without a rank that hangs' without_one_that_hangs
deeper passes 'takes hosts in that answer again' takes_them_back
rm -f "$work/down"/*
deeper passes 'a job that does not leave' does_not_leave
passes 'waits for hosts' waits_for_hosts
passes 'the number of ranks divides the batch' sizes_that_divide
passes 'gives up without progress' gives_up
passes 'mistakes in the command' mistakes
passes 'SIGTERM' asked_to_stop
passes "an earlier job's report" an_old_report
command -v setpriv >/dev/null || { echo 'skip scripts that end (no setpriv)'; exit $failed; }
while read -r signals script; do # KILL: what runs several at a time in shells of its own goes on to the end of these
    for name in TERM ${TEST_LONG:+${signals//,/ }}; do
        # shellcheck disable=SC2086
        passes "SIG$name ends ${script%% *} and its run" ends_with_its_script $name scripts/$script
    done
done <<'END'
HUP,KILL run.sh
HUP,KILL precision.sh
HUP,KILL window.sh
HUP,KILL long_context.sh
HUP,KILL rounding_or_bug.sh rounding
HUP,KILL bench_save.sh
HUP,KILL example.sh deepspeed-zero1-3d
HUP ablate.sh stories
HUP,INT scaling.sh
HUP,INT,KILL run_forever.sh build/train x
HUP,INT,KILL elastic.sh --local --hosts a build/train x
END
exit $failed
