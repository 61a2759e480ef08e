// parts: fills ModelParts for groups of ranks.
//
// The invariant: tokens, targets, positions and starts of documents are divided on the host, before the network reads
// them; the computation is divided by the entries that tp_fill and cp_fill put into its table. cp_fill comes first, so
// that tp's entries call cp's: tp completes a gradient over its own ranks before cp gets its rows.
#include "parallel/parts.h"

#include "base/check.h"

#include <stdlib.h>

static ModelShape shape(void *self, const ModelShape *whole, size_t T)
{
    Parts *p = self;
    const PartsSettings *set = &p->set;
    ModelShape mine = set->ep ? ep_shape(whole, set->ep->rank, set->ep->size) : *whole;
    if (set->cp) mine.experts.sharers = (size_t)set->cp->size, mine.experts.ordered = set->cp_set.blocks > 0;
    p->part = mine;
    if (!set->tp) return p->part;
    tp_check(whole, set->tp->size, set->sequence, T / (set->cp ? (size_t)set->cp->size : 1));
    p->part = tp_shape(&mine, set->tp->rank, set->tp->size, set->sequence);
    p->tp = tp_create(set->tp, &p->part);
    return p->part;
}

static void fill(void *self, Model *m)
{
    Parts *p = self;
    const ModelShape *s = &p->part;
    CpSettings cp_set = p->set.cp_set;
    m->linear.parts = p;
    m->linear.blocks = cp_set.blocks;
    if (p->set.cp) {
        p->cp = cp_create(p->set.cp, m->dev, m->mem, cp_set, m->max_batch, m->max_tokens, s->heads, s->kv_heads,
                          s->head_size);
        if (cp_set.blocks && m->dev->deterministic) cp_keep_order(p->cp, s);
        cp_fill(p, &m->linear);
    }
    if (p->set.ep) {
        p->ep = ep_create(p->set.ep, s);
        ep_fill(p, &m->linear);
    }
    if (p->set.tp) {
        p->tp.stage = mem_alloc(m->mem, MEM_SCRATCH, tp_stage_floats(&m->params) * sizeof(float), "shared gradients");
        tp_fill(p, &m->linear);
        m->parts.neighbours = p->tp.neighbours;
    }
}

static void check_tokens(void *self, size_t T)
{
    const Parts *p = self;
    if (p->set.cp || p->set.cp_set.blocks) cp_check(p->set.cp_set, T, p->set.cp ? p->set.cp->size : 1);
}

static void deal(void *self, int32_t *own, const int32_t *whole, size_t B, size_t T)
{
    const Parts *p = self;
    cp_cut(own, whole, sizeof *whole, B, p->set.cp_set.assign, T, p->set.cp->rank, p->set.cp->size);
}

static size_t position(void *self, size_t T, size_t i)
{
    const Parts *p = self;
    return cp_position(p->set.cp_set.assign, T, p->set.cp->rank, p->set.cp->size, i);
}

static void localise(void *self, int32_t *token, int32_t *target, size_t n)
{
    const Parts *p = self;
    tp_localise(&p->part, token, target, n);
}

static void gather_logits(void *self, float *row)
{
    const Parts *p = self;
    tp_gather_logits(&p->tp, &p->part, row);
}

static void release(void *self)
{
    Parts *p = self;
    free(p->cp);
    if (p->ep) ep_free(p->ep);
    free(p);
}

ModelParts parts_make(PartsSettings set)
{
    Parts *p = calloc(1, sizeof *p);
    if (!p) die("parts: no memory");
    if (set.tp && set.tp->size == 1) set.tp = NULL;
    if (set.cp && set.cp->size == 1) set.cp = NULL;
    if (set.ep && set.ep->size == 1) set.ep = NULL;
    p->set = set;
    ModelParts parts = {.self = p, .sharers = set.cp ? (size_t)set.cp->size : 1, .shape = shape, .fill = fill,
                        .check_tokens = check_tokens, .release = release};
    if (set.cp) parts.deal = deal, parts.position = position;
    if (set.tp) parts.localise = localise, parts.gather_logits = gather_logits;
    return parts;
}
