// ckpt_job: one save, in the steps that ranks and threads take turns at. See ckpt_job.h.
//
// The invariant: at every instant, also between any two system calls of a save, the run's newest
// committed checkpoint is whole under its final name. The order that gives it:
//   1. rank 0 makes step_N.tmp/; each rank writes model_RANK and optim_RANK there, fsynced, close() checked
//   2. every rank tells rank 0 how it fared, and the hashes. Any failure: rank 0 removes step_N.tmp/
//   3. rank 0 writes manifest.json and fsyncs it; fsyncs step_N.tmp/
//   4. it renames step_N.tmp to step_N; fsyncs checkpoints/.               <- committed here, and nowhere else
//   5. the hint `latest`; old checkpoints are deleted (renamed to .tmp first: a kill leaves no half-deleted step_M)
// Where step_N is already there (a run went back behind it), step 4 exchanges the two names in one system
// call. A failed fsync is never tried again (see disk.c).
//
// No rank has more than its own pieces: what travels is 200 bytes a piece, not the piece.
//
// Rejected: saving in place (a kill during a save loses the only checkpoint), trusting `latest` (it is
// written after the commit, so it may be one behind), one file per tensor (thousands of fsyncs), one file that
// all ranks write into (no format of tensors can be hashed that way, and network file systems do it badly).
#define _GNU_SOURCE // renameat2
#include "train/ckpt_job.h"

#include "base/check.h"
#include "base/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

CkptTarget ckpt_job_target(const CkptPart *part, int array, int row)
{
    Param whole = part->whole->row[row];
    const CkptArray *a = array < 0 ? NULL : &part->array[array];
    for (int d = 0; d < PARAM_DIMS; d++) whole.dim[d] = whole.whole[d];
    CkptTarget t = {.dtype = a ? a->dtype : ST_F32, .ndim = whole.ndim, .shape = {1, 1}};
    if (a) t.ndim = a->shape(part->whole, &whole, whole.dim);
    for (int d = 0; d < t.ndim; d++) t.shape[d] = whole.dim[d];
    snprintf(t.name, sizeof t.name, "%s%s%s", a ? a->prefix : "", a && *a->prefix ? "." : "", whole.name);
    return t;
}

size_t ckpt_job_piece_bytes(const CkptPart *part, const CkptPiece *piece)
{
    return (piece->slice.to - piece->slice.from) *
           safetensors_dtype_bytes(piece->array < 0 ? ST_F32 : part->array[piece->array].dtype);
}

