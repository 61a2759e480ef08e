// pipeline_csv: a schedule in a text file that a person can write. See pipeline_table.h for the contract.
//
// The invariant: reading what was written gives the same table, and every line that is not understood is
// refused with its number. A line is
//
//   stage,slot,action,micro,chunk      or, with a header that says so,      stage,slot,action,micro,chunk,piece
//
// whole numbers and F, B or W. The sizes are not stated: they are one more than the largest stage,
// micro-batch and chunk. So a file cannot contradict itself there, and what it leaves out (a stage, a B) the
// checker misses by name.
//
// A slot says which action comes first, not when: 0, 1, 2 and 10, 20, 30 are the same order. Two actions of a
// stage in one slot are refused, for neither the first line nor the last should win silently.
//
// Rejected: a quoted CSV dialect (no field can hold a comma), and a header with the sizes (two places that
// can disagree).
#include "parallel/pipeline_table.h"

#include "base/check.h"
#include "base/disk.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 5, MAX_BYTES = 256 << 20, MAX_SLOT = 1000000000 };
static const char HEADER[] = "stage,slot,action,micro,chunk";
static const char HEADER_PIECE[] = "stage,slot,action,micro,chunk,piece";

typedef struct {
    int stage, piece; // piece -1: not said
    PipelineAction action;
    long line;
} Row;

typedef struct {
    const char *path;
    long line;
    bool has_piece;
    Row *row;
    size_t n, room;
} Reader;

// The next field of the line, without blanks around it; NULL when there is none.
static char *field(char **rest)
{
    char *begin = *rest;
    if (!begin) return NULL;
    char *comma = strchr(begin, ',');
    *rest = comma ? comma + 1 : NULL;
    if (comma) *comma = 0;
    while (isspace((unsigned char)*begin)) begin++;
    size_t n = strlen(begin);
    while (n && isspace((unsigned char)begin[n - 1])) begin[--n] = 0;
    return begin;
}

static int number(const Reader *r, const char *name, const char *text, int most)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || n > most)
        die("%s:%ld: %s: '%s' (a whole number from 0 to %d)", r->path, r->line, name, text, most);
    return (int)n;
}

static PipelineOp op_of(const Reader *r, const char *text)
{
    for (int op = 0; op < PIPELINE_OPS; op++)
        if (!strcmp(text, pipeline_table_op((PipelineOp)op))) return (PipelineOp)op;
    die("%s:%ld: action: '%s' (F, B or W)", r->path, r->line, text);
}

static void read_row(Reader *r, char *line)
{
    char *at[FIELDS + 2], *rest = line;
    int n = 0, wanted = r->has_piece ? FIELDS + 1 : FIELDS;
    while (n < FIELDS + 2 && (at[n] = field(&rest))) n++;
    if (n != wanted)
        die("%s:%ld: %d fields%s (%d: %s)", r->path, r->line, n, n > FIELDS + 1 ? " or more" : "", wanted,
            r->has_piece ? HEADER_PIECE : HEADER);
    if (r->n == r->room) {
        r->room = r->room ? 2 * r->room : 256;
        r->row = realloc(r->row, r->room * sizeof *r->row);
        if (!r->row) die("%s: no memory for %zu lines", r->path, r->room);
    }
    Row *row = &r->row[r->n++];
    row->line = r->line;
    row->stage = number(r, "stage", at[0], PIPELINE_MAX_STAGES - 1);
    row->action.slot = number(r, "slot", at[1], MAX_SLOT);
    row->action.op = op_of(r, at[2]);
    row->action.micro = number(r, "micro", at[3], PIPELINE_MAX_MICRO - 1);
    row->action.chunk = number(r, "chunk", at[4], PIPELINE_MAX_CHUNKS - 1);
    row->piece = r->has_piece ? number(r, "piece", at[5], PIPELINE_MAX_PIECES - 1) : -1;
}

// The first line that is not skipped.
static void read_header(Reader *r, char *line)
{
    char squeezed[64] = "";
    size_t n = 0;
    for (const char *c = line; *c && n + 1 < sizeof squeezed; c++)
        if (!isspace((unsigned char)*c)) squeezed[n++] = *c;
    squeezed[n] = 0;
    r->has_piece = !strcmp(squeezed, HEADER_PIECE);
    if (!r->has_piece && strcmp(squeezed, HEADER))
        die("%s:%ld: '%.60s' (the first line is %s, with ,piece behind it if need be)", r->path, r->line, line,
            HEADER);
}

