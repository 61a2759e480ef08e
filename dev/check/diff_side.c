// diff_side: opens what build/diff compares, and puts a dump's pieces together.
//
// A dump has a file for each rank, and in it, for each tensor, a piece and a text that says where it belongs (dump.h).
// Whatever the layout was, the whole follows from the texts alone: so a run on eight ranks is compared with one on one
// rank, or with another cut, element by element.
//
// The invariant: an element is what a rank wrote, or it is counted as missing. Nothing is guessed: two ranks that
// write one element are counted too, for exactly one should have.
//
// A file without such texts (another program's, a checkpoint's) holds whole tensors, in the order of its "order"
// metadata, else as they stand.
#include "dev/check/diff_side.h"

#include "base/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- what a path stands for

static bool is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

static bool is_rank_file(const char *name)
{
    return !strncmp(name, "rank_", 5) && ends_with(name, ".safetensors");
}

// A directory with a dump's files.
static bool is_dump(const char *path)
{
    DIR *d = opendir(path);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) found = is_rank_file(e->d_name);
    if (d) closedir(d);
    return found;
}

// Whether dir/step_N is a dump.
static bool has_update(const char *dir, long update)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/step_%08ld", dir, update);
    return is_dump(path);
}

// The latest update that is dumped in dir, and in the other directory if there is one; 0: none.
static long latest(const char *dir, const char *other)
{
    DIR *d = opendir(dir);
    long best = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        long update = strncmp(e->d_name, "step_", 5) ? 0 : strtol(e->d_name + 5, NULL, 10);
        if (update > best && has_update(dir, update) && (!other || has_update(other, update))) best = update;
    }
    if (d) closedir(d);
    return best;
}

// Where a path's dumps are, path itself or path/dump. False: it has none, or is one.
static bool dumps_of(const char *path, char dir[1000])
{
    snprintf(dir, 1000, "%s", path);
    if (!is_dir(path) || is_dump(path)) return false;
    if (latest(dir, NULL)) return true;
    snprintf(dir, 1000, "%s/dump", path);
    return latest(dir, NULL) > 0;
}

static void name_update(char path[1000], const char *dir, long update)
{
    snprintf(path, 1000, "%.900s/step_%08ld", dir, update);
}

// The update that a dump, or one rank's file of it, is of by its path; 0: it is neither.
static long update_of(const char *path)
{
    const char *base = strrchr(path, '/'), *step = NULL;
    if (!is_dump(path) && !is_rank_file(base ? base + 1 : path)) return 0;
    for (const char *s = path; (s = strstr(s, "step_")); s++) step = s;
    return step ? strtol(step + strlen("step_"), NULL, 10) : 0;
}

void diff_side_resolve(const char *a, const char *b, char path_a[1000], char path_b[1000])
{
    char dir_a[1000], dir_b[1000];
    bool many_a = dumps_of(a, dir_a), many_b = dumps_of(b, dir_b);
    snprintf(path_a, 1000, "%s", a);
    snprintf(path_b, 1000, "%s", b);
    if (many_a && many_b) {
        long update = latest(dir_a, dir_b);
        if (!update)
            die("%s, %s: no update that both have dumped, theirs are %ld and %ld (name a checkpoint of each to compare "
                "weights)", a, b, latest(dir_a, NULL), latest(dir_b, NULL));
        name_update(path_a, dir_a, update);
        name_update(path_b, dir_b, update);
    } else if ((many_a && update_of(b)) || (many_b && update_of(a))) {
        long update = update_of(many_a ? b : a);
        if (!has_update(many_a ? dir_a : dir_b, update))
            die("%s: no dump of update %ld, as %s is", many_a ? a : b, update, many_a ? b : a);
        name_update(many_a ? path_a : path_b, many_a ? dir_a : dir_b, update);
    }
}

// ---- tensors

const DiffTensor *diff_side_find(const DiffSide *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->tensor[i].t.name, name)) return &s->tensor[i];
    return NULL;
}

static DiffTensor *add(DiffSide *s, const SafeTensor *t)
{
    if ((s->n & (s->n - 1)) == 0) {
        s->tensor = realloc(s->tensor, (size_t)(s->n ? 2 * s->n : 1) * sizeof *s->tensor);
        if (!s->tensor) die("diff: no memory for %d tensors", s->n);
    }
    DiffTensor *own = &s->tensor[s->n++];
    *own = (DiffTensor){.t = *t, .at = s->n, .stored = t->dtype};
    return own;
}

// What is to become the whole of a part, all zero.
static void make_whole(DiffTensor *own, const Part *part)
{
    size_t *shape = malloc(sizeof part->shape);
    own->t.ndim = part->ndim;
    own->t.n_elems = dump_part_whole_elems(part);
    own->t.n_bytes = own->t.n_elems * safetensors_dtype_bytes(own->t.dtype);
    own->t.data = calloc(own->t.n_elems, safetensors_dtype_bytes(own->t.dtype));
    own->seen = calloc(own->t.n_elems, 1);
    if (!shape || !own->t.data || !own->seen) die("diff: no memory for %zu bytes of %s", own->t.n_bytes, own->t.name);
    memcpy(shape, part->shape, sizeof part->shape);
    own->t.shape = shape;
    own->at = part->at;
    own->error = part->error;
    own->stored = part->stored;
}

