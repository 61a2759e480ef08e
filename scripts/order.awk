# scripts/order.awk: puts names so that each comes after those it needs. needs[a, b] > 0: a needs b. Where a ring of needs
# makes that impossible, the name that needs the fewest of the rest goes first. Ties: by weight[], the larger first, then
# by name.
function sort_by_needs(names, n, needs, weight, sorted,   i, j, k, best, open, fewest, left) {
    for (i = 1; i <= n; i++) left[names[i]]
    for (k = 1; k <= n; k++) {
        best = ""
        for (i = 1; i <= n; i++) {
            if (!(names[i] in left)) continue
            open = 0
            for (j in left) if (j != names[i] && needs[names[i], j] > 0) open++
            if (best == "" || open < fewest || (open == fewest && (weight[names[i]] > weight[best] ||
                (weight[names[i]] == weight[best] && names[i] < best)))) { best = names[i]; fewest = open }
        }
        sorted[k] = best
        delete left[best]
    }
}
