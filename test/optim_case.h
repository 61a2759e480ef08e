// optim_case: a parameter table without a model around it, an optimizer on it, and the check of one update of every
// element against the double versions of optim_ref.h. Tests only.
#ifndef OPTIM_CASE_H
#define OPTIM_CASE_H
#include "test/test.h"

#include "base/check.h"
#include "ops/dev_cpu.h"
#include "train/optim.h"
#include "optim_ref.h"
#include "base/rng.h"

#include <stdio.h>

typedef struct {
    Mem mem;
    Dev *dev;
    Model model; // params, weights, grads, x_weights, dev and mem are all that optim reads
    Optim optim;
    size_t n;
} Case;

static inline const OptimSettings *case_settings(OptimName name)
{
    static OptimSettings set;
    set = (OptimSettings){.name = name, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f,
                          .momentum = 0.95f, .row_beta2 = 0.9f};
    return &set;
}

// With this table; weights normal(0, 0.5).
static inline void case_begin(Case *c, Params params, int threads, OptimSettings set)
{
    *c = (Case){.dev = dev_cpu_create(threads), .n = params.n_elems};
    c->model = (Model){.params = params, .dev = c->dev, .mem = &c->mem};
    c->model.weights = mem_alloc(&c->mem, MEM_PARAMS, c->n * sizeof(float), "weights");
    c->model.grads = mem_alloc(&c->mem, MEM_GRADS, c->n * sizeof(float), "grads");
    c->model.x_weights = (X *)c->model.weights;
    for (size_t i = 0; i < c->n; i++) c->model.weights[i] = (float)(0.5 * rng_normal(rng_make(5, "weight", 0), i));
    c->optim = optim_create(&c->model, set);
}

// Tensors of every kind: matrices wide, tall and square; vectors; one of a little more than two blocks of 8-bit
// codes, in each place where a rule could forget one.
static inline Params case_params(void)
{
    Params p = {0};
    params_add(&p, 0, "embed.tokens.weight", 2, 7, 5, 0, 0, true, 0);
    params_add(&p, 0, "embed.positions.weight", 2, 3, 5, 0, 0, true, 0);
    params_add(&p, 1, "layers.0.wide.weight", 2, 6, 11, 0, 0, true, 0);
    params_add(&p, 1, "layers.0.large.weight", 2, 61, 70, 0, 0, true, 0);
    params_add(&p, 1, "layers.0.wide.bias", 1, 13, 0, 0, 0, false, -1);
    params_add(&p, 1, "layers.0.norm.weight", 1, 1, 0, 0, 0, false, -1);
    params_add(&p, 1, "layers.0.tall.weight", 2, 10, 7, 0, 0, true, 0);
    params_add(&p, 1, "layers.0.square.weight", 2, 8, 8, 0, 0, true, 0);
    params_add(&p, 1, "layers.0.long.bias", 1, 4097, 0, 0, 0, false, -1);
    params_add(&p, 2, "final_norm.weight", 1, 5, 0, 0, 0, false, -1);
    params_add(&p, 2, "head.weight", 2, 9, 5, 0, 0, true, 0);
    return p;
}

static inline void case_open(Case *c, OptimName name, int threads)
{
    case_begin(c, case_params(), threads, *case_settings(name));
}

static inline void case_close(Case *c)
{
    params_free(&c->model.params);
    mem_free_all(&c->mem);
    dev_cpu_free(c->dev);
}

// Gradients of one step, of very different sizes from element to element; some are 0.
static inline void case_fill(Case *c, uint32_t step)
{
    for (size_t i = 0; i < c->n; i++) {
        double size = exp(-2 * (double)rng_below(rng_make(5, "size", 0), i, 5));
        c->model.grads[i] = i % 17 == step ? 0 : (float)(size * rng_normal(rng_make(5, "grad", step), i));
    }
}

// ---- a state in double, before and after

typedef struct {
    size_t n[OPTIM_STATES];      // elements of this row in each array
    const void *at[OPTIM_STATES]; // where they are
} RowState;

static inline RowState row_state(const Optim *o, const Params *params, int r)
{
    RowState s = {{0}, {0}};
    for (int k = 0; k < o->kind->n_states; k++) {
        size_t begin = 0;
        for (int i = 0; i < r; i++) begin += optim_kind_elems(&o->state[k], params, &params->row[i]);
        s.n[k] = optim_kind_elems(&o->state[k], params, &params->row[r]);
        s.at[k] = (const char *)o->state[k].data + begin * safetensors_dtype_bytes(o->state[k].dtype);
    }
    return s;
}

typedef struct {
    size_t n;          // of w
    double *w, *w_err; // and up to two state arrays; 8-bit ones decoded
    double *s[2], *s_err[2];
    size_t n_s[2];
    int array[2]; // which array of the optimizer s[k] is
    bool in_8bit;
} RowCopy;

static inline RowCopy row_copy(const Case *c, int r)
{
    const Param *row = &c->model.params.row[r];
    RowState state = row_state(&c->optim, &c->model.params, r);
    RowCopy copy = {.n = row->n_elems, .array = {-1, -1}};
    copy.w = calloc(6 * (row->n_elems + row->dim[0] + row->dim[1]), sizeof *copy.w);
    if (!copy.w) fail_msg("no memory");
    double *room = copy.w_err = copy.w + copy.n;
    room += copy.n;
    for (size_t i = 0; i < copy.n; i++) copy.w[i] = c->model.weights[row->offset + i];
    copy.in_8bit = c->optim.set.name == OPTIM_ADAMW8BIT && state.n[0] > 0;
    int found = 0;
    for (int k = 0; k < c->optim.kind->n_states; k++) {
        if (!state.n[k] || (copy.in_8bit && k != 0 && k != 2)) continue;
        copy.array[found] = k;
        copy.n_s[found] = state.n[k];
        copy.s[found] = room;
        copy.s_err[found] = room + state.n[k];
        room += 2 * state.n[k];
        float book[256];
        updates_8bit_codes(k == 0, book);
        for (size_t i = 0; i < state.n[k]; i++)
            copy.s[found][i] = copy.in_8bit ? (double)book[((const uint8_t *)state.at[k])[i]] *
                                                  ((const float *)state.at[k + 1])[i / UPDATE_BLOCK]
                                            : ((const float *)state.at[k])[i];
        found++;
    }
    return copy;
}

