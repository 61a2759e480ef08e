// pictures_ops: a step as a chart: a column is a call of an op, a row an array or a kind of arrays, a mark what the
// call does with it.
//
// The calls are those of a real step on random tokens (ops_trace.h). An array is found by the address that the op was
// given; an address outside of all known arrays ends the program, so a chart cannot miss one.
#include "dev/draw/pictures.h"

#include "base/check.h"
#include "tools/svg.h"
#include "dev/draw/ops_trace.h"
#include "ops/dev_cpu.h"
#include "train/run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const pictures_color[8] = {SVG_BLUE, SVG_ORANGE, SVG_GREEN, SVG_RED,
                                       "#7a4fa3", "#9a7b00", "#0b8a8f", SVG_GREY};

void pictures_box(FILE *f, double x, double y, double w, double h, const char *fill, const char *stroke)
{
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" stroke=\"%s\"/>\n", x, y, w, h,
            fill, stroke ? stroke : "none");
}

void pictures_label(FILE *f, double x, double y, const char *anchor, double size, const char *color,
                    const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    svg_text(f, x, y, anchor, size, color, false, text);
}

// ---- a step

typedef struct {
    Mem mem;
    Dev *cpu, *dev;
    OpsTrace *trace;
    Model *model;
    Optim optim;
} Step;

enum { TOKENS = 32 };

static Step step_run(const Config *cfg, size_t layers)
{
    Step s = {.cpu = dev_cpu_create(1)};
    ModelShape shape = run_shape(cfg);
    shape.layers = layers;
    s.dev = run_device(cfg, s.cpu);
    s.trace = ops_trace_create(s.dev);
    s.mem.raw_alloc = s.dev->raw_alloc, s.mem.raw_free = s.dev->raw_free;
    s.model = model_create(&shape, &s.trace->dev, &s.mem, 1, TOKENS, 1, true);
    s.optim = optim_create(s.model, run_optim_settings(cfg));
    ops_trace_follow(s.trace, s.model);
    s.trace->n = 0; // what was called to set up
    int32_t token[TOKENS], target[TOKENS];
    for (int i = 0; i < TOKENS; i++) token[i] = i, target[i] = i + 1;
    model_set_batch(s.model, token, NULL, target, 1, TOKENS);
    model_forward_backward(s.model, 1.0f / TOKENS);
    model_step_finish(s.model);
    optim_step(&s.optim, s.model, 1e-3);
    return s;
}

static void step_free(Step *s)
{
    optim_free(&s->optim);
    model_free(s->model);
    mem_free_all(&s->mem);
    ops_trace_free(s->trace);
    run_device_free(s->dev, s->cpu);
}

// ---- its arrays

typedef enum { STREAM, KEPT, STATISTIC, TEMPORARY, LOGITS, WEIGHT, GRADIENT, MASTER, MOMENT, LOSS } Kind;

typedef struct {
    const char *begin;
    size_t n_bytes;
    char name[PARAM_NAME];
    Kind kind;
    int unit;
    double per_token; // elements of a token
} Array;

typedef struct {
    Array array[400];
    int n;
} Arrays;

static void arrays_add(Arrays *a, const void *begin, size_t n_bytes, Kind kind, int unit, double per_token,
                       const char *name)
{
    if (!begin || !n_bytes) return;
    check(a->n < (int)(sizeof a->array / sizeof *a->array));
    Array *to = &a->array[a->n++];
    *to = (Array){.begin = begin, .n_bytes = n_bytes, .kind = kind, .unit = unit, .per_token = per_token};
    snprintf(to->name, sizeof to->name, "%s", name);
}

// "layers.0.attn.q.weight" -> "attn.q": a bias joins its weight.
static void stem(char out[PARAM_NAME], const char *name)
{
    const char *from = strncmp(name, "layers.", 7) ? name : strchr(name + 7, '.') + 1;
    snprintf(out, PARAM_NAME, "%s", from);
    char *dot = strrchr(out, '.');
    if (dot && (!strcmp(dot, ".weight") || !strcmp(dot, ".bias"))) *dot = '\0';
}

