# shellcheck shell=bash disable=SC2154 # launcher: test/ranks_common.sh
# test/hosts.sh: one to nine hosts on this machine, for tests of runs on several. Sourced after test/train_common.sh and
# test/ranks_common.sh; $work is the folder that the hosts share, as machines share a parallel file system.
#
# A host is a set of Linux namespaces: its own network with one address, its own processes, host name, System V IPC,
# /tmp and /dev/shm. So ranks of two hosts reach each other by TCP only, as on two machines. A cable (veth) leads from
# each host to a switch, which is a network namespace too: a bridge, or the program slow_link.c for a slow network.
#
# Nothing outlives the shell that called hosts_up, however it ends: the first process of each host gets SIGKILL when its
# parent dies (setpriv --pdeathsig), the kernel then kills all processes of the host, and with the last of them the
# namespaces and their devices are gone. Nothing in the machine's own network is changed.
#
#   hosts_missing                   what this machine lacks for them, one line, status 0; nothing, status 1
#   hosts_up N [DELAY RATE [LOSS]]  hosts h1 ... hN. DELAY: seconds one way; RATE: bytes a second into each host; LOSS:
#                                   of packets, 0 to 1. Without them the network is as fast as the kernel
#   hosts_run ARGUMENT...           mpiexec on h1, which starts ranks on all hosts: hosts_run -n 4 -ppn 2 build/train ...
#   hosts_in K COMMAND...           on host K
#   hosts_cut K, hosts_join K       pulls host K's cable at the switch, and puts it back
#   hosts_kill K                    ends all of host K at once, like a power cut: nobody is told
#   hosts_left                      the processes of the hosts: HOST PID COMMAND; nothing when all have ended
#   hosts_down

hosts=$work/hosts # of this machine's side: process numbers, log

hosts_missing() {
    local tool
    [ "$(uname)" = Linux ] || { echo 'no Linux: no namespaces'; return 0; }
    for tool in ip nsenter unshare setpriv; do
        command -v $tool >/dev/null || { echo "no $tool (on Debian: iproute2, util-linux)"; return 0; }
    done
    [ "$($launcher -info 2>/dev/null | grep -c '^HYDRA build')" = 1 ] || { echo "no mpiexec of MPICH"; return 0; }
    unshare -n -u -i -m -p -f --mount-proc sh -c 'mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm &&
        ip link add name v0 type veth peer name v1 && ip link add name b0 type bridge' 2>/dev/null ||
        { echo 'the kernel does not let this user make namespaces, mounts, veth and bridges (root can)'; return 0; }
    return 1
}

