// trained: a model as a run, a checkpoint or a file of other programs holds it, ready to write text or to be measured.
//
// A checkpoint holds its run's settings and whole tensors by name, so nothing else is needed but the tokenizer, which
// the settings name. Only what the [model] section says is used: the layout of the run, its data and its optimizer do
// not matter here.
#include "models/trained.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/disk.h"
#include "formats/formats.h"
#include "models/gguf_model.h"
#include "models/hf.h"
#include "models/llmc.h"
#include "ops/dev_cpu.h"
#include "ckpt/ckpt.h"
#include "train/run.h"

#include <limits.h>
#include <stdio.h>
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

// The biases with which training chose experts (loads.h).
static void load_biases(Model *m, const Ckpt *c)
{
    char error[CKPT_ERROR];
    Loads loads = loads_create(&m->shape);
    CkptExtra extra = {"experts", loads.n_state, loads.state};
    if (loads.E && !ckpt_extra(c, &extra, error, sizeof error)) die("%s", error);
    loads_tell(&loads, m);
    loads_free(&loads);
}

static void load_weights(Model *m, const Ckpt *c)
{
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        memcpy(m->weights + row->offset, tensor_of(c, row, i)->data, row->n_elems * sizeof *m->weights);
    }
    model_weights_changed(m);
    load_biases(m, c);
}

// given: it was named with --tokenizer. A model may have more rows than tokens, which pad the matrix, but not many.
static void check_vocabulary(const Trained *t, const char *from, bool given)
{
    size_t known = (size_t)tokenizer_vocab_size(t->tokenizer), room = t->model->shape.vocab;
    if (known > room || (given && known < room - room / 8))
        die("%s: a vocabulary of %zu tokens, and the model of %s has %zu (another --tokenizer?)", from, known, t->dir,
            room);
}

Tokenizer *trained_tokenizer(Trained *t)
{
    if (!t->tokenizer)
        die("%s: its tokenizer is not at '%s' (start from the folder in which it was trained, or try --tokenizer DIR)",
            t->dir, t->cfg.data.tokenizer);
    return t->tokenizer;
}

// Whether a path can be a run or a checkpoint.
static bool has_checkpoint(const char *path)
{
    char inner[PATH_MAX];
    bool found = false;
    for (int i = 0; i < 2 && !found; i++)
        found = (size_t)snprintf(inner, sizeof inner, "%s/%s", path, i ? "manifest.json" : "checkpoints") < sizeof inner
                && access(inner, F_OK) == 0;
    return found;
}

// A run that was moved (make run keeps an earlier one as NAME.previous) has taken along the data in its own folder.
static void follow_data(Trained *t)
{
    Config *cfg = &t->cfg;
    char was[2 * CONFIG_TEXT + 3], now[PATH_MAX];
    char *const paths[] = {cfg->data.tokenizer, cfg->data.train, cfg->data.val};
    const char *end = strstr(t->dir, "/checkpoints/");
    int n = snprintf(was, sizeof was, "%s/%s/", cfg->run.dir, cfg->run.name);
    if (!end || !strncmp(t->dir, was, (size_t)n)) return;
    for (int i = 0; i < 3; i++) {
        if (strncmp(paths[i], was, (size_t)n)) continue;
        snprintf(now, sizeof now, "%.*s/%s", (int)(end - t->dir), t->dir, paths[i] + n);
        if (strlen(now) >= CONFIG_TEXT || (i == 0 && access(now, F_OK))) return;
        memcpy(paths[i], now, strlen(now) + 1);
    }
}