static Arrays *arrays_of(const Step *s)
{
    Arrays *a = calloc(1, sizeof *a);
    const Model *m = s->model;
    size_t x = s->dev->x_bytes, stream = TOKENS * m->shape.channels * x, P = m->params.n_elems;
    double C = (double)m->shape.channels;
    if (!a) die("draw: no memory");
    for (int u = 0; u < m->n_units; u++) {
        BufferList list = m->unit[u].kind->saved(s->dev, &m->shape, 1, TOKENS);
        arrays_add(a, m->acts.stream[u], stream, STREAM, u, C, "stream");
        for (int i = 0; i < list.n; i++) {
            bool stat = list.kind[i] == BUFFER_STAT;
            arrays_add(a, m->acts.saved[u][i], list.n_bytes[i], stat ? STATISTIC : KEPT, u,
                       (double)list.n_bytes[i] / TOKENS / (double)(stat ? sizeof(float) : x), list.name[i]);
        }
    }
    BufferList scratch = unit_scratch(s->dev, &m->shape, TOKENS);
    for (int i = 0; i < scratch.n; i++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "scratch: %s", scratch.name[i]);
        arrays_add(a, m->scratch[i], scratch.n_bytes[i], i == SCRATCH_LOGITS ? LOGITS : TEMPORARY, -1,
                   (double)scratch.n_bytes[i] / TOKENS / (double)x, name);
    }
    arrays_add(a, m->dstream, stream, TEMPORARY, -1, C, "gradient of the stream");
    arrays_add(a, m->loss, TOKENS * sizeof(float), LOSS, -1, 1, "losses");
    for (int r = 0; r < m->params.n_rows; r++) {
        const Param *row = &m->params.row[r];
        char name[PARAM_NAME];
        stem(name, row->name);
        arrays_add(a, (const char *)m->x_weights + row->offset * x, row->n_elems * x, WEIGHT, row->unit, 0, name);
        arrays_add(a, m->grads + row->offset, row->n_elems * sizeof(float), GRADIENT, row->unit, 0, name);
    }
    if ((const void *)m->weights != (const void *)m->x_weights)
        arrays_add(a, m->weights, P * sizeof(float), MASTER, -1, 0, "master weights");
    for (int k = 0; k < s->optim.kind->n_states; k++)
        arrays_add(a, s->optim.state[k].data, s->optim.state[k].n_bytes, MOMENT, -1, 0, s->optim.state[k].prefix);
    return a;
}

static const Array *arrays_find(const Arrays *a, const void *at)
{
    for (int i = 0; i < a->n; i++)
        if ((const char *)at >= a->array[i].begin && (const char *)at < a->array[i].begin + a->array[i].n_bytes)
            return &a->array[i];
    die("draw: an op was given an array that is not known here");
}

// ---- the chart

enum { ROWS = 64, COLUMNS = 64, MOST_LIVES = 16, LEFT = 170, TOP = 190, CELL = 21, ROW = 20, HEAD = 26, RIGHT = 70 };

typedef struct {
    char name[PARAM_NAME], note[32];
    const char *color, *head;    // head: a heading above it, or NULL
    double life[MOST_LIVES][2];  // from a write to the last read before the next one, in columns
    int n_lives;
    double from, to;             // of the one that is not over
} Row;

typedef struct {
    char name[48], head[24]; // head: what begins here, or ""
} Column;

typedef struct {
    Row row[ROWS];
    Column column[COLUMNS];
    unsigned char mark[ROWS][COLUMNS]; // OpsTraceWay
    int n_rows, n_columns;
    const char *below[2]; // lines under the chart
} Chart;

static int chart_row(Chart *c, const char *name)
{
    for (int i = 0; i < c->n_rows; i++)
        if (!strcmp(c->row[i].name, name)) return i;
    check(c->n_rows < ROWS);
    snprintf(c->row[c->n_rows].name, PARAM_NAME, "%s", name);
    return c->n_rows++;
}

static double row_y(const Chart *c, int row)
{
    double y = TOP;
    for (int i = 0; i < row; i++) y += ROW;
    for (int i = 0; i <= row && i < c->n_rows; i++)
        if (c->row[i].head) y += HEAD;
    return y;
}

static double column_x(double k)
{
    return LEFT + 16 + CELL * k;
}

