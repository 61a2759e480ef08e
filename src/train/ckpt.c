// ckpt: checkpoints that survive a crash, of any layout, for any layout. See ckpt.h.
//
// A checkpoint is a set of named tensors of the whole model, each held in slices by one file or several, and a
// manifest. Which rank wrote what is no part of its meaning: a reader asks for the elements that it needs, by name
// and place, and takes them from wherever they are. So whatever layout wrote it (data, tensor, context and pipeline
// parallel, any ZeRO stage), any other goes on from it. Here is the way around that: the directory, and the calls
// for a process that has everything in memory. ckpt_job.c saves (and says in which order), ckpt_load.c loads,
// ckpt_async.c saves beside training, ckpt_slice.c knows what two slices share.
//
// The invariant: step_N without the suffix .tmp is a complete checkpoint, whatever happened to whoever wrote it.
//
// Rejected: a checkpoint in the shape of its layout, to be converted (every pair of layouts is a converter, and a
// crash does not wait for one); a rank that collects the whole model (the model may be larger than its memory).
#include "train/ckpt.h"

#include "base/check.h"
#include "train/ckpt_job.h"
#include "base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ckpt_fail(CkptFailure f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f.text, f.n, fmt, args);
    va_end(args);
    return false;
}

void ckpt_join(char path[PATH_MAX], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(path, PATH_MAX, fmt, args);
    va_end(args);
    if (n >= PATH_MAX) die("%.200s...: the path is too long (use a shorter run.dir)", path);
}

// ---- the directory

int ckpt_list_steps(const char *dir, bool remove_tmp, long **steps)
{
    *steps = NULL;
    DIR *d = opendir(dir);
    if (!d && errno == ENOENT) return 0;
    if (!d) die("%s: cannot list checkpoints: %s", dir, strerror(errno));
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char name[64], path[PATH_MAX], *rest = e->d_name;
        if (strncmp(e->d_name, "step_", 5)) continue;
        long step = strtol(e->d_name + 5, &rest, 10);
        snprintf(name, sizeof name, "step_%08ld", step);
        bool named = step >= 0 && !strncmp(name, e->d_name, strlen(name));
        if (named && remove_tmp && !strcmp(rest, ".tmp")) {
            ckpt_join(path, "%s/%s", dir, e->d_name);
            if (!disk_remove_dir(path))
                fprintf(stderr, "warning: %s: cannot remove: %s\n", path, strerror(errno));
        }
        if (!named || *rest) continue;
        *steps = realloc(*steps, ((size_t)n + 1) * sizeof **steps);
        if (!*steps) die("no memory to list checkpoints");
        int at = n++;
        for (; at > 0 && (*steps)[at - 1] > step; at--) (*steps)[at] = (*steps)[at - 1];
        (*steps)[at] = step;
    }
    closedir(d);
    return n;
}

long ckpt_newest_step(const char *run_dir)
{
    char dir[PATH_MAX];
    long *steps;
    ckpt_join(dir, "%s/checkpoints", run_dir);
    int n = ckpt_list_steps(dir, false, &steps);
    long step = n ? steps[n - 1] : -1;
    free(steps);
    return step;
}

// ---- ranks

void ckpt_tell(Comm *world, void *data, size_t n)
{
    if (!world || world->size == 1 || !n) return;
    CommRequest request = comm_broadcast(world, data, n, COMM_BYTE, 0);
    comm_wait(world, &request);
}

bool ckpt_agree(Comm *world, bool ok, CkptFailure f)
{
    if (!world || world->size == 1) return ok;
    int64_t own = ok ? 0 : world->size - world->rank, most;
    CommRequest request = comm_all_reduce(world, &most, &own, 1, COMM_INT64, COMM_MAX);
    comm_wait(world, &request);
    if (most == 0) return true;
    int lowest = world->size - (int)most;
    char text[CKPT_ERROR] = "";
    if (lowest == 0) snprintf(text, sizeof text, "%s", f.text);
    else if (lowest == world->rank) snprintf(text, sizeof text, "rank %d: %.900s", lowest, f.text);
    request = comm_broadcast(world, text, sizeof text, COMM_BYTE, lowest);
    comm_wait(world, &request);
    return ckpt_fail(f, "%s", text);
}

// ---- everything in the memory of one process

typedef struct {
    CkptPart part;
    const float *weights;
    const CkptArray *array;
} Flat;

static void move_flat(void *self, const CkptPiece *piece, void *buf, bool out)
{
    const Flat *f = self;
    size_t n_bytes = ckpt_job_piece_bytes(&f->part, piece);
    char *start = piece->array < 0 ? (char *)(uintptr_t)f->weights : f->array[piece->array].data;
    char *there = start + piece->at;
    memcpy(out ? buf : there, out ? there : buf, n_bytes);
}

// A piece for each tensor, which is all of it.
static Flat flat_part(const Params *params, const float *weights, const CkptArray *array, int n_arrays)
{
    Flat f = {.weights = weights, .array = array};
    CkptPart *part = &f.part;
    *part = (CkptPart){.whole = params, .array = array, .n_arrays = n_arrays, .move = move_flat,
                       .piece = calloc((size_t)(n_arrays + 1) * (size_t)params->n_rows + 1, sizeof *part->piece)};
    if (!part->piece) die("no memory for the tables of a checkpoint");
    for (int a = -1; a < n_arrays; a++) {
        size_t at = 0;
        for (int r = 0; r < params->n_rows; r++) {
            CkptTarget target = ckpt_job_target(part, a, r);
            if (!target.ndim) continue;
            CkptPiece *piece = &part->piece[part->n++];
            *piece = (CkptPiece){.array = a, .row = r, .slice = ckpt_slice_whole(target.shape), .at = at};
            at += ckpt_job_piece_bytes(part, piece);
        }
    }
    return f;
}

bool ckpt_save(const char *run_dir, const CkptState *state, const Params *params, const float *weights,
               const CkptArray *array, int n_arrays, int keep, char *error, size_t n_error)
{
    Flat f = flat_part(params, weights, array, n_arrays);
    f.part.self = &f;
    for (int a = 0; a < n_arrays; a++) {
        size_t sum = 0;
        for (int i = 0; i < f.part.n; i++)
            if (f.part.piece[i].array == a) sum += ckpt_job_piece_bytes(&f.part, &f.part.piece[i]);
        check(sum == array[a].n_bytes);
    }
    bool ok = ckpt_save_part(&(CkptRun){.run_dir = run_dir, .keep = keep}, state, &f.part, error, n_error);
    free(f.part.piece);
    return ok;
}

bool ckpt_load_newest(const char *run_dir, const Params *params, float *weights, const CkptArray *array,
                      int n_arrays, CkptState *state)
{
    Flat f = flat_part(params, weights, array, n_arrays);
    f.part.self = &f;
    bool found = ckpt_load_part(&(CkptRun){.run_dir = run_dir, .keep = 1}, &f.part, state);
    free(f.part.piece);
    return found;
}

void ckpt_load(const char *dir, const Params *params, float *weights, const CkptArray *array, int n_arrays,
               CkptState *state)
{
    Flat f = flat_part(params, weights, array, n_arrays);
    f.part.self = &f;
    char error[CKPT_ERROR];
    Ckpt *c = ckpt_open(dir, n_arrays > 0, error, sizeof error);
    if (!c || !ckpt_load_take(c->manifest, NULL, &f.part, state, (CkptFailure){error, sizeof error}))
        die("%s", error);
    ckpt_close(c);
    free(f.part.piece);
}
