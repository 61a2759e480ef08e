// llmc: the model files of llm.c.
#include "models/llmc.h"

#include "base/check.h"
#include "base/disk.h"
#include "formats/formats.h"
#include "models/weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 256, MAGIC = 20240326, FP32 = 3, BF16 = 5, PAD = 128 };

// The order of the file, by the names of weights.h.
static const char *const order[] = {
    "token_embd.weight", "position_embd.weight", "attn_norm.weight", "attn_norm.bias", "attn_qkv.weight",
    "attn_qkv.bias", "attn_output.weight", "attn_output.bias", "ffn_norm.weight", "ffn_norm.bias", "ffn_up.weight",
    "ffn_up.bias", "ffn_down.weight", "ffn_down.bias", "output_norm.weight", "output_norm.bias"};
enum { KINDS = sizeof order / sizeof *order };

typedef struct {
    const char *path;
    FILE *f;
    int32_t header[HEADER];
    size_t context, V, L, H, C, padded;
    Format format;
    float *one; // of the largest tensor, as the file has it
} File;

static bool of_block(int kind)
{
    return kind >= 2 && kind < KINDS - 2;
}

// Elements of one tensor of a kind.
static size_t elements(const File *f, int kind)
{
    size_t C = f->C;
    const size_t n[KINDS] = {f->padded * C, f->context * C, C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C,
                             4 * C * C, C, C, C};
    return n[kind];
}

// Where the tensor of that name begins, in elements; *kind: which it is.
static size_t place(const File *f, const char *name, int *kind)
{
    size_t at = 0, layer = 0;
    int skip = 0;
    if (sscanf(name, "blk.%zu.%n", &layer, &skip) == 1) name += skip;
    for (*kind = 0; *kind < KINDS && strcmp(order[*kind], name) != 0; ++*kind)
        at += elements(f, *kind) * (of_block(*kind) ? f->L : 1);
    check(*kind < KINDS);
    return at + layer * elements(f, *kind);
}

bool llmc_begins_with(const char *path, int32_t magic)
{
    int32_t first = 0;
    if (disk_is_special(path)) return false;
    FILE *f = fopen(path, "rb");
    bool is = f && fread(&first, sizeof first, 1, f) == 1 && first == magic;
    if (f) fclose(f);
    return is;
}

bool llmc_is_file(const char *path)
{
    return llmc_begins_with(path, MAGIC);
}

static File open_file(const char *path)
{
    File f = {.path = path, .f = fopen(path, "rb")};
    if (!f.f) die("%s: %s", path, strerror(errno));
    if (fread(f.header, sizeof f.header, 1, f.f) != 1) die("%s: shorter than its header of %zu bytes", path,
                                                            sizeof f.header);
    const int32_t *h = f.header;
    if (h[0] != MAGIC || (h[1] != FP32 && h[1] != BF16))
        die("%s: version %d of llm.c's model files (3, fp32, and 5, bf16, are read)", path, h[1]);
    for (int i = 2; i < 8; i++)
        if (h[i] < 1 || h[i] > 1 << 24) die("%s: header number %d is %d (damaged?)", path, i, h[i]);
    f.context = (size_t)h[2], f.V = (size_t)h[3], f.L = (size_t)h[4], f.H = (size_t)h[5], f.C = (size_t)h[6];
    f.padded = (size_t)h[7];
    f.format = h[1] == FP32 ? FORMAT_FP32 : FORMAT_BF16;
    if (f.C % f.H || f.padded < f.V)
        die("%s: %zu channels in %zu heads, a vocabulary of %zu in %zu rows (damaged?)", path, f.C, f.H, f.V, f.padded);
    double bytes = sizeof f.header; // in doubles, which do not overflow
    for (int k = 0; k < KINDS; k++)
        bytes += (double)elements(&f, k) * (of_block(k) ? (double)f.L : 1) * (double)formats_bytes(f.format);
    if (fseek(f.f, 0, SEEK_END) != 0 || (double)ftell(f.f) != bytes)
        die("%s: %ld bytes, and its header says %.0f (cut short?)", path, ftell(f.f), bytes);
    return f;
}

