// fp8: per-tensor scales, current and delayed.
//
//   scale = max(format) / amax          x8 = saturate(round(x scale))          x is about x8 / scale
//   current    amax of the tensor itself
//   delayed    the largest amax of the last `history` steps, this one not included
//
// The invariant: within a step the delayed scale of a tensor never changes, whatever micro-batches, threads
// or recomputation do, and the current scale is a function of the tensor. So the same tensor is always
// quantised alike, and with delayed scales the result does not depend on how a batch is cut.
//
// A delayed scale can be too large: an element above all of the history saturates at the format's maximum (from the
// next step on the history contains it). An infinite element would saturate too, and so disappear. Therefore `bad` is
// set and the step is skipped, as fp16 skips an overflow. No amax of such a step enters the history: values that grow
// towards infinity would keep the scales too small for `history` steps.
//
// In the first step there is no history, and each tensor takes its current scale. Rejected: starting at scale 1
// (gradients near 1e-6 would all round to zero in that step); scales rounded to powers of two (multiplying by them is
// exact, but up to one bit of range is lost); one scale per row or block of a tensor (finer, but it needs another
// matmul).
#include "formats/fp8.h"

#include "base/check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Fp8 *fp8_create(Fp8Scaling scaling, int history)
{
    if (history < 1) die("fp8: amax history of %d steps (1 or more)", history);
    Fp8 *fp8 = (Fp8 *)calloc(1, sizeof *fp8);
    if (!fp8) die("fp8: no memory");
    fp8->scaling = scaling;
    fp8->history = history;
    return fp8;
}

void fp8_free(Fp8 *fp8)
{
    if (!fp8) return;
    free(fp8->on);
    free(fp8->amax);
    free(fp8->now);
    free(fp8);
}

static bool is_block_matrix(const Param *row)
{
    return row->ndim == 2 && strncmp(row->name, "layers.", 7) == 0;
}

// One word of the list: turns its matrices off.
static void keep_word(Fp8 *fp8, const char *word, size_t length)
{
    char text[PARAM_NAME];
    bool found = false;
    if (length == 0 || length >= sizeof text) die("fp8: '%.*s' is no part of a matrix's name", (int)length, word);
    memcpy(text, word, length);
    text[length] = 0;
    for (int i = 0; i < fp8->n_sites; i++) {
        if (!is_block_matrix(&fp8->params->row[i]) || !strstr(fp8->params->row[i].name, text)) continue;
        fp8->on[i] = false;
        found = true;
    }
    if (!found) die("fp8: '%s' is in no name of a block's matrix (as in layers.0.ffn.down.weight)", text);
}

void fp8_set_sites(Fp8 *fp8, const Params *params, const char *keep)
{
    size_t n = (size_t)params->n_rows;
    free(fp8->on), free(fp8->amax), free(fp8->now);
    fp8->bad = false;
    fp8->params = params;
    fp8->changes++;
    fp8->n_sites = params->n_rows;
    fp8->on = (bool *)calloc(n, sizeof *fp8->on);
    fp8->amax = (float *)calloc(n * FP8_ROLES * (size_t)fp8->history, sizeof *fp8->amax);
    fp8->now = (float *)calloc(n * FP8_ROLES, sizeof *fp8->now);
    if (!fp8->on || !fp8->amax || !fp8->now) die("fp8: no memory for the scales of %zu tensors", n);
    for (int i = 0; i < fp8->n_sites; i++) fp8->on[i] = is_block_matrix(&params->row[i]);
    while (keep && *keep) {
        size_t length = strcspn(keep, ",");
        keep_word(fp8, keep, length);
        keep += length + (keep[length] == ',');
    }
}

bool fp8_runs(const Fp8 *fp8, int site)
{
    return site >= 0 && site < fp8->n_sites && fp8->on[site];
}

Format fp8_format(Fp8Role role)
{
    return role == FP8_DOUT ? FORMAT_E5M2 : FORMAT_E4M3;
}

// An amax that is 0 or not finite gives scale 1. The scale of a tiny amax is limited, so that it and its inverse stay
// finite.
float fp8_scale_for(Fp8Role role, float amax)
{
    float top = formats_max(fp8_format(role));
    if (!(amax > 0 && amax <= FLT_MAX)) return 1;
    return amax > top * 0x1p-120f ? top / amax : 0x1p120f;
}

void fp8_note(Fp8 *fp8, int site, Fp8Role role, float amax)
{
    float *now = fp8->now + (size_t)site * FP8_ROLES + role;
    if (!isfinite(amax)) fp8->bad = true;
    else if (amax > *now) *now = amax;
}

float fp8_known(const Fp8 *fp8, int site, Fp8Role role)
{
    const float *past = fp8->amax + ((size_t)site * FP8_ROLES + role) * (size_t)fp8->history;
    float top = 0;
    if (fp8->scaling == FP8_CURRENT) return 0;
    for (int i = 0; i < fp8->history; i++) top = past[i] > top ? past[i] : top;
    return top;
}

float fp8_scale(Fp8 *fp8, int site, Fp8Role role, float amax)
{
    check(fp8_runs(fp8, site));
    fp8_note(fp8, site, role, amax);
    float known = fp8_known(fp8, site, role);
    return fp8_scale_for(role, known > 0 ? known : amax);
}

void fp8_collect(Fp8 *fp8)
{
    if (fp8->fetch) fp8->fetch(fp8, fp8->fetch_arg);
}

void fp8_copy(Fp8 *to, const Fp8 *from)
{
    size_t n = (size_t)from->n_sites * FP8_ROLES;
    check(to->scaling == from->scaling && to->history == from->history && (!to->on || to->params == from->params));
    if (!to->on) fp8_set_sites(to, from->params, NULL);
    memcpy(to->on, from->on, (size_t)from->n_sites * sizeof *to->on);
    memcpy(to->amax, from->amax, n * (size_t)from->history * sizeof *to->amax);
    memcpy(to->now, from->now, n * sizeof *to->now);
    to->bad = from->bad;
    to->changes++;
}

void fp8_step_begin(Fp8 *fp8)
{
    if (fp8->now) memset(fp8->now, 0, (size_t)fp8->n_sites * FP8_ROLES * sizeof *fp8->now);
    fp8->bad = false;
    fp8->changes++;
}

bool fp8_step_end(Fp8 *fp8)
{
    fp8_collect(fp8);
    size_t n = (size_t)fp8->n_sites * FP8_ROLES, history = (size_t)fp8->history;
    bool good = !fp8->bad;
    for (size_t i = 0; good && i < n; i++) {
        if (!(fp8->now[i] > 0)) continue; // not seen, or all zeros
        float *past = fp8->amax + i * history;
        memmove(past + 1, past, (history - 1) * sizeof *past);
        past[0] = fp8->now[i];
    }
    fp8_step_begin(fp8);
    return good;
}

float *fp8_state(Fp8 *fp8, size_t *n)
{
    *n = (size_t)fp8->n_sites * FP8_ROLES * (size_t)fp8->history;
    fp8->changes++; // the caller may write to it
    return fp8->amax;
}
