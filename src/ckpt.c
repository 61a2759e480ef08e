// ckpt: checkpoints that survive a crash. See ckpt.h.
//
// The invariant: at every instant, also between any two system calls of a save, the run's newest
// committed checkpoint is whole under its final name. The order that gives it:
//   1. write step_N.tmp/: model.safetensors, optim.safetensors, each fsynced and its close() checked
//   2. write manifest.json, with the hashes of both, and fsync it; fsync step_N.tmp/
//   3. rename step_N.tmp to step_N; fsync checkpoints/.               <- committed here, and nowhere else
//   4. the hint `latest`; delete the oldest (renamed to .tmp first: a kill leaves no half-deleted step_M)
// Where step_N is already there (a run went back behind it), step 3 exchanges the two names in one system
// call.
//
// A failed fsync is never tried again (see disk.c): the whole .tmp goes, and the earlier checkpoint
// stays. Loading walks from the newest down to the first whose hashes are right. A checkpoint that is
// sound but belongs to another model stops the program instead: an older one would not fit either, and
// starting anew would in time delete it. For the same reason damaged checkpoints alone are an error, and
// not a fresh start.
//
// Rejected: saving in place (a kill during a save loses the only checkpoint), trusting `latest` (it is
// written after the commit, so it may be one behind), one file per tensor (thousands of fsyncs).
#define _GNU_SOURCE // renameat2
#include "ckpt.h"

#include "check.h"
#include "ckpt_manifest.h"
#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool ckpt_fail(CkptFailure f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f.text, f.n, fmt, args);
    va_end(args);
    return false;
}

// A path made by printf. One that does not fit is the user's error.
__attribute__((format(printf, 2, 3))) static void join(char path[PATH_MAX], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(path, PATH_MAX, fmt, args);
    va_end(args);
    if (n >= PATH_MAX) die("%.200s...: the path is too long (use a shorter run.dir)", path);
}

// ---- the directory

// The steps that have a directory step_N, in ascending order. tmp: removes left-overs of interrupted
// saves as well. Returns their number, 0 when there is no such directory.
static int list_steps(const char *dir, bool remove_tmp, long **steps)
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
            join(path, "%s/%s", dir, e->d_name);
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

// Deletes all but the newest `keep` of the checkpoints up to `step`. The new one is committed: a failure
// is a warning.
static void prune(const char *dir, long step, int keep)
{
    long *steps;
    int n = list_steps(dir, false, &steps);
    while (n > 0 && steps[n - 1] > step) n--;
    for (int i = 0; i < n - keep; i++) {
        char path[PATH_MAX], tmp[PATH_MAX];
        join(path, "%s/step_%08ld", dir, steps[i]);
        join(tmp, "%s.tmp", path);
        if (rename(path, tmp) < 0 || !disk_remove_dir(tmp))
            fprintf(stderr, "warning: %s: cannot delete the old checkpoint: %s\n", path, strerror(errno));
    }
    free(steps);
}

// ---- saving

typedef struct {
    SafeTensor *tensor;
    size_t (*shape)[PARAM_DIMS];
    char (*name)[PARAM_NAME + 32];
    int n;
} Tensors;

static int shape_same(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    memcpy(dim, row->dim, sizeof row->dim);
    return row->ndim;
}

// The weights as an array without a prefix.
static CkptArray weights_array(const Params *params, const float *weights)
{
    return (CkptArray){.prefix = "", .dtype = ST_F32, .shape = shape_same, .data = (void *)weights,
                       .n_bytes = params->n_elems * sizeof *weights};
}

// The tensor of one row: its name, its shape; returns ndim. n_bytes: how much of the array it is.
static int tensor_of(const CkptArray *array, const Params *params, const Param *row, char name[PARAM_NAME + 32],
                     size_t dim[PARAM_DIMS], size_t *n_bytes)
{
    int ndim = array->shape(params, row, dim);
    *n_bytes = ndim ? safetensors_dtype_bytes(array->dtype) : 0;
    for (int d = 0; d < ndim; d++) *n_bytes *= dim[d];
    snprintf(name, PARAM_NAME + 32, "%s%s%s", array->prefix, *array->prefix ? "." : "", row->name);
    return ndim;
}

