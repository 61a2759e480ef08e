// ckpt: how a checkpoint is saved, at once or while training continues. See ckpt.h.
//
// A checkpoint is a set of named tensors of the whole model, each held in slices by one file or several, and a
// manifest. A checkpoint does not depend on which rank wrote which slice: a reader asks for the elements that it needs,
// by name and place, and takes them from the files that have them. So a checkpoint of any layout (data, tensor, context
// and pipeline parallel, any ZeRO stage) can be resumed by any other. This file saves, ckpt_load.c loads,
// ckpt_manifest.c has the manifest and the arithmetic of slices.
//
// The invariant: step_N without the suffix .tmp is a complete checkpoint, whatever happened to the processes that wrote
// it. At every instant, also between any two system calls of a save, the run's newest committed checkpoint is complete
// under its final name. The order that ensures it:
//   1. rank 0 makes step_N.tmp/; each rank writes model_RANK and optim_RANK there, fsynced, close() checked
//   2. every rank reports success or failure, and the hashes, to rank 0. On any failure rank 0 removes step_N.tmp/
//   3. rank 0 writes manifest.json and fsyncs it; fsyncs step_N.tmp/
//   4. it renames step_N.tmp to step_N; fsyncs checkpoints/.               <- committed here, and nowhere else
//   5. the hint `latest`; old checkpoints are deleted (renamed to .tmp first: a kill leaves no half-deleted step_M)
// If step_N already exists (the run was rolled back before it), step 4 exchanges the two names in one system call. A
// failed fsync is never retried (see disk.c). Tensors are looked at on their way to the file: where one holds a NaN or
// an infinity the save fails, so that it cannot push out an earlier checkpoint that is good. No rank has more than its
// own pieces: the ranks send 200 bytes per piece, not the piece.
//
// Rejected: a checkpoint in the form of its layout, to be converted (every pair of layouts needs a converter); saving
// in place (a kill during a save loses the only checkpoint); one file that all ranks write into (no tensor format can
// be hashed that way).
#define _GNU_SOURCE // renameat2
#include "ckpt/ckpt_manifest.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/disk.h"
#include "comm/supervisor.h"
#include "formats/formats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ALIGN = 64 }; // bytes, of the pieces in a snapshot

bool ckpt_fail(CkptFailure f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f.text, f.n, fmt, args);
    va_end(args);
    return false;
}

void ckpt_join(char *path, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(path, PATH_MAX, fmt, args);
    va_end(args);
    if (n >= PATH_MAX) die("%.200s...: the path is too long (use a shorter run.dir)", path);
}

