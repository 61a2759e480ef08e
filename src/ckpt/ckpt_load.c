// ckpt_load: a checkpoint of any layout into a run of any other. See ckpt.h.
//
// Rank 0 lists the directory and reads the manifest, and broadcasts its bytes, so all ranks decide by the same text.
// The files are divided among the ranks: rank i mod N hashes file i, so each file is read once for the check. The
// verdict is shared: when one rank finds one flipped byte, all of them take the previous checkpoint. Then each rank
// maps the files that hold what it needs, and copies it (ckpt_slice_copy): the elements that it keeps of its rows of
// the table.
//
// The invariant: a run's state is not written before all files of the checkpoint have been verified, and the manifest
// has been compared with the whole model's table: every tensor is there, with its shape and type, and no other.
//
// Loading tries the checkpoints from the newest down to the first undamaged one. An undamaged checkpoint of another
// model stops the program: an older one would not fit either, and a fresh start would in time delete it. For the same
// reason it is an error, and not a fresh start, when all checkpoints are damaged.
//
// Rejected: every rank hashing every file (N times the reading); hashing only what a rank copies (a slice's hash needs
// all of the slice, and damage in the header or in data that no rank copies would not be found).
#include "ckpt/ckpt_manifest.h"

#include "base/check.h"
#include "comm/supervisor.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- does it belong to this run?

typedef struct {
    const char *key;
    char *value;
    size_t n;
    bool found;
} KeyQuery;

// inih calls this for each line `name = value`. Quotes, and a # comment after the value, are taken off.
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

// The switches that no shape betrays. Keys that only one of the two knows are not compared; a checkpoint older than
// rope_scaling, window, norm_place or logit_cap was trained without.
static bool same_switches(const char *dir, const CkptState *own, const char *stored, CkptFailure f)
{
    const char *ours = own->config;
    static const char *const keys[] = {"heads", "kv_heads", "head_size", "norm", "norm_eps", "activation",
                                       "position", "bias", "tie", "qk_norm", "norm_place", "rope_theta", "rope_scaling",
                                       "rope_factor", "rope_original", "rope_slow", "rope_fast",
                                       "window", "window_pattern", "experts_active", "experts_score",
                                       "experts_renorm", "experts_scale", "experts_groups", "experts_groups_active",
                                       "logit_cap"};
    char n_experts[32];
    bool experts = stored && ckpt_model_key(stored, "experts", n_experts, sizeof n_experts) && strcmp(n_experts, "0");
    for (size_t i = 0; i < sizeof keys / sizeof *keys && ours && stored; i++) {
        char a[256], b[256];
        if (own->init && !strncmp(keys[i], "rope_", 5)) continue;
        if (!experts && !strncmp(keys[i], "experts_", 8)) continue;
        if (!ckpt_model_key(ours, keys[i], a, sizeof a)) continue;
        if (!ckpt_model_key(stored, keys[i], b, sizeof b)) {
            const char *old = !strcmp(keys[i], "rope_scaling") ? "none" : !strcmp(keys[i], "window") ? "0" :
                !strcmp(keys[i], "logit_cap") ? "0" : !strcmp(keys[i], "norm_place") ? "input" : NULL;
            if (!old) continue;
            strcpy(b, old);
        }
        if (strcmp(a, b))
            return ckpt_fail(f, "%s: model.%s: the checkpoint was trained with %s, this run has %s (set it so%s)", dir,
                             keys[i], b, a, own->init ? "" : ", or use another run.name");
    }
    return true;
}

// ---- experts that begin as the one network of their layer (Komatsuzaki et al., arXiv 2212.05055)

// A layer's tensor in a checkpoint without experts, NULL: none. `name`: of this run's, `of` is what it begins with.
static const CkptTensor *dense_of(const CkptManifest *m, const char *name, const CkptState *own)
{
    char dense[CKPT_TENSOR_NAME];
    int layer, expert, at = 0;
    if (!own->init || sscanf(name, "layers.%d.experts.%d.%n", &layer, &expert, &at) != 2 || !at) return NULL;
    snprintf(dense, sizeof dense, "layers.%d.ffn.%s", layer, name + at);
    return ckpt_manifest_find(m, dense);
}