static bool fits(const DiffTensor *own, const Part *part, SafeDtype dtype)
{
    return own->t.ndim == part->ndim && own->t.dtype == dtype &&
           !memcmp(own->t.shape, part->shape, (size_t)part->ndim * sizeof *part->shape);
}

static void add_piece(DiffSide *s, const SafeTensors *file, const SafeTensor *t)
{
    char key[400];
    Part part;
    snprintf(key, sizeof key, "part.%s", t->name);
    const char *text = safetensors_meta(file, key);
    if (!text || !dump_part_parse(&part, text))
        die("%s: %s: no part of a dump: %s", file->path, t->name, text ? text : "");
    DiffTensor *own = (DiffTensor *)diff_side_find(s, t->name);
    if (!own) {
        own = add(s, t);
        make_whole(own, &part);
    }
    if (!fits(own, &part, t->dtype) || dump_part_elems(&part) != t->n_elems)
        die("%s: %s: %s does not fit what other ranks wrote", file->path, t->name, text);
    own->disagrees |= !dump_part_place(&part, (void *)own->t.data, own->seen, t->data,
                                       safetensors_dtype_bytes(t->dtype));
    dump_part_free(&part);
}

static void count_seen(DiffTensor *own)
{
    for (size_t i = 0; own->seen && i < own->t.n_elems; i++) {
        own->n_missing += own->seen[i] == 0;
        own->n_twice += own->seen[i] > 1;
    }
    free(own->seen);
    own->seen = NULL;
}

static int by_number(const void *a, const void *b)
{
    const DiffTensor *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : strcmp(x->t.name, y->t.name);
}

// ---- files

static SafeTensors *open_file(DiffSide *s, const char *path)
{
    s->file = realloc(s->file, ((size_t)s->n_files + 1) * sizeof *s->file);
    if (!s->file) die("diff: no memory for %d files", s->n_files + 1);
    return s->file[s->n_files++] = safetensors_open(path, NULL, 0);
}

static const char *meta_of(const SafeTensors *file, const char *key)
{
    const char *value = safetensors_meta(file, key);
    return value ? value : "?";
}

static void add_rank(DiffSide *s, const char *path)
{
    SafeTensors *file = open_file(s, path);
    for (int i = 0; i < file->n; i++) add_piece(s, file, &file->tensor[i]);
    s->head_size = (size_t)strtoul(meta_of(file, "head_size"), NULL, 10);
}

static void open_dump(DiffSide *s)
{
    char path[1100];
    long ranks = 1;
    s->dump = true;
    for (long r = 0; r < ranks; r++) {
        snprintf(path, sizeof path, "%s/rank_%05ld.safetensors", s->path, r);
        struct stat info;
        if (stat(path, &info)) {
            if (!s->n_absent++) s->absent = (int)r;
            if (!s->n_files && r < 99999) ranks = r + 2; // go on to the first that is there
            continue;
        }
        add_rank(s, path);
        const SafeTensors *file = s->file[s->n_files - 1];
        ranks = strtol(meta_of(file, "ranks"), NULL, 10);
        snprintf(s->about, sizeof s->about, "update %s, %s, %ld rank%s (%s)", meta_of(file, "update"),
                 meta_of(file, "dtype"), ranks, ranks == 1 ? "" : "s", meta_of(file, "layout"));
    }
    for (int i = 0; i < s->n; i++) count_seen(&s->tensor[i]);
    qsort(s->tensor, (size_t)s->n, sizeof *s->tensor, by_number);
}

static void open_plain(DiffSide *s)
{
    const SafeTensors *file = open_file(s, s->path);
    int *order = malloc((size_t)(file->n + 1) * sizeof *order);
    if (!order) die("diff: no memory for %d tensors", file->n);
    safetensors_order(file, order);
    for (int i = 0; i < file->n; i++) add(s, &file->tensor[order[i]]);
    free(order);
}

DiffSide diff_side_open(const char *path)
{
    DiffSide s = {0};
    char error[1024];
    snprintf(s.path, sizeof s.path, "%s", path);
    if (is_dump(path)) open_dump(&s);
    else if (is_dir(path)) {
        s.ckpt = ckpt_open(path, true, error, sizeof error);
        if (!s.ckpt) die("%s", error);
        for (int i = 0; i < s.ckpt->n; i++) add(&s, s.ckpt->tensor[i]);
        snprintf(s.about, sizeof s.about, "checkpoint after update %ld", s.ckpt->state.step);
    } else {
        open_plain(&s);
        if (safetensors_meta(s.file[0], "ranks")) { // one rank's file of a dump: where its pieces belong counts
            free(s.tensor);
            safetensors_close(s.file[0]);
            free(s.file);
            s.file = NULL, s.tensor = NULL, s.n = s.n_files = 0;
            s.dump = true;
            add_rank(&s, path);
            for (int i = 0; i < s.n; i++) count_seen(&s.tensor[i]);
            qsort(s.tensor, (size_t)s.n, sizeof *s.tensor, by_number);
        }
    }
    return s;
}

void diff_side_close(DiffSide *s)
{
    for (int i = 0; s->dump && i < s->n; i++) {
        free((void *)s->tensor[i].t.data);
        free((void *)s->tensor[i].t.shape);
    }
    free(s->tensor);
    for (int i = 0; i < s->n_files; i++) safetensors_close(s->file[i]);
    free(s->file);
    ckpt_close(s->ckpt);
    *s = (DiffSide){0};
}