// One tensor for each row that the array has something for.
static void add_tensors(Tensors *t, const Params *params, const CkptArray *array)
{
    size_t at = 0, n_bytes;
    for (int i = 0; i < params->n_rows; i++) {
        int ndim = tensor_of(array, params, &params->row[i], t->name[t->n], t->shape[t->n], &n_bytes);
        if (!ndim) continue;
        t->tensor[t->n] = (SafeTensor){.name = t->name[t->n], .dtype = array->dtype, .ndim = ndim,
                                       .shape = t->shape[t->n], .data = (const char *)array->data + at};
        at += n_bytes;
        t->n++;
    }
    check(at == array->n_bytes);
}

// Steps 1 and 2: everything under tmp, durable.
static bool write_tmp(const char *tmp, const CkptState *state, const Tensors *model,
                      const Tensors *optim, CkptFailure f)
{
    CkptFile file[2] = {
        {.name = "model.safetensors", .kind = "model", .tensor = model->tensor, .n = model->n},
        {.name = "optim.safetensors", .kind = "optim", .tensor = optim->tensor, .n = optim->n}};
    int n_files = optim->n ? 2 : 1;
    if (!disk_remove_dir(tmp))
        return ckpt_fail(f, "%s: cannot remove the left-over: %s", tmp, strerror(errno));
    if (mkdir(tmp, 0777) < 0) return ckpt_fail(f, "%s: cannot create: %s", tmp, strerror(errno));
    for (int i = 0; i < n_files; i++) {
        char path[PATH_MAX];
        join(path, "%s/%s", tmp, file[i].name);
        if (!safetensors_write(path, file[i].tensor, file[i].n, NULL, 0, file[i].hash, &file[i].n_bytes,
                               f.text, f.n))
            return false;
    }
    if (!ckpt_manifest_write(tmp, state, file, n_files, f.text, f.n)) return false;
    return disk_sync_dir(tmp) || ckpt_fail(f, "%s: cannot fsync: %s", tmp, strerror(errno));
}

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

static bool commit(const char *dir, const CkptState *state, const Tensors *model, const Tensors *optim,
                   int keep, CkptFailure f)
{
    char tmp[PATH_MAX], final[PATH_MAX], latest[PATH_MAX];
    join(final, "%s/step_%08ld", dir, state->step);
    join(tmp, "%s.tmp", final);
    join(latest, "%s/latest", dir);
    bool ok = write_tmp(tmp, state, model, optim, f);
    if (ok && !swap_in(tmp, final))
        ok = ckpt_fail(f, "%s: cannot rename to %s: %s", tmp, final, strerror(errno));
    if (ok && !disk_sync_dir(dir)) {
        ok = ckpt_fail(f, "%s: cannot fsync: %s", dir, strerror(errno));
        swap_out(tmp, final);
    }
    if (!ok) {
        disk_remove_dir(tmp); // best effort: the next load removes it otherwise
        return false;
    }
    if (!disk_remove_dir(tmp)) fprintf(stderr, "warning: %s: cannot remove: %s\n", tmp, strerror(errno));
    char hint[64];
    int n = snprintf(hint, sizeof hint, "step_%08ld\n", state->step);
    if (!disk_replace_file(latest, hint, (size_t)n))
        fprintf(stderr, "warning: %s: cannot write: %s\n", latest, strerror(errno));
    prune(dir, state->step, keep);
    return true;
}

static Tensors alloc_tensors(size_t n)
{
    Tensors t = {malloc(n * sizeof *t.tensor), malloc(n * sizeof *t.shape), malloc(n * sizeof *t.name),
                 0};
    if (n && (!t.tensor || !t.shape || !t.name)) die("no memory for the tables of a checkpoint");
    return t;
}

static void free_tensors(Tensors *t)
{
    free(t->tensor);
    free(t->shape);
    free(t->name);
}

bool ckpt_save(const char *run_dir, const CkptState *state, const Params *params, const float *weights,
               const CkptArray *array, int n_arrays, int keep, char *error, size_t n_error)
{
    check(keep >= 1 && state->step >= 0);
    CkptFailure f = {error, n_error};
    char dir[PATH_MAX];
    join(dir, "%s/checkpoints", run_dir);
    if (!make_dir(run_dir, f) || !make_dir(dir, f)) return false;
    Tensors model = alloc_tensors((size_t)params->n_rows),
            optim = alloc_tensors((size_t)n_arrays * (size_t)params->n_rows);
    CkptArray flat = weights_array(params, weights);
    add_tensors(&model, params, &flat);
    for (int i = 0; i < n_arrays; i++) add_tensors(&optim, params, &array[i]);
    bool ok = commit(dir, state, &model, &optim, keep, f);
    free_tensors(&model);
    free_tensors(&optim);
    return ok;
}

