// pictures: ideas of the chapters, drawn from the functions and tables that training itself uses (build/show draw).
#ifndef PICTURES_H
#define PICTURES_H
#include "base/config.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// All write an SVG file to path. cfg is resolved and has a vocabulary.

// One forward and one backward of a block, op by op: which arrays each op reads and writes, and how long each is
// needed.
void pictures_block(const Config *cfg, const char *path);
// A whole step of the same model with one block: of which type each array is.
void pictures_casts(const Config *cfg, const char *path);
// Bytes of a parameter by precision and optimizer, array by array.
void pictures_state(const Config *cfg, const char *path);
// What each mode of memory.recompute keeps between forward and backward.
void pictures_recompute(const Config *cfg, const char *path);
// The tiles that attention computes: causal, with a window, with documents.
void pictures_tiles(const char *path);
// Where the tokens of a sequence go in one layer with experts.
void pictures_experts(const Config *cfg, const char *path);
// Which elements of a tensor each rank's file holds, and which of them each rank of another job reads. Both
// configurations are of one model; `tensor`: its name.
void pictures_slices(const Config *writes, const Config *reads, const char *tensor, const char *path);

// ---- shared by the files pictures_*.c
extern const char *const pictures_color[8]; // of a rank
void pictures_box(FILE *f, double x, double y, double w, double h, const char *fill, const char *stroke);
// svg_text from a format.
__attribute__((format(printf, 7, 8)))
void pictures_label(FILE *f, double x, double y, const char *anchor, double size, const char *color,
                    const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
