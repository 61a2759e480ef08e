// llmc_state: the debug state of llm.c (gpt2_124M_debug_state.bin) as a side of build/diff.
//
//   header int32 (256): magic 20240327, version 2, B, T
//   tokens int32 (B, T), targets (B, T), logits fp32 (B, T, V), mean loss fp32
//   gradients fp32, all layers of a kind together: wte (Vp, C), wpe (context, C), and for each layer ln1 w b,
//   qkv w (3C, C) b, attproj w b, ln2 w b, fc w (4C, C) b, fcproj w (C, 4C) b; then lnf w b
//
// The file does not say how large V, C and the number of layers are, so they are those of the side that it is compared
// with. Vp is V rounded up to a multiple of 128; the rows beyond V are padding. The model may have more positions than
// the step has tokens; how many follows from the size of the file, and the other side may have as few as T. The
// gradients become the tensors grad.NAME of a dump, with q, k and v apart.
//
// The invariant: every byte of the file is accounted for, or it is refused.
#include "dev/check/llmc_state.h"

#include "base/check.h"
#include "base/disk.h"
#include "models/llmc.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 256, MAGIC = 20240327, VERSION = 2, PAD = 128 };

// The kinds of the file in its order; a kind that is three tensors is q, k and v one after another.
static const char *const kind[] = {
    "embed.tokens.weight", "embed.positions.weight", "attn_norm.weight", "attn_norm.bias", "attn.?.weight",
    "attn.?.bias", "attn.out.weight", "attn.out.bias", "ffn_norm.weight", "ffn_norm.bias", "ffn.up.weight",
    "ffn.up.bias", "ffn.down.weight", "ffn.down.bias", "final_norm.weight", "final_norm.bias"};
enum { KINDS = sizeof kind / sizeof *kind, FIRST_OF_BLOCK = 2, AFTER_BLOCK = KINDS - 2 };

typedef struct {
    const char *path;
    FILE *f;
    DiffSide *side;
    const DiffSide *other;
} State;

bool llmc_state_is(const char *path)
{
    return llmc_begins_with(path, MAGIC);
}

// The other side's tensor of that parameter: its gradient, or itself.
static const DiffTensor *twin(const State *s, const char *name)
{
    char full[240];
    snprintf(full, sizeof full, "grad.%s", name);
    const DiffTensor *t = diff_side_find(s->other, full);
    snprintf(full, sizeof full, "weight.%s", name);
    return t ? t : diff_side_find(s->other, full);
}

static const DiffTensor *shape_of(const State *s, const char *name)
{
    const DiffTensor *t = twin(s, name);
    if (!t) die("%s: the other side has neither grad.%s nor weight.%s, whose shapes are needed (a GPT-2 model's dump?)",
                s->path, name, name);
    return t;
}

static void read_bytes(const State *s, void *to, size_t n_bytes, const char *what)
{
    if (fread(to, 1, n_bytes, s->f) != n_bytes)
        die("%s: ends within %s (of another model than the other side?)", s->path, what);
}

static void skip(const State *s, size_t n_bytes, const char *what)
{
    if (fseeko(s->f, (off_t)n_bytes, SEEK_CUR)) die("%s: %s: %s", s->path, what, strerror(errno));
}

static void read_tensor(const State *s, const char *name)
{
    char full[240];
    const SafeTensor *like = &shape_of(s, name)->t;
    snprintf(full, sizeof full, "grad.%s", name);
    SafeTensor t = {.name = strdup(full), .dtype = ST_F32, .ndim = like->ndim, .n_elems = like->n_elems,
                    .n_bytes = like->n_elems * sizeof(float)};
    size_t *shape = malloc(((size_t)like->ndim + 1) * sizeof *shape);
    float *data = malloc(t.n_bytes + 1);
    if (!t.name || !shape || !data) die("%s: no memory for %zu bytes of %s", s->path, t.n_bytes, name);
    memcpy(shape, like->shape, (size_t)like->ndim * sizeof *shape);
    read_bytes(s, data, t.n_bytes, full);
    t.shape = shape, t.data = data;
    diff_side_add(s->side, &t);
}

static void read_kind(const State *s, int k, long layer)
{
    char name[100], path[200];
    const char *mark = strchr(kind[k], '?');
    for (int i = 0; i < (mark ? 3 : 1); i++) {
        snprintf(name, sizeof name, "%s", kind[k]);
        if (mark) name[mark - kind[k]] = "qkv"[i];
        if (layer >= 0) snprintf(path, sizeof path, "layers.%ld.%s", layer, name);
        else snprintf(path, sizeof path, "%s", name);
        read_tensor(s, path);
    }
}

static long layers_of(const State *s)
{
    char name[64];
    for (long n = 0;; n++) {
        snprintf(name, sizeof name, "layers.%ld.attn_norm.weight", n);
        if (!twin(s, name)) return n;
    }
}

// Rows of wpe that the other side does not have: what is left of the file when all else has its place.
static size_t positions_left_out(const State *s, size_t C)
{
    size_t V = shape_of(s, kind[0])->t.shape[0], needed = ((V + PAD - 1) / PAD * PAD - V) * C;
    off_t here = ftello(s->f), end;
    for (int i = 0; i < s->other->n; i++) {
        const SafeTensor *t = &s->other->tensor[i].t;
        bool grad = !strncmp(t->name, "grad.", 5);
        if ((grad || !strncmp(t->name, "weight.", 7)) && twin(s, strchr(t->name, '.') + 1) == &s->other->tensor[i])
            needed += t->n_elems;
    }
    if (fseeko(s->f, 0, SEEK_END) || (end = ftello(s->f)) < 0 || fseeko(s->f, here, SEEK_SET))
        die("%s: %s", s->path, strerror(errno));
    size_t there = end > here ? (size_t)(end - here) / sizeof(float) : 0;
    return there > needed && (there - needed) % C == 0 ? (there - needed) / C : 0;
}

void llmc_state_read(DiffSide *side, const char *path, const DiffSide *other)
{
    State s = {.path = path, .f = fopen(path, "rb"), .side = side, .other = other};
    int32_t header[HEADER];
    if (!s.f) die("%s: cannot open: %s", path, strerror(errno));
    read_bytes(&s, header, sizeof header, "its header");
    if (header[1] != VERSION || header[2] < 1 || header[3] < 1)
        die("%s: a debug state of version %d with %d sequences of %d tokens (version 2 is read)", path, header[1],
            header[2], header[3]);
    const SafeTensor *tokens = &shape_of(&s, kind[0])->t;
    size_t V = tokens->shape[0], C = tokens->shape[1], N = (size_t)header[2] * (size_t)header[3];
    skip(&s, 2 * N * sizeof(int32_t) + N * V * sizeof(float) + sizeof(float), "its logits");
    size_t more = positions_left_out(&s, C);
    for (int k = 0; k < KINDS; k++) {
        bool block = k >= FIRST_OF_BLOCK && k < AFTER_BLOCK;
        for (long i = 0; i < (block ? layers_of(&s) : 1); i++) read_kind(&s, k, block ? i : -1);
        if (k == 1) skip(&s, more * C * sizeof(float), "the positions after the last token");
        if (k == 0) skip(&s, ((V + PAD - 1) / PAD * PAD - V) * C * sizeof(float), "the padding of wte");
    }
    if (fgetc(s.f) != EOF) die("%s: goes on after its gradients (of another model than the other side?)", path);
    fclose(s.f);
    snprintf(side->about, sizeof side->about, "llm.c's debug state, %d x %d tokens", header[2], header[3]);
}
