// import: another program's model as a run of ours, from which others begin.
//
//   build/import MODEL --out runs/NAME
//   build/train runs/NAME/config.toml --run.name=tuned --ckpt.init=runs/NAME --data.train=... --data.val=...
//
// MODEL: a folder of Transformers, a GGUF file, or a model file of llm.c. The run has no update behind it: a checkpoint
// of step 0 with the weights alone, config.toml with the model's shape, and the tokenizer in a folder of its own. Any
// layout, precision and optimizer can begin with it; so can build/sample, build/eval and build/export.
#include "base/check.h"
#include "base/disk.h"
#include "tools/options.h"
#include "models/trained.h"
#include "ops/dev_cpu.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *out, *tokenizer_dir;

static Option options[] = {
    OPTION(TEXT, "--out", "DIR", "the run's folder, which must be new", &out),
    OPTION(TEXT, "--tokenizer", "DIR", "the tokenizer's folder, where it is another", &tokenizer_dir),
};
static OptionSet set = {.program = "import", .row = options, .n = sizeof options / sizeof *options, .usage =
    "usage: import MODEL --out RUN [--tokenizer DIR]\n"
    "MODEL: a folder of Transformers (config.json, safetensors, tokenizer.json), a GGUF file, or a model file of llm.c.\n\n"};

static void move_piece(void *self, const CkptPiece *piece, void *buf, bool outward)
{
    const Model *m = self;
    check(outward);
    memcpy(buf, m->weights + piece->at, (piece->slice.to - piece->slice.from) * sizeof *m->weights);
}

// The tokenizer, and the settings as a run writes them: the shape, and where the tokenizer is.
static char *write_settings(Config *cfg, const Tokenizer *tokenizer)
{
    char path[PATH_MAX], whole[PATH_MAX];
    size_t n_bytes;
    const char *name = strrchr(out, '/');
    snprintf(path, sizeof path, "%.4000s/tokenizer", out);
    if (mkdir(path, 0777) < 0 || !realpath(path, whole)) die("%s: %s", path, strerror(errno));
    tokenizer_save(tokenizer, path);
    config_set(cfg, "data.tokenizer", whole, "build/import");
    config_set(cfg, "run.name", name ? name + 1 : out, "build/import");
    snprintf(path, sizeof path, "%.4000s/config.toml", out);
    config_write(cfg, path);
    char *text = disk_read_file(path, &n_bytes, 1 << 20);
    if (!text) die("%s: %s", path, strerror(errno));
    return text;
}

int main(int argc, char **argv)
{
    dev_cpu_choose_blas(argv);
    if (options_read(&set, argc, argv) != 1 || !out || !*out)
        die_usage("usage: import MODEL --out RUN [--tokenizer DIR] (try --help)");
    const char *from = argv[1];
    Trained *t = trained_open(from, (TrainedOptions){tokenizer_dir, .B = 1, .T = 1});
    if (t->kind == TRAINED_CKPT) die("%s: is a run already (--ckpt.init=%s begins with its weights)", from, from);
    trained_tokenizer(t);
    trained_must_be_finite(t);
    if (mkdir(out, 0777) < 0) die("%s: cannot create the run's folder: %s (try a new name)", out, strerror(errno));
    const Params *params = &t->model->params;
    CkptPart part = {.whole = params, .move = move_piece, .self = t->model,
                     .piece = calloc((size_t)params->n_rows, sizeof *part.piece)};
    if (!part.piece) die("import: no memory for the table of a checkpoint");
    for (int i = 0; i < params->n_rows; i++) {
        const Param *row = &params->row[i];
        part.piece[part.n++] = (CkptPiece){
            .array = -1, .row = i, .unit = row->unit, .at = row->offset,
            .slice = {.cut = -1, .dim = {row->dim[0], row->dim[1]}, .to = row->n_elems}};
    }
    char *text = write_settings(&t->cfg, t->tokenizer), error[CKPT_ERROR];
    CkptState state = {.best_val = INFINITY, .config = text};
    if (!ckpt_save_part(&(CkptRun){.run_dir = out, .keep = 1}, &state, &part, error, sizeof error)) die("%s", error);
    printf("%s: %d tensors, %.4g million parameters, in %s\n", from, part.n, (double)params->n_elems / 1e6, out);
    free(part.piece);
    free(text);
    trained_close(t);
    return 0;
}
