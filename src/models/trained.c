// trained: a model as a run, a checkpoint or a folder of Transformers holds it, ready to write text or to be measured.
//
// A checkpoint holds its run's settings and whole tensors by name, so nothing else is needed but the tokenizer, which
// the settings name. Only what the [model] section says is used: the layout of the run, its data and its optimizer do
// not matter here.
#include "models/trained.h"

#include "base/check.h"
#include "models/hf.h"
#include "ops/dev_cpu.h"
#include "train/ckpt.h"
#include "train/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const SafeTensor *tensor_of(const Ckpt *c, const Param *row, int hint)
{
    for (int i = 0; i < c->n_model; i++) {
        const SafeTensor *t = c->tensor[(hint + i) % c->n_model]; // both tables have one order
        if (strcmp(t->name, row->name)) continue;
        if (t->dtype != ST_F32 || t->n_elems != row->n_elems)
            die("%s: tensor %s has %zu elements, and the model of its settings %zu (damaged?)", c->dir, row->name,
                t->n_elems, row->n_elems);
        return t;
    }
    die("%s: has no tensor %s (damaged?)", c->dir, row->name);
}

static void load_weights(Model *m, const Ckpt *c)
{
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        memcpy(m->weights + row->offset, tensor_of(c, row, i)->data, row->n_elems * sizeof *m->weights);
    }
    model_weights_changed(m);
}

static Tokenizer *load_tokenizer(const Trained *t, const char *dir)
{
    if (!dir) dir = t->cfg.data.tokenizer;
    if (!*dir || access(dir, F_OK) != 0)
        die("%s: its tokenizer is not at '%s' (start from the folder in which it was trained, or try --tokenizer DIR)",
            t->dir, dir);
    Tokenizer *tokenizer = tokenizer_load(dir);
    if ((size_t)tokenizer_vocab_size(tokenizer) > t->model->shape.vocab)
        die("%s: a vocabulary of %d tokens, and the model of %s has %zu (another --tokenizer?)", dir,
            tokenizer_vocab_size(tokenizer), t->dir, t->model->shape.vocab);
    return tokenizer;
}

// A run's newest checkpoint, or the one named: settings and weights.
static Ckpt *open_checkpoint(Trained *t, const char *path)
{
    char error[CKPT_ERROR];
    Ckpt *c = ckpt_open(path, false, error, sizeof error);
    if (!c) die("%s", error);
    if (!c->state.config) die("%s: holds no settings, so the shape of its model is unknown", c->dir);
    t->step = c->state.step;
    if (!(t->dir = strdup(c->dir))) die("%s: no memory", path);
    config_load_text(&t->cfg, c->state.config, t->dir);
    return c;
}

Trained *trained_open(const char *path, const char *tokenizer, size_t B, size_t T, int threads)
{
    Trained *t = calloc(1, sizeof *t); // the model has the address of its allocator
    if (!t) die("%s: no memory", path);
    config_defaults(&t->cfg);
    Ckpt *c = NULL;
    if (hf_is_folder(path)) {
        if (!(t->dir = strdup(path))) die("%s: no memory", path);
        hf_config(path, &t->cfg);
        if (!tokenizer) tokenizer = path;
    } else c = open_checkpoint(t, path);
    ModelShape shape = run_shape(&t->cfg);
    t->dev = dev_cpu_create(threads);
    if (!B) B = (size_t)t->cfg.batch.micro;
    if (!T || T > shape.context) T = shape.context;
    t->model = model_allocate(&shape, t->dev, &t->mem, B, T, false);
    if (c) load_weights(t->model, c);
    else hf_load(path, t->model);
    ckpt_close(c);
    t->tokenizer = load_tokenizer(t, tokenizer);
    return t;
}

void trained_close(Trained *t)
{
    if (!t) return;
    tokenizer_free(t->tokenizer);
    model_free(t->model);
    mem_free_all(&t->mem);
    dev_cpu_free(t->dev);
    free(t->dir);
    free(t);
}
