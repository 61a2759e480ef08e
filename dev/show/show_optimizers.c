// show_optimizers: one small model trained by every optimizer, and what weight decay does in Adam and in AdamW.
//
//   build/show optimizers race  [--steps N] [--threads N]
//   build/show optimizers decay [--steps N] [--threads N]
//
// race trains the same model from the same weights on the same batches with each optimizer at several learning rates
// (warm-up, then cosine to a tenth) and prints the validation losses: how far apart the optimizers are at this size,
// and how much each depends on its learning rate.
//
// decay trains it with Adam without decay, with AdamW, and with Adam and L2 at two strengths, and prints what is left
// of the norm of each kind of matrix, sorted by the size of its gradients. AdamW shrinks every weight by lr d w; L2 by
// lr d w / sqrt(vhat), so more where gradients are small and less where they are large.
//
// The model is of the GPT family, on characters of the stories corpus: no files are needed, and what is printed is the
// same each time on one machine. Exit status: 0, 1 for an error, 2 for a wrong command line.
#include "dev/show/show.h"
#include "base/check.h"
#include "tools/options.h"
#include "net/model.h"
#include "ops/dev_cpu.h"
#include "train/optim.h"
#include "base/rng.h"
#include "train/schedule.h"
#include "data/stories/stories.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 64, BATCH = 16, N = BATCH * CONTEXT, VOCAB = 128, STORIES = 1500, VAL_STORIES = 60, VAL_BATCHES = 12 };
static const ModelShape SHAPE = {.layers = 4, .channels = 64, .heads = 4, .kv_heads = 4, .head_size = 16, .ffn = 256,
                                 .vocab = VOCAB, .context = CONTEXT, .norm = NORM_LAYERNORM, .norm_eps = 1e-5f,
                                 .bias = true, .tie = true};

typedef struct {
    char *bytes;
    size_t n;
} Text;

// Stories from number `first` on, one on a line.
static Text write_stories(uint64_t first, int n_stories)
{
    Text text = {0};
    Grammar *grammar = stories_load(STORIES_TALES);
    GrammarText story = {0};
    for (int i = 0; i < n_stories; i++) {
        grammar_write(grammar, 1, first + (uint64_t)i, &story);
        text.bytes = realloc(text.bytes, text.n + story.n_bytes + 1);
        if (!text.bytes) die("optimizers: no memory for the stories");
        memcpy(text.bytes + text.n, story.bytes, story.n_bytes);
        text.n += story.n_bytes + 1;
        text.bytes[text.n - 1] = '\n';
    }
    free(story.bytes);
    grammar_free(grammar);
    return text;
}

typedef struct {
    int steps, threads;
    Text train, val;
} Job;

static void set_batch(Model *model, const Text *text, const char *stream, uint32_t step)
{
    int32_t token[N], target[N];
    for (size_t b = 0; b < BATCH; b++) {
        size_t at = (size_t)rng_below(rng_make(1, stream, step), b, text->n - CONTEXT);
        for (size_t t = 0; t < CONTEXT; t++) {
            token[b * CONTEXT + t] = text->bytes[at + t] & (VOCAB - 1);
            target[b * CONTEXT + t] = text->bytes[at + t + 1] & (VOCAB - 1);
        }
    }
    model_set_batch(model, token, NULL, target, BATCH, CONTEXT);
}