size_t ckpt_job_snapshot_bytes(const CkptPart *part)
{
    size_t sum = 0;
    for (int i = 0; i < part->n; i++)
        sum += (ckpt_job_piece_bytes(part, &part->piece[i]) + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN;
    return sum;
}

// ---- begin

// mkdir that is durable and content with a directory that is there.
static bool make_dir(const char *path, CkptFailure f)
{
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return disk_sync_parent(path) || ckpt_fail(f, "%s: cannot fsync: %s", path, strerror(errno));
    if (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return true;
    return ckpt_fail(f, "%s: cannot create the directory: %s", path,
                     strerror(errno == EEXIST ? ENOTDIR : errno));
}

static bool make_tmp(const CkptJob *j, CkptFailure f)
{
    if (!make_dir(j->run.run_dir, f) || !make_dir(j->dir, f)) return false;
    if (!disk_remove_dir(j->tmp))
        return ckpt_fail(f, "%s: cannot remove the left-over: %s", j->tmp, strerror(errno));
    return mkdir(j->tmp, 0777) == 0 || ckpt_fail(f, "%s: cannot create: %s", j->tmp, strerror(errno));
}

static CkptFailure own_failure(CkptJob *j)
{
    return (CkptFailure){j->own.error, sizeof j->own.error};
}

void ckpt_job_begin(CkptJob *j, const CkptRun *run, const CkptState *state, const CkptPart *part)
{
    *j = (CkptJob){.run = *run, .state = *state, .part = part, .rank = run->world ? run->world->rank : 0,
                   .ranks = run->world ? run->world->size : 1};
    check(run->keep >= 1 && state->step >= 0);
    ckpt_tell(run->world, &j->state.step, sizeof j->state.step);
    ckpt_join(j->dir, "%s/checkpoints", run->run_dir);
    ckpt_join(j->final, "%s/step_%08ld", j->dir, j->state.step);
    ckpt_join(j->tmp, "%s.tmp", j->final);
    j->record = calloc((size_t)part->n + 1, sizeof *j->record);
    if (!j->record) die("%s: no memory for the tables of a checkpoint", j->dir);
    bool ok = j->rank || make_tmp(j, own_failure(j));
    j->own.ok = ckpt_agree(run->world, ok, own_failure(j));
}

// ---- write

// Where the data of this rank's pieces comes from.
typedef struct {
    const CkptPart *part;
    const char *snapshot;
    size_t *at;  // (part->n) in the snapshot
    void *buf;   // without a snapshot: room for the largest piece
    int first;   // piece that is tensor 0 of the file
} Source;

static const void *data_of(void *self, int i)
{
    Source *s = self;
    int k = s->first + i;
    if (s->snapshot) return s->snapshot + s->at[k];
    s->part->move(s->part->self, &s->part->piece[k], s->buf, true);
    return s->buf;
}

// Pieces [first, first + n) as one file.
static bool write_file(CkptJob *j, Source *source, int first, int n, bool optim, CkptFailure f)
{
    const CkptPart *part = j->part;
    CkptTarget *target = calloc((size_t)n, sizeof *target);
    SafeTensor *tensor = calloc((size_t)n, sizeof *tensor);
    size_t (*shape)[PARAM_DIMS] = calloc((size_t)n, sizeof *shape);
    char (*hash)[ST_HASH] = calloc((size_t)n, sizeof *hash), path[PATH_MAX];
    if (!target || !tensor || !shape || !hash) die("%s: no memory for the tables of a checkpoint", j->dir);
    for (int i = 0; i < n; i++) {
        const CkptPiece *p = &part->piece[first + i];
        const CkptSlice *s = &p->slice;
        bool box = s->from == 0 && s->to == s->dim[0] * s->dim[1]; // else it is a list of elements
        target[i] = ckpt_job_target(part, p->array, p->row);
        for (int d = 0; d < PARAM_DIMS; d++) shape[i][d] = box ? s->dim[d] : s->to - s->from;
        tensor[i] = (SafeTensor){.name = target[i].name, .dtype = target[i].dtype, .ndim = box ? target[i].ndim : 1,
                                 .shape = shape[i]};
        j->record[first + i] = (CkptRecord){p->array, p->row, 2 * j->rank + optim, *s, ""};
    }
    const char *kind = optim ? "optim" : "model";
    if (j->ranks > 1) ckpt_join(path, "%s/%s_%05d.safetensors", j->tmp, kind, j->rank);
    else ckpt_join(path, "%s/%s.safetensors", j->tmp, kind);
    source->first = first;
    bool ok = safetensors_write_from(path, tensor, n, data_of, source, hash, j->own.hash[optim],
                                     &j->own.n_bytes[optim], f.text, f.n);
    for (int i = 0; i < n; i++) memcpy(j->record[first + i].hash, hash[i], ST_HASH);
    free(target), free(tensor), free(shape), free(hash);
    return ok;
}

void ckpt_job_write(CkptJob *j, const char *snapshot)
{
    const CkptPart *part = j->part;
    if (!j->own.ok) return;
    size_t most = 1, at = 0;
    Source source = {.part = part, .snapshot = snapshot, .at = calloc((size_t)part->n + 1, sizeof *source.at)};
    if (!source.at) die("%s: no memory for the tables of a checkpoint", j->dir);
    int n_model = 0;
    for (int i = 0; i < part->n; i++) {
        size_t n_bytes = ckpt_job_piece_bytes(part, &part->piece[i]);
        source.at[i] = at;
        at += (n_bytes + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN;
        if (n_bytes > most) most = n_bytes;
        n_model += part->piece[i].array < 0;
    }
    source.buf = snapshot ? NULL : malloc(most);
    CkptFailure f = own_failure(j);
    bool ok = snapshot || source.buf || ckpt_fail(f, "%s: no memory for %zu bytes", j->dir, most);
    ok = ok && (!n_model || write_file(j, &source, 0, n_model, false, f));
    ok = ok && (n_model == part->n || write_file(j, &source, n_model, part->n - n_model, true, f));
    j->own.ok = ok;
    j->own.n_records = ok ? part->n : 0;
    free(source.buf), free(source.at);
}

// ---- collect

static void transfer(Comm *world, void *buf, size_t n_bytes, int peer, bool send)
{
    if (!n_bytes) return;
    CommRequest request = send ? comm_send(world, buf, n_bytes, COMM_BYTE, peer, 0)
                               : comm_recv(world, buf, n_bytes, COMM_BYTE, peer, 0);
    comm_wait(world, &request);
}

void ckpt_job_collect(CkptJob *j)
{
    Comm *world = j->run.world;
    if (j->rank) {
        transfer(world, &j->own, sizeof j->own, 0, true);
        transfer(world, j->record, (size_t)j->own.n_records * sizeof *j->record, 0, true);
        return;
    }
    j->n_records = j->own.n_records;
    j->report = calloc((size_t)j->ranks, sizeof *j->report);
    if (!j->report) die("%s: no memory for the tables of a checkpoint", j->dir);
    j->report[0] = j->own;
    for (int r = 1; r < j->ranks; r++) {
        CkptReport *report = &j->report[r];
        transfer(world, report, sizeof *report, r, false);
        j->record = realloc(j->record, (size_t)(j->n_records + report->n_records + 1) * sizeof *j->record);
        if (!j->record) die("%s: no memory for the tables of a checkpoint", j->dir);
        transfer(world, j->record + j->n_records, (size_t)report->n_records * sizeof *j->record, r, false);
        j->n_records += report->n_records;
        if (!j->own.ok || report->ok) continue;
        j->own.ok = false;
        ckpt_fail(own_failure(j), "rank %d: %.900s", r, report->error);
    }
}

// ---- commit

static int by_place(const void *a, const void *b)
{
    const CkptRecord *x = a, *y = b;
    if (x->array != y->array) return x->array < y->array ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    if (x->slice.first != y->slice.first) return x->slice.first < y->slice.first ? -1 : 1;
    return x->slice.from < y->slice.from ? -1 : x->slice.from > y->slice.from;
}

// What the manifest says, and the strings that it points to.
typedef struct {
    CkptManifest m;
    char (*file_name)[32];
    CkptTarget *target;
} Tables;

static void free_tables(Tables *t)
{
    free(t->m.file), free(t->m.tensor), free(t->m.slices), free(t->m.places), free(t->file_name), free(t->target);
}

static void list_files(const CkptJob *j, Tables *t, int *index)
{
    for (int optim = 0; optim < 2; optim++)
        for (int r = 0; r < j->ranks; r++) {
            const CkptReport *report = &j->report[r];
            if (!report->n_bytes[optim]) continue;
            const char *kind = optim ? "optim" : "model";
            char *name = t->file_name[t->m.n_files];
            if (j->ranks > 1) snprintf(name, 32, "%s_%05d.safetensors", kind, r);
            else snprintf(name, 32, "%s.safetensors", kind);
            index[2 * r + optim] = t->m.n_files;
            t->m.file[t->m.n_files++] = (CkptFile){.name = name, .hash = report->hash[optim], .optim = optim,
                                                   .n_bytes = report->n_bytes[optim]};
        }
}

// Tensors in table order, weights first, each with its slices; false where these are not all of it.
static bool list_tensors(CkptJob *j, Tables *t, const int *index, CkptFailure f)
{
    const CkptPart *part = j->part;
    CkptManifest *m = &t->m;
    int at = 0;
    if (j->n_records) qsort(j->record, (size_t)j->n_records, sizeof *j->record, by_place);
    for (int array = -1; array < part->n_arrays; array++)
        for (int row = 0; row < part->whole->n_rows; row++) {
            CkptTarget *target = &t->target[m->n];
            *target = ckpt_job_target(part, array, row);
            if (!target->ndim) continue;
            CkptTensor *tensor = &m->tensor[m->n++];
            *tensor = (CkptTensor){.name = target->name, .dtype = target->dtype, .optim = array >= 0,
                                   .ndim = target->ndim, .shape = {target->shape[0], target->shape[1]},
                                   .slice = m->slices + at, .place = m->places + at};
            for (; at < j->n_records && j->record[at].array == array && j->record[at].row == row; at++) {
                m->slices[at] = j->record[at].slice;
                m->places[at] = (CkptPlace){index[j->record[at].file], j->record[at].hash};
                tensor->n++;
            }
            if (!ckpt_slice_tiles(tensor->slice, tensor->n, tensor->shape))
                return ckpt_fail(f, "%s: tensor %s: what the ranks wrote is not each element once", j->final,
                                 tensor->name);
        }
    return at == j->n_records || ckpt_fail(f, "%s: a rank wrote what this model has not", j->final);
}

// Step 3.
static bool write_manifest(CkptJob *j, CkptFailure f)
{
    size_t n_tensors = (size_t)(j->part->n_arrays + 1) * (size_t)j->part->whole->n_rows + 1;
    size_t n_files = 2 * (size_t)j->ranks, n = (size_t)j->n_records + 1;
    Tables t = {.m = {.file = calloc(n_files, sizeof *t.m.file), .tensor = calloc(n_tensors, sizeof *t.m.tensor),
                      .slices = calloc(n, sizeof *t.m.slices), .places = calloc(n, sizeof *t.m.places)},
                .file_name = calloc(n_files, sizeof *t.file_name), .target = calloc(n_tensors, sizeof *t.target)};
    int *index = calloc(n_files, sizeof *index);
    if (!t.m.file || !t.m.tensor || !t.m.slices || !t.m.places || !t.file_name || !t.target || !index)
        die("%s: no memory for the tables of a checkpoint", j->dir);
    list_files(j, &t, index);
    bool ok = list_tensors(j, &t, index, f) && ckpt_manifest_write(j->tmp, &j->state, &t.m, f);
    free(index);
    free_tables(&t);
    return ok && (disk_sync_dir(j->tmp) || ckpt_fail(f, "%s: cannot fsync: %s", j->tmp, strerror(errno)));
}

// Gives `tmp` the name `final`; what had that name before ends up as `tmp`, to be deleted by the caller.
static bool swap_in(const char *tmp, const char *final)
{
    struct stat info;
    if (lstat(final, &info) < 0) return errno == ENOENT && rename(tmp, final) == 0;
#ifdef RENAME_EXCHANGE
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, final, RENAME_EXCHANGE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
#endif
    // No exchange on this system: a kill in between leaves the earlier checkpoints, not this one.
    return disk_remove_dir(final) && rename(tmp, final) == 0;
}

// Undoes swap_in: the new one is `tmp` again, the one before, if any, is back under its name.
static void swap_out(const char *tmp, const char *final)
{
    struct stat info;
    if (lstat(tmp, &info) == 0) swap_in(tmp, final);
    else if (rename(final, tmp) < 0)
        fprintf(stderr, "warning: %s: cannot take back: %s\n", final, strerror(errno));
}

// Deletes what CkptRun does not keep of the checkpoints up to this one. That is committed: a failure is a warning.
static void prune(const CkptJob *j)
{
    long *steps;
    int n = ckpt_list_steps(j->dir, false, &steps);
    while (n > 0 && steps[n - 1] > j->state.step) n--;
    for (int i = 0; i < n - j->run.keep; i++) {
        char path[PATH_MAX], tmp[PATH_MAX];
        if (j->run.keep_every > 0 && steps[i] % j->run.keep_every == 0) continue;
        ckpt_join(path, "%s/step_%08ld", j->dir, steps[i]);
        ckpt_join(tmp, "%s.tmp", path);
        if (rename(path, tmp) < 0 || !disk_remove_dir(tmp))
            fprintf(stderr, "warning: %s: cannot delete the old checkpoint: %s\n", path, strerror(errno));
    }
    free(steps);
}

void ckpt_job_commit(CkptJob *j)
{
    CkptFailure f = own_failure(j);
    char latest[PATH_MAX], hint[64];
    if (j->rank) return;
    bool ok = j->own.ok && write_manifest(j, f);
    if (ok && !swap_in(j->tmp, j->final))
        ok = ckpt_fail(f, "%s: cannot rename to %s: %s", j->tmp, j->final, strerror(errno));
    if (ok && !disk_sync_dir(j->dir)) {
        ok = ckpt_fail(f, "%s: cannot fsync: %s", j->dir, strerror(errno));
        swap_out(j->tmp, j->final);
    }
    bool removed = disk_remove_dir(j->tmp); // best effort: the next load removes it otherwise
    j->own.ok = ok;
    if (!ok) return;
    if (!removed) fprintf(stderr, "warning: %s: cannot remove: %s\n", j->tmp, strerror(errno));
    ckpt_join(latest, "%s/latest", j->dir);
    int n = snprintf(hint, sizeof hint, "step_%08ld\n", j->state.step);
    if (!disk_replace_file(latest, hint, (size_t)n))
        fprintf(stderr, "warning: %s: cannot write: %s\n", latest, strerror(errno));
    prune(j);
}

// ---- end

bool ckpt_job_end(CkptJob *j, char *error, size_t n_error)
{
    ckpt_tell(j->run.world, &j->own.ok, sizeof j->own.ok);
    if (!j->own.ok) ckpt_tell(j->run.world, j->own.error, sizeof j->own.error);
    if (!j->own.ok) snprintf(error, n_error, "%s", j->own.error);
    free(j->record), free(j->report);
    j->record = NULL, j->report = NULL;
    return j->own.ok;
}

bool ckpt_save_part(const CkptRun *run, const CkptState *state, const CkptPart *part, char *error, size_t n_error)
{
    CkptJob job;
    ckpt_job_begin(&job, run, state, part);
    ckpt_job_write(&job, NULL);
    ckpt_job_collect(&job);
    ckpt_job_commit(&job);
    return ckpt_job_end(&job, error, n_error);
}