// What a tensor of this run is read from.
static const CkptTensor *source_of(const CkptManifest *m, const char *name, const CkptState *own)
{
    const CkptTensor *t = ckpt_manifest_find(m, name);
    return t ? t : dense_of(m, name, own);
}

// Whether this run's router keeps its initial weights.
static bool is_new_router(const CkptManifest *m, const char *name, const CkptState *own)
{
    char expert[CKPT_TENSOR_NAME];
    int layer, at = 0;
    if (sscanf(name, "layers.%d.router.weight%n", &layer, &at) != 1 || !at || name[at]) return false;
    snprintf(expert, sizeof expert, "layers.%d.experts.0.gate.weight", layer);
    return !ckpt_manifest_find(m, name) && dense_of(m, expert, own);
}

// Whether a tensor of the checkpoint, which this run's model lacks, is what its experts begin with.
static bool is_dense(const char *name, const Params *whole, const CkptState *own)
{
    char expert[CKPT_TENSOR_NAME];
    int layer, at = 0;
    if (!own->init || sscanf(name, "layers.%d.ffn.%n", &layer, &at) != 1 || !at) return false;
    snprintf(expert, sizeof expert, "layers.%d.experts.0.%s", layer, name + at);
    return params_find(whole, expert) >= 0;
}

static void shape_text(char text[64], int ndim, const size_t *dim)
{
    int at = 0;
    text[0] = 0;
    for (int d = 0; d < ndim && at < 40; d++)
        at += snprintf(text + at, 64 - (size_t)at, "%s%zu", d ? "," : "", dim[d]);
}

// Every tensor that the run has must be there, with this shape and type.
static bool same_tensor(const CkptManifest *m, const CkptTarget *ours, bool optim, const CkptState *run, CkptFailure f)
{
    char stored[64], own[64];
    const CkptTensor *t = source_of(m, ours->name, run);
    if (is_new_router(m, ours->name, run)) return true;
    if (!t || t->optim != optim)
        return ckpt_fail(f, "%s: no tensor %s, which this run's model has (the [model] sections differ)", m->dir,
                         ours->name);
    shape_text(stored, t->ndim, t->shape);
    shape_text(own, ours->ndim, ours->shape);
    if (strcmp(stored, own) && strcmp(t->name, ours->name))
        return ckpt_fail(f, "%s: tensor %s: stored with shape (%s), an expert of this run has (%s): it begins as that "
                         "network, so it needs its width (try another model.experts_ffn)", m->dir, t->name, stored,
                         own);
    if (strcmp(stored, own))
        return ckpt_fail(f, "%s: tensor %s: stored with shape (%s), this run's model has (%s) (the [model] sections "
                         "differ)", m->dir, ours->name, stored, own);
    if (t->dtype != ours->dtype)
        return ckpt_fail(f, "%s: tensor %s: dtype %s, expected %s", m->dir, ours->name,
                         safetensors_dtype_name(t->dtype), safetensors_dtype_name(ours->dtype));
    return true;
}

// And none besides. The state of another optimizer has another name, so what is left over is of rows or arrays that
// this run has not.
static bool same_tensors(const CkptManifest *m, const CkptPart *part, const CkptState *own, CkptFailure f)
{
    for (int i = 0; i < m->n_model; i++)
        if (params_find(part->whole, m->tensor[i].name) < 0 && !is_dense(m->tensor[i].name, part->whole, own))
            return ckpt_fail(f, "%s: holds tensor %s, which this run's model lacks (the [model] sections differ)",
                             m->dir, m->tensor[i].name);
    if (part->n_arrays && m->n == m->n_model)
        return ckpt_fail(f, "%s: holds no optimizer state, only weights", m->dir);
    int found = 0;
    for (int a = -1; a < part->n_arrays; a++)
        for (int r = 0; r < part->whole->n_rows; r++) {
            CkptTarget target = ckpt_target(part, a, r);
            if (target.ndim && !same_tensor(m, &target, a >= 0, own, f)) return false;
            found += a >= 0 && target.ndim;
        }
    return !part->n_arrays || found == m->n - m->n_model ||
           ckpt_fail(f, "%s: holds %d tensors of optimizer state, this run's %s has %d", m->dir, m->n - m->n_model,
                     m->state.optim, found);
}