bool ckpt_finite(SafeDtype dtype, const void *data, size_t n)
{
    return dtype != ST_F32 || formats_finite(data, n);
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
                check_warn("%s: cannot remove: %s", path, strerror(errno));
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

// ---- one save, in steps that ranks and threads execute alternately
//
//     begin      all ranks: rank 0 makes step_N.tmp
//     write      each rank, in any of its threads: its files
//     collect    all ranks: what was written, and whether, to rank 0
//     commit     rank 0, in any of its threads: manifest, rename, older checkpoints
//     end        all ranks: the verdict
//
// When one step fails, the later ones do nothing, and the verdict names the failure.

// A piece that was written. This struct is sent between ranks as it is.
typedef struct {
    int array, row, file; // file: rank * 2, and one more for optimizer state
    CkptSlice slice;
    char hash[ST_HASH];
} Record;

// The result of one rank.
typedef struct {
    int ok, n_records;
    size_t n_bytes[2]; // of its files; 0: it has none
    char hash[2][ST_HASH], error[CKPT_ERROR];
} Report;

typedef struct {
    CkptRun run;
    CkptState state;
    const CkptPart *part;
    int rank, ranks;
    char dir[PATH_MAX], final[PATH_MAX], tmp[PATH_MAX];
    Report own, *report; // report (ranks): on rank 0
    Record *record;      // this rank's; after collect on rank 0 all ranks'
    int n_records;
} Save;

CkptTarget ckpt_target(const CkptPart *part, int array, int row)
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

size_t ckpt_piece_bytes(const CkptPart *part, const CkptPiece *piece)
{
    return (piece->slice.to - piece->slice.from) *
           safetensors_dtype_bytes(piece->array < 0 ? ST_F32 : part->array[piece->array].dtype);
}

// Room for a piece in a snapshot.
static size_t padded_bytes(const CkptPart *part, const CkptPiece *piece)
{
    return (ckpt_piece_bytes(part, piece) + ALIGN - 1) / ALIGN * ALIGN;
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

static bool make_tmp(const Save *j, CkptFailure f)
{
    if (!make_dir(j->run.run_dir, f) || !make_dir(j->dir, f)) return false;
    if (!disk_remove_dir(j->tmp))
        return ckpt_fail(f, "%s: cannot remove the left-over: %s", j->tmp, strerror(errno));
    return mkdir(j->tmp, 0777) == 0 || ckpt_fail(f, "%s: cannot create: %s", j->tmp, strerror(errno));
}

static CkptFailure own_failure(Save *j)
{
    return (CkptFailure){j->own.error, sizeof j->own.error};
}

// The state, and what it points to, must live until the end; so must part.
static void begin_save(Save *j, const CkptRun *run, const CkptState *state, const CkptPart *part)
{
    *j = (Save){.run = *run, .state = *state, .part = part, .rank = run->world ? run->world->rank : 0,
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
    int harmed;  // the first piece with a number that is not finite; -1: none
    Heartbeat *beat;
} Source;

static const void *data_of(void *self, int i)
{
    Source *s = self;
    int k = s->first + i;
    const CkptPiece *piece = &s->part->piece[k];
    if (!s->snapshot) s->part->move(s->part->self, piece, s->buf, true);
    const void *data = s->snapshot ? s->snapshot + s->at[k] : s->buf;
    supervisor_progress(s->beat);
    SafeDtype dtype = piece->array < 0 ? ST_F32 : s->part->array[piece->array].dtype;
    if (s->harmed < 0 && !ckpt_finite(dtype, data, piece->slice.to - piece->slice.from)) s->harmed = k;
    return data;
}

// The file of a rank, without its directory.
static void name_file(const Save *j, char name[32], int rank, bool optim)
{
    const char *kind = optim ? "optim" : "model";
    if (j->ranks > 1) snprintf(name, 32, "%s_%05d.safetensors", kind, rank);
    else snprintf(name, 32, "%s.safetensors", kind);
}

// Pieces [first, first + n) as one file.
static bool write_file(Save *j, Source *source, int first, int n, bool optim, CkptFailure f)
{
    const CkptPart *part = j->part;
    CkptTarget *target = calloc((size_t)n, sizeof *target);
    SafeTensor *tensor = calloc((size_t)n, sizeof *tensor);
    size_t (*shape)[PARAM_DIMS] = calloc((size_t)n, sizeof *shape);
    char (*hash)[ST_HASH] = calloc((size_t)n, sizeof *hash), path[PATH_MAX], name[32];
    if (!target || !tensor || !shape || !hash) die("%s: no memory for the tables of a checkpoint", j->dir);
    for (int i = 0; i < n; i++) {
        const CkptPiece *p = &part->piece[first + i];
        const CkptSlice *s = &p->slice;
        bool box = s->from == 0 && s->to == s->dim[0] * s->dim[1]; // else it is a list of elements
        target[i] = ckpt_target(part, p->array, p->row);
        for (int d = 0; d < PARAM_DIMS; d++) shape[i][d] = box ? s->dim[d] : s->to - s->from;
        tensor[i] = (SafeTensor){.name = target[i].name, .dtype = target[i].dtype, .ndim = box ? target[i].ndim : 1,
                                 .shape = shape[i]};
        j->record[first + i] = (Record){p->array, p->row, 2 * j->rank + optim, *s, ""};
    }
    name_file(j, name, j->rank, optim);
    ckpt_join(path, "%s/%s", j->tmp, name);
    source->first = first;
    bool ok = safetensors_write_from(path, tensor, n, data_of, source, hash, j->own.hash[optim],
                                     &j->own.n_bytes[optim], f.text, f.n);
    if (ok && source->harmed >= 0)
        ok = ckpt_fail(f, "tensor %s holds a number that is not finite", target[source->harmed - first].name);
    for (int i = 0; i < n; i++) memcpy(j->record[first + i].hash, hash[i], ST_HASH);
    free(target), free(tensor), free(shape), free(hash);
    return ok;
}

// snapshot: the bytes of the pieces, each at the next multiple of ALIGN; NULL: part->move is asked.
static void write_pieces(Save *j, const char *snapshot)
{
    const CkptPart *part = j->part;
    if (!j->own.ok) return;
    size_t most = 1, at = 0;
    Source source = {.part = part, .snapshot = snapshot, .harmed = -1,
                     .at = calloc((size_t)part->n + 1, sizeof *source.at), .beat = comm_heartbeat(j->run.world)};
    if (!source.at) die("%s: no memory for the tables of a checkpoint", j->dir);
    int n_model = 0;
    for (int i = 0; i < part->n; i++) {
        size_t n_bytes = ckpt_piece_bytes(part, &part->piece[i]);
        source.at[i] = at;
        at += padded_bytes(part, &part->piece[i]);
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

static void collect(Save *j)
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
        Report *report = &j->report[r];
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
    const Record *x = a, *y = b;
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

static void list_files(const Save *j, Tables *t, int *index)
{
    for (int optim = 0; optim < 2; optim++)
        for (int r = 0; r < j->ranks; r++) {
            const Report *report = &j->report[r];
            if (!report->n_bytes[optim]) continue;
            char *name = t->file_name[t->m.n_files];
            name_file(j, name, r, optim);
            index[2 * r + optim] = t->m.n_files;
            t->m.file[t->m.n_files++] = (CkptFile){.name = name, .hash = report->hash[optim], .optim = optim,
                                                   .n_bytes = report->n_bytes[optim]};
        }
}

// Tensors in table order, weights first, each with its slices; false where these are not all of it.
static bool list_tensors(Save *j, Tables *t, const int *index, CkptFailure f)
{
    const CkptPart *part = j->part;
    CkptManifest *m = &t->m;
    int at = 0;
    if (j->n_records) qsort(j->record, (size_t)j->n_records, sizeof *j->record, by_place);
    for (int array = -1; array < part->n_arrays; array++)
        for (int row = 0; row < part->whole->n_rows; row++) {
            CkptTarget *target = &t->target[m->n];
            *target = ckpt_target(part, array, row);
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
static bool write_manifest(Save *j, CkptFailure f)
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
        check_warn("%s: cannot take back: %s", final, strerror(errno));
}

// Deletes the checkpoints up to this one that CkptRun does not keep. This one is committed, so a failure is a warning.
static void prune(const Save *j)
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
            check_warn("%s: cannot delete the old checkpoint: %s", path, strerror(errno));
    }
    free(steps);
}

static void commit(Save *j)
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
    if (!removed) check_warn("%s: cannot remove: %s", j->tmp, strerror(errno));
    ckpt_join(latest, "%s/latest", j->dir);
    int n = snprintf(hint, sizeof hint, "step_%08ld\n", j->state.step);
    if (!disk_replace_file(latest, hint, (size_t)n))
        check_warn("%s: cannot write: %s", latest, strerror(errno));
    prune(j);
}

// ---- end

static bool end_save(Save *j, char *error, size_t n_error)
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
    Save save;
    begin_save(&save, run, state, part);
    write_pieces(&save, NULL);
    collect(&save);
    commit(&save);
    return end_save(&save, error, n_error);
}

// ---- asynchronous saves
//
// Asynchronous saves (ckpt_async_): training stops for a copy in memory, and a thread does all disk operations.
//
//     trains      begin | copy |  step  | poll | step | poll: collect | step | poll: end
//     its thread               | write, fsync         |               | commit (rank 0)
//
// The steps are those of any save, so the files have the same bytes. Ranks communicate only between training steps, at
// the same point on all ranks: the thread makes no call of comm, and a poll only asks whether all ranks have got so
// far. When rank 0 knows that all have written, its thread commits; a later poll returns the result. The training
// thread writes a snapshot while its slot is new, and the save's thread reads it until the slot is idle again; the lock
// passes it from one to the other. There is one such thread, so its saves are committed in the order in which they were
// begun. Two saves may be in progress. A third waits for the first; the log says so, because a disk that is slower than
// the run's saves must be noticed. Each save has a directory of its own until its commit, and no two commits run at
// once. An error affects that save only.

typedef enum { IDLE, WRITE, COMMIT } Task;

typedef struct {
    enum { FREE, WRITING, COMMITTING } phase; // for the training thread; the same on all ranks
    Task task;                                // what the thread is to do, or does; the lock guards it
    long serial;
    char *data; // the snapshot
    Save save;
    CkptExtra *extra;
    double seconds, busy, stalled;
} Slot;

struct CkptAsync {
    CkptRun run;
    const CkptPart *part;
    size_t n_bytes;
    Slot slot[CKPT_ASYNC_SAVES];
    long serial; // of the next save
    bool threaded, stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

size_t ckpt_async_bytes(const CkptPart *part)
{
    size_t sum = 0;
    for (int i = 0; i < part->n; i++) sum += padded_bytes(part, &part->piece[i]);
    return sum;
}

CkptAsync *ckpt_async_create(const CkptRun *run, const CkptPart *part, Mem *host)
{
    CkptAsync *a = calloc(1, sizeof *a);
    if (!a) die("ckpt: no memory");
    a->run = *run, a->part = part;
    for (int i = 0; i < part->n; i++) a->n_bytes += ckpt_piece_bytes(part, &part->piece[i]);
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++)
        a->slot[i].data = mem_alloc(host, MEM_HOST, ckpt_async_bytes(part), "a checkpoint's snapshot");
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    return a;
}

// ---- the thread

// The next slot with something to do: a commit before a write, for it belongs to an older save.
static Slot *next_task(CkptAsync *a)
{
    Slot *next = NULL;
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++) {
        Slot *s = &a->slot[i];
        if (s->task != IDLE && (!next || s->serial < next->serial)) next = s;
    }
    return next;
}

// Seconds of a processor that this thread has had.
static double busy_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *work(void *arg)
{
    CkptAsync *a = arg;
    pthread_mutex_lock(&a->lock);
    while (true) {
        Slot *s = next_task(a);
        if (!s && a->stop) break;
        if (!s) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        Task task = s->task;
        pthread_mutex_unlock(&a->lock);
        double begin = clock_seconds(), busy = busy_seconds();
        if (task == WRITE) write_pieces(&s->save, s->data);
        else commit(&s->save);
        s->seconds += clock_seconds() - begin;
        s->busy += busy_seconds() - busy;
        pthread_mutex_lock(&a->lock);
        s->task = IDLE;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

// The thread blocks all signals, which are for the thread that trains.
static void start_thread(CkptAsync *a)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&a->thread, NULL, work, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) die("ckpt.async: no thread: %s (try --ckpt.async=false)", strerror(error));
    a->threaded = true;
}

static void hand(CkptAsync *a, Slot *s, Task task)
{
    pthread_mutex_lock(&a->lock);
    s->task = task;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

// Whether the thread is done with the slot.
static bool idle(CkptAsync *a, const Slot *s, bool wait)
{
    pthread_mutex_lock(&a->lock);
    while (wait && s->task != IDLE) pthread_cond_wait(&a->changed, &a->lock);
    bool is = s->task == IDLE;
    pthread_mutex_unlock(&a->lock);
    return is;
}

// ---- saves

static void release(Slot *s)
{
    for (int i = 0; s->extra && i < s->save.state.n_extra; i++) free(s->extra[i].value);
    free(s->extra);
    s->extra = NULL;
    s->phase = FREE;
}

// The numbers of a state may change before they are written.
static CkptState own_state(Slot *s, const CkptState *state)
{
    CkptState own = *state;
    s->extra = calloc((size_t)state->n_extra + 1, sizeof *s->extra);
    if (!s->extra) die("ckpt: no memory");
    for (int i = 0; i < state->n_extra; i++) {
        const CkptExtra *extra = &state->extra[i];
        s->extra[i] = *extra;
        s->extra[i].value = malloc((extra->n + 1) * sizeof *extra->value);
        if (!s->extra[i].value) die("ckpt: no memory for %zu numbers", extra->n);
        memcpy(s->extra[i].value, extra->value, extra->n * sizeof *extra->value);
    }
    own.extra = s->extra;
    return own;
}

bool ckpt_async_full(const CkptAsync *a, long step)
{
    bool full = true;
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++) {
        if (a->slot[i].phase == FREE) full = false;
        else if (a->slot[i].save.state.step == step) return true;
    }
    return full;
}

void ckpt_async_save(CkptAsync *a, const CkptState *state)
{
    double begin = clock_seconds();
    int i = 0;
    check(!ckpt_async_full(a, state->step));
    while (a->slot[i].phase != FREE) i++;
    Slot *s = &a->slot[i];
    if (!a->threaded) start_thread(a);
    CkptState own = own_state(s, state);
    begin_save(&s->save, &a->run, &own, a->part);
    size_t at = 0;
    for (int k = 0; k < a->part->n; k++) {
        const CkptPiece *piece = &a->part->piece[k];
        a->part->move(a->part->self, piece, s->data + at, true);
        at += padded_bytes(a->part, piece);
    }
    s->phase = WRITING;
    s->serial = a->serial++;
    s->seconds = s->busy = 0;
    hand(a, s, WRITE);
    s->stalled = clock_seconds() - begin;
}

static Slot *oldest(CkptAsync *a)
{
    Slot *found = NULL;
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++) {
        Slot *s = &a->slot[i];
        if (s->phase != FREE && (!found || s->serial < found->serial)) found = s;
    }
    return found;
}