static void draw_mark(FILE *f, double x, double y, unsigned char way, const char *color)
{
    if (way & OPS_TRACE_WRITE) pictures_box(f, x - 5.5, y - 5.5, 11, 11, color, NULL);
    if ((way & OPS_TRACE_ADD) && (way & OPS_TRACE_READ)) x -= 5;
    if (way & OPS_TRACE_ADD)
        fprintf(f, "<path d=\"M%.1f %.1fl6 11h-12z\" fill=\"%s\"/>\n", x, y - 6, color);
    if ((way & OPS_TRACE_ADD) && (way & OPS_TRACE_READ)) x += 10;
    if (way & OPS_TRACE_READ)
        fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"#ffffff\" stroke=\"%s\" stroke-width=\"2\"/>\n",
                x, y, color);
}

static void draw_lifetimes(FILE *f, const Row *row, double y)
{
    for (int i = 0; i < row->n_lives; i++) {
        double x = column_x(row->life[i][0]), w = column_x(row->life[i][1]) - x;
        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"10\" fill=\"%s\" opacity=\"0.28\"/>\n", x,
                y - 5, w, row->color);
    }
}

static void draw_columns(FILE *f, const Chart *c, double bottom)
{
    int heads = 0;
    for (int k = 0; k < c->n_columns; k++) {
        double x = column_x(k);
        if (*c->column[k].head) {
            double y = heads++ % 2 ? 36 : 20; // in turn: there may be one column between two
            svg_line(f, x - CELL / 2.0, y - 10, x - CELL / 2.0, bottom, SVG_AXIS, 1, NULL);
            svg_text(f, x - CELL / 2.0 + 5, y, "start", 12, SVG_INK, true, c->column[k].head);
        }
        fprintf(f, "<text transform=\"translate(%.1f %d) rotate(-90)\" font-size=\"10.5\" fill=\"%s\">%s</text>\n",
                x + 4, TOP + 12, SVG_INK, c->column[k].name);
    }
}

static void draw_legend(FILE *f, const Chart *c, double y)
{
    static const char *const what[] = {"read", "written", "added to"};
    static const OpsTraceWay way[] = {OPS_TRACE_READ, OPS_TRACE_WRITE, OPS_TRACE_ADD};
    for (int i = 0; i < 3; i++) {
        draw_mark(f, LEFT + 16 + 90 * i, y - 4, way[i], SVG_INK);
        svg_text(f, LEFT + 28 + 90 * i, y, "start", 12, SVG_INK, false, what[i]);
    }
    for (int i = 0; i < 2; i++)
        if (c->below[i]) svg_text(f, 14, y + 24 + 18 * i, "start", 12, SVG_GREY, false, c->below[i]);
}

static void chart_draw(FILE *f, void *arg)
{
    const Chart *c = arg;
    double bottom = row_y(c, c->n_rows) + 6, right = column_x(c->n_columns) - CELL / 2.0;
    draw_columns(f, c, bottom);
    for (int i = 0; i < c->n_rows; i++) {
        const Row *row = &c->row[i];
        double y = row_y(c, i) + ROW / 2.0;
        if (row->head) svg_text(f, 14, y - ROW / 2.0 - 6, "start", 12, SVG_INK, true, row->head);
        svg_line(f, LEFT, y, right, y, SVG_GRID, 1, NULL);
        svg_text(f, LEFT - 4, y + 4, "end", 11.5, row->color, false, row->name);
        svg_text(f, right + 8, y + 4, "start", 11.5, SVG_GREY, false, row->note);
        draw_lifetimes(f, row, y);
        for (int k = 0; k < c->n_columns; k++) draw_mark(f, column_x(k), y, c->mark[i][k], row->color);
    }
    draw_legend(f, c, bottom + 24);
}

static void chart_write(Chart *c, const char *title, const char *path)
{
    svg_write(path, LEFT + 16 + CELL * c->n_columns + RIGHT, (int)row_y(c, c->n_rows) + 6 + 24 + 54, title, chart_draw,
              c);
}

// ---- a block

static void elements_note(char out[32], double per_token, size_t channels)
{
    double wide = per_token / (double)channels;
    if (wide >= 1) snprintf(out, 32, "%.3g C", wide);
    else snprintf(out, 32, "%.3g", per_token);
}