// ---- loading

typedef struct {
    const char *key;
    char *value;
    size_t n;
    bool found;
} KeyQuery;

// inih calls this for each line `name = value`. Quotes, and a # comment behind the value, are taken off.
static int on_key(void *user, const char *section, const char *name, const char *value)
{
    KeyQuery *q = user;
    if (strcmp(section, "model") || strcmp(name, q->key)) return 1;
    const char *begin = value + (*value == '"'),
               *end = begin + strcspn(begin, *value == '"' ? "\"" : "#");
    while (*value != '"' && end > begin && (end[-1] == ' ' || end[-1] == '\t')) end--;
    snprintf(q->value, q->n, "%.*s", (int)(end - begin), begin);
    q->found = true;
    return 1;
}

bool ckpt_model_key(const char *config, const char *key, char *value, size_t n_value)
{
    KeyQuery query = {key, value, n_value, false};
    ini_parse_string(config, on_key, &query); // lines it cannot read are config's business
    return query.found;
}

// The switches that no shape betrays. Keys that only one of the two knows are not compared.
static bool same_switches(const char *dir, const char *ours, const char *stored, CkptFailure f)
{
    static const char *const keys[] = {"heads", "kv_heads", "head_size", "norm", "norm_eps", "activation",
                                       "position", "rope_theta", "bias", "tie", "qk_norm"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && ours && stored; i++) {
        char a[256], b[256];
        if (!ckpt_model_key(ours, keys[i], a, sizeof a) ||
            !ckpt_model_key(stored, keys[i], b, sizeof b))
            continue;
        if (strcmp(a, b))
            return ckpt_fail(f, "%s: model.%s: the checkpoint was trained with %s, this run has %s (set it "
                             "so, or use another run.name)", dir, keys[i], b, a);
    }
    return true;
}

static void shape_text(char text[64], int ndim, const size_t *dim)
{
    int at = 0;
    text[0] = 0;
    for (int d = 0; d < ndim && at < 40; d++)
        at += snprintf(text + at, 64 - (size_t)at, "%s%zu", d ? "," : "", dim[d]);
}

// Copies one row's tensor out of tensor[begin, end): it must be there, with this shape and type.
static bool copy_row(const Ckpt *c, int begin, int end, const char *name, SafeDtype dtype, int ndim,
                     const size_t *dim, void *out, CkptFailure f)
{
    char theirs[64], ours[64];
    const SafeTensor *t = NULL;
    for (int j = begin; j < end && !t; j++)
        if (!strcmp(c->tensor[j]->name, name)) t = c->tensor[j];
    if (!t)
        return ckpt_fail(f, "%s: no tensor %s, which this run's model has (the [model] sections differ)", c->dir,
                         name);
    shape_text(theirs, t->ndim, t->shape);
    shape_text(ours, ndim, dim);
    if (strcmp(theirs, ours))
        return ckpt_fail(f, "%s: tensor %s: stored with shape (%s), this run's model has (%s) (the [model] sections "
                         "differ)", c->dir, name, theirs, ours);
    if (t->dtype != dtype)
        return ckpt_fail(f, "%s: tensor %s: dtype %s, expected %s", c->dir, name, safetensors_dtype_name(t->dtype),
                         safetensors_dtype_name(dtype));
    memcpy(out, t->data, t->n_bytes);
    return true;
}

// Fills an array from tensor[begin, end).
static bool copy_in(const Ckpt *c, int begin, int end, const Params *params, const CkptArray *array, CkptFailure f)
{
    size_t at = 0, n_bytes;
    for (int i = 0; i < params->n_rows; i++, at += n_bytes) {
        char name[PARAM_NAME + 32];
        size_t dim[PARAM_DIMS];
        int ndim = tensor_of(array, params, &params->row[i], name, dim, &n_bytes);
        if (ndim && !copy_row(c, begin, end, name, array->dtype, ndim, dim, (char *)array->data + at, f)) return false;
    }
    return true;
}

