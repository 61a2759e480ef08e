// export: a trained model for other programs.
//
//   build/export MODEL --to hf --out DIR             a folder for Transformers: model and tokenizer
//   build/export MODEL --to gguf --out FILE          one file for llama.cpp, the tokenizer in it
//   build/export MODEL --to llm.c --out FILE         a model file of llm.c
//   build/export MODEL --to safetensors --out FILE   our names, one file of whole tensors
//   build/export RUN --to state --out FILE           the same with the optimizer's tensors
//
// MODEL: a run (its newest checkpoint), a checkpoint, or what another program wrote (trained.h). Hashes are checked
// before anything is written; the output is written under a temporary name and renamed.
#include "base/check.h"
#include "base/disk.h"
#include "base/clock.h"
#include "tools/options.h"
#include "tools/safetensors.h"
#include "models/gguf_model.h"
#include "models/hf.h"
#include "models/llmc.h"
#include "models/trained.h"
#include "ops/dev_cpu.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *to, *out, *tokenizer_dir, *type = "F32";
static size_t shard = 5000;

static Option options[] = {
    OPTION(TEXT, "--to", "FORMAT", "hf, gguf, llm.c, safetensors or state", &to),
    OPTION(TEXT, "--out", "PATH", "the folder (hf) or the file", &out),
    OPTION(TEXT, "--type", "TYPE", "of matrices: F32, F16 (not llm.c), BF16 or Q8_0 (gguf) [F32]", &type),
    OPTION(SIZE, "--shard", "MB", "hf: of one file, at most [5000]", &shard, .least = 1, .most = 1e9),
    OPTION(TEXT, "--tokenizer", "DIR", "the tokenizer's folder [the model's]", &tokenizer_dir),
};
static OptionSet set = {.program = "export", .row = options, .n = sizeof options / sizeof *options, .usage =
    "usage: export MODEL --to FORMAT --out PATH [--option VALUE]...\n"
    "MODEL: a run, a checkpoint, a folder of Transformers, a GGUF file, or a model file of llm.c.\n"
    "  hf           a folder for Transformers: config.json (GPT-2, LLaMA or, with QK-norm, Qwen3), safetensors and the\n"
    "               tokenizer\n"
    "  gguf         a file for llama.cpp, with the tokenizer\n"
    "  llm.c        a model file of llm.c: GPT-2 with a tied head\n"
    "  safetensors  of a run: the whole weights as one file of named F32 tensors\n"
    "  state        the same with the optimizer's tensors, whatever layout wrote them\n\n"};

// ---- our own names

// Writes a temporary file and renames it to path. The metadata holds the step.
static void write_tensors(const char *path, const SafeTensor *tensor, int n, long step)
{
    char tmp[PATH_MAX], number[32], error[1024];
    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp", path) >= sizeof tmp)
        die("%s: the path is too long", path);
    if (disk_is_special(path)) die("%s: is a device or a pipe (safetensors are written to a plain file)", path);
    snprintf(number, sizeof number, "%ld", step);
    SafeMeta meta = {"step", number};
    bool ok = safetensors_write(tmp, tensor, n, &meta, 1, NULL, NULL, error, sizeof error);
    if (ok && rename(tmp, path) < 0) {
        snprintf(error, sizeof error, "%.900s: cannot rename: %s", path, strerror(errno));
        ok = false;
    }
    if (!ok) {
        unlink(tmp);
        die("%s", error);
    }
    if (!disk_sync_parent(path)) die("%s: cannot fsync its directory: %s", path, strerror(errno));
}

static void export_tensors(const char *from, bool state)
{
    char error[CKPT_ERROR];
    Ckpt *c = ckpt_open(from, state, error, sizeof error);
    if (!c) die("%s", error);
    SafeTensor *tensor = calloc((size_t)c->n + 1, sizeof *tensor);
    if (!tensor) die("export: no memory");
    for (int i = 0; i < c->n; i++) tensor[i] = *c->tensor[i];
    write_tensors(out, tensor, c->n, c->state.step);
    printf("%s: step %ld, %d tensors in %s\n", c->dir, c->state.step, c->n, out);
    free(tensor);
    ckpt_close(c);
}

// ---- formats of other programs

static GgufType type_of(const char *name)
{
    static const GgufType known[] = {GGUF_F32, GGUF_F16, GGUF_BF16, GGUF_Q8_0};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(name, gguf_type_name(known[i]))) return known[i];
    die_usage("--type %s: unknown (F32, F16, BF16 or Q8_0)", name);
}

static void export_hf(Trained *t, GgufType as)
{
    if (!t->tokenizer)
        check_warn("%s: its tokenizer is not at '%s', so the folder has none (try --tokenizer DIR)",
                t->dir, t->cfg.data.tokenizer);
    Format format = as == GGUF_F32 ? FORMAT_FP32 : as == GGUF_F16 ? FORMAT_FP16 : FORMAT_BF16;
    const char *class = hf_save(out, &t->cfg, t->model, t->tokenizer, format, shard * 1000000);
    doing(NULL);
    printf("%s: step %ld for %s%s in %s\n", t->dir, t->step, class, t->tokenizer ? ", and the tokenizer," : "", out);
}

static void export_gguf(Trained *t, GgufType as)
{
    const char *name = t->kind == TRAINED_CKPT ? t->cfg.run.name : "model";
    const char *arch = gguf_model_save(out, name, &t->cfg, t->model, trained_tokenizer(t), as);
    doing(NULL);
    printf("%s: step %ld as %s, architecture %s, in %s\n", t->dir, t->step, gguf_type_name(as), arch, out);
}

static void export_llmc(Trained *t, GgufType as)
{
    llmc_save(out, t->model, as == GGUF_BF16);
    doing(NULL);
    printf("%s: step %ld for llm.c in %s\n", t->dir, t->step, out);
}

int main(int argc, char **argv)
{
    dev_cpu_choose_blas(argv);
    if (options_read(&set, argc, argv) != 1 || !to || !out)
        die_usage("usage: export MODEL --to hf|gguf|llm.c|safetensors|state --out PATH (try --help)");
    bool hf = !strcmp(to, "hf"), gguf = !strcmp(to, "gguf"), state = !strcmp(to, "state");
    bool own = state || !strcmp(to, "safetensors");
    if (!hf && !gguf && !own && strcmp(to, "llm.c"))
        die_usage("--to %s: unknown (hf, gguf, llm.c, safetensors or state)", to);
    if (options_given(&set, "--shard") && !hf) die_usage("--shard: only with --to hf");
    if (own && (options_given(&set, "--type") || tokenizer_dir))
        die_usage("--type, --tokenizer: not with --to %s", to);
    if (own) {
        export_tensors(argv[1], state);
        return 0;
    }
    GgufType as = type_of(type);
    if (as == GGUF_Q8_0 && !gguf) die_usage("--type Q8_0: only with --to gguf");
    if (as == GGUF_F16 && !gguf && !hf) die_usage("--type F16: llm.c's files are F32 or BF16");
    Trained *t = trained_open(argv[1], (TrainedOptions){tokenizer_dir, .B = 1, .T = 1});
    trained_must_be_finite(t);
    doing("writing");
    (hf ? export_hf : gguf ? export_gguf : export_llmc)(t, as);
    trained_close(t);
    return 0;
}