// The update of a row in double, by the optimizer's formula; fills the errors.
static inline void row_update(RowCopy *c, OptimName name, const OptimSettings *set, const Params *params,
                              const Param *row, const float *grad, Update u)
{
    bool hidden = row->ndim == 2 && row->unit > 0 && row->unit < params->n_units - 1;
    if (name == OPTIM_ADAFACTOR) {
        if (set->relative_step) u.lr = (float)fmin(0.01, 1 / sqrt(u.step));
        bool matrix = row->ndim == 2;
        ref_adafactor(c->w, c->s[0], matrix ? c->s[1] : NULL, c->w_err, c->s_err[0], c->s_err[1], grad,
                      matrix ? row->dim[0] : 1, matrix ? row->dim[1] : row->n_elems, u);
        return;
    }
    if ((name == OPTIM_MUON || name == OPTIM_NORMUON) && hidden) {
        u.beta1 = set->momentum;
        u.beta2 = set->row_beta2;
        ref_muon(c->w, c->s[0], c->s[1], c->w_err, c->s_err[0], c->s_err[1], grad, row->dim[0], row->dim[1], u);
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        double err[3] = {0};
        double *m = c->s[0] ? c->s[0] + i : NULL, *v = c->s[1] ? c->s[1] + i : NULL;
        ref_update(name, c->w + i, m, v, err, grad[i], u);
        c->w_err[i] = err[0];
        for (int k = 0; k < 2; k++)
            if (c->s[k]) c->s_err[k][i] = err[1 + k];
    }
}

static inline void expect_near(const char *what, const Param *row, size_t i, double got, double want, double err)
{
    if (!(fabs(got - want) <= err + 0x1p-120))
        fail_msg("%s[%zu] of %s: %.9g, not %.9g within %.1e", what, i, row->name, got, want, err);
}

// Row r as it is now against the double version.
static inline void expect_row(const Case *c, int r, const RowCopy *want)
{
    const Param *row = &c->model.params.row[r];
    RowState state = row_state(&c->optim, &c->model.params, r);
    for (size_t i = 0; i < want->n; i++) {
        expect_near("weight", row, i, c->model.weights[row->offset + i], want->w[i], want->w_err[i]);
        assert_true(c->model.grads[row->offset + i] == 0);
    }
    for (int k = 0; k < 2; k++) {
        int a = want->array[k];
        if (a < 0) continue;
        if (want->in_8bit) {
            float book[256];
            updates_8bit_codes(a == 0, book);
            size_t n = want->n_s[k];
            size_t bad = ref_codes(state.at[a], state.at[a + 1], want->s[k], want->s_err[k], n, book, a != 0);
            if (bad < n)
                fail_msg("%s[%zu] of %s: code %d, scale %g for %g", c->optim.state[a].prefix, bad, row->name,
                         ((const uint8_t *)state.at[a])[bad], ((const float *)state.at[a + 1])[bad / UPDATE_BLOCK],
                         want->s[k][bad]);
            continue;
        }
        for (size_t i = 0; i < want->n_s[k]; i++)
            expect_near(c->optim.state[a].prefix, row, i, ((const float *)state.at[a])[i], want->s[k][i],
                        want->s_err[k][i]);
    }
}

// One optim_step, and every element of every row against the double version from the state before. `scale`: the
// factor that clipping and grad_scale should give. Returns the norm.
static inline double step_and_check(Case *c, double lr, float scale)
{
    const Params *p = &c->model.params;
    RowCopy *copy = calloc((size_t)p->n_rows, sizeof *copy);
    float *grad = malloc(c->n * sizeof *grad);
    if (!copy || !grad) fail_msg("no memory");
    memcpy(grad, c->model.grads, c->n * sizeof *grad);
    const OptimSettings *set = &c->optim.set;
    for (int r = 0; r < p->n_rows; r++) {
        copy[r] = row_copy(c, r);
        Update u = {.lr = (float)lr, .beta1 = set->beta1, .beta2 = set->beta2, .eps = set->eps, .grad_scale = scale,
                    .step = c->optim.step + 1, .weight_decay = p->row[r].decay ? set->weight_decay : 0,
                    .cautious = set->cautious_decay};
        row_update(&copy[r], set->name, set, p, &p->row[r], grad + p->row[r].offset, u);
    }
    double norm = optim_step(&c->optim, &c->model, lr);
    for (int r = 0; r < p->n_rows; r++) {
        expect_row(c, r, &copy[r]);
        free(copy[r].w);
    }
    free(copy);
    free(grad);
    return norm;
}

// Same bits: weights and all state.
static inline void expect_same(const Case *a, const Case *b)
{
    const char *name = a->optim.kind->name;
    if (memcmp(a->model.weights, b->model.weights, a->n * sizeof(float))) fail_msg("%s: weights differ", name);
    for (int s = 0; s < a->optim.kind->n_states; s++)
        if (memcmp(a->optim.state[s].data, b->optim.state[s].data, a->optim.state[s].n_bytes))
            fail_msg("%s: %s differs", name, a->optim.state[s].prefix);
}

#endif