// The rows in the order of the picture: the stream, what is kept, what is not, the weights.
static void block_rows(Chart *c, const Arrays *a, int unit, size_t channels)
{
    static const Kind order[][2] = {{STREAM, KEPT}, {KEPT, STATISTIC}, {TEMPORARY, TEMPORARY}, {WEIGHT, WEIGHT}};
    static const char *const head[] = {"the stream", "kept for backward", "not kept", "weights, their gradients"};
    static const char *const color[] = {SVG_INK, SVG_BLUE, SVG_ORANGE, SVG_GREEN};
    for (int g = 0; g < 4; g++)
        for (int i = 0, first = 1; i < a->n; i++) {
            const Array *x = &a->array[i];
            if (x->kind != order[g][0] && (g == 0 || x->kind != order[g][1])) continue;
            bool output = x->kind == STREAM && x->unit == unit + 1;
            if (x->unit >= 0 && x->unit != unit && !output) continue;
            int n = c->n_rows, r = chart_row(c, x->kind == STREAM ? output ? "output" : "input" : x->name);
            Row *row = &c->row[r];
            if (r < n) continue; // the weight of this bias is there
            row->color = color[g];
            row->head = first ? head[g] : NULL, first = 0;
            if (g < 3) elements_note(row->note, x->per_token, channels);
        }
}

// The row of an array; NULL: another block's, or of no unit that the chart has.
static Row *block_row(Chart *c, const Array *x, int unit)
{
    const char *name = x->name;
    if (x->kind == STREAM) name = x->unit == unit ? "input" : "output";
    if (x->kind == STREAM ? x->unit != unit && x->unit != unit + 1 : x->unit >= 0 && x->unit != unit) return NULL;
    for (int i = 0; i < c->n_rows; i++)
        if (!strcmp(c->row[i].name, name)) return &c->row[i];
    return NULL;
}

// An op, at a column or between two, uses an array. Weights are there all the time.
static void live(Row *row, const Array *x, OpsTraceWay way, double at)
{
    if (x->kind == WEIGHT || x->kind == GRADIENT) return;
    if (way == OPS_TRACE_READ) row->to = at;
    if (way != OPS_TRACE_WRITE) return;
    if (row->to > row->from) {
        check(row->n_lives < MOST_LIVES);
        row->life[row->n_lives][0] = row->from, row->life[row->n_lives++][1] = row->to;
    }
    row->from = row->to = at;
}

// Rows that no column uses go.
static void chart_drop_unused(Chart *c)
{
    const char *head = NULL;
    int n = 0;
    for (int i = 0; i < c->n_rows; i++) {
        bool used = false;
        for (int k = 0; k < c->n_columns; k++) used |= c->mark[i][k] != 0;
        if (c->row[i].head) head = c->row[i].head;
        if (!used) continue;
        c->row[n] = c->row[i], c->row[n].head = head, head = NULL;
        memmove(c->mark[n++], c->mark[i], sizeof *c->mark);
    }
    c->n_rows = n;
}

// Calls of other units and the update are between the block's columns.
static void block_call(Chart *c, const Arrays *a, const OpsTraceCall *call, int unit, UnitPass *pass)
{
    bool own = call->unit == unit;
    double at = own ? c->n_columns : c->n_columns - 0.5;
    for (int i = 0; i < call->n; i++) {
        const Array *x = arrays_find(a, call->use[i].array);
        Row *row = block_row(c, x, unit);
        check(row || !own || x->kind == STREAM);
        if (!row) continue;
        live(row, x, call->use[i].way, at);
        if (own) c->mark[row - c->row][c->n_columns] |= call->use[i].way;
    }
    if (!own) return;
    check(c->n_columns < COLUMNS - 1);
    Column *column = &c->column[c->n_columns];
    snprintf(column->name, sizeof column->name, "%s", call->op);
    if (c->n_columns == 0 || call->pass != *pass)
        strcpy(column->head, call->pass == PASS_FORWARD ? "forward" : "backward");
    *pass = call->pass;
    c->n_columns++;
}

