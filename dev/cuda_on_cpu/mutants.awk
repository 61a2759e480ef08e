# mutants.awk: the small mistakes that a CUDA file invites, one at a time. Used by mutate.sh.
#
# usage: awk -v pick=0 -f mutants.awk FILE      lists them: NUMBER|LINE|WHAT|the line of the source, trimmed
#        awk -v pick=N -f mutants.awk FILE      prints FILE with mistake N made
#
# Removed: each barrier, warp barrier, commit, wait, fence, and each early return. Changed: each `a < b` in an `if`, a
# `?:` or a `for` into `a <= b`. The line count stays. Comments and macros are left alone.
function offer(what, text)
{
    n++
    if (pick == 0) {
        source = $0
        gsub(/^ +| +$/, "", source)
        printf "%d|%d|%s|%s\n", n, NR, what, source
    } else if (n == pick) changed = text
}
# Each match of `pattern` becomes `by`, one at a time.
function each(pattern, what, by,    at, left)
{
    at = 1
    while (at <= length(code) && match(substr(code, at), pattern)) {
        left = substr(code, 1, at + RSTART - 2)
        offer(what " " substr(code, at + RSTART - 1, RLENGTH), left by substr(code, at + RSTART - 1 + RLENGTH))
        at += RSTART - 1 + RLENGTH
    }
}
{
    code = $0
    sub(/ *\/\/.*/, "", code)
    changed = $0
    if (code !~ /^ *#/) {
        each("__sync(threads|warp)\\([^()]*\\);", "without", "(void)0;")
        each("named_barrier\\([^;]*\\);", "without", "(void)0;")
        each("cp_async_commit\\(\\);", "without", "(void)0;")
        each("cp_async_wait<[^>]*>\\(\\);", "without", "(void)0;")
        each("__threadfence\\(\\);", "without", "(void)0;")
        each("return;", "without", "(void)0;")
        if (code ~ /(^| )(if|for) \(|\?/) each(" < ", "<= for", " <= ")
    }
    if (pick) print changed
}
