// guides: the worked numbers of five guides to large-scale pretraining, computed again and judged.
//
// A row has the guide's values, ours, and sometimes ours under another reading of the guide's words. The verdict
// follows from these alone (guides_verdict):
//
//     agrees   each of ours is within the row's tolerance of the guide's
//     loose    only under the other reading is that so
//     wrong    neither
//     missing  the guide gives no value, so that ours has nothing to agree with: mostly its formula is lost
//     none     there is nothing to compute: the row has words alone
#ifndef GUIDES_H
#define GUIDES_H
#include <stdbool.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { GUIDES_VALUES = 9, GUIDES_ROWS = 200 };

typedef struct {
    int n;           // 0: there is no value
    bool range;      // v[0] to v[1], one value
    double v[GUIDES_VALUES];
} GuideValues;

// What a row is about: the command that shows more, and the chapter.
typedef enum {
    GUIDES_LAW, GUIDES_FLOPS, GUIDES_COST, GUIDES_MACHINE, GUIDES_STATE, GUIDES_ZERO, GUIDES_RING, GUIDES_TP,
    GUIDES_BUBBLE, GUIDES_CUT, GUIDES_ACTS, GUIDES_AGAIN, GUIDES_FLASH, GUIDES_FORMAT, GUIDES_RATE, GUIDES_OPTIM,
    GUIDES_CLIP, GUIDES_BATCH, GUIDES_RECIPE, GUIDES_DATA, GUIDES_FAILS, GUIDES_TOPICS
} GuideTopic;

typedef struct {
    GuideTopic topic;
    const char *id, *what, *unit;
    double percent;                     // tolerance, of our value
    GuideValues guide, ours, other;     // other: n 0, there is no other reading
    const char *formula, *other_formula; // as C; other: NULL, there is none
    const char *why;                    // what is wrong or loose, or what to know of a row that agrees; NULL: nothing
} GuideRow;

typedef enum { GUIDES_AGREES, GUIDES_LOOSE, GUIDES_WRONG, GUIDES_MISSING, GUIDES_NONE, GUIDES_VERDICTS } GuideVerdict;

// Computes all rows; row has room for GUIDES_ROWS. Returns their number.
int guides_rows(GuideRow *row);
GuideVerdict guides_verdict(const GuideRow *row);
// All rows as markdown (what NULL), those of a guide ("G1"), of a section ("G1-28") or of a verdict ("wrong"); or one
// row ("G1-28-e") with its formula. Dies, with the nearest ids, when there is nothing of that name.
void guides_print(const char *what, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
