# steps.awk: program `step` (1 to 9) of dev/steps/steps.c: awk -v step=3 -f dev/steps/steps.awk dev/steps/steps.c
function has(list, n, i, range) { # "" is all; else numbers and ranges, as 3-6,9
    n = split(list, range, ",")
    for (i = 1; i <= n; i++) {
        split(range[i] "-" range[i], end, "-")
        if (step >= end[1] + 0 && step <= end[2] + 0) return 1
    }
    return n == 0
}
/^\/\/@/ { on = has(substr($0, 5)); next }
on
