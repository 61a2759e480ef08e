// dump: the inputs and results of one update, as named tensors. See dump.h.
//
// When two runs that should agree (1 thread and 2, one rank and eight, bf16 and fp32) differ, the loss curves show it
// hundreds of steps later; the dump shows where. Every tensor has a number that ascends in the order of the step:
//
//     input      tokens and targets, (samples, context)
//     weight     before the update, in the order of the table (what went in)
//     forward    unit by unit, in each in the order of its buffers
//     loss       of every token of the global batch
//     backward   the gradients of the streams, from the head down
//     grad       summed over micro-batches and ranks, before clipping, last row first
//     state, updated   the optimizer's arrays and the weights after the update
//
// so the first tensor that build/diff finds out of bound is the first one that went wrong.
//
// The invariant: every element of every whole tensor is in exactly one rank's file. When several ranks hold the same
// elements, the first of them writes: Param.owned decides for rows of the table, and thereby for heads and columns;
// rows of a stream that is not shared are written by tensor-parallel rank 0. So a missing or a doubled element is an
// error of the layout, and build/diff reports it.
//
// All micro-batches' rows of an activation become one tensor (samples, context, width); the place of each row follows
// from Batch.sample. So a dump does not depend on how the step was split, and pieces may come in any order.
//
// Rejected: statistics (mean, rstd, lse) and what units hold in scratch: their mistakes are visible in the buffer
// after them. Writing while the step runs: a step's activations fit where a step's did, and ordinary memory has room.
#include "src/check/dump.h"

#include "base/check.h"
#include "base/disk.h"
#include "formats/formats.h"
#include "net/experts.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { NAME = PARAM_NAME + 48, ARRAYS = 8 };

typedef struct {
    char name[NAME];
    Part part;
    SafeDtype dtype;
    char *data;
    size_t n_bytes, room;
} Entry;

struct Dump {
    DumpPlace place;
    Model *model;
    Params whole; // the table of the whole model
    Entry *entry;
    int n, held;
    const char *array[ARRAYS]; // of the optimizer, as they came
    uint64_t before;           // the hash of DUMP_BEFORE
};

// ---- names and numbers

static SafeDtype stored_type(const Dev *dev)
{
    return dev->x_type == X_BF16 ? ST_BF16 : dev->x_type == X_FP16 ? ST_F16 : ST_F32;
}

// Where in the network a row stands: 0 the embedding, 1 + i block i, after them the head.
static size_t place_of(const char *row, size_t layers)
{
    unsigned long layer;
    if (sscanf(row, "layers.%lu.", &layer) == 1) return 1 + layer;
    return strncmp(row, "embed.", 6) ? layers + 1 : 0;
}

// "embed", "layers.3", "head".
static void unit_name(const Unit *unit, char name[32])
{
    if (unit_is_block(unit->kind)) snprintf(name, 32, "layers.%d", unit->place - 1);
    else snprintf(name, 32, "%s", unit->kind == &unit_head ? "head" : "embed");
}

// Ascends in the order of execution: backward goes down the network.
static long number_of(DumpKind kind, size_t layers, size_t place, size_t slot)
{
    bool back = kind == DUMP_BACKWARD || kind == DUMP_GRAD;
    return (long)kind * 100000000 + (long)((back ? layers + 1 - place : place) * 1000 + (back ? 999 - slot : slot));
}

double dump_error(const ModelShape *s, XType type, bool fp8, DumpKind kind, size_t place, size_t step_tokens)
{
    const double u32 = 0x1p-24, e4m3 = 0x1p-8, e5m2 = 0x1p-6; // the last two: squares of 2^-4 and 2^-3
    double u = type == X_BF16 ? 0x1p-8 : type == X_FP16 ? 0x1p-11 : u32;
    size_t L = s->layers, below = place < L ? place : L, above = L + 1 - place;
    size_t hd = s->heads * s->head_size, n = s->channels > s->ffn ? s->channels : s->ffn; // terms of the longest sum
    if (n < hd) n = hd;
    if (n < s->context) n = s->context;
    double stores = 4 + 16 * (double)below, casts = 8 * e4m3 * (double)below;
    if (kind == DUMP_WEIGHT) return 0;
    if (kind != DUMP_FORWARD) {
        stores = 6 + 16 * (double)L, casts = 8 * e4m3 * (double)L;
        if (n < s->vocab) n = s->vocab;
    }
    if (kind != DUMP_FORWARD && kind != DUMP_LOSS) {
        stores += 4 + 17 * (double)above;
        casts += 8 * (e4m3 + e5m2) * (double)above;
        if (kind != DUMP_BACKWARD && n < step_tokens) n = step_tokens;
    }
    return sqrt((stores * (u * u + (double)n * u32 * u32) + (fp8 ? casts : 0)) / 3);
}

