// parity_check: compares a run with one rank's: losses, gradient norms, every element of the last gradient.
//
//   b        2 lambda sqrt(n) u sum over tokens |gradient of the token's loss|    one gradient, added in two orders
//   a        lr S, S the spectral norm of the loss' Hessian (power iteration on differences of gradients)
//   step 1   |dg| <= b                          weights are equal
//   step 2   |dw| <= lr b          |dg| <= b + S lr b = b (1 + a)
//   step 3   |dw| <= lr b (2 + a)  |dg| <= b (1 + a)^2
//
// for plain SGD. n is the longest chain of additions: all tokens of a step, and in each of L + 2 units at most
// max(F, V) products for each of T rows. lambda = 6: rounding errors of either sign add up like a random walk, and
// exceed lambda sqrt(n) u with probability 2 exp(-lambda^2 / 2) (Higham and Mary, SIAM J. Sci. Comput. 41, 2019). The
// certain bound, n u, is as large as the gradient itself here, and would prove nothing. Losses are means over tokens:
// chain u L of rounding, and |g| |dw| by the weights.
//
// The invariant: a check that finds nothing to compare fails. Every tensor of the table must be there, whole, once.
#include "dev/check/parity_check.h"

#include "base/check.h"
#include "train/grads.h"
#include "base/config.h"
#include "dev/check/diff_side.h"
#include "net/model.h"
#include "text/packing.h"
#include "train/run.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, ROUNDS = 10, LAMBDA = 6 };

// What a run left behind.
typedef struct {
    double loss[STEPS], norm[STEPS];
    float *grads;  // (n_elems), whole
    DiffSide dump; // everything else of the last update, where it is open
    bool open;
} Outcome;

struct ParityReference {
    char name[200];
    Config cfg;
    ModelShape shape;
    Params params;
    Outcome out;
    float *weights;    // before the last update
    bool bounded;      // the next three are known
    double each, a;    // b and a
    double rounding;   // what 16 bits do to the gradient: |g - g in fp32|; 0 in fp32
    double chain;
    const ParityReference *exact;
};

static bool fail(ParityVerdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool fail(ParityVerdict *v, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!*v->why) vsnprintf(v->why, sizeof v->why, fmt, args);
    va_end(args);
    v->agrees = false;
    return false;
}

// ---- what a run left

static bool read_metrics(const char *run_dir, Outcome *out, ParityVerdict *v)
{
    char path[600], line[4096];
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    FILE *f = fopen(path, "r");
    if (!f) return fail(v, "%s is not there", path);
    while (fgets(line, sizeof line, f)) {
        json_t *row = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(row, "event"));
        if (event && !strcmp(event, "train") && n < STEPS) {
            out->loss[n] = json_number_value(json_object_get(row, "loss"));
            out->norm[n++] = json_number_value(json_object_get(row, "grad_norm"));
        }
        json_decref(row);
    }
    fclose(f);
    return n == STEPS || fail(v, "%s: %d steps, not %d", path, n, STEPS);
}

static float *room(size_t n)
{
    float *x = calloc(n, sizeof *x);
    if (!x) die("parity: no memory for %zu floats", n);
    return x;
}

// The dump of the last update. False: there is none, or a part of it is missing.
static bool open_dump(const char *run_dir, DiffSide *side, ParityVerdict *v)
{
    char dir[700], file[740];
    snprintf(dir, sizeof dir, "%s/dump/step_%08d", run_dir, STEPS);
    snprintf(file, sizeof file, "%s/rank_00000.safetensors", dir);
    if (access(file, R_OK)) return fail(v, "%s is not there", file);
    *side = diff_side_open(dir);
    bool good = side->n_absent == 0 || fail(v, "%s: rank %d has no file", dir, side->absent);
    for (int i = 0; good && i < side->n; i++) {
        const DiffTensor *t = &side->tensor[i];
        if (t->n_missing) good = fail(v, "%s: %zu elements are missing", t->t.name, t->n_missing);
        else if (t->disagrees) good = fail(v, "%s: ranks have written different values", t->t.name);
    }
    if (!good) diff_side_close(side);
    return good;
}

