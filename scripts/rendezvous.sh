#!/bin/bash
# scripts/rendezvous.sh: starts ranks where each host runs one command and nothing may start processes on another host
# (no ssh, no SLURM): pods of Kubernetes, torchrun. The hosts find each other by the environment variables of
# torch.distributed's env:// rendezvous:
#
#   RANK WORLD_SIZE             this host's number, from 0, and how many hosts there are
#   MASTER_ADDR MASTER_PORT     host 0's address, and a free port of it
#   RENDEZVOUS_FILE             instead of the address: a file that all hosts see; host 0 writes its address there
#   RENDEZVOUS_TIMEOUT          seconds to wait for the others (600)
#   RENDEZVOUS_PORT             the port, where it is not MASTER_PORT
#
# usage, on each host: scripts/rendezvous.sh [-n RANKS] PROGRAM [ARGUMENT...]     -n: ranks of each host (1)
#
# Under torchrun --no-python, which starts LOCAL_WORLD_SIZE processes on a host, RANK counts processes: the first of a
# host stands for all, the others end at once. torchrun's own store listens at MASTER_PORT, so the next port is taken.
#
# Host 0 runs mpiexec of MPICH, whose launcher "manual" starts nothing and prints the command of each host's proxy. Each
# host asks its own mpiexec for that command, puts host 0's address in, and runs it until host 0 answers. Environment
# and working directory of all ranks are host 0's. Exit status: the program's, on every host; 2 where it is not started.
# Open MPI has no such launcher.
set -u
export LC_ALL=C # awk and bash write 0.5, not 0,5
say() { printf 'rendezvous: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 2; }
whole() { case $2 in '' | *[!0-9]*) die "$1 is '$2' (a whole number is wanted)" ;; esac; }

ranks=${LOCAL_WORLD_SIZE:-1}
[ "${1:-}" = -n ] && { ranks=${2:-}; shift 2 || shift; }
case ${1:-} in -*) die "$1: no such option (-n RANKS)" ;; esac
[ $# -gt 0 ] || die 'no program (usage: scripts/rendezvous.sh [-n RANKS] PROGRAM [ARGUMENT...])'
host=${RANK:-} hosts=${WORLD_SIZE:-} limit=${RENDEZVOUS_TIMEOUT:-600} port=${RENDEZVOUS_PORT:-${MASTER_PORT:-29500}}
whole RANK "$host" && whole WORLD_SIZE "$hosts" && whole RENDEZVOUS_TIMEOUT "$limit"
whole MASTER_PORT "$port" && whole 'number of ranks' "$ranks"
[ "$port" -le 65535 ] || die "MASTER_PORT is $port (at most 65535)"
[ "$hosts" -gt 0 ] || die "WORLD_SIZE is $hosts (1 or more)"
if [ -n "${LOCAL_RANK:-}" ]; then # torchrun's
    [ "$LOCAL_RANK" = 0 ] || exit 0
    [ $((hosts % ranks)) = 0 ] || die "WORLD_SIZE $hosts is no multiple of $ranks processes a host"
    host=${GROUP_RANK:-$((host / ranks))} hosts=$((hosts / ranks))
    [ -n "${RENDEZVOUS_PORT:-}" ] || port=$((port + 1))
fi
[ "$ranks" -gt 0 ] || die "$ranks ranks a host (1 or more)"
[ "$host" -lt "$hosts" ] || die "RANK is $host, WORLD_SIZE $hosts (0 to $((hosts - 1)))"
[ -n "${MASTER_ADDR:-}${RENDEZVOUS_FILE:-}" ] ||
    die 'no MASTER_ADDR (host 0, as this one reaches it), and no RENDEZVOUS_FILE'
mpiexec=${MPIEXEC:-$(command -v mpiexec.mpich || command -v mpiexec)} || die 'no mpiexec (apt-get install mpich)'
work=$(mktemp -d "${TMPDIR:-/tmp}/rendezvous.XXXXXX") || exit 2
server='' proxy=''
leave() {
    local process
    for process in $proxy $server; do
        kill -9 "$process"
        wait "$process" # or bash says that it was killed
    done 2>/dev/null
    [ "$host" != 0 ] || [ -z "${RENDEZVOUS_FILE:-}" ] || rm -f "$RENDEZVOUS_FILE"
    rm -rf "$work"
}
trap leave EXIT
pass_on() { # SIGNAL: to the ranks of this host, each a child of the shell that notes its status
    [ -n "$proxy" ] || exit 143
    local shell
    for shell in $(pgrep -P "$proxy"); do pkill "-$1" -P "$shell"; done
}
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM
trap 'pass_on USR1' USR1

# mpiexec -launcher manual PROGRAM..., in the background; what it prints after the proxies' commands is at descriptor 3.
# Sets command to that of a proxy, without its number.
serve() {
    local names line
    names=$(seq -s, -f 'host%g' 0 $((hosts - 1)))
    mkfifo "$work/out"
    "$mpiexec" -launcher manual -hosts "$names" -n $((hosts * ranks)) -ppn "$ranks" "$@" </dev/null >"$work/out" &
    server=$! command=''
    exec 3<"$work/out"
    while read -r line <&3; do
        case $line in
            'HYDRA_LAUNCH: '*) command=${line#*: } && command=${command% *} ;;
            HYDRA_LAUNCH_END) return ;;
        esac
    done
    die "$mpiexec gives no command for a proxy (is it MPICH's? on host 0: is port $port free?)"
}