static double error_of(const Dump *d, DumpKind kind, size_t place)
{
    return dump_error(&d->model->shape, d->model->dev->x_type, d->place.fp8, kind, place,
                      d->place.samples * d->place.context);
}

// ---- entries

static Entry *entry(Dump *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->entry[i].name, name)) return &d->entry[i];
    return NULL;
}

static Entry *new_entry(Dump *d, const char *name, Part part, SafeDtype dtype)
{
    if (d->n == d->held) {
        d->held = d->held ? 2 * d->held : 64;
        d->entry = realloc(d->entry, (size_t)d->held * sizeof *d->entry);
        if (!d->entry) die("run.dump: no memory for the names of %d tensors", d->held);
    }
    Entry *e = &d->entry[d->n++];
    *e = (Entry){.part = part, .dtype = dtype};
    check(strlen(name) < sizeof e->name);
    snprintf(e->name, sizeof e->name, "%s", name);
    return e;
}

// Room for n_bytes more.
static char *extend(Entry *e, size_t n_bytes)
{
    if (e->n_bytes + n_bytes > e->room) {
        e->room = e->n_bytes + n_bytes > 2 * e->room ? e->n_bytes + n_bytes : 2 * e->room;
        e->data = realloc(e->data, e->room);
        if (!e->data) die("run.dump: no memory for %zu bytes of %s", e->room, e->name);
    }
    char *at = e->data + e->n_bytes;
    e->n_bytes += n_bytes;
    return at;
}

// ---- activations

// An array (rows, ld) of a unit, on the device, and which columns of it are written, as which.
typedef struct {
    DumpKind kind;
    const void *data;
    SafeDtype dtype;
    size_t ld, at;             // elements of a row; the first that is taken
    size_t first, n, width;    // as which columns of the whole
    size_t pieces, stride;     // not 0: n columns are so many pieces, whose first ones are `stride` apart
    size_t row, n_rows;        // rows of the micro-batch that data has
    size_t place, slot;
    const void *host;          // the array, where it is not on the device
} Source;

// Rows of the whole tensor that rows [row, row + n) of a micro-batch are.
static void place_rows(const Dump *d, Part *part, const Batch *batch, size_t row, size_t n)
{
    const DumpPlace *p = &d->place;
    const ModelParts *parts = &d->model->parts;
    size_t sample = (size_t)(batch->sample - p->first), T = p->context;
    check(batch->T * model_sharers(d->model) == T && batch->sample >= p->first);
    for (size_t i = row; i < row + n; i++) {
        size_t t = i % batch->T, position = parts->position ? parts->position(parts->self, T, t) : t;
        check(sample + i / batch->T < p->samples);
        dump_part_rows(part, (sample + i / batch->T) * T + position, 1);
    }
}

static char *host_copy(Dev *dev, const void *from, size_t n_bytes)
{
    char *copy = malloc(n_bytes ? n_bytes : 1);
    if (!copy) die("run.dump: no memory for %zu bytes", n_bytes);
    dev->to_host(dev, copy, from, n_bytes);
    return copy;
}

static void take(Dump *d, const char *name, Source s, const Batch *batch)
{
    Dev *dev = d->model->dev;
    bool scaled = s.kind == DUMP_BACKWARD && d->place.inverse != 1;
    size_t n_elem = safetensors_dtype_bytes(s.dtype), out = scaled ? sizeof(float) : n_elem;
    Entry *e = entry(d, name);
    if (!e) {
        size_t shape[3] = {d->place.samples, d->place.context, s.width};
        Part part = dump_part_make(s.kind == DUMP_LOSS || s.kind == DUMP_WEIGHT ? 2 : 3, shape, s.width);
        size_t pieces = s.pieces ? s.pieces : 1;
        for (size_t i = 0; i < pieces; i++) dump_part_columns(&part, s.first + i * s.stride, s.n / pieces);
        part.at = number_of(s.kind, d->model->shape.layers, s.place, s.slot);
        if (s.kind == DUMP_WEIGHT) part.at = (long)s.slot - 2; // of dump_input: before the weights
        part.error = error_of(d, s.kind, s.place);
        part.stored = s.dtype;
        e = new_entry(d, name, part, scaled ? ST_F32 : s.dtype);
    }
    place_rows(d, &e->part, batch, s.row, s.n_rows);
    char *to = extend(e, s.n_rows * s.n * out);
    char *copy = s.host ? NULL : host_copy(dev, s.data, s.n_rows * s.ld * n_elem);
    const char *all = s.host ? s.host : copy;
    for (size_t i = 0; i < s.n_rows; i++) {
        const char *from = all + (i * s.ld + s.at) * n_elem;
        if (!scaled) {
            memcpy(to + i * s.n * n_elem, from, s.n * n_elem);
            continue;
        }
        float *x = (float *)to + i * s.n;
        Format format = s.dtype == ST_BF16 ? FORMAT_BF16 : s.dtype == ST_F16 ? FORMAT_FP16 : FORMAT_FP32;
        formats_to_float(x, format, from, s.n);
        for (size_t k = 0; k < s.n; k++) x[k] *= (float)d->place.inverse;
    }
    free(copy);
}