// All of a kind ("grad", "weight"), whole, in the order of the table.
static bool read_rows(const DiffSide *side, const Params *params, const char *kind, float *flat, ParityVerdict *v)
{
    char name[PARAM_NAME + 16];
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        snprintf(name, sizeof name, "%s.%s", kind, row->name);
        const DiffTensor *t = diff_side_find(side, name);
        if (!t || t->t.dtype != ST_F32 || t->t.n_bytes != row->n_elems * sizeof *flat)
            return fail(v, "%s: not there, or not %zu floats", name, row->n_elems);
        memcpy(flat + row->offset, t->t.data, t->t.n_bytes);
    }
    return true;
}

static bool read_outcome(const char *run_dir, const Params *params, Outcome *out, ParityVerdict *v)
{
    if (!read_metrics(run_dir, out, v) || !open_dump(run_dir, &out->dump, v)) return false;
    out->open = true;
    return read_rows(&out->dump, params, "grad", out->grads, v);
}

static void close_outcome(Outcome *out)
{
    if (out->open) diff_side_close(&out->dump);
    free(out->grads);
}

const char *parity_check_name(const ParityReference *reference)
{
    return reference->name;
}

static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

ParityReference *parity_check_open(const char *name, const char *run_dir, const char *config,
                                   const ParityReference *exact)
{
    ParityReference *r = calloc(1, sizeof *r);
    ParityVerdict v = {.agrees = true};
    Unit *unit;
    if (!r) die("parity: no memory");
    snprintf(r->name, sizeof r->name, "%s", name);
    config_defaults(&r->cfg);
    config_load_file(&r->cfg, config);
    config_resolve(&r->cfg);
    if (r->cfg.run.steps != STEPS) die("%s: run.steps = %ld, not %d", config, r->cfg.run.steps, STEPS);
    r->shape = run_shape(&r->cfg);
    model_describe(&r->shape, &r->params, &unit);
    free(unit);
    r->out.grads = room(r->params.n_elems);
    r->weights = room(r->params.n_elems);
    if (!read_outcome(run_dir, &r->params, &r->out, &v) ||
        !read_rows(&r->out.dump, &r->params, "weight", r->weights, &v))
        die("parity: %s: %s", name, v.why);
    r->exact = exact;
    if (exact) r->rounding = distance(r->out.grads, exact->out.grads, r->params.n_elems);
    size_t width = r->shape.ffn > r->shape.vocab ? r->shape.ffn : r->shape.vocab;
    r->chain = (double)r->cfg.batch.tokens + (double)(r->shape.layers + 2) * (double)(r->shape.context * width);
    return r;
}

void parity_check_close(ParityReference *r)
{
    params_free(&r->params);
    close_outcome(&r->out);
    free(r->weights);
    free(r);
}

// ---- the bound

// One rank's model, here, to ask for gradients of single tokens.
typedef struct {
    const ParityReference *r;
    Model *m;
    Dataset *data;
    int32_t *token, *target, *pos, *first, *one;
    size_t valid; // of the step
    int32_t eot;
} Probe;

static void load(Probe *p, int step, size_t i)
{
    const Config *cfg = &p->r->cfg;
    size_t T = p->r->shape.context, per_step = (size_t)cfg->batch.tokens / T;
    uint64_t sample = (uint64_t)step * per_step + i;
    dataset_window(p->data, (int64_t)sample, (int)T, (uint64_t)cfg->run.seed, cfg->data.shuffle, p->token, p->target);
    if (cfg->data.document_mask) packing_positions(p->token, 1, T, p->eot, p->pos, p->first, p->target);
    model_set_dropout(p->m, (float)cfg->model.dropout, (uint64_t)cfg->run.seed, (uint32_t)step, sample);
}

static void forward_backward(Probe *p, const int32_t *target)
{
    bool documents = p->r->cfg.data.document_mask;
    model_set_batch(p->m, p->token, documents ? p->pos : NULL, target, 1, p->r->shape.context);
    if (documents) model_set_documents(p->m, p->first);
    model_forward_backward(p->m, 1 / (float)p->valid);
}

