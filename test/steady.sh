#!/bin/bash
# test/steady.sh: are the tests steady? Runs them N times, a round at a time, each round under one of five conditions in
# turn, in an order drawn by chance. A test that passes on a quiet machine and fails under one of these depends on time,
# on the user or on names of folders. (test/run.sh --steady N [NAME...])
#
#   load     two busy loops beside the tests
#   core     one core, one test at a time
#   user     another user, nobody: the tree is only read, HOME is unset, the umask is 077 (only where root starts it)
#   space    TMPDIR is long and has spaces in it
#   locale   LANG and LC_ALL are de_DE.UTF-8, HOME does not exist, there is no terminal
#
# Each round's output is a file in a folder that is printed; it stays where something failed. Then what failed, with
# its condition and round; the last line is "N passed, N failed", over all rounds. What a round cannot have is said.
#
# usage: test/steady.sh N [NAME...]    NAME as for test/run.sh; none: the tests of `make test`
# CONDITIONS='user space': those alone. SEED=7: the orders of an earlier run. The rest as test/run.sh: BUILD, JOBS.
set -u
cd "$(dirname "$0")/.." || exit 1
[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || { echo 'usage: test/run.sh --steady N [NAME...]' >&2; exit 1; }
rounds=$1 seed=${SEED:-$(($(date +%s) % 100000))}
shift
read -ra conditions <<<"${CONDITIONS:-load core user space locale}"
export BUILD=${BUILD:-build}
kept=$(mktemp -d "${TMPDIR:-/tmp}/steady.XXXXXX") || exit 1
chmod a+rx "$kept"
failures=$kept/failures passed=0 failed=0 running=()
: >"$failures"
end() {
    [ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null
    wait
    rm -rf "$kept"/tmp* "$kept/locales"
    [ -s "$failures" ] || rm -rf "$kept"
}
trap end EXIT
trap 'exit 130' INT TERM

[ $# != 0 ] || mapfile -t names < <(test/run.sh --list | sort -u)
[ $# = 0 ] || mapfile -t names < <(printf '%s\n' "$@" | sort -u)
order() { # ROUND: the names, one a line; the same for the same seed
    printf '%s\n' "${names[@]}" | awk -v seed="$seed$1" 'BEGIN { srand(seed) } { printf "%.9f %s\n", rand(), $0 }' | LC_ALL=C sort | cut -d ' ' -f 2
}

# Sets locale: whether de_DE.UTF-8 is there, or can be made here.
find_locale() {
    locale=yes
    locale -a 2>/dev/null | grep -qiE '^de_DE\.utf-?8$' && return
    mkdir -p "$kept/locales"
    [ -d "$kept/locales/de_DE.UTF-8" ] || localedef -i de_DE -f UTF-8 "$kept/locales/de_DE.UTF-8" 2>/dev/null
    if [ -d "$kept/locales/de_DE.UTF-8" ]; then settings+=("LOCPATH=$kept/locales"); else locale=''; fi
}

# What a condition is made of: sets before (a command that starts the others), settings (of the environment), tmp and,
# where it cannot be had, why.
prepare() { # CONDITION
    local core
    before=() settings=() why='' tmp=$kept/tmp
    case $1 in
    load | space) ;;
    core)
        core=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status 2>/dev/null)
        before=(taskset -c "${core:-0}") settings=(JOBS=1)
        "${before[@]}" true 2>/dev/null || why='taskset does not run here' ;;
    user)
        before=(setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups)
        settings=(-u HOME -u XDG_CACHE_HOME "CCACHE_DIR=$tmp/ccache" USER=nobody LOGNAME=nobody)
        if [ "$(id -u)" != 0 ]; then why='only root can start it'
        elif ! "${before[@]}" test -r "$0" -a -x "$BUILD" 2>/dev/null; then why='nobody cannot read this tree'
        fi ;;
    locale)
        settings=(-u TERM LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 HOME=/nowhere/at/all "CCACHE_DIR=${CCACHE_DIR:-$tmp/ccache}")
        before=(setsid -w)
        find_locale
        [ -n "$locale" ] || echo 'note: de_DE.UTF-8 is not installed, and localedef does not make it: its name alone is set' ;;
    *) why='no such condition' ;;
    esac
    [ "$1" != space ] || tmp="$kept/tmp with spaces in its long name/job 7"
}

one_round() { # ROUND CONDITION
    local log=$kept/round_$1.$2.txt tests what=() p=0 f=0 status
    echo "== round $1 of $rounds: $2"
    prepare "$2"
    if [ -n "$why" ]; then echo "   not run: $why"; left+=("$2 ($why)"); return; fi
    mapfile -t tests < <(order "$1")
    rm -rf "$kept"/tmp*
    mkdir -p "$tmp"
    running=()
    if [ "$2" = load ]; then
        (trap - EXIT; while :; do :; done) & running+=($!)
        (trap - EXIT; while :; do :; done) & running+=($!)
    fi
    [ "$2" != user ] || { chown nobody "$tmp" && what=(bash -c 'umask 077; exec "$@"' bash); }
    ${before[@]+"${before[@]}"} env ${settings[@]+"${settings[@]}"} TMPDIR="$tmp" ${what[@]+"${what[@]}"} \
        test/run.sh "${tests[@]}" >"$log" 2>&1 </dev/null &
    running+=($!)
    wait $!
    status=$?
    kill "${running[@]}" 2>/dev/null
    wait
    running=()
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
    grep '^FAIL' "$log" | sed "s|\$|  [round $1: $2]|" | tee -a "$failures"
    if [ "${p:-}" = '' ] || { [ $status != 0 ] && [ "$f" = 0 ]; }; then
        echo "FAIL  the round itself: exit status $status  [round $1: $2]" | tee -a "$failures"
        tail -n 3 "$log"
        p=${p:-0} f=$((${f:-0} + 1))
    fi
    echo "   $p passed, $f failed; $(grep ' s of the clock, ' "$log")"
    passed=$((passed + p)) failed=$((failed + f))
}

left=()
echo "${#names[@]} names, $rounds rounds, SEED=$seed; their output: $kept"
for ((round = 1; round <= rounds; round++)); do
    one_round $round "${conditions[(round - 1) % ${#conditions[@]}]}"
done
[ ${#left[@]} = 0 ] || printf 'not run: %s\n' "${left[@]}"
[ ! -s "$failures" ] || { echo "failed at least once (output: $kept):"; sort "$failures" | sed 's/^FAIL /   /'; }
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