void dump_input(Dump *d, const int32_t *token, const int32_t *target, size_t B, uint64_t sample)
{
    const Model *m = d->model;
    const ModelParts *parts = &m->parts;
    size_t whole = d->place.context, T = whole / model_sharers(m);
    bool reads = m->local.cut.size <= 1 || m->local.cut.rank == 0, embeds = false; // the first tensor-parallel rank
    for (int c = 0; c < m->n_chunks; c++) embeds |= m->chunk[c].piece.embedding;   // of the first stage
    int32_t *own = malloc(B * T * sizeof *own);
    if (!own) die("run.dump: no memory for %zu tokens", B * T);
    for (int i = 0; i < 2 && reads && embeds; i++) {
        const int32_t *all = i ? target : token;
        if (parts->deal) parts->deal(parts->self, own, all, B, whole), all = own;
        take(d, i ? "input.targets" : "input.tokens",
             (Source){.kind = DUMP_WEIGHT, .host = all, .dtype = ST_I32, .ld = 1, .n = 1,
                      .width = 1, .n_rows = B * T, .slot = (size_t)i},
             &(Batch){.B = B, .T = T, .N = B * T, .sample = sample});
    }
    free(own);
}

// Columns of a buffer as those of a row of the table are: heads of q, hidden units of the ffn.
static Source columns_of(Source s, const Param *row, size_t at)
{
    s.at = at;
    s.first = row->first;
    s.n = row->owned ? row->dim[0] : 0;
    s.width = row->whole[0];
    return s;
}

// One of a block's saved buffers becomes up to three tensors.
static void take_buffer(Dump *d, const Unit *unit, const char *unit_text, const char *buffer, Source s,
                        const Batch *batch)
{
    const ModelShape *local = &d->model->local;
    const Param *row = d->model->params.row;
    const char *part[3] = {buffer};
    Source source[3] = {s};
    int n = 1;
    if (!strncmp(buffer, "qk", 2)) {
        bool normed = !strcmp(buffer, "qk_normed"); // its third part is not used
        size_t at = 0;
        n = normed ? 2 : 3;
        for (int i = 0; i < n; i++, at += row[unit->row[W_QKV] + i - 1].dim[0]) {
            const char *names[2][3] = {{"q", "k", "v"}, {"q_normed", "k_normed"}};
            source[i] = columns_of(s, &row[unit->row[W_QKV] + i], at);
            source[i].slot = (normed ? 35 : 30) + (size_t)i; // made before attention, listed after it
            part[i] = names[normed][i];
        }
    } else if (!strcmp(buffer, "attn")) source[0] = columns_of(s, &row[unit->row[W_QKV]], 0);
    else if (!strcmp(buffer, "act") || !strcmp(buffer, "pre")) {
        n = local->swiglu && buffer[0] == 'p' ? 2 : 1;
        for (int i = 0; i < n; i++) {
            const Param *in = &row[unit->row[W_FFN_IN]]; // of a shared expert, too
            source[i] = columns_of(s, in + i, (size_t)i * in->dim[0]);
            source[i].slot = s.slot + (size_t)i;
            if (n == 2) part[i] = i ? "up" : "gate";
        }
    } else if (local->cut.size > 1 && local->cut.rank > 0 && s.n_rows == batch->N) return; // rank 0 has the same
    for (int i = 0; i < n; i++) {
        char name[NAME];
        snprintf(name, sizeof name, "forward.%s.%s", unit_text, part[i]);
        if (source[i].n) take(d, name, source[i], batch);
    }
}

// ---- experts

// As tensor NAME of the unit: `width` numbers of each token.
static void take_routing(Dump *d, const char *unit_text, const char *name, Source s, SafeDtype dtype, size_t width,
                         const Batch *batch)
{
    char full[NAME];
    snprintf(full, sizeof full, "forward.%s.%s", unit_text, name);
    s.dtype = dtype, s.ld = s.n = s.width = width;
    s.row = 0, s.n_rows = batch->N;
    take(d, full, s, batch);
}