static void clear(Probe *p)
{
    p->m->dev->zero(p->m->dev, p->m->grads, p->m->params.n_elems * sizeof(float));
}

static size_t count_valid(Probe *p, int step)
{
    size_t n = 0, T = p->r->shape.context;
    for (size_t i = 0; i < (size_t)p->r->cfg.batch.tokens / T; i++) {
        load(p, step, i);
        for (size_t t = 0; t < T; t++) n += p->target[t] >= 0;
    }
    return n;
}

// Sum over the step's tokens of |gradient of the token's loss|.
static double sum_of_norms(Probe *p, int step, const float *weights)
{
    size_t T = p->r->shape.context;
    double sum = 0;
    memcpy(p->m->weights, weights, p->m->params.n_elems * sizeof *weights);
    p->valid = count_valid(p, step);
    for (size_t i = 0; i < (size_t)p->r->cfg.batch.tokens / T; i++) {
        load(p, step, i);
        for (size_t t = 0; t < T; t++) {
            if (p->target[t] < 0) continue;
            for (size_t s = 0; s < T; s++) p->one[s] = s == t ? p->target[s] : -1;
            clear(p);
            forward_backward(p, p->one);
            sum += grads_norm(p->m->dev, &p->m->params, p->m->grads, 1);
        }
    }
    return sum;
}

// The last step's gradient at these weights, in m->grads.
static void gradient(Probe *p, const float *weights)
{
    memcpy(p->m->weights, weights, p->m->params.n_elems * sizeof *weights);
    clear(p);
    for (size_t i = 0; i < (size_t)p->r->cfg.batch.tokens / p->r->shape.context; i++) {
        load(p, STEPS - 1, i);
        forward_backward(p, p->target);
    }
}

// The spectral norm of the loss' Hessian at the last weights, from |g(w + e v) - g(w)| / e: what v turns to is the
// next v.
static double sensitivity(Probe *p)
{
    size_t n = p->m->params.n_elems;
    float *base = room(n), *moved = room(n);
    double s = 0, norm = 0;
    gradient(p, p->r->weights);
    memcpy(base, p->m->grads, n * sizeof *base);
    double e = 1e-3 * grads_norm(p->m->dev, &p->m->params, p->r->weights, 1) / sqrt((double)p->r->shape.layers);
    for (size_t i = 0; i < n; i++) norm += (double)base[i] * base[i];
    for (size_t i = 0; i < n; i++) moved[i] = base[i] / (float)sqrt(norm); // the first direction: the gradient's
    for (int k = 0; k < ROUNDS; k++) {
        for (size_t i = 0; i < n; i++) moved[i] = p->r->weights[i] + (float)e * moved[i];
        gradient(p, moved);
        double length = distance(p->m->grads, base, n);
        if (length / e > s) s = length / e;
        for (size_t i = 0; i < n; i++) moved[i] = (float)((p->m->grads[i] - base[i]) / length);
    }
    free(base);
    free(moved);
    return s;
}