# Ranks note how they ended where RENDEZVOUS_STATUS says, which is this host's own variable: the rest of their environment
# comes from host 0. They stay for two seconds at least, or host 0 might not have seen their host.
# shellcheck disable=SC2016
noted='sleep 2 & "$@"; s=$?; wait; echo $s >>"$RENDEZVOUS_STATUS"; [ $s -le 128 ] || kill -$((s - 128)) $$; exit $s'
unset RENDEZVOUS_STATUS
if [ "$host" = 0 ]; then
    [ -n "${RENDEZVOUS_FILE:-}" ] && [ -z "${MASTER_ADDR:-}" ] || export MPIEXEC_PORT_RANGE=$port:$port
    serve sh -c "$noted" sh "$@"
    cat <&3 &
    output=$!
    found=${command#*--control-port } found=${found%% *}
    if [ -z "${MASTER_ADDR:-}" ]; then
        mine=$(hostname -I | cut -d ' ' -f 1)
        echo "${mine:-127.0.0.1}:${found##*:}" 2>/dev/null >"$RENDEZVOUS_FILE.$$" && mv "$RENDEZVOUS_FILE.$$" "$RENDEZVOUS_FILE" ||
            die "$RENDEZVOUS_FILE: cannot be written"
    fi
    listen=${found##*:}
else
    serve true
    kill -9 $server
    wait $server 2>/dev/null
    server=''
fi
address() { # of host 0; nothing where it has not written it yet
    if [ "$host" = 0 ]; then echo "127.0.0.1:$listen"
    elif [ -n "${MASTER_ADDR:-}" ]; then echo "$MASTER_ADDR:$port"
    else cat "$RENDEZVOUS_FILE" 2>/dev/null; fi
}
# Host 0's own ranks start last: its mpiexec crashes where one is killed before all proxies are there (MPICH 4.0).
# Proxies are the other ends of its port in the kernel's table of connections (0A: it listens).
until=$((SECONDS + limit)) here=1
while [ "$host" = 0 ] && [ $here -lt "$hosts" ] && kill -0 $server 2>/dev/null; do
    [ $SECONDS -lt $until ] || die "$here of $hosts hosts are here after $limit s (RENDEZVOUS_TIMEOUT)"
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port="$(printf ':%04X' "$listen")" \
        '$4 != "0A" && substr($2, length($2) - 4) == port { print $3 }' >>"$work/seen"
    here=$((1 + $(sort -u "$work/seen" | wc -l)))
    sleep 0.1
done

# The proxy of this host; again while host 0 does not answer.
while :; do
    at=$(address)
    if [ -n "$at" ]; then
        RENDEZVOUS_STATUS=$work/status ${command%%--control-port*}--control-port "$at" ${command#*--control-port * } "$host" \
            </dev/null 2>"$work/err" &
        proxy=$!
        while :; do # a signal ends a wait
            wait $proxy
            [ -d /proc/$proxy ] || break
        done
        proxy=''
        grep -q 'unable to connect' "$work/err" || break
    fi
    [ $SECONDS -lt $until ] || die "host 0 does not answer at '$at' after $limit s (RENDEZVOUS_TIMEOUT)"
    sleep 0.3
done
status=0
if [ "$host" = 0 ]; then
    while :; do
        wait $server
        status=$?
        [ -d /proc/$server ] || break
    done
    server=''
    wait "$output"
    exit $status
fi
[ "$(cat "$work/status" 2>/dev/null | wc -l)" = "$ranks" ] && exit "$(sort -n "$work/status" | tail -n 1)"
say "error: of $ranks ranks here $(cat "$work/status" 2>/dev/null | wc -l) came to an end (one was killed, or host 0 has another -n)"
exit 1