static bool belongs(const CkptManifest *m, const CkptPart *part, const CkptState *own, CkptFailure f)
{
    if (!same_switches(m->dir, own, m->state.config, f)) return false;
    if (own->optim && m->state.optim && strcmp(own->optim, m->state.optim))
        return ckpt_fail(f, "%s: optim.name: the checkpoint was trained with %s, this run has %s (set it so, or use "
                         "another run.name)", m->dir, m->state.optim, own->optim);
    if (!same_tensors(m, part, own, f)) return false;
    for (int i = 0; i < own->n_extra; i++)
        if (!ckpt_manifest_extra(m, &own->extra[i], f)) return false;
    return true;
}

// ---- its elements

// Those of `want`, all of them, into buf. The files that hold them are opened.
static bool gather(CkptManifest *m, const CkptTensor *t, const CkptSlice *want, void *buf, CkptFailure f)
{
    size_t got = 0;
    for (int k = 0; k < t->n; k++) {
        if (!ckpt_slice_meets(want, &t->slice[k])) continue;
        int file = t->place[k].file;
        if (!ckpt_manifest_open(m, file, false, f)) return false;
        const SafeTensor *from = safetensors_find(m->file[file].open, t->name);
        got += ckpt_slice_copy(t->shape, want, buf, &t->slice[k], from->data, safetensors_dtype_bytes(t->dtype));
    }
    check(got == want->to - want->from); // the slices tile the tensor
    return true;
}

// This rank's pieces into the run.
static bool read_pieces(CkptManifest *m, const CkptPart *part, const CkptState *own, Heartbeat *beat, CkptFailure f)
{
    size_t most = 1;
    for (int i = 0; i < part->n; i++) {
        size_t n_bytes = ckpt_piece_bytes(part, &part->piece[i]);
        if (n_bytes > most) most = n_bytes;
    }
    void *buf = malloc(most);
    if (!buf) return ckpt_fail(f, "%s: no memory for %zu bytes", m->dir, most);
    bool ok = true;
    for (int i = 0; i < part->n && ok; i++) {
        const CkptPiece *piece = &part->piece[i];
        CkptTarget target = ckpt_target(part, piece->array, piece->row);
        if (is_new_router(m, target.name, own)) continue;
        ok = gather(m, source_of(m, target.name, own), &piece->slice, buf, f);
        if (ok) part->move(part->self, piece, buf, false);
        supervisor_progress(beat);
    }
    free(buf);
    return ok;
}

// A verified checkpoint into the run. False, on all ranks: it does not fit. Collective.
static bool take(CkptManifest *m, Comm *world, const CkptPart *part, CkptState *state, CkptFailure f)
{
    CkptState own = *state;
    if (!ckpt_agree(world, belongs(m, part, &own, f), f)) return false;
    if (!ckpt_agree(world, read_pieces(m, part, &own, comm_heartbeat(world), f), f)) return false;
    *state = m->state;
    for (int r = 0; r < part->whole->n_rows; r++) state->upcycled |= is_new_router(m, part->whole->row[r].name, &own);
    state->config = own.config;
    state->optim = own.optim;
    state->extra = own.extra;
    state->n_extra = own.n_extra;
    return true;
}

// ---- which one

// A run cannot continue from a NaN: such a checkpoint is no better than a damaged one.
static bool finite_file(const CkptManifest *m, int file, Heartbeat *beat, CkptFailure f)
{
    const SafeTensors *st = m->file[file].open;
    for (int i = 0; i < st->n; i++, supervisor_progress(beat))
        if (!ckpt_finite(st->tensor[i].dtype, st->tensor[i].data, st->tensor[i].n_elems))
            return ckpt_fail(f, "%s: tensor %s holds a number that is not finite", m->dir, st->tensor[i].name);
    return true;
}