// Rows of slots, in the order of tokens: (N, k width). Rows of dropped slots are 0. segments: matrices side by side,
// whose columns are those of a row of the table; 0: all columns are here.
static void take_slots(Dump *d, const char *unit_text, const char *name, Source s, const int32_t *row, size_t width,
                       size_t segments, const Param *columns, const Batch *batch)
{
    char full[NAME];
    size_t k = d->model->local.experts.k, R = batch->N * k, n_bytes = width * safetensors_dtype_bytes(s.dtype);
    char *rows = host_copy(d->model->dev, s.data, R * n_bytes), *sorted = calloc(R ? R : 1, n_bytes);
    if (!sorted) die("run.dump: no memory for %zu rows of %s", R, name);
    for (size_t i = 0; i < R; i++)
        if (row[i] >= 0) memcpy(sorted + i * n_bytes, rows + (size_t)row[i] * n_bytes, n_bytes);
    s.host = sorted, s.ld = s.n = s.width = k * width, s.row = 0, s.n_rows = batch->N;
    if (segments) {
        s.pieces = k * segments, s.first = columns->first, s.stride = columns->whole[0];
        s.width = s.pieces * s.stride;
    }
    snprintf(full, sizeof full, "forward.%s.%s", unit_text, name);
    take(d, full, s, batch);
    free(rows);
    free(sorted);
}

// The numbers by which experts are chosen where biases take part: scores + biases.
static void take_keys(Dump *d, const Unit *unit, const char *unit_text, Source s, const Batch *batch)
{
    const ModelExperts *x = &d->model->local.experts;
    Dev *dev = d->model->dev;
    if (!d->model->experts || !d->model->experts[unit->index].bias) return;
    float *z = (float *)host_copy(dev, s.data, batch->N * x->n * sizeof *z);
    float *bias = (float *)host_copy(dev, d->model->experts[unit->index].bias, x->n * sizeof *bias);
    for (size_t n = 0; n < batch->N; n++) {
        float *key = z + n * x->n;
        double top = key[0], sum = 0;
        for (size_t e = 0; e < x->n; e++) top = fmax(top, key[e]);
        for (size_t e = 0; e < x->n; e++) sum += exp(key[e] - top);
        for (size_t e = 0; e < x->n; e++)
            key[e] = (float)(x->sigmoid ? 1 / (1 + exp(-key[e])) : exp(key[e] - top) / sum) + bias[e];
    }
    s.host = z, s.slot++;
    take_routing(d, unit_text, "keys", s, ST_F32, x->n, batch);
    free(z);
    free(bias);
}

// own: the rows of the stream that this rank has. Tensor parallelism divides the columns of the experts; the router is
// on all its ranks, and the rows of `down` are whole on none.
static void take_experts(Dump *d, const Unit *unit, const char *unit_text, Source s, void *const *saved,
                         const Batch *batch)
{
    Model *m = d->model;
    const Param *columns = &m->params.row[unit->row[W_EXPERTS_IN]];
    bool first = m->local.cut.size <= 1 || m->local.cut.rank == 0, shared = unit_sharers(&m->local) > 1;
    const ModelExperts *x = &m->local.experts;
    BufferList list = unit->kind->saved(m->dev, &m->local, 1, 1);
    const X *down;
    const int32_t *at = experts_slot_rows(m->dev, &m->local, m->scratch, batch, &down);
    int32_t *row = (int32_t *)host_copy(m->dev, at, batch->N * x->k * sizeof *row);
    for (int i = 0; i < list.n; i++) {
        const char *name = list.name[i];
        Source own = s;
        own.data = saved[i], own.slot = (size_t)i * 10;
        if (!strcmp(name, "experts_pre") && x->ranks <= 1)
            take_slots(d, unit_text, name, own, row, 2 * x->ffn, 2, columns, batch);
        else if (!strcmp(name, "experts_act") && x->ranks <= 1)
            take_slots(d, unit_text, name, own, row, x->ffn, 1, columns, batch);
        else if (!first) continue;
        else if (!strcmp(name, "router")) {
            take_routing(d, unit_text, "router", own, ST_F32, x->n, batch);
            take_keys(d, unit, unit_text, own, batch);
        } else if (!strcmp(name, "choice")) take_routing(d, unit_text, "choice", own, ST_I32, x->k, batch);
        else if (!strcmp(name, "gate")) take_routing(d, unit_text, "weights", own, ST_F32, x->k, batch);
    }
    Source rows = s;
    rows.data = down, rows.slot = 300;
    if (m->local.cut.size <= 1)
        take_slots(d, unit_text, "experts_down", rows, row, m->local.channels, 0, NULL, batch);
    char name[NAME];
    snprintf(name, sizeof name, "forward.%s.experts", unit_text);
    s.data = (const char *)m->scratch[SCRATCH_NORM] + s.row * m->local.channels * m->dev->x_bytes, s.slot = 310;
    if (first || shared) take(d, name, s, batch);
    free(row);
}