static void read_rows(Reader *r, char *text)
{
    bool headed = false;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        r->line++;
        line += strspn(line, " \t\r");
        line[strcspn(line, "\r")] = 0;
        if (!*line || *line == '#') continue;
        if (headed) read_row(r, line);
        else read_header(r, line), headed = true;
    }
    if (!r->n) die("%s: no action in it (a line is %s)", r->path, HEADER);
}

static int in_order(const void *x, const void *y)
{
    const Row *a = x, *b = y;
    if (a->stage != b->stage) return a->stage < b->stage ? -1 : 1;
    if (a->action.slot != b->action.slot) return a->action.slot < b->action.slot ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

// piece[stage][chunk] of the rows that say one; -1 elsewhere.
static void read_pieces(const Reader *r, PipelineTable *t)
{
    for (int s = 0; s < t->p; s++)
        for (int c = 0; c < t->v; c++) t->piece[s][c] = -1;
    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        int *piece = &t->piece[row->stage][row->action.chunk];
        if (row->piece >= t->p * t->v)
            die("%s:%ld: piece: %d (%d stages with %d chunks hold pieces 0 to %d)", r->path, row->line, row->piece,
                t->p, t->v, t->p * t->v - 1);
        if (*piece >= 0 && *piece != row->piece)
            die("%s:%ld: piece: %d, but stage %d has piece %d as its chunk %d in another line", r->path, row->line,
                row->piece, row->stage, *piece, row->action.chunk);
        PipelinePlace other = *piece < 0 ? pipeline_table_place(t, row->piece) : (PipelinePlace){-1, -1};
        if (other.stage >= 0)
            die("%s:%ld: piece: %d is also chunk %d of stage %d (every piece is in one place)", r->path, row->line,
                row->piece, other.chunk, other.stage);
        *piece = row->piece;
    }
}

static PipelineTable *table_of(Reader *r)
{
    int p = 0, m = 0, v = 0;
    bool split = false;
    qsort(r->row, r->n, sizeof *r->row, in_order);
    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        if (row->stage > p)
            die("%s: no action of stage %d, but line %ld is of stage %d (stages are numbered without gaps)",
                r->path, p, row->line, row->stage);
        if (i && row->stage == row[-1].stage && row->action.slot == row[-1].action.slot)
            die("%s:%ld: slot %d of stage %d is taken by line %ld", r->path, row->line, row->action.slot, row->stage,
                row[-1].line);
        p = row->stage + 1;
        if (row->action.micro >= m) m = row->action.micro + 1;
        if (row->action.chunk >= v) v = row->action.chunk + 1;
        split |= row->action.op == PIPELINE_W;
    }
    PipelineTable *t = pipeline_table_new(PIPELINE_USER, p, m, v, split);
    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];
        pipeline_table_add(t, row->stage, row->action.op, row->action.micro, row->action.chunk);
        t->action[row->stage][t->n[row->stage] - 1].slot = row->action.slot;
    }
    if (r->has_piece) read_pieces(r, t);
    return t;
}

PipelineTable *pipeline_csv_read(const char *path)
{
    size_t n_bytes;
    char *text = disk_read_file(path, &n_bytes, MAX_BYTES);
    if (!text) die("%s: cannot be read: %s (a schedule as a CSV file)", path, strerror(errno));
    if (strlen(text) != n_bytes) die("%s: a zero byte in it (a schedule is a text file)", path);
    Reader r = {.path = path};
    read_rows(&r, text);
    PipelineTable *t = table_of(&r);
    free(r.row);
    free(text);
    return t;
}

static bool is_loop(const PipelineTable *t)
{
    for (int s = 0; s < t->p; s++)
        for (int c = 0; c < t->v; c++)
            if (t->piece[s][c] != c * t->p + s) return false;
    return true;
}

void pipeline_csv_write(const PipelineTable *t, const char *path)
{
    char *text = NULL;
    size_t n_bytes = 0;
    bool loop = is_loop(t);
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f) die("%s: no memory for the table: %s", path, strerror(errno));
    fprintf(f, "%s\n", loop ? HEADER : HEADER_PIECE);
    for (int s = 0; s < t->p; s++)
        for (int i = 0; i < t->n[s]; i++) {
            const PipelineAction *a = &t->action[s][i];
            fprintf(f, "%d,%d,%s,%d,%d", s, a->slot, pipeline_table_op(a->op), a->micro, a->chunk);
            if (!loop) fprintf(f, ",%d", t->piece[s][a->chunk]);
            fputc('\n', f);
        }
    if (ferror(f) || fclose(f)) die("%s: no memory for the table", path);
    if (!disk_replace_file(path, text, n_bytes)) die("%s: cannot be written: %s", path, strerror(errno));
    free(text);
}
