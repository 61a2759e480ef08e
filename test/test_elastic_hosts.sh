#!/bin/bash
# circle: hosts
# test/test_elastic_hosts.sh: scripts/elastic.sh on hosts (hosts.sh): of four one is cut from the network, two others go on,
# and all do when its cable is there again; of two one dies, and the other goes on. The bytes are those of a run of one
# process.
# disk: a /dev/shm of its own
# long: about a minute
# shellcheck source=test/train_common.sh
. "$(dirname "$0")/train_common.sh"
# shellcheck source=test/ranks_common.sh
. "$(dirname "$0")/ranks_common.sh"
# shellcheck source=test/hosts.sh
. test/hosts.sh

# elastic HOSTS NAME [OPTION...]: the loop on h1, in the background; sets pid. Hosts have addresses, no names.
elastic() {
    local order=$1 name=$2
    shift 2
    printf '%s\n' '#!/bin/bash' "timeout 1 bash -c \": </dev/tcp/\$1/9\" 2>/dev/null" "[ \$? != 124 ] # refused: it is there" >"$work/reach"
    chmod +x "$work/reach"
    (HYDRA_LAUNCHER_AUTOFORK=0 EVERY=1 REST=1 PAUSE=0.5 exec setpriv --pdeathsig KILL nsenter -t "$(<"$hosts/first.1")" -n -u -i -- \
        env -u TMPDIR scripts/elastic.sh --hosts "$order" --probe "$work/reach" \
        --mpiexec "$launcher -launcher rsh -launcher-exec $hosts/enter -iface eth0" "$BUILD/train" "$work/sixteen.toml" \
        --run.name="$name" --run.steps=100000 --optim.decay_steps=40 --run.hang_timeout=3 "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null) &
    pid=$!
}

trains() { # NAME ATTEMPT: waits until that attempt has trained for some steps
    local i
    for ((i = 0; i < 600; i++)); do
        if [ "$(events "$1" start attempt | tail -n 1)" = "$2" ] && [ "$runs/$1/metrics.jsonl" -nt "$runs/$1/elastic.started" ] &&
            tail -n 9 "$runs/$1/metrics.jsonl" | grep -c '"event":"train"' | grep -q 9; then return; fi
        kill -0 "$pid" || break
        sleep 0.1
    done
    cat "$work/$1.err"
    return 1
}

ends_right() { # NAME: asked to stop, it saves; then the bytes of one process, and nothing left
    local s
    kill -TERM "$pid"
    wait "$pid"
    cat "$work/$1.err"
    s=$(value train step "$runs/$1/metrics.jsonl" | tail -n 1)
    well_formed "$1" "$s"
    train sixteen "$1-straight" --run.steps=100000 --optim.decay_steps=40 --run.stop_at="$s"
    same_state "$1-straight" "$1" "$s"
}

# The host of rank 0, which holds the run's lock until its supervisor has ended it.
cut_and_joined() {
    hosts_up 4
    elastic 10.77.0.3,10.77.0.1,10.77.0.2,10.77.0.4 cut --run.save_every=20
    trains cut 1
    hosts_cut 3
    trains cut 2
    [ "$(events cut start hosts | tail -n 1)" = '10.77.0.1 10.77.0.2' ]
    hosts_join 3
    trains cut 3
    [ "$(events cut start hosts | tail -n 1)" = '10.77.0.3 10.77.0.1 10.77.0.2 10.77.0.4' ]
    [ "$(events cut failure why)" = waits ]
    ends_right cut
    hosts_down || true # a host that is dead already is no error
}

dies() {
    hosts_up 2
    elastic 10.77.0.1,10.77.0.2 dead --run.save_every=20
    trains dead 1
    until [ -e "$runs/dead/checkpoints/step_00000020" ]; do kill -0 "$pid" && sleep 0.1; done
    hosts_kill 2
    trains dead 2
    [ "$(events dead start hosts | tail -n 1)" = 10.77.0.1 ]
    [ "$(value resume step "$runs/dead/metrics.jsonl")" -ge 20 ]
    ends_right dead
    hosts_down || true # a host that is dead already is no error
}

if why=$(hosts_missing); then
    echo "skip elastic runs on several hosts ($why)"
    exit 0
fi
prepare_corpus >"$work/log" 2>&1 || { echo 'not ok the corpus is made'; sed 's/^/  /' "$work/log"; exit 1; }
{
    sed 's/^micro = 8/micro = 1/; s/^eval_every.*/eval_every = 0/; s/^sample_every.*/sample_every = 0/' \
        "$work/gpt.toml"
    printf '%s\n' '[sample]' 'count = 0' '[numerics]' 'deterministic = true'
} >"$work/sixteen.toml"
passes 'a host is cut, and joined again' cut_and_joined
passes 'a host dies' dies
exit $failed