void pictures_block(const Config *cfg, const char *path)
{
    enum { UNIT = 2 };
    Step s = step_run(cfg, 3); // the block in the middle
    Arrays *a = arrays_of(&s);
    Chart *c = calloc(1, sizeof *c);
    UnitPass pass = PASS_FORWARD;
    if (!c) die("draw: no memory");
    block_rows(c, a, UNIT, s.model->shape.channels);
    for (int k = 0; k < s.trace->n; k++) block_call(c, a, &s.trace->call[k], UNIT, &pass);
    for (int i = 0; i < c->n_rows; i++) // as if written again: ends the last bar
        live(&c->row[i], &(Array){.kind = KEPT}, OPS_TRACE_WRITE, c->n_columns);
    chart_drop_unused(c);
    c->below[0] = "A bar goes from where an array is written to where it is read last: what crosses the line between";
    c->below[1] = "forward and backward has to be kept, or made again. Right: elements of a token, C channels.";
    chart_write(c, "one block forward and backward, op by op", path);
    free(c), free(a);
    step_free(&s);
}

// ---- types

static const char *const kind_name[] = {
    [STREAM] = "streams", [KEPT] = "activations kept", [STATISTIC] = "statistics", [TEMPORARY] = "temporary",
    [LOGITS] = "logits, their gradient", [WEIGHT] = "weights", [GRADIENT] = "gradients of weights",
    [MASTER] = "master weights", [MOMENT] = NULL, [LOSS] = "losses"};

static const char *phase_of(const Model *m, const OpsTraceCall *call, char out[24])
{
    const char *unit = call->unit < 0 ? "update" : m->unit[call->unit].kind->name;
    snprintf(out, 24, "%s%s", unit, call->unit >= 0 && call->pass == PASS_BACKWARD ? ", back" : "");
    return out;
}

static void casts_rows(Chart *c, const char *narrow)
{
    static const Kind order[] = {WEIGHT, STREAM, KEPT, TEMPORARY, LOGITS, STATISTIC, LOSS, GRADIENT, MASTER};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        Row *row = &c->row[chart_row(c, kind_name[order[i]])];
        row->color = SVG_GREY;
        if (i == 0) row->head = narrow;
        if (order[i] == STATISTIC) row->head = "fp32";
    }
}

// The row's type is that of the first op that uses it; all must agree.
static void casts_use(Chart *c, const Arrays *a, const OpsTraceUse *use, const char *narrow)
{
    const Array *x = arrays_find(a, use->array);
    Row *row = &c->row[chart_row(c, x->kind == MOMENT ? x->name : kind_name[x->kind])];
    const char *type = use->is_x ? narrow : "fp32";
    if (*row->note && strcmp(row->note, type)) die("draw: %s is %s here and %s there", row->name, row->note, type);
    snprintf(row->note, sizeof row->note, "%s", type);
    row->color = use->is_x ? SVG_BLUE : SVG_ORANGE;
    c->mark[row - c->row][c->n_columns - 1] |= use->way;
}

void pictures_casts(const Config *cfg, const char *path)
{
    Step s = step_run(cfg, 1);
    Arrays *a = arrays_of(&s);
    Chart *c = calloc(1, sizeof *c);
    if (!c) die("draw: no memory");
    if (s.dev->x_type == X_FP32) die("draw: casts: everything is fp32 (try --numerics.dtype=bf16)");
    const char *narrow = s.dev->x_type == X_BF16 ? "bf16" : "fp16";
    casts_rows(c, narrow);
    char phase[24] = "", now[24];
    for (int k = 0; k < s.trace->n; k++) {
        const OpsTraceCall *call = &s.trace->call[k];
        bool begins = strcmp(phase, phase_of(s.model, call, now)) != 0;
        if (begins || strcmp(c->column[c->n_columns - 1].name, call->op)) { // calls of one op in a row are one column
            check(c->n_columns < COLUMNS);
            Column *column = &c->column[c->n_columns++];
            snprintf(column->name, sizeof column->name, "%s", call->op);
            if (begins) strcpy(column->head, now);
        }
        strcpy(phase, now);
        for (int i = 0; i < call->n; i++) casts_use(c, a, &call->use[i], narrow);
    }
    chart_drop_unused(c);
    c->below[0] = "An op whose marks stand in both halves changes the type: it computes in fp32, and rounds where it";
    c->below[1] = "writes 16 bits. Sums of a step (gradients) and of a run (master weights, moments) stay in fp32.";
    chart_write(c, "a step in 16 bits: of which type each array is", path);
    free(c), free(a);
    step_free(&s);
}