static void find_bound(ParityReference *r)
{
    size_t T = r->shape.context, n = r->params.n_elems;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(0);
    Probe p = {.r = r, .m = model_allocate(&r->shape, dev, &mem, 1, T, true)};
    Tokenizer *tokenizer = tokenizer_load(r->cfg.data.tokenizer);
    p.eot = tokenizer_eot(tokenizer);
    p.data = dataset_open(r->cfg.data.train, (int)r->cfg.model.vocab);
    p.token = calloc(5 * T, sizeof *p.token);
    if (!p.token) die("parity: no memory for %zu tokens", T);
    p.target = p.token + T, p.pos = p.target + T, p.first = p.pos + T, p.one = p.first + T;
    float *start = room(n);
    params_init(&r->params, (uint64_t)r->cfg.run.seed, start);
    double begin = sum_of_norms(&p, 0, start), end = sum_of_norms(&p, STEPS - 1, r->weights);
    r->each = 2 * LAMBDA * sqrt(r->chain) * (FLT_EPSILON / 2) * (begin > end ? begin : end);
    r->a = r->cfg.optim.lr * sensitivity(&p);
    r->bounded = true;
    double norm = r->out.norm[STEPS - 1], bound = r->each * (1 + r->a) * (1 + r->a);
    if (!(bound <= 0.1 * norm)) // a tensor that is missing would not show
        die("parity: %s: the bound %.3g is not far below the gradient's norm %.3g (lr S = %.2g: try a lower optim.lr)",
            r->name, bound, norm, r->a);
    free(start);
    free(p.token);
    dataset_close(p.data);
    tokenizer_free(tokenizer);
    model_free(p.m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
}

// ---- the verdict

// Losses and norms; bound: of the last gradient.
static void check_steps(const ParityReference *r, const Outcome *out, bool exact, double bound, ParityVerdict *v)
{
    for (int k = 0; k < STEPS; k++) {
        double loss = 0, norm = 0, unit = r->exact ? 0x1p-8 : LAMBDA * sqrt(r->chain) * FLT_EPSILON;
        if (!exact) {
            loss = unit * r->out.loss[k] + 2 * r->cfg.optim.lr * bound * r->out.norm[k];
            norm = bound + 1e-8 * r->out.norm[k]; // 9 digits are printed
        }
        if (!(fabs(out->loss[k] - r->out.loss[k]) <= loss))
            fail(v, "step %d: loss %.9g, one rank %.9g, bound %.2g", k + 1, out->loss[k], r->out.loss[k], loss);
        if (!(fabs(out->norm[k] - r->out.norm[k]) <= norm))
            fail(v, "step %d: gradient norm %.9g, one rank %.9g, bound %.2g",
                 k + 1, out->norm[k], r->out.norm[k], norm);
    }
}

// Everything that the last update computed: activations, losses, gradients, weights before and after.
static void check_dump(const ParityReference *r, const Outcome *out, ParityVerdict *v)
{
    for (int i = 0; i < r->out.dump.n; i++) {
        const SafeTensor *one = &r->out.dump.tensor[i].t;
        const DiffTensor *t = diff_side_find(&out->dump, one->name);
        bool same = t && t->t.n_bytes == one->n_bytes && !memcmp(t->t.data, one->data, one->n_bytes);
        v->equal &= same;
        v->n_tensors++;
        if (!same) fail(v, "%s is %s", one->name, t ? "not the same" : "not there");
    }
}

static void check_grads(const ParityReference *r, const Outcome *out, double bound, ParityVerdict *v)
{
    double largest = 0;
    for (int i = 0; i < r->params.n_rows; i++) {
        const Param *row = &r->params.row[i];
        const float *g = out->grads + row->offset, *one = r->out.grads + row->offset;
        double apart = distance(g, one, row->n_elems);
        v->equal &= !memcmp(g, one, row->n_elems * sizeof *g);
        v->n_tensors++;
        if (!(apart <= largest)) largest = apart, snprintf(v->where, sizeof v->where, "%s", row->name);
        if (!(apart <= bound))
            fail(v, "the gradient of %s is %.3g apart in norm, bound %.3g", row->name, apart, bound);
    }
    v->worst = bound > 0 ? largest / bound : largest;
}

ParityVerdict parity_check(ParityReference *r, const char *run_dir, bool to_the_bit)
{
    ParityVerdict v = {.agrees = true, .equal = true};
    Outcome out = {.grads = room(r->params.n_elems)};
    double bound = 0;
    if (!to_the_bit && !r->exact && !r->bounded) find_bound(r);
    if (!to_the_bit) bound = r->exact ? 4 * r->rounding : r->each * (1 + r->a) * (1 + r->a);
    if (read_outcome(run_dir, &r->params, &out, &v)) {
        check_steps(r, &out, to_the_bit, bound, &v);
        if (to_the_bit) check_dump(r, &out, &v);
        else check_grads(r, &out, bound, &v);
    }
    close_outcome(&out);
    return v;
}