static void saw(void *self, const Unit *unit, UnitPass pass, const X *stream, void *const *saved, const Batch *batch)
{
    Dump *d = self;
    const ModelShape *local = &d->model->local;
    char text[32], name[NAME];
    if (pass == PASS_AGAIN || !batch->train) return;
    unit_name(unit, text);
    size_t place = (size_t)unit->place, C = local->channels, shared = unit_sharers(local);
    bool first = local->cut.size <= 1 || local->cut.rank == 0;
    Source own = {.kind = pass == PASS_FORWARD ? DUMP_FORWARD : DUMP_BACKWARD, .data = stream,
                  .dtype = stored_type(d->model->dev), .ld = C, .n = C, .width = C,
                  .row = shared > 1 ? (size_t)local->cut.rank * (batch->N / shared) : 0, .n_rows = batch->N / shared,
                  .place = place, .slot = 900};
    if (pass == PASS_FORWARD) {
        BufferList list = unit->kind->saved(d->model->dev, local, 1, 1);
        for (int i = 0; i < list.n; i++) {
            if (!list.n_bytes[i] || !strncmp(list.name[i], "experts_", 8)) continue; // rows of slots, not of tokens
            Source s = own;
            s.data = saved[i];
            s.slot = strcmp(list.name[i], "ffn_out") ? (size_t)i * 10 : 320; // after those of experts
            s.ld = s.n = s.width = list.n_bytes[i] / d->model->dev->x_bytes;
            if (!list.shared[i]) s.row = 0, s.n_rows = batch->N;
            if (list.kind[i] != BUFFER_STAT) take_buffer(d, unit, text, list.name[i], s, batch);
        }
        if (unit->kind == &unit_experts) take_experts(d, unit, text, own, saved, batch);
    }
    if (pass == PASS_BACKWARD && unit->kind == &unit_head && first)
        take(d, "loss", (Source){.kind = DUMP_LOSS, .data = batch->loss, .dtype = ST_F32, .ld = 1, .n = 1, .width = 1,
                                 .n_rows = batch->N, .place = place}, batch);
    if (!stream || unit->kind == (pass == PASS_FORWARD ? &unit_head : &unit_embedding) || (shared == 1 && !first))
        return;
    snprintf(name, sizeof name, pass == PASS_FORWARD ? "forward.%s.out" : "backward.%s", text);
    take(d, name, own, batch);
}

Dump *dump_watch(Model *model, DumpPlace place)
{
    Dump *d = calloc(1, sizeof *d);
    if (!d) die("run.dump: no memory");
    Unit *units;
    d->place = place;
    d->model = model;
    model_describe(&model->shape, &d->whole, &units);
    free(units);
    model->hooks.watcher = d;
    model->hooks.saw = saw;
    return d;
}

void dump_unwatch(Dump *d)
{
    d->model->hooks.saw = NULL;
    d->model->hooks.watcher = NULL;
}

// ---- rows of the table

// Flat elements [begin, end) of what this rank has of a row.
static Part part_of_row(const Param *row, size_t begin, size_t end)
{
    bool rows = row->cut != 1 || row->whole[1] == row->dim[1]; // then they are back to back
    size_t ld = row->dim[1];
    if (!rows && begin == 0 && end == row->n_elems) {
        Part part = dump_part_make(row->ndim, row->whole, row->whole[1]);
        dump_part_rows(&part, 0, row->dim[0]);
        dump_part_columns(&part, row->first, ld);
        return part;
    }
    Part part = dump_part_make(row->ndim, row->whole, 1);
    dump_part_columns(&part, 0, 1);
    for (size_t i = begin, n; i < end; i += n) {
        n = rows || end - i < ld - i % ld ? end - i : ld - i % ld;
        dump_part_rows(&part, params_whole_index(row, i), n);
    }
    return part;
}

// One array of the optimizer after the other.
static long number_of_array(Dump *d, const char *array)
{
    int i = 0;
    if (!array) return 0;
    while (i < ARRAYS && d->array[i] && strcmp(d->array[i], array)) i++;
    check(i < ARRAYS);
    d->array[i] = array;
    return i;
}