// Opens one checkpoint: the manifest is rank 0's, the files are checked by all between them. The verdict is the same on
// all. finite: one that holds a NaN or an infinity counts as damaged.
static CkptManifest *open_one(Comm *world, const char *dir, bool optim, bool finite, CkptVerdict *verdict,
                              CkptFailure f)
{
    int rank = world ? world->rank : 0, ranks = world ? world->size : 1;
    size_t n = 0;
    char *text = rank ? NULL : ckpt_manifest_load(dir, &n, f);
    *verdict = CKPT_DAMAGED;
    if (!ckpt_agree(world, rank || text, f)) return NULL;
    ckpt_tell(world, &n, sizeof n);
    if (rank) text = malloc(n + 1);
    if (!text) die("%s: no memory for a manifest of %zu bytes", dir, n);
    ckpt_tell(world, text, n);
    CkptManifest *m = ckpt_manifest_parse(dir, text, n, verdict, f);
    free(text);
    if (!m) return NULL; // on all ranks: they have the same bytes
    bool ok = true;
    for (int i = 0; i < m->n_files && ok; i++)
        if (i % ranks == rank && (optim || !m->file[i].optim))
            ok = ckpt_manifest_open(m, i, true, f) && (!finite || finite_file(m, i, comm_heartbeat(world), f));
    if (ckpt_agree(world, ok, f)) return m;
    *verdict = CKPT_DAMAGED;
    ckpt_manifest_free(m);
    return NULL;
}

// Ends all ranks with one line, which rank 0 prints.
__attribute__((noreturn)) static void refuse(Comm *world, const char *error)
{
    if (world && world->rank) {
        CommRequest request = comm_barrier(world); // rank 0 does not come
        comm_wait(world, &request);
    }
    die("%s", error);
}

// The newest sound checkpoint in a directory of checkpoints, up to that step (0: any); *n_seen: how many there are.
// Dies on one that is sound but of another version.
static CkptManifest *open_newest(Comm *world, const char *dir, long up_to, bool optim, bool remove_tmp, int *n_seen)
{
    long *steps = NULL;
    bool first = !world || world->rank == 0;
    int n = first ? ckpt_list_steps(dir, remove_tmp, &steps) : 0;
    while (up_to && n > 0 && steps[n - 1] > up_to) n--;
    ckpt_tell(world, &n, sizeof n);
    *n_seen = n;
    if (!first && !(steps = malloc(((size_t)n + 1) * sizeof *steps))) die("%s: no memory to list checkpoints", dir);
    ckpt_tell(world, steps, (size_t)n * sizeof *steps);
    CkptManifest *m = NULL;
    while (n-- > 0 && !m) {
        char path[PATH_MAX], error[CKPT_ERROR] = "";
        CkptVerdict verdict;
        ckpt_join(path, "%s/step_%08ld", dir, steps[n]);
        m = open_one(world, path, optim, true, &verdict, (CkptFailure){error, sizeof error});
        if (verdict == CKPT_REFUSED) refuse(world, error);
        if (m && m->state.step != steps[n]) {
            ckpt_fail((CkptFailure){error, sizeof error}, "%s: holds step %ld (renamed?)", path, m->state.step);
            ckpt_manifest_free(m);
            m = NULL;
        }
        if (!m && first) check_warn("checkpoint passed over: %s", error);
    }
    free(steps);
    return m;
}

bool ckpt_load_part(const CkptRun *run, const CkptPart *part, CkptState *state)
{
    char dir[PATH_MAX], error[CKPT_ERROR] = "";
    int n_seen;
    ckpt_join(dir, "%s/checkpoints", run->run_dir);
    CkptManifest *m = open_newest(run->world, dir, run->up_to, part->n_arrays > 0, true, &n_seen);
    if (!m && n_seen) {
        snprintf(error, sizeof error, "%.600s: none of its %d checkpoints is usable (move them away to start anew)",
                 dir, n_seen);
        refuse(run->world, error);
    }
    if (!m) return false;
    if (!take(m, run->world, part, state, (CkptFailure){error, sizeof error})) refuse(run->world, error);
    ckpt_manifest_free(m);
    return true;
}

