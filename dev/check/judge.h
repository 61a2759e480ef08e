// judge: may two tensors of a dump differ as they do? The bound of rounding, and what is systematic, by their name.
#ifndef JUDGE_H
#define JUDGE_H
#include "dev/check/diff.h"
#include "dev/check/systematic.h"

#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum { JUDGE_EXACT, JUDGE_GIVEN, JUDGE_ROUNDING } JudgeRule; // equal bits; rtol and atol; what rounding may do

typedef struct {
    const DiffSide *a, *b;
    JudgeRule rule;
    double rtol, atol;
    double tests; // of what is systematic, in all that is compared
} Judge;

typedef struct {
    DiffStats stats;
    bool tested; // for what is systematic
    Systematic systematic;
    int kind;    // systematic_worst: -1 where nothing is
    bool out;    // not rounding
} Judgement;

// Fills in `error`, the place in the order and the stored type of tensors whose file does not say: from their names,
// the shapes of both sides, and the side's arithmetic (diff_side_declare). Call once, after both are open.
void judge_prepare(DiffSide *a, DiffSide *b);
// NULL, or what a pair would need to be compared.
const char *judge_lacks(const Judge *judge, const DiffTensor *a);
// Two tensors of one shape and the same name.
Judgement judge(const Judge *judge, const DiffTensor *a, const DiffTensor *b);

#ifdef __cplusplus
}
#endif
#endif