// Each element adds a hash of its row, its place in the whole and its value in fp32, but 0 adds nothing. So the ranks'
// sums add up to that of one rank, whatever the layout, and a fresh state has the hash 0 in any optimizer.
static uint64_t hash_of(const char *array, const char *row, const Part *part, SafeDtype dtype, const void *data)
{
    struct { uint64_t row, at, bits; } x = {XXH3_64bits(row, strlen(row)) ^ XXH3_64bits(array, strlen(array)), 0, 0};
    uint64_t sum = 0;
    size_t i = 0;
    for (size_t r = 0; r < part->rows.n; r++)
        for (size_t row_at = 0; row_at < part->rows.range[r].count; row_at++)
            for (size_t c = 0; c < part->columns.held; c++, i++) {
                uint16_t half = dtype == ST_BF16 ? ((const uint16_t *)data)[i] : 0;
                uint32_t bits = dtype == ST_BF16 ? (uint32_t)half << 16 : ((const uint32_t *)data)[i];
                x.at = (part->rows.range[r].first + row_at) * part->width + part->columns.range[0].first + c;
                x.bits = bits;
                if (bits & 0x7fffffff) sum += XXH3_64bits(&x, sizeof x);
            }
    return sum;
}

void dump_row(Dump *d, DumpKind kind, const char *array, const Param *row, size_t begin, size_t end,
              SafeDtype dtype, const void *data, double scale)
{
    static const char *const prefix[] = {[DUMP_WEIGHT] = "weight", [DUMP_GRAD] = "grad", [DUMP_STATE] = "state",
                                         [DUMP_UPDATED] = "updated"};
    char name[NAME];
    size_t place = place_of(row->name, d->model->shape.layers), slot = 0, n_bytes = safetensors_dtype_bytes(dtype);
    if (begin >= end) return;
    Part part = part_of_row(row, begin, end);
    if (kind == DUMP_BEFORE) {
        d->before += hash_of(array, row->name, &part, dtype, data);
        dump_part_free(&part);
        return;
    }
    int i = params_find(&d->whole, row->name);
    check(i >= 0);
    while (i > (int)slot && d->whole.row[i - (int)slot - 1].unit == d->whole.row[i].unit) slot++;
    snprintf(name, sizeof name, "%s.%s%s%s", prefix[kind], array ? array : "", array ? "." : "", row->name);
    part.at = number_of(kind, d->model->shape.layers, place, slot) + 10000000 * number_of_array(d, array);
    part.error = kind == DUMP_UPDATED && d->place.by_sign ? 0 : error_of(d, kind, place);
    part.stored = dtype;
    Entry *e = new_entry(d, name, part, dtype);
    char *to = memcpy(extend(e, (end - begin) * n_bytes), data, (end - begin) * n_bytes);
    for (size_t i = 0; dtype == ST_F32 && scale != 1 && i < end - begin; i++) ((float *)to)[i] *= (float)scale;
}

// ---- the file

static void dir_name(char path[800], const char *run_dir, long update)
{
    snprintf(path, 800, "%s/dump/step_%08ld", run_dir, update);
}

void dump_make_dir(const char *run_dir, long update)
{
    char path[800];
    snprintf(path, sizeof path, "%s/dump", run_dir);
    if (mkdir(path, 0777) && errno != EEXIST) die("%s: cannot be made: %s", path, strerror(errno));
    dir_name(path, run_dir, update);
    if (!disk_remove_dir(path) || mkdir(path, 0777)) die("%s: cannot be made: %s", path, strerror(errno));
}

static int by_number(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    return x->part.at != y->part.at ? (x->part.at < y->part.at ? -1 : 1) : strcmp(x->name, y->name);
}

// A whole tensor has its own shape, so that other programs read it; a part is rows and columns.
static void set_shape(SafeTensor *t, const Part *part, size_t shape[2])
{
    bool whole = dump_part_elems(part) == dump_part_whole_elems(part);
    shape[0] = part->rows.held;
    shape[1] = part->columns.held;
    t->ndim = whole ? part->ndim : 2;
    t->shape = whole ? part->shape : shape;
}