// Whether the threads of all ranks are done with a slot.
static bool all_idle(CkptAsync *a, const Slot *s, bool wait)
{
    char unused[8];
    return ckpt_agree(a->run.world, idle(a, s, wait), (CkptFailure){unused, sizeof unused});
}

// Advances the oldest save as far as possible now. True: it has ended.
static bool advance(CkptAsync *a, Slot *s, bool wait, CkptDone *done)
{
    if (s->phase == WRITING) {
        if (!all_idle(a, s, wait)) return false;
        collect(&s->save);
        s->phase = COMMITTING;
        if (s->save.rank == 0) hand(a, s, COMMIT);
    }
    if (!all_idle(a, s, wait)) return false;
    done->ok = end_save(&s->save, done->error, sizeof done->error);
    return true;
}

bool ckpt_async_poll(CkptAsync *a, bool wait, CkptDone *done)
{
    Slot *s = oldest(a);
    if (!s) return false;
    double begin = clock_seconds();
    *done = (CkptDone){.step = s->save.state.step};
    bool ended = advance(a, s, wait, done);
    s->stalled += clock_seconds() - begin;
    if (!ended) return false;
    done->n_bytes = a->n_bytes, done->seconds = s->seconds, done->stalled = s->stalled;
    done->busy = s->busy;
    release(s);
    return true;
}

void ckpt_async_free(CkptAsync *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->threaded) pthread_join(a->thread, NULL);
    for (int i = 0; i < CKPT_ASYNC_SAVES; i++) {
        if (a->slot[i].phase == FREE) continue;
        free(a->slot[i].save.record), free(a->slot[i].save.report);
        release(&a->slot[i]);
    }
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a);
}