// A run's newest checkpoint, or the one named: settings and weights.
static Ckpt *open_checkpoint(Trained *t, const char *path)
{
    char error[CKPT_ERROR];
    char log[PATH_MAX];
    if (snprintf(log, sizeof log, "%s/metrics.jsonl", path) < (int)sizeof log && access(log, F_OK) == 0 && !has_checkpoint(path))
        die("%s: a run that ended before its first checkpoint (train again, to the end or with run.save_every)", path);
    char begin[24] = "";
    FILE *file = disk_is_special(path) ? NULL : fopen(path, "rb");
    if (file && fread(begin, 1, sizeof begin - 1, file) && safetensors_other(begin))
        die("%s: %s", path, safetensors_other(begin));
    if (file) fclose(file);
    if (access(path, F_OK) == 0 && !has_checkpoint(path))
        die("%s: not a model (a run, a checkpoint, a folder of Transformers, a GGUF file, or a model file of llm.c)",
            path);
    Ckpt *c = ckpt_open(path, false, error, sizeof error);
    if (!c) die("%s", error);
    if (!c->state.config) die("%s: holds no settings, so the shape of its model is unknown", c->dir);
    t->step = c->state.step;
    if (!(t->dir = strdup(c->dir))) die("%s: no memory", path);
    config_load_text(&t->cfg, c->state.config, t->dir);
    follow_data(t);
    return c;
}

// What a path is, and the settings of its model.
static TrainedKind read_settings(Trained *t, const char *path, Ckpt **ckpt, Gguf **gguf)
{
    TrainedKind kind = hf_is_folder(path) ? TRAINED_HF : gguf_is_file(path) ? TRAINED_GGUF
                       : llmc_is_file(path) ? TRAINED_LLMC : TRAINED_CKPT;
    if (kind != TRAINED_CKPT && !(t->dir = strdup(path))) die("%s: no memory", path);
    if (kind == TRAINED_HF) hf_config(path, &t->cfg);
    else if (kind == TRAINED_GGUF) gguf_model_config(*gguf = gguf_open(path), &t->cfg);
    else if (kind == TRAINED_LLMC) llmc_config(path, &t->cfg);
    else *ckpt = open_checkpoint(t, path);
    return kind;
}

// The folder that was named, or where the model has its own; NULL: nowhere.
static Tokenizer *find_tokenizer(const Trained *t, const char *dir, const Gguf *gguf)
{
    if (dir && access(dir, F_OK) != 0) die("%s: no tokenizer is there (--tokenizer)", dir);
    if (!dir && gguf) return gguf_model_tokenizer(gguf);
    if (!dir && t->kind == TRAINED_HF) dir = t->dir;
    if (!dir) dir = t->cfg.data.tokenizer;
    return *dir && access(dir, F_OK) == 0 ? tokenizer_load(dir) : NULL;
}

Trained *trained_open(const char *path, TrainedOptions o)
{
    Trained *t = calloc(1, sizeof *t); // the model has the address of its allocator
    if (!t) die("%s: no memory", path);
    config_defaults(&t->cfg);
    Ckpt *ckpt = NULL;
    Gguf *gguf = NULL;
    doing("reading the model");
    t->kind = read_settings(t, path, &ckpt, &gguf);
    ModelShape shape = run_shape(&t->cfg);
    Config numerics = {.numerics.dtype = o.dtype};
    t->cpu = dev_cpu_create(o.threads);
    t->dev = run_device(&numerics, t->cpu);
    if (!o.B) o.B = (size_t)t->cfg.batch.micro;
    if (!o.T || o.T > shape.context) o.T = shape.context;
    t->model = model_allocate(&shape, t->dev, &t->mem, o.B, o.T, false);
    if (ckpt) load_weights(t->model, ckpt);
    else if (gguf) gguf_model_load(gguf, t->model);
    else if (t->kind == TRAINED_LLMC) llmc_load(path, t->model);
    else hf_load(path, t->model);
    if ((t->tokenizer = find_tokenizer(t, o.tokenizer, gguf)))
        check_vocabulary(t, o.tokenizer ? o.tokenizer : t->dir, o.tokenizer);
    ckpt_close(ckpt);
    gguf_close(gguf);
    doing(NULL);
    return t;
}

void trained_must_be_finite(const Trained *t)
{
    const Model *m = t->model;
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        if (!formats_finite((const float *)m->weights + row->offset, row->n_elems))
            die("%s: %s holds a number that is not finite (another checkpoint?)", t->dir, row->name);
    }
}

void trained_close(Trained *t)
{
    if (!t) return;
    tokenizer_free(t->tokenizer);
    model_free(t->model);
    mem_free_all(&t->mem);
    run_device_free(t->dev, t->cpu);
    free(t->dir);
    free(t);
}