void dump_write(Dump *d, const char *run_dir)
{
    enum { OWN = 7, KEY = NAME + 8 };
    size_t n = (size_t)d->n;
    SafeTensor *tensor = calloc(n + 1, sizeof *tensor);
    SafeMeta *meta = calloc(n + OWN, sizeof *meta);
    char (*key)[KEY] = calloc(n + 1, sizeof *key), **text = calloc(n + 1, sizeof *text);
    size_t (*shape)[2] = calloc(n + 1, sizeof *shape);
    if (!tensor || !meta || !key || !text || !shape) die("run.dump: no memory for the names of %zu tensors", n);
    qsort(d->entry, n, sizeof *d->entry, by_number);
    for (size_t i = 0; i < n; i++) {
        Entry *e = &d->entry[i];
        tensor[i] = (SafeTensor){.name = e->name, .dtype = e->dtype, .data = e->data};
        set_shape(&tensor[i], &e->part, shape[i]);
        snprintf(key[i], sizeof key[i], "part.%s", e->name);
        text[i] = dump_part_text(&e->part);
        meta[i] = (SafeMeta){key[i], text[i]};
    }
    char number[OWN - 2][24], path[800], file[840], temporary[850], error[1024];
    const long value[OWN - 3] = {d->place.update, d->place.rank, d->place.ranks, (long)d->model->shape.head_size};
    static const char *const name[] = {"update", "rank", "ranks", "head_size"};
    for (size_t i = 0; i < OWN - 3; i++) {
        snprintf(number[i], sizeof number[i], "%ld", value[i]);
        meta[n + i] = (SafeMeta){name[i], number[i]};
    }
    snprintf(number[4], sizeof number[4], "%016llx", (unsigned long long)d->before);
    meta[n + 4] = (SafeMeta){"dtype", d->place.dtype};
    meta[n + 5] = (SafeMeta){"layout", d->place.layout};
    meta[n + 6] = (SafeMeta){"state_before", number[4]};
    dir_name(path, run_dir, d->place.update);
    snprintf(file, sizeof file, "%s/rank_%05d.safetensors", path, d->place.rank);
    snprintf(temporary, sizeof temporary, "%s.tmp", file);
    if (!safetensors_write(temporary, tensor, (int)n, meta, (int)n + OWN, NULL, NULL, error, sizeof error))
        die("%s", error);
    if (rename(temporary, file) || !disk_sync_parent(file)) die("%s: %s", file, strerror(errno));
    for (size_t i = 0; i < n; i++) free(text[i]);
    free(tensor);
    free(meta);
    free(key);
    free(text);
    free(shape);
}

void dump_free(Dump *d)
{
    for (int i = 0; d && i < d->n; i++) {
        dump_part_free(&d->entry[i].part);
        free(d->entry[i].data);
    }
    if (d) free(d->entry), params_free(&d->whole);
    free(d);
}

// ---- parts
//
// A dump has one file for each rank, and a rank has a piece of most tensors: some samples, some tokens, some
// heads, a range of a gradient. The program that joins them must not depend on the axes along which the run was
// divided, how often, or in which order: that would take a rule for each layout, which repeats the layout's own code.
// So the writer describes its part in numbers:
//
//     {"shape": [8,32,64], "width": 64, "rows": [[0,16],[48,16]], "columns": [[32,32]], ...}
//
// reads: of 8 x 32 rows of 64 columns, rows 0 to 15 and 48 to 63, of each columns 32 to 63.
//
// Element k of the array, k = i C + j for C columns held, is row i of the concatenated row ranges,
// column j of the concatenated column ranges. Parts of one tensor may overlap, as long as they agree.
//
// Rejected for parts: a list of flat element ranges. It says everything too, but a quarter of the columns of 10^5 rows
// would be 10^5 ranges. [axis, first, count] per cut axis: the zig-zag of context parallelism is two stretches of a
// sequence, and sequence parallelism shares rows that are samples and tokens at once.

Part dump_part_make(int ndim, const size_t *shape, size_t width)
{
    check(ndim >= 0 && ndim <= PART_DIMS);
    Part part = {.ndim = ndim, .width = width, .stored = ST_F32};
    memcpy(part.shape, shape, (size_t)ndim * sizeof *shape);
    return part;
}

static void add_range(PartList *list, size_t first, size_t count)
{
    PartRange *last = list->n ? &list->range[list->n - 1] : NULL;
    list->held += count;
    if (!count) return;
    if (last && last->first + last->count == first) {
        last->count += count;
        return;
    }
    if ((list->n & (list->n - 1)) == 0) { // full: twice as many
        list->range = realloc(list->range, (list->n ? 2 * list->n : 1) * sizeof *list->range);
        if (!list->range) die("part: no memory for %zu ranges", list->n);
    }
    list->range[list->n++] = (PartRange){first, count};
}

void dump_part_rows(Part *part, size_t first, size_t count)
{
    add_range(&part->rows, first, count);
}

void dump_part_columns(Part *part, size_t first, size_t count)
{
    add_range(&part->columns, first, count);
}

size_t dump_part_elems(const Part *part)
{
    return part->rows.held * part->columns.held;
}

size_t dump_part_whole_elems(const Part *part)
{
    size_t n = 1;
    for (int d = 0; d < part->ndim; d++) n *= part->shape[d];
    return n;
}

