// layout_search: tries every way to cut a model over accelerators, and ranks those that fit by predicted time.
#ifndef LAYOUT_SEARCH_H
#define LAYOUT_SEARCH_H
#include "dev/plan/plan_time.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// What is searched; the rest stays as the job has it. dp = gpus / (tp cp pp).
typedef struct {
    bool tp, pp, cp, ep, zero, chunks, vees, micro, recompute; // vees: the schedules zb-v, v-half and v-min too
    bool any_memory; // what does not fit is not refused
} LayoutSearchFree;

typedef struct {
    PlanJob job;
    double seconds; // of a step
} LayoutFound;

enum { LAYOUT_SEARCH_BEST = 10 };

typedef struct {
    LayoutFound best[LAYOUT_SEARCH_BEST]; // fastest first
    int n;
    long tried, refused[PLAN_LAYOUT_REASONS]; // refused[PLAN_LAYOUT_FITS]: those that fit
} LayoutSearch;

LayoutSearchFree layout_search_all(void);
// The best by their schedules' formulas (Vs: a short simulation), then ordered by simulating their tables. n 0: none
// fits.
LayoutSearch layout_search(const PlanJob *base, LayoutSearchFree is_free);
// A paragraph: why the best layout has its sizes, what limits them, and what the next different one would cost.
void layout_search_explain(const LayoutSearch *s, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
