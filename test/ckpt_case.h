// A small model in a fresh run directory, for the tests of checkpoints.
#ifndef CKPT_CASE_H
#define CKPT_CASE_H
#include "base/check.h"
#include "base/disk.h"
#include "ckpt_flat.h"

#include "test/test.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 2 * 3 + 3 + 4, N_ROWS_OF = 2 + 4, N_ARRAYS = 3 };

// The optimizer of these tests keeps m as fp32 like the weights; v as bytes; and one number for each row of a
// matrix, and none for vectors.
typedef struct {
    char root[256], run[320];
    Params params;
    float weights[N], m[N];
    uint8_t v[N];
    float sums[N_ROWS_OF];
    CkptState state;
} Case;

static inline int shape_whole(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    memcpy(dim, row->dim, sizeof row->dim);
    return row->ndim;
}

static inline int shape_of_rows(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    dim[0] = row->dim[0];
    return row->ndim == 2;
}

typedef struct {
    CkptArray at[N_ARRAYS];
} Arrays;

static inline Arrays arrays(Case *c)
{
    return (Arrays){{{"exp_avg", ST_F32, shape_whole, c->m, sizeof c->m},
                     {"exp_avg_sq", ST_U8, shape_whole, c->v, sizeof c->v},
                     {"sums", ST_F32, shape_of_rows, c->sums, sizeof c->sums}}};
}

// The case's checkpoint, with all three arrays.
static inline bool save_as_is(Case *c, int keep, char *error, size_t n_error)
{
    return flat_save(c->run, &c->state, &c->params, c->weights, arrays(c).at, N_ARRAYS, keep, error, n_error);
}

static inline bool load_newest(Case *c)
{
    return flat_load(c->run, &c->params, c->weights, arrays(c).at, N_ARRAYS, &c->state);
}

// Numbers that belong to one step: every buffer differs from every other and from step to step.
static inline void fill(Case *c, long step)
{
    for (int i = 0; i < N; i++) {
        c->weights[i] = (float)step + (float)i / 7;
        c->m[i] = -(float)step - (float)i / 11;
        c->v[i] = (uint8_t)(step * (i + 1));
    }
    for (int i = 0; i < N_ROWS_OF; i++) c->sums[i] = (float)step / (float)(i + 3);
    memset(&c->state, 0, sizeof c->state); // its padding too: states are compared as bytes
    c->state.step = step, c->state.adam_step = step - (step > 0);
    c->state.sample = (uint64_t)step * 8, c->state.tokens = (uint64_t)step * 512, c->state.seed = UINT64_MAX - 5;
    c->state.seconds = 0.1 * (double)step, c->state.best_val = INFINITY;
}

static inline int set_up(void **state)
{
    Case *c = calloc(1, sizeof *c);
    if (!c) return -1;
    snprintf(c->root, sizeof c->root, "%s/ckpt_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(c->root)) return -1;
    snprintf(c->run, sizeof c->run, "%s/run", c->root);
    params_add(&c->params, 0, "embed.tokens.weight", 2, 2, 3, 0, 0, true, 0);
    params_add(&c->params, 1, "layers.0.ffn_norm.bias", 1, 3, 0, 0, 0, false, -1);
    params_add(&c->params, 2, "head.weight", 2, 4, 1, 0, 0, true, 0);
    *state = c;
    return 0;
}

static inline int tear_down(void **state)
{
    Case *c = *state;
    char command[500];
    snprintf(command, sizeof command, "rm -rf '%s'", c->root);
    int failed = system(command);
    params_free(&c->params);
    free(c);
    return failed;
}

static inline bool save(Case *c, long step, int keep)
{
    char error[1024] = "";
    fill(c, step);
    bool ok = save_as_is(c, keep, error, sizeof error);
    assert_int_equal(ok, error[0] == 0);
    return ok;
}

// Loads the newest checkpoint and checks that every bit is that of the step it names. Returns the step, -1 for none.
static inline long load(Case *c)
{
    Case want = *c;
    memset(c->weights, 0xFF, sizeof c->weights);
    memset(c->m, 0xFF, sizeof c->m);
    memset(c->v, 0xFF, sizeof c->v);
    memset(c->sums, 0xFF, sizeof c->sums);
    memset(&c->state, 0, sizeof c->state);
    if (!load_newest(c)) return -1;
    fill(&want, c->state.step);
    assert_memory_equal(c->weights, want.weights, sizeof want.weights);
    assert_memory_equal(c->m, want.m, sizeof want.m);
    assert_memory_equal(c->v, want.v, sizeof want.v);
    assert_memory_equal(c->sums, want.sums, sizeof want.sums);
    assert_memory_equal(&c->state, &want.state, sizeof want.state);
    return c->state.step;
}

// Waits for a child that writes its stderr to `path`. Returns its exit status and what it wrote.
static inline int wait_for(pid_t pid, const char *path, char text[2048])
{
    int status;
    size_t n;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    char *said = disk_read_file(path, &n, 1 << 20);
    assert_non_null(said);
    snprintf(text, 2048, "%s", said);
    free(said);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

// Runs load in a child. Returns its exit status (100 + step when it loads one) and its stderr.
static inline int load_in_child(Case *c, char text[2048])
{
    char path[400];
    snprintf(path, sizeof path, "%s/stderr", c->root);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen(path, "w", stderr)) _exit(99);
        long step = load(c);
        fflush(stderr);
        _exit((int)(100 + step));
    }
    return wait_for(pid, path, text);
}

static inline bool exists(const Case *c, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/checkpoints/%s", c->run, name);
    return access(path, F_OK) == 0;
}

static inline char *path_of(const Case *c, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/checkpoints/%s", c->run, name);
    return path;
}

#define CKPT_TEST(f) TEST_WITH(f, set_up, tear_down)

#endif