// Keeps a file's weights: the tensors weight.NAME (a dump's), as NAME, where it has any, else all.
static void keep_weights(SafeTensors *file)
{
    static const char prefix[] = "weight.";
    size_t skip = 0;
    int kept = 0;
    for (int i = 0; i < file->n && !skip; i++)
        if (!strncmp(file->tensor[i].name, prefix, strlen(prefix))) skip = strlen(prefix);
    for (int i = 0; i < file->n; i++) {
        if (file->tensor[i].ndim > PARAM_DIMS || strncmp(file->tensor[i].name, prefix, skip)) continue;
        file->tensor[kept] = file->tensor[i];
        file->tensor[kept++].name += skip;
    }
    file->n = kept;
}

// A file's tensors, as those of a checkpoint of one file.
static CkptManifest *tensors_of(SafeTensors *file, CkptFailure f)
{
    size_t n = (size_t)file->n + 1;
    CkptManifest *m = calloc(1, sizeof *m);
    if (!m) die("%s: no memory", file->path);
    *m = (CkptManifest){.dir = strdup(file->path), .n_files = 1, .n = file->n, .n_model = file->n,
                        .file = calloc(1, sizeof *m->file), .tensor = calloc(n, sizeof *m->tensor),
                        .by_name = calloc(n, sizeof *m->by_name), .slices = calloc(n, sizeof *m->slices),
                        .places = calloc(n, sizeof *m->places)};
    if (!m->dir || !m->file || !m->tensor || !m->by_name || !m->slices || !m->places)
        die("%s: no memory for a table of %d tensors", file->path, file->n);
    m->file[0] = (CkptFile){.name = file->path, .n_bytes = file->n_bytes, .open = file};
    for (int i = 0; i < m->n; i++) {
        const SafeTensor *from = &file->tensor[i];
        CkptTensor *t = &m->tensor[i];
        *t = (CkptTensor){.name = from->name, .dtype = from->dtype, .ndim = from->ndim, .n = 1,
                          .slice = &m->slices[i], .place = &m->places[i]};
        for (int d = 0; d < PARAM_DIMS; d++) t->shape[d] = d < from->ndim ? from->shape[d] : 1;
        *t->slice = ckpt_slice_whole(t->shape);
    }
    check(ckpt_manifest_index(m, f)); // a file's names are unique
    return m;
}

// A file of weights. Every rank reads its own, which must be rank 0's byte for byte. NULL, on all ranks: f says why.
static CkptManifest *open_file(Comm *world, const char *path, CkptFailure f)
{
    char hash[ST_HASH] = "", first[ST_HASH];
    SafeTensors *file = safetensors_open(path, f.text, f.n);
    if (!ckpt_agree(world, file != NULL, f)) {
        safetensors_close(file);
        return NULL;
    }
    safetensors_hash(hash, file->map, file->n_bytes);
    memcpy(first, hash, sizeof first);
    ckpt_tell(world, first, sizeof first);
    keep_weights(file);
    CkptManifest *m = tensors_of(file, f);
    bool ok = !strcmp(hash, first) || ckpt_fail(f, "%s: is another file than rank 0's", path);
    if (ckpt_agree(world, ok && finite_file(m, 0, NULL, f), f)) return m;
    ckpt_manifest_free(m);
    return NULL;
}

