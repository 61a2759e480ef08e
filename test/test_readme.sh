#!/bin/bash
# circle: docs
# test/test_readme.sh: every command of README.md and of the evening of doc/weeks.md runs as it stands, in the order
# written, in a copy of the tree, and everything that README's tables name exists. README stays below 10 KB.
# long: it walks through a newcomer's first hour, make run included
# limit: 1800 s, for a machine with other work
#
# MINUTES shortens the training of make run and nothing else. Commands for a GPU are skipped where there is no nvcc or no GPU.
# Programs and objects come from $BUILD, which must be a plain build: another one's flags would build everything again.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
failed=0
bytes=$(wc -c <README.md)
if [ "$bytes" -le 10240 ]; then echo 'ok README.md is at most 10 KB'
else
    echo "not ok README.md has $bytes bytes, more than 10 KB"
    failed=1
fi
unknown=$(sed -n '/^| technique/,/^$/p' README.md | cut -d '|' -f 3 | grep -o '`[a-z]*\.[a-z_]*[`=]' | tr -d '`=' | sort -u |
    while IFS= read -r key; do "$BUILD/train" --help | grep -q -- "--${key}\b" || echo "$key"; done)
if [ -z "$unknown" ]; then echo 'ok the settings of the table exist'
else
    echo 'not ok the settings of the table exist'
    printf '%s\n' "$unknown" | sed 's/^/  no setting: /'
    failed=1
fi
if [ "${BUILD##*/}" != build ]; then
    echo 'skip the commands of README.md (this build has flags of its own)'
    exit $failed
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/readme.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/tree"
{ git ls-files -z 2>/dev/null || find . -type f -not -path './.git/*' -not -path './build/*' -not -path './runs/*' -print0; } |
    tar -c --null -T - --ignore-failed-read 2>/dev/null | tar -x -C "$work/tree"
tar -c --exclude='*/test' --exclude='*/fuzz' --exclude='*/asan' --exclude='*/tsan' --exclude='*/journey' -C "$(dirname "$BUILD")" build |
    tar -x -C "$work/tree"
case ${MAKEFLAGS:-} in *'-- '*) MAKEFLAGS="-- ${MAKEFLAGS#*-- }" ;; *) unset MAKEFLAGS ;; esac # CC=..., not -j of another make
unset MAKELEVEL MFLAGS BUILD TEXT
export MINUTES=0.05 OMP_WAIT_POLICY=passive
if ! command -v mpiexec >/dev/null; then mpiexec() { "$(command -v mpiexec.mpich || ls /usr/lib64/mpich/bin/mpiexec)" "$@"; }; fi

runs() { # COMMAND: in the copy
    (cd "$work/tree" && eval "$1") >"$work/log" 2>&1 </dev/null
}

n=0
while IFS= read -r command; do
    n=$((n + 1)) name=${command%%  *}
    case $command in
    'make gpu '* | 'make gpu' | *train_gpu*)
        if ! { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null; then
            echo "skip $name (no nvcc)"
            continue
        elif [ "${command#make}" = "$command" ] && ! nvidia-smi -L >/dev/null 2>&1; then
            echo "skip $name (no GPU)"
            continue
        fi ;;
    esac
    if runs "$command"; then echo "ok $name"
    else
        echo "not ok $name"
        tail -n 15 "$work/log" | sed 's/^/  /'
        failed=1
    fi
done < <(awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on && NF' README.md)
if [ $n -ge 15 ]; then echo 'ok README.md has commands'; else echo "not ok README.md has commands: $n"; failed=1; fi
# Those of an evening (doc/weeks.md) that README.md does not have; `make journey` has a test of its own.
commands() { awk '/^## Week 1:/ { exit } /^```sh$/ { on = 1; next } /^```/ { on = 0 } on && NF { sub(/  +#.*/, ""); print }' "$1"; }
n=0
while IFS= read -r command; do
    case $command in 'make journey'*) continue ;; esac
    n=$((n + 1))
    if runs "$command"; then echo "ok $command"
    else
        echo "not ok $command"
        tail -n 15 "$work/log" | sed 's/^/  /'
        failed=1
    fi
done < <(commands doc/weeks.md | grep -vxFf <(commands README.md))
if [ $n -ge 8 ]; then echo 'ok an evening has commands'; else echo "not ok an evening has commands: $n"; failed=1; fi
# What README.md says of them.
for folder in stories tiny ddp fsdp grid text b tiny-llama; do
    [ -f "$work/tree/runs/$folder/loss.svg" ] && continue
    echo "not ok runs/$folder is there"
    failed=1
done

# A later `make run` that comes to nothing, even twice, does not cost the run that was kept; and none moves the folder of
# a run that goes on.
kept() { [ -n "$(ls "$work/tree/$1/checkpoints" 2>/dev/null)" ]; }
nothing="scripts/run.sh doc --data.train=none.bin"
if ! runs 'scripts/run.sh doc --optim.lr=none' && kept runs/text && # a wrong argument moves nothing
    ! runs "$nothing" && ! runs "$nothing" && kept runs/text.previous && ! kept runs/text
then echo 'ok runs that come to nothing replace no run'
else
    echo 'not ok runs that come to nothing replace no run'
    failed=1
fi
# Ctrl-C: not done, and the command that it prints goes on.
going_on() {
    local step command
    if MINUTES=5 runs 'timeout -s INT 10 scripts/run.sh doc' || grep -q '4/4' "$work/log"; then return 1; fi
    step=$(sed -n 's/^stopped by a signal after step \([0-9]*\);.*/\1/p' "$work/log")
    command=$(sed -n '/^stopped by a signal/{ n; p; }' "$work/log")
    runs "$command --run.stop_at=$((step + 2))" && grep -q "^resumed: after step $step " "$work/log"
}
if going_on; then echo 'ok make run after Ctrl-C'
else
    echo 'not ok make run after Ctrl-C'
    tail -n 15 "$work/log" | sed 's/^/  /'
    failed=1
fi
if ! runs 'flock runs/text scripts/run.sh doc' && grep -q '^error: runs/text: a run goes on there' "$work/log"
then echo 'ok the folder of a run that goes on is not moved'
else
    echo 'not ok the folder of a run that goes on is not moved'
    tail -n 5 "$work/log" | sed 's/^/  /'
    failed=1
fi
exit $failed