void llmc_config(const char *path, Config *cfg)
{
    File f = open_file(path);
    char text[600];
    snprintf(text, sizeof text, "[model]\ncontext = %zu\nvocab = %zu\nlayers = %zu\nheads = %zu\nkv_heads = %zu\n"
             "channels = %zu\nhead_size = %zu\nffn = %zu\nnorm = layernorm\nnorm_eps = 1e-5\nactivation = gelu\n"
             "position = learned\nbias = true\ntie = true\nqk_norm = false\nnorm_place = input\n", f.context, f.V, f.L,
             f.H, f.H, f.C, f.C / f.H, 4 * f.C);
    config_load_text(cfg, text, path);
    fclose(f.f);
}

static bool read_tensor(void *self, const Weight *w, float *theirs)
{
    File *f = self;
    int kind;
    size_t at = place(f, w->name, &kind), n = w->dim[0] * w->dim[1], bytes = formats_bytes(f->format);
    check(n <= elements(f, kind)); // fewer: without the padded rows
    if (fseek(f->f, (long)(sizeof f->header + at * bytes), SEEK_SET) != 0 || fread(f->one, bytes, n, f->f) != n)
        die("%s: cannot be read: %s", f->path, strerror(errno));
    formats_to_float(theirs, f->format, f->one, n);
    return true;
}

static size_t largest(const File *f)
{
    size_t most = 0;
    for (int k = 0; k < KINDS; k++)
        if (elements(f, k) > most) most = elements(f, k);
    return most;
}

void llmc_load(const char *path, Model *m)
{
    File f = open_file(path);
    if (!(f.one = malloc(largest(&f) * sizeof *f.one))) die("%s: no memory for its embedding", path);
    weights_load(m, WEIGHTS_GGUF_GPT2, (WeightsSource){.path = path, .read = read_tensor, .self = &f});
    free(f.one);
    fclose(f.f);
}

static void write_all(const DiskOut *out, const void *data, size_t n)
{
    if (fwrite(data, 1, n, out->f) != n) die("%s: cannot write: %s (is the disk full?)", out->path, strerror(errno));
}

static void write_kind(const File *f, const Model *m, const Weights *w, int kind, float *theirs, const DiskOut *out)
{
    size_t n = elements(f, kind);
    for (size_t l = 0; l < (of_block(kind) ? f->L : 1); l++) {
        char name[96];
        snprintf(name, sizeof name, "blk.%zu.%s", l, order[kind]);
        const Weight *t = weights_find(w, of_block(kind) ? name : order[kind]);
        check(t);
        memset(theirs, 0, n * sizeof *theirs);
        weights_gather(m, t, theirs);
        formats_from_float(f->one, f->format, theirs, n, false);
        write_all(out, f->one, n * formats_bytes(f->format));
    }
}

void llmc_save(const char *path, const Model *m, bool bf16)
{
    const ModelShape *s = &m->shape;
    if (weights_family(s, path) != WEIGHTS_IS_GPT2 || !s->tie || s->ffn != 4 * s->channels || s->window)
        die("%s: llm.c's files hold GPT-2 with a tied head, ffn = 4 x channels and no window (try --to hf)", path);
    File f = {.path = path, .context = s->context, .V = s->vocab, .L = s->layers, .H = s->heads, .C = s->channels,
              .padded = (s->vocab + PAD - 1) / PAD * PAD, .format = bf16 ? FORMAT_BF16 : FORMAT_FP32};
    int32_t header[HEADER] = {MAGIC, bf16 ? BF16 : FP32, (int32_t)f.context, (int32_t)f.V, (int32_t)f.L, (int32_t)f.H,
                              (int32_t)f.C, (int32_t)f.padded};
    float *theirs = malloc(largest(&f) * sizeof *theirs);
    if (!theirs || !(f.one = malloc(largest(&f) * sizeof *f.one))) die("%s: no memory for the embedding", path);
    Weights w = weights_table(m, WEIGHTS_GGUF_GPT2);
    DiskOut *out = disk_out_open(path);
    write_all(out, header, sizeof header);
    for (int k = 0; k < KINDS; k++) write_kind(&f, m, &w, k, theirs, out);
    disk_out_commit(out);
    weights_free(&w);
    free(theirs);
    free(f.one);
}