void ckpt_load_weights(Comm *world, const char *path, const CkptPart *part, CkptState *state)
{
    enum { CHECKPOINT, RUN, WEIGHTS };
    char inner[PATH_MAX], error[CKPT_ERROR] = "";
    int n_seen = 0, kind = CHECKPOINT;
    struct stat info;
    CkptVerdict verdict;
    ckpt_join(inner, "%s/checkpoints", path);
    if (!world || world->rank == 0)
        kind = stat(inner, &info) == 0 ? RUN : stat(path, &info) == 0 && S_ISREG(info.st_mode) ? WEIGHTS : CHECKPOINT;
    ckpt_tell(world, &kind, sizeof kind);
    bool run = kind == RUN, optim = part->n_arrays > 0;
    CkptFailure f = {error, sizeof error};
    if (kind == WEIGHTS && optim) refuse(world, "ckpt.init_state: a file of weights has no optimizer's state");
    CkptManifest *m = run ? open_newest(world, inner, 0, optim, false, &n_seen)
                      : kind == WEIGHTS ? open_file(world, path, f)
                                        : open_one(world, path, optim, true, &verdict, f);
    if (run && !m)
        ckpt_fail(f, "%.600s: %s", inner, n_seen ? "none of its checkpoints is usable" : "no checkpoint in it");
    if (!m || !take(m, world, part, state, f)) refuse(world, error);
    ckpt_manifest_free(m);
}

// ---- without a parameter table

// A tensor as the tools want it: where one slice is all of it, in the mapped file; else put together in memory.
static bool join_tensor(CkptManifest *m, const CkptTensor *t, const SafeTensor **out, SafeTensor *joined,
                        CkptFailure f)
{
    if (t->n == 1 && ckpt_slice_is_whole(&t->slice[0], t->shape)) {
        *out = safetensors_find(m->file[t->place[0].file].open, t->name);
        return true;
    }
    CkptSlice whole = ckpt_slice_whole(t->shape);
    size_t n_bytes = whole.to * safetensors_dtype_bytes(t->dtype);
    void *data = malloc(n_bytes + 1);
    if (!data) return ckpt_fail(f, "%s: no memory for tensor %s of %zu bytes", m->dir, t->name, n_bytes);
    *joined = (SafeTensor){.name = t->name, .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape, .data = data,
                           .n_elems = whole.to, .n_bytes = n_bytes};
    *out = joined;
    return gather(m, t, &whole, data, f);
}

static Ckpt *join_all(CkptManifest *m, bool optim, CkptFailure f)
{
    Ckpt *c = calloc(1, sizeof *c);
    if (!c) die("%s: no memory", m->dir);
    *c = (Ckpt){.dir = m->dir, .state = m->state, .n_model = m->n_model, .manifest = m,
                .tensor = calloc((size_t)m->n + 1, sizeof *c->tensor),
                .joined = calloc((size_t)m->n + 1, sizeof *c->joined)};
    if (!c->tensor || !c->joined) die("%s: no memory", m->dir);
    int n = optim ? m->n : m->n_model;
    for (; c->n < n; c->n++)
        if (!join_tensor(m, &m->tensor[c->n], &c->tensor[c->n], &c->joined[c->n], f)) {
            c->n++;
            ckpt_close(c);
            return NULL;
        }
    return c;
}

Ckpt *ckpt_open(const char *path, bool optim, char *error, size_t n_error)
{
    char inner[PATH_MAX];
    struct stat info;
    CkptVerdict verdict;
    CkptManifest *m;
    CkptFailure f = {error, n_error};
    ckpt_join(inner, "%s/checkpoints", path);
    if (stat(path, &info) < 0) {
        ckpt_fail(f, "%s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    if (stat(inner, &info) < 0) m = open_one(NULL, path, optim, false, &verdict, f);
    else {
        int n_seen;
        m = open_newest(NULL, inner, 0, optim, false, &n_seen);
        if (!m && n_seen) ckpt_fail(f, "%s: none of its %d checkpoints is usable", inner, n_seen);
        else if (!m) ckpt_fail(f, "%s: no checkpoint in it", inner);
    }
    return m ? join_all(m, optim, f) : NULL;
}

bool ckpt_extra(const Ckpt *c, const CkptExtra *extra, char *error, size_t n_error)
{
    return ckpt_manifest_extra(c->manifest, extra, (CkptFailure){error, n_error});
}

void ckpt_close(Ckpt *c)
{
    if (!c) return;
    for (int i = 0; i < c->n; i++) free((void *)(uintptr_t)c->joined[i].data);
    free(c->tensor);
    free(c->joined);
    ckpt_manifest_free(c->manifest);
    free(c);
}