// The kinds of matrices in the table: a part of their name, and what to call them.
static const char *const kinds[][2] = {{"embed.tokens", "token embedding"}, {"embed.positions", "position embedding"},
                                       {"attn.q.w", "attention q"}, {"attn.k.w", "attention k"},
                                       {"attn.v.w", "attention v"}, {"attn.out.w", "attention out"},
                                       {"ffn.up.w", "ffn up"}, {"ffn.down.w", "ffn down"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct {
    double val_loss;
    double norm[KINDS], grad_rms[KINDS]; // of the weights at the end; of the gradients, over all steps
} Result;

static double *add_squares(const Model *m, const float *x, double sum[KINDS])
{
    for (int r = 0; r < m->params.n_rows; r++)
        for (int k = 0; k < KINDS; k++)
            if (strstr(m->params.row[r].name, kinds[k][0]))
                sum[k] += m->dev->sum_squares(m->dev, x + m->params.row[r].offset, m->params.row[r].n_elems);
    return sum;
}

static Result train(const Job *job, OptimSettings set, double lr)
{
    Mem mem = {0};
    dev_cpu_blas_room(job->threads, false);
    Dev *dev = dev_cpu_create(job->threads);
    Model *model = model_create(&SHAPE, dev, &mem, BATCH, CONTEXT, 1, true);
    Optim optim = optim_create(model, set);
    Schedule schedule = {.kind = SCHEDULE_COSINE, .lr = lr, .min_lr = lr / 10, .warmup = job->steps / 10,
                         .decay_steps = job->steps};
    Result result = {0};
    double n_elems[KINDS] = {0};
    for (int step = 0; step < job->steps; step++) {
        set_batch(model, &job->train, "train", (uint32_t)step);
        model_forward_backward(model, 1.0f / N);
        model_step_finish(model);
        add_squares(model, model->grads, result.grad_rms);
        optim_step(&optim, model, schedule_lr(&schedule, step));
    }
    for (uint32_t i = 0; i < VAL_BATCHES; i++) {
        set_batch(model, &job->val, "val", i);
        result.val_loss += model_evaluate(model) / (N * VAL_BATCHES);
    }
    add_squares(model, model->weights, result.norm);
    for (int r = 0; r < model->params.n_rows; r++)
        for (int k = 0; k < KINDS; k++)
            if (strstr(model->params.row[r].name, kinds[k][0])) n_elems[k] += (double)model->params.row[r].n_elems;
    for (int k = 0; k < KINDS; k++) {
        result.norm[k] = sqrt(result.norm[k]);
        result.grad_rms[k] = sqrt(result.grad_rms[k] / (n_elems[k] * job->steps));
    }
    model_free(model);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    return result;
}

static OptimSettings settings(OptimName name)
{
    return (OptimSettings){.name = name, .beta1 = 0.9f, .beta2 = name == OPTIM_LION ? 0.99f : 0.95f, .eps = 1e-8f,
                           .momentum = 0.95f, .row_beta2 = 0.95f, .clip = 1};
}

// ---- race

// The learning rates differ by a factor of 3, around each optimizer's usual one; the decay keeps lr * decay about the
// same.
static const struct {
    OptimName name;
    float decay;
    double lr[4];
} racers[] = {
    {OPTIM_SGD, 0, {0.1, 0.3, 1, 3}},
    {OPTIM_MOMENTUM, 0, {0.03, 0.1, 0.3, 1}},
    {OPTIM_ADAM, 0, {1e-3, 3e-3, 1e-2, 3e-2}},
    {OPTIM_ADAMW, 0.1f, {1e-3, 3e-3, 1e-2, 3e-2}},
    {OPTIM_ADAMW8BIT, 0.1f, {1e-3, 3e-3, 1e-2, 3e-2}},
    {OPTIM_ADAFACTOR, 0, {1e-2, 3e-2, 0.1, 0.3}},
    {OPTIM_LION, 0.3f, {3e-4, 1e-3, 3e-3, 1e-2}},
    {OPTIM_MUON, 0.1f, {3e-3, 1e-2, 3e-2, 0.1}},
    {OPTIM_NORMUON, 0.1f, {3e-3, 1e-2, 3e-2, 0.1}},
};

static void race(const Job *job)
{
    printf("| optimizer | decay | lr: validation loss in nats per character, %d steps | | | |\n", job->steps);
    printf("|---|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof racers / sizeof *racers; i++) {
        OptimSettings set = settings(racers[i].name);
        set.weight_decay = racers[i].decay;
        double loss[4];
        int best = 0;
        for (int k = 0; k < 4; k++) {
            loss[k] = train(job, set, racers[i].lr[k]).val_loss;
            if (loss[k] < loss[best]) best = k;
        }
        printf("| `%s` | %g |", optim_kind(racers[i].name)->name, (double)racers[i].decay);
        for (int k = 0; k < 4; k++)
            printf(" %g: %s%.4f%s |", racers[i].lr[k], k == best ? "**" : "", loss[k], k == best ? "**" : "");
        printf("\n");
        fflush(stdout);
    }
}

// ---- decay

static void decay(const Job *job)
{
    const double lr = 3e-3;
    const struct {
        OptimName name;
        float decay;
    } run[] = {{OPTIM_ADAM, 0}, {OPTIM_ADAMW, 1}, {OPTIM_ADAM, 1e-3f}, {OPTIM_ADAM, 0.1f}};
    enum { RUNS = sizeof run / sizeof *run };
    Result result[RUNS];
    for (int i = 0; i < RUNS; i++) {
        OptimSettings set = settings(run[i].name);
        set.weight_decay = run[i].decay;
        result[i] = train(job, set, lr);
    }
    int order[KINDS];
    for (int k = 0; k < KINDS; k++) { // by the size of the gradient
        int at = k;
        for (; at > 0 && result[0].grad_rms[order[at - 1]] > result[0].grad_rms[k]; at--) order[at] = order[at - 1];
        order[at] = k;
    }
    printf("| matrices | rms of the gradient | norm without decay |");
    for (int i = 1; i < RUNS; i++)
        printf(" %s, decay %g |", run[i].name == OPTIM_ADAMW ? "AdamW" : "Adam + L2", (double)run[i].decay);
    printf("\n|---|---:|---:|---:|---:|---:|\n");
    for (int i = 0; i < KINDS; i++) {
        int k = order[i];
        printf("| %s | %.2e | %.3f |", kinds[k][1], result[0].grad_rms[k], result[0].norm[k]);
        for (int j = 1; j < RUNS; j++) printf(" %.0f%% |", 100 * result[j].norm[k] / result[0].norm[k]);
        printf("\n");
    }
    printf("| validation loss | | %.4f |", result[0].val_loss);
    for (int j = 1; j < RUNS; j++) printf(" %.4f |", result[j].val_loss);
    printf("\n");
}

static const char help[] =
    "usage: show optimizers race|decay [--steps N] [--threads N]\n"
    "race: validation loss of each optimizer at several learning rates; decay: what AdamW's decay and Adam's L2 leave\n"
    "of each kind of matrix\n";

int show_optimizers(int argc, char **argv)
{
    Job job = {.steps = 200};
    Option row[] = {OPTION(INT, "--steps", "N", "of each (200)", &job.steps, .least = 1, .most = 1000000),
                    OPTION(INT, "--threads", "N", "(all cores)", &job.threads, .least = 1, .most = 1024)};
    OptionSet set = {"optimizers", help, row, sizeof row / sizeof *row, .where = 0};
    bool one = options_read(&set, argc, argv) == 1, is_race = one && !strcmp(argv[1], "race");
    if (!is_race && !(one && !strcmp(argv[1], "decay"))) die_usage("optimizers: race or decay (try --help)");
    job.train = write_stories(0, STORIES);
    job.val = write_stories(STORIES_VAL_FIRST, VAL_STORIES);
    if (is_race) race(&job);
    else decay(&job);
    free(job.train.bytes);
    free(job.val.bytes);
    if (fflush(stdout)) die("optimizers: cannot write the table");
    return 0;
}