void dump_part_free(Part *part)
{
    free(part->rows.range);
    free(part->columns.range);
    *part = (Part){0};
}

static json_t *list_json(const PartList *list)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->n; i++)
        json_array_append_new(array, json_pack("[II]", (json_int_t)list->range[i].first,
                                               (json_int_t)list->range[i].count));
    return array;
}

char *dump_part_text(const Part *part)
{
    json_t *shape = json_array();
    for (int d = 0; d < part->ndim; d++) json_array_append_new(shape, json_integer((json_int_t)part->shape[d]));
    json_t *object = json_pack("{s:o, s:I, s:o, s:o, s:I, s:f, s:s}", "shape", shape, "width", (json_int_t)part->width,
                               "rows", list_json(&part->rows), "columns", list_json(&part->columns), "at",
                               (json_int_t)part->at, "error", part->error, "stored",
                               safetensors_dtype_name(part->stored));
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text) die("part: no memory for its text");
    return text;
}

// Ranges within [0, limit).
static bool parse_list(PartList *list, const json_t *array, size_t limit)
{
    size_t i;
    json_t *pair;
    if (!json_is_array(array)) return false;
    json_array_foreach(array, i, pair) {
        json_int_t first, count;
        if (json_array_size(pair) != 2 || !json_is_integer(json_array_get(pair, 0)) ||
            !json_is_integer(json_array_get(pair, 1)))
            return false;
        first = json_integer_value(json_array_get(pair, 0));
        count = json_integer_value(json_array_get(pair, 1));
        if (first < 0 || count < 0 || (size_t)first > limit || (size_t)count > limit - (size_t)first) return false;
        if ((size_t)count > limit - list->held) return false; // more than the whole: some twice
        add_range(list, (size_t)first, (size_t)count);
    }
    return true;
}

static bool parse_shape(Part *part, const json_t *array)
{
    size_t limit = SIZE_MAX / 16;
    if (!json_is_array(array) || json_array_size(array) > PART_DIMS) return false;
    part->ndim = (int)json_array_size(array);
    for (int d = 0; d < part->ndim; d++) {
        json_int_t n = json_integer_value(json_array_get(array, (size_t)d));
        if (!json_is_integer(json_array_get(array, (size_t)d)) || n < 1 || (size_t)n > limit) return false;
        part->shape[d] = (size_t)n;
        limit /= (size_t)n;
    }
    return true;
}

static bool parse_object(Part *part, const json_t *object)
{
    json_int_t width = json_integer_value(json_object_get(object, "width"));
    const char *stored = json_string_value(json_object_get(object, "stored"));
    if (!parse_shape(part, json_object_get(object, "shape")) || width < 1) return false;
    size_t n = dump_part_whole_elems(part);
    part->width = (size_t)width;
    part->at = (long)json_integer_value(json_object_get(object, "at"));
    part->error = json_number_value(json_object_get(object, "error"));
    if (n % part->width || !(part->error >= 0) || !stored) return false;
    int dtype = 0;
    while (dtype < ST_DTYPES && strcmp(stored, safetensors_dtype_name((SafeDtype)dtype))) dtype++;
    part->stored = (SafeDtype)dtype;
    return dtype < ST_DTYPES && parse_list(&part->rows, json_object_get(object, "rows"), n / part->width) &&
           parse_list(&part->columns, json_object_get(object, "columns"), part->width);
}

bool dump_part_parse(Part *part, const char *text)
{
    *part = (Part){0};
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    bool ok = json_is_object(object) && parse_object(part, object);
    json_decref(object);
    if (!ok) dump_part_free(part);
    return ok;
}

bool dump_part_place(const Part *part, void *whole, uint8_t *seen, const void *data, size_t n_bytes)
{
    const char *from = data;
    bool agrees = true;
    for (size_t r = 0; r < part->rows.n; r++)
        for (size_t i = 0; i < part->rows.range[r].count; i++)
            for (size_t c = 0; c < part->columns.n; c++) {
                PartRange columns = part->columns.range[c];
                size_t first = (part->rows.range[r].first + i) * part->width + columns.first;
                char *to = (char *)whole + first * n_bytes;
                for (size_t k = 0; k < columns.count; k++) {
                    uint8_t *times = &seen[first + k];
                    agrees = agrees && (!*times || !memcmp(to + k * n_bytes, from + k * n_bytes, n_bytes));
                    *times = (uint8_t)(*times + (*times < UINT8_MAX));
                }
                memcpy(to, from, columns.count * n_bytes);
                from += columns.count * n_bytes;
            }
    return agrees;
}