# What a host's first process does. It has the machine's files, but for /tmp, where only $work and the repository show.
_hosts_first() { # K
    local path own=$hosts/tmp.$1
    echo "h$1" >/proc/sys/kernel/hostname
    mount -t sysfs sysfs /sys
    mount -t tmpfs tmpfs /dev/shm
    mkdir -p "$own"
    mount -t tmpfs tmpfs "$own"
    for path in "$work" "$PWD"; do
        case $path in /tmp/*) mkdir -p "$own/${path#/tmp/}" && mount --bind "$path" "$own/${path#/tmp/}" ;; esac
    done
    mount --move "$own" /tmp
    cd "$PWD" || exit # the one that is there now
    ip link set lo up
    : >"$hosts/ready.$1"
    sleep infinity & # a shell waits for it, and for orphans, which would be left as zombies otherwise
    wait
}

_hosts_until() { # COMMAND...: succeeds; else after 10 s an error
    local i
    for ((i = 0; i < 200; i++)); do "$@" && return 0; sleep 0.05; done
    echo "hosts: after 10 s still not: $*"
    cat "$hosts/log"
    return 1
}

# The kernel calls a device running up to a second after its cable is there, and UCX takes only such.
_hosts_running() { hosts_in "$1" ip -br link show dev eth0 up | grep -q ' UP .*LOWER_UP'; }

_hosts_start() { # FILE COMMAND...: in the background, as long as this shell; its process number goes into the file
    setpriv --pdeathsig KILL "${@:2}" </dev/null >>"$hosts/log" 2>&1 &
    echo $! >"$hosts/$1"
    disown # or the shell reports its end
}

hosts_up() { # N [DELAY RATE [LOSS]]
    local k n=$1 ports=()
    shift
    rm -rf "$hosts"
    mkdir -p "$hosts"
    export work hosts
    export -f _hosts_first
    _hosts_start switch unshare -n sleep infinity
    for ((k = 1; k <= n; k++)); do
        _hosts_start "outer.$k" unshare -n -u -i -m -p -f --kill-child --mount-proc bash -ec "_hosts_first $k"
    done
    for ((k = 1; k <= n; k++)); do
        _hosts_until [ -e "$hosts/ready.$k" ] || return 1
        ps -o pid= --ppid "$(<"$hosts/outer.$k")" | tr -d ' ' >"$hosts/first.$k"
        _hosts_switch ip link add name "p$k" type veth peer name eth0 netns "$(<"$hosts/first.$k")"
        _hosts_switch ip link set "p$k" up
        hosts_in "$k" ip link set eth0 address "02:00:00:00:00:0$k"
        hosts_in "$k" ip address add "10.77.0.$k/24" dev eth0
        [ $# = 0 ] || hosts_in "$k" ip link set eth0 gso_max_segs 1 # packets of the size that a cable has
        hosts_in "$k" ip link set eth0 up
        ports+=("p$k")
    done
    if [ $# = 0 ]; then
        _hosts_switch ip link add name bridge type bridge
        for k in "${ports[@]}"; do _hosts_switch ip link set "$k" master bridge; done
        _hosts_switch ip link set bridge up
    else
        ${CC:-cc} -O1 -o "$hosts/slow_link" test/slow_link.c || return 1
        _hosts_start switch.link nsenter -t "$(<"$hosts/switch")" -n \
            "$hosts/slow_link" "$1" "$2" "${3:-0}" "${ports[@]}"
    fi
    for ((k = 1; k <= n; k++)); do _hosts_until _hosts_running "$k" || return 1; done
    # mpiexec's way to another host, in place of ssh: ADDRESS COMMAND...
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/bash' 'k=${1##*.}; shift' \
        "exec nsenter -t \"\$(<'$hosts'/first.\$k)\" -m -u -i -n -p -w -- sh -c \"\$*\"" >"$hosts/enter"
    chmod +x "$hosts/enter"
}

_hosts_switch() { nsenter -t "$(<"$hosts/switch")" -n "$@"; }

hosts_in() { # K COMMAND...
    local k=$1
    shift
    nsenter -t "$(<"$hosts/first.$k")" -m -u -i -n -p -w -- "$@"
}

# mpiexec is on h1 but for its files and its process number, which it needs to enter the others. It is ended after
# hosts_limit seconds (120), or with this shell.
hosts_run() {
    local all bound=(setpriv --pdeathsig KILL)
    all=$(cd "$hosts" && printf '10.77.0.%s,' first.* | sed 's/first\.//g; s/,$//')
    # "enter" is found in PATH: mpiexec splits its launcher's name at spaces, which $hosts may have.
    PATH=$hosts:$PATH HYDRA_LAUNCHER_AUTOFORK=0 "${bound[@]}" timeout -k 5 "${hosts_limit:-120}" "${bound[@]}" \
        nsenter -t "$(<"$hosts/first.1")" -n -u -i -- env -u TMPDIR "$launcher" -launcher rsh \
        -launcher-exec enter -iface eth0 -hosts "$all" "$@"
}

hosts_cut() { _hosts_switch ip link set "p$1" down; }
hosts_join() { _hosts_switch ip link set "p$1" up; }

# The cable first, so that no connection is closed. The kernel kills all of a host with its first process.
hosts_kill() { # K
    local outside
    hosts_cut "$1"
    outside=$(hosts_left | awk -v host="h$1" '$1 == host && $3 ~ /^mpiexec/ { print $2 }')
    # shellcheck disable=SC2086
    kill -KILL "$(<"$hosts/first.$1")" $outside
}

hosts_left() {
    local file
    for file in "$hosts"/first.*; do
        ps -eo netns=,pid=,ppid=,stat=,comm= | awk -v host="h${file##*.}" -v first="$(<"$file")" '
            { line[NR] = host " " $2 " " $5; net[NR] = $1; dead[NR] = $4 ~ /^Z/
              own[NR] = $2 == first || $5 == "unshare"
              if ($3 == first && $5 == "sleep") own[NR] = 1
              if ($2 == first) at = $1 }
            END { for (i = 1; at && i <= NR; i++) if (net[i] == at && !dead[i] && !own[i]) print line[i] }'
    done
}

hosts_down() {
    local file pid=
    for file in "$hosts"/outer.* "$hosts"/switch*; do
        [ -e "$file" ] || continue
        pid=$(<"$file")
        kill -KILL "$pid" 2>/dev/null
        while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    done
    rm -rf "$hosts"
}