// A verified checkpoint into the run's buffers. False: it does not fit.
static bool take(const Ckpt *c, const Params *params, float *weights, const CkptArray *array, int n_arrays,
                 CkptState *state, CkptFailure f)
{
    CkptState own = *state;
    if (!same_switches(c->dir, own.config, c->state.config, f)) return false;
    if (own.optim && c->state.optim && strcmp(own.optim, c->state.optim))
        return ckpt_fail(f, "%s: optim.name: the checkpoint was trained with %s, this run has %s (set it so, or use "
                         "another run.name)", c->dir, c->state.optim, own.optim);
    for (int i = 0; i < c->n_model; i++)
        if (params_find(params, c->tensor[i]->name) < 0)
            return ckpt_fail(
                f, "%s: holds tensor %s, which this run's model lacks (the [model] sections differ)",
                c->dir, c->tensor[i]->name);
    if (n_arrays && c->n == c->n_model)
        return ckpt_fail(f, "%s: holds no optimizer state, only weights", c->dir);
    CkptArray flat = weights_array(params, weights);
    if (!copy_in(c, 0, c->n_model, params, &flat, f)) return false;
    for (int i = 0; i < n_arrays; i++)
        if (!copy_in(c, c->n_model, c->n, params, &array[i], f)) return false;
    for (int i = 0; i < own.n_extra; i++)
        if (!ckpt_manifest_extra(c, &own.extra[i], f)) return false;
    *state = c->state;
    state->config = own.config;
    state->optim = own.optim;
    state->extra = own.extra;
    state->n_extra = own.n_extra;
    return true;
}

// The newest sound checkpoint in a directory of checkpoints; *n_seen: how many there are. Dies on one
// that is sound but of another version.
static Ckpt *open_newest(const char *dir, bool optim, bool remove_tmp, int *n_seen)
{
    long *steps;
    int n = *n_seen = list_steps(dir, remove_tmp, &steps);
    Ckpt *c = NULL;
    while (n-- > 0 && !c) {
        char path[PATH_MAX], error[1024];
        CkptVerdict verdict;
        join(path, "%s/step_%08ld", dir, steps[n]);
        c = ckpt_manifest_read(path, optim, &verdict, error, sizeof error);
        if (verdict == CKPT_REFUSED) die("%s", error);
        if (c && c->state.step != steps[n]) {
            ckpt_fail((CkptFailure){error, sizeof error}, "%s: holds step %ld (renamed?)", path,
                      c->state.step);
            ckpt_close(c);
            c = NULL;
        }
        if (!c) fprintf(stderr, "warning: checkpoint passed over: %s\n", error);
    }
    free(steps);
    return c;
}

bool ckpt_load_newest(const char *run_dir, const Params *params, float *weights, const CkptArray *array,
                      int n_arrays, CkptState *state)
{
    char dir[PATH_MAX], error[1024];
    int n_seen;
    join(dir, "%s/checkpoints", run_dir);
    Ckpt *c = open_newest(dir, n_arrays > 0, true, &n_seen);
    if (!c && n_seen)
        die("%s: none of its %d checkpoints is usable (move them away to start anew)", dir, n_seen);
    if (!c) return false;
    if (!take(c, params, weights, array, n_arrays, state, (CkptFailure){error, sizeof error})) die("%s", error);
    ckpt_close(c);
    return true;
}

long ckpt_newest_step(const char *run_dir)
{
    char dir[PATH_MAX];
    long *steps;
    join(dir, "%s/checkpoints", run_dir);
    int n = list_steps(dir, false, &steps);
    long step = n ? steps[n - 1] : -1;
    free(steps);
    return step;
}

Ckpt *ckpt_open(const char *path, bool optim, char *error, size_t n_error)
{
    char inner[PATH_MAX];
    struct stat info;
    CkptVerdict verdict;
    CkptFailure f = {error, n_error};
    join(inner, "%s/checkpoints", path);
    if (stat(path, &info) < 0) {
        ckpt_fail(f, "%s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    if (stat(inner, &info) < 0) return ckpt_manifest_read(path, optim, &verdict, error, n_error);
    int n_seen;
    Ckpt *c = open_newest(inner, optim, false, &n_seen);
    if (!c && n_seen) ckpt_fail(f, "%s: none of its %d checkpoints is usable", inner, n_seen);
    else if (!c) ckpt_fail(f, "%s: no checkpoint in it", inner);
    return c;
}

void ckpt_load(const char *dir, const Params *params, float *weights, const CkptArray *array, int n_arrays,
               CkptState *state)
{
    char error[1024];
    Ckpt *c = ckpt_open(dir, n_arrays > 0, error, sizeof error);
    if (!c || !take(c, params, weights, array, n_arrays, state, (CkptFailure){error, sizeof error}))
        die("%s", error);
    ckpt_close(c);
}
