// test_ckpt: checkpoints: what is saved comes back bit for bit, damage is always seen and passed over, a checkpoint of
// another model is refused by name; and what slices of tensors share.
#include "test/test.h"

#include "ckpt_case.h"
#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "ckpt/ckpt.h"
#include "base/rng.h"

// Not done here: there is no power to lose, and the real one is slow. test_ckpt_faults.c looks at its place.
int fsync(int fd)
{
    (void)fd;
    return 0;
}

CKPT_TEST(test_round_trip)
{
    Case *c = *state;
    assert_int_equal(load(c), -1); // no run yet
    assert_true(save(c, 100, 2));
    assert_int_equal(load(c), 100);
    size_t n;
    char *latest = disk_read_file(path_of(c, "latest"), &n, 100);
    assert_string_equal(latest, "step_00000100\n");
    free(latest);
    assert_int_equal(ckpt_newest_step(c->run), 100);
    // -0, denormals and the largest number are bits like others; a state with a finite best_val
    uint32_t odd[N] = {0x80000000, 1, 0x807fffff, 0x7f7fffff, 0xff7fffff};
    memcpy(c->weights, odd, sizeof odd);
    c->state.step = 101;
    c->state.best_val = 1.0 / 3;
    char error[1024];
    assert_true(flat_save(c->run, &c->state, &c->params, c->weights, NULL, 0, 2, error, sizeof error));
    memset(c->weights, 0, sizeof c->weights);
    CkptState got = {0};
    Flat flat;
    CkptPart *part = flat_part(&flat, &c->params, c->weights, NULL, 0);
    ckpt_load_weights(NULL, path_of(c, "step_00000101"), part, &got);
    free(part->piece);
    assert_memory_equal(c->weights, odd, sizeof odd);
    assert_true(got.best_val == 1.0 / 3);
    assert_false(exists(c, "step_00000101/optim.safetensors"));
    // A reader without a parameter table: table order, weights first.
    Ckpt *ckpt = ckpt_open(path_of(c, "step_00000100"), true, error, sizeof error);
    assert_non_null(ckpt);
    assert_int_equal(ckpt->n_model, 3);
    assert_int_equal(ckpt->n, 11);
    assert_string_equal(ckpt->tensor[1]->name, "layers.0.ffn_norm.bias");
    assert_string_equal(ckpt->tensor[8]->name, "exp_avg_sq.head.weight");
    assert_int_equal(ckpt->tensor[8]->dtype, ST_U8);
    assert_string_equal(ckpt->tensor[10]->name, "sums.head.weight"); // the vector between has none
    assert_int_equal(ckpt->tensor[10]->ndim, 1);
    ckpt_close(ckpt);
}

CKPT_TEST(test_same_state_same_bytes)
{
    Case *c = *state;
    static const char *const names[] = {"manifest.json", "model.safetensors", "optim.safetensors"};
    char *first[3];
    size_t n_first[3], n;
    for (int round = 0; round < 2; round++) {
        snprintf(c->run, sizeof c->run, "%s/run%d", c->root, round);
        assert_true(save(c, 7, 1));
        for (int i = 0; i < 3; i++) {
            char name[64];
            snprintf(name, sizeof name, "step_00000007/%s", names[i]);
            char *bytes = disk_read_file(path_of(c, name), &n, 1 << 20);
            assert_non_null(bytes);
            if (round == 0) {
                first[i] = bytes;
                n_first[i] = n;
                continue;
            }
            assert_int_equal(n, n_first[i]);
            assert_memory_equal(bytes, first[i], n);
            free(bytes);
            free(first[i]);
        }
    }
}

CKPT_TEST(test_keep)
{
    Case *c = *state;
    for (long step = 10; step <= 50; step += 10) assert_true(save(c, step, 2));
    assert_false(exists(c, "step_00000030"));
    assert_true(exists(c, "step_00000040") && exists(c, "step_00000050"));
    assert_int_equal(load(c), 50);
    // A run that went back: later checkpoints are not counted and not touched.
    assert_true(save(c, 20, 1));
    assert_true(exists(c, "step_00000020") && exists(c, "step_00000040") && exists(c, "step_00000050"));
    // The same step again replaces it.
    fill(c, 50);
    c->state.tokens = 1;
    char error[1024];
    assert_true(save_as_is(c, 1, error, sizeof error));
    assert_false(exists(c, "step_00000050.tmp") || exists(c, "step_00000040"));
    assert_true(load_newest(c));
    assert_int_equal(c->state.tokens, 1);
}

// Every byte of every file, flipped one at a time, and every length shorter than the whole: all are seen,
// and the message names the file.
CKPT_TEST(test_all_damage_is_seen)
{
    Case *c = *state;
    static const char *const names[] = {"manifest.json", "model.safetensors", "optim.safetensors"};
    char dir[600], path[700], error[1024];
    assert_true(save(c, 1, 1));
    snprintf(dir, sizeof dir, "%s", path_of(c, "step_00000001"));
    for (int i = 0; i < 3; i++) {
        size_t n;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        char *good = disk_read_file(path, &n, 1 << 20), *bad = malloc(n + 1);
        assert_non_null(good);
        assert_non_null(bad);
        for (size_t k = 0; k < 2 * n + 1; k++) {
            // k < n: one bit of byte k; then the first k - n bytes alone; last, one byte too many
            size_t length = k < n ? n : k < 2 * n ? k - n : n + 1;
            memcpy(bad, good, n);
            bad[n] = '\n';
            if (k < n) bad[k] = (char)(bad[k] ^ (1 << (k % 8)));
            assert_int_equal(unlink(path), 0); // truncating it instead makes ext4 flush it: 1 s a thousand
            FILE *f = fopen(path, "wb");
            assert_true(f && fwrite(bad, 1, length, f) == length && fclose(f) == 0);
            Ckpt *ckpt = ckpt_open(dir, true, error, sizeof error);
            if (ckpt) fail_msg("%s: change %zu of %zu was not seen", names[i], k, 2 * n + 1);
            if (!strstr(error, names[i]))
                fail_msg("%s: change %zu: the message is %s", names[i], k, error);
        }
        assert_true(disk_write_file(path, good, n));
        free(bad);
        free(good);
    }
    assert_int_equal(load(c), 1);
}

// A flipped byte within a tensor: the message names the tensor.
CKPT_TEST(test_damaged_tensor_is_named)
{
    Case *c = *state;
    char error[1024];
    size_t n;
    assert_true(save(c, 1, 1));
    char *bytes = disk_read_file(path_of(c, "step_00000001/model.safetensors"), &n, 1 << 20);
    assert_non_null(bytes);
    bytes[n - 1] ^= 1; // the last tensor by name
    assert_true(disk_write_file(path_of(c, "step_00000001/model.safetensors"), bytes, n));
    free(bytes);
    assert_null(ckpt_open(path_of(c, "step_00000001"), false, error, sizeof error));
    assert_non_null(strstr(error, "tensor layers.0.ffn_norm.bias: hash is"));
}

CKPT_TEST(test_falls_back)
{
    Case *c = *state;
    char text[2048];
    assert_true(save(c, 1, 9) && save(c, 2, 9) && save(c, 3, 9));
    assert_int_equal(truncate(path_of(c, "step_00000003/optim.safetensors"), 100), 0);
    assert_int_equal(unlink(path_of(c, "step_00000002/model.safetensors")), 0);
    assert_int_equal(load_in_child(c, text), 101);
    assert_non_null(strstr(text, "warning: checkpoint passed over: "));
    assert_non_null(strstr(text, "step_00000003/optim.safetensors: "));
    assert_non_null(strstr(text, "step_00000002/model.safetensors: cannot open: No such file"));
    // A directory under another step's name is not believed either.
    char from[600];
    snprintf(from, sizeof from, "%s", path_of(c, "step_00000001"));
    assert_int_equal(rename(from, path_of(c, "step_00000009")), 0);
    // Only damaged ones: an error, not a fresh start.
    assert_int_equal(load_in_child(c, text), 1);
    assert_non_null(strstr(text, "step_00000009: holds step 1 (renamed?)"));
    assert_non_null(strstr(text, "none of its 3 checkpoints is usable"));
}

CKPT_TEST(test_removes_left_overs)
{
    Case *c = *state;
    assert_true(save(c, 1, 1));
    assert_int_equal(mkdir(path_of(c, "step_00000002.tmp"), 0777), 0);
    assert_true(disk_write_file(path_of(c, "step_00000002.tmp/model.safetensors"), "half", 4));
    assert_int_equal(mkdir(path_of(c, "mine.tmp"), 0777), 0);
    // A left-over that is a link: what it points to is not ours to empty.
    char outside[300], file[320];
    snprintf(outside, sizeof outside, "%s/outside", c->root);
    snprintf(file, sizeof file, "%s/keep", outside);
    assert_int_equal(mkdir(outside, 0777), 0);
    assert_true(disk_write_file(file, "x", 1));
    assert_int_equal(symlink(outside, path_of(c, "step_00000003.tmp")), 0);
    char text[2048];
    assert_int_equal(load_in_child(c, text), 101);
    assert_false(exists(c, "step_00000002.tmp"));
    assert_true(exists(c, "mine.tmp"));
    assert_int_equal(access(file, F_OK), 0);
    assert_true(save(c, 2, 1)); // and a left-over of the same step is not in the way
}

// Writes a manifest with one piece of text replaced and its hash made right again: damage that only
// checks can find.
static void forge(Case *c, const char *from, const char *to)
{
    size_t n;
    char *text = disk_read_file(path_of(c, "step_00000001/manifest.json"), &n, 1 << 20);
    assert_non_null(text);
    char *at = strstr(text, from), *forged = calloc(1, n + strlen(to) + 1), hash[ST_HASH];
    if (!at || !forged) abort();
    size_t head = (size_t)(at - text);
    memcpy(forged, text, head);
    strcpy(forged + head, to);
    strcat(forged, at + strlen(from));
    memset(forged + 14, '0', 32);
    safetensors_hash(hash, forged, strlen(forged));
    memcpy(forged + 14, hash, 32);
    assert_true(disk_write_file(path_of(c, "step_00000001/manifest.json"), forged, strlen(forged)));
    free(forged);
    free(text);
}

CKPT_TEST(test_forged_manifests)
{
    Case *c = *state;
    static const char *const forgeries[][3] = {
        {"\"version\": 2", "\"version\": 3", "format version 3; this program reads versions 1 to 2"},
        {"\"version\": 2", "\"version\": 0", "format version 0"},
        {"pretrain.c checkpoint", "checkpoint", "not the manifest of a checkpoint"},
        {"\"name\":\"model.safetensors\"", "\"name\":\"../model.safetensors\"", "plain name"},
        {"\"name\":\"model.safetensors\"", "\"name\":\"/etc/passwd\"", "plain name"},
        {"\"name\":\"model.safetensors\"", "\"name\":7", "no name or kind"},
        {"\"shape\":[2,3]", "\"shape\":[2,6]", "type or shape is not the manifest's"},
        {"\"shape\":[2,3]", "\"shape\":[3,2]", "type or shape is not the manifest's"},
        {"\"shape\":[2,3]", "\"shape\":[2,-3]", "dimension 1 is not a size"},
        {"\"shape\":[2,3]", "\"shape\":[4294967296,4294967296]", "the shape overflows"},
        {"\"shape\":[2,3]", "\"shape\":[1,2,3]", "at most 2 dimensions"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"I32\"", "type or shape is not the manifest's"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"F31\"", "no known dtype"},
        {"{\"file\":\"model", "{\"cut\":2,\"file\":\"model", "no slice of its shape"},
        {"{\"file\":\"model", "{\"cut\":0,\"first\":0,\"extent\":3,\"file\":\"model", "no slice of its shape"},
        {"{\"file\":\"model", "{\"range\":[0,7],\"file\":\"model", "no slice of its shape"},
        {"{\"file\":\"model", "{\"range\":[0,5],\"file\":\"model", "its slices do not hold each element once"},
        {"{\"file\":\"model", "{\"cut\":1,\"first\":1,\"extent\":2,\"file\":\"model", "not hold each element once"},
        {"\"slices\":[{\"file\":\"model", "\"slices\":[],\"x\":[{\"file\":\"model", "not hold each element once"},
        {"\"file\":\"model.safetensors\"", "\"file\":\"other\"", "file other is not listed"},
        {"\"file\":\"model.safetensors\"", "\"file\":\"optim.safetensors\"", "weights come first"},
        {"\"name\":\"head.weight\"", "\"name\":\"tail.weight\"", "tensor tail.weight is missing"},
        {"\"name\":\"head.weight\"", "\"name\":\"embed.tokens.weight\"", "tensor embed.tokens.weight stands twice"},
        {"\"step\":1", "\"stop\":1", "state is incomplete"},
        {"\"step\":1", "\"step\":\"1\"", "state is incomplete"},
        {"\"adam_step\":0", "\"adam_step\":2147483648", "state is incomplete"}, // more than an int counts
        {"]}\n", "]", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        char error[1024] = "";
        assert_true(save(c, 1, 1));
        forge(c, forgeries[i][0], forgeries[i][1]);
        assert_null(ckpt_open(path_of(c, "step_00000001"), true, error, sizeof error));
        if (!strstr(error, forgeries[i][2])) fail_msg("%s: the message is %s", forgeries[i][1], error);
    }
    // A newer version is sound: older checkpoints are no substitute.
    char text[2048];
    assert_true(save(c, 0, 9) && save(c, 1, 9));
    forge(c, "\"version\": 2", "\"version\": 3");
    assert_int_equal(load_in_child(c, text), 1);
    assert_non_null(strstr(text, "error: "));
    assert_non_null(strstr(text, "format version 3"));
}

// What is not finite is not saved, in a weight as in what the optimizer keeps, and pushes out no checkpoint that is.
CKPT_TEST(test_not_finite_is_not_saved)
{
    Case *c = *state;
    char error[1024];
    assert_true(save(c, 1, 1));
    float *const harmed[] = {&c->weights[N - 1], &c->m[0], &c->sums[N_ROWS_OF - 1]};
    static const char *const names[] = {"head.weight", "exp_avg.embed.tokens.weight", "sums.head.weight"};
    for (int i = 0; i < 3; i++) {
        fill(c, 2);
        *harmed[i] = i == 1 ? -INFINITY : NAN;
        assert_false(save_as_is(c, 1, error, sizeof error));
        assert_non_null(strstr(error, names[i]));
        assert_non_null(strstr(error, "is not finite"));
        assert_false(exists(c, "step_00000002") || exists(c, "step_00000002.tmp"));
    }
    assert_int_equal(load(c), 1);
}

// A checkpoint that holds an infinity, as a program without the check would have written it: a run goes back past it;
// who asks for it by name may look at it.
CKPT_TEST(test_not_finite_is_passed_over)
{
    Case *c = *state;
    size_t n;
    char text[2048], was[2][ST_HASH], is[2][ST_HASH];
    const float infinity = INFINITY;
    assert_true(save(c, 0, 2) && save(c, 1, 2));
    char *bytes = disk_read_file(path_of(c, "step_00000001/model.safetensors"), &n, 1 << 20);
    assert_non_null(bytes);
    for (int i = 0; i < 2; i++) { // the last tensor by name has three numbers
        safetensors_hash(i ? is[0] : was[0], bytes, n);
        safetensors_hash(i ? is[1] : was[1], bytes + n - 12, 12);
        memcpy(bytes + n - 4, &infinity, 4);
    }
    assert_true(disk_write_file(path_of(c, "step_00000001/model.safetensors"), bytes, n));
    free(bytes);
    for (int i = 0; i < 2; i++) forge(c, was[i], is[i]);
    assert_int_equal(load_in_child(c, text), 100);
    assert_non_null(strstr(text, "passed over: "));
    assert_non_null(strstr(text, "step_00000001: tensor layers.0.ffn_norm.bias holds a number that is not finite"));
    Ckpt *named = ckpt_open(path_of(c, "step_00000001"), true, text, sizeof text);
    assert_non_null(named);
    ckpt_close(named);
}

// Writes the case's weights as a safetensors file, weight.NAME when `prefix`, beside a tensor that is none.
static void write_file(const Case *c, const char *path, bool prefix)
{
    char name[4][80], error[1024];
    const size_t n_loss = 1;
    const float loss = NAN;
    SafeTensor t[4] = {{.name = "loss", .dtype = ST_F32, .ndim = 1, .shape = &n_loss, .data = &loss}};
    int n = prefix ? 1 : 0;
    for (int i = 0; i < c->params.n_rows; i++, n++) {
        const Param *row = &c->params.row[i];
        snprintf(name[i], sizeof name[i], "%s%s", prefix ? "weight." : "", row->name);
        t[n] = (SafeTensor){.name = name[i], .dtype = ST_F32, .ndim = row->ndim, .shape = row->dim,
                            .data = c->weights + row->offset};
    }
    assert_true(safetensors_write(path, t, n, NULL, 0, NULL, NULL, error, sizeof error));
}

typedef struct {
    Case *c;
    char path[2][600]; // of each rank
    float weights[2][N];
} Files;

static void load_file(Comm *world, void *arg)
{
    Files *f = arg;
    Flat flat;
    CkptState state = {0};
    CkptPart *part = flat_part(&flat, &f->c->params, f->weights[world->rank], NULL, 0);
    ckpt_load_weights(world, f->path[world->rank], part, &state);
    free(part->piece);
    check(state.step == 0);
}

static int load_files(void *arg)
{
    alarm(20); // a rank that waits for one that does not come
    comm_threads_run(2, load_file, arg);
    return 0;
}

// Weights from a file, with names as they are or as a dump has them, beside which anything may stand; on ranks, which
// must read the same file.
CKPT_TEST(test_file_of_weights)
{
    Case *c = *state;
    Files f = {.c = c};
    for (int prefix = 0; prefix < 2; prefix++) {
        for (int r = 0; r < 2; r++) snprintf(f.path[r], sizeof f.path[r], "%s/weights%d", c->root, prefix);
        write_file(c, f.path[0], prefix);
        memset(f.weights, 0, sizeof f.weights);
        load_files(&f);
        for (int r = 0; r < 2; r++) assert_memory_equal(f.weights[r], c->weights, sizeof c->weights);
    }
    snprintf(f.path[1], sizeof f.path[1], "%s/weights0", c->root);
    expect_die(load_files, &f, "rank 1: ");
    expect_die(load_files, &f, "weights0: is another file than rank 0's");
    c->weights[N - 1] = NAN;
    snprintf(f.path[1], sizeof f.path[1], "%s", f.path[0]);
    write_file(c, f.path[0], true);
    expect_die(load_files, &f, "holds a number that is not finite");
    c->weights[N - 1] = 1;
    write_file(c, f.path[0], true);
    c->params.row[0].whole[0]++; // the model is another one
    expect_die(load_files, &f, "tensor embed.tokens.weight: stored with shape (2,3), this run's model has (3,3)");
    c->params.row[0].whole[0]--;
    assert_true(disk_write_file(f.path[0], "short", 5));
    expect_die(load_files, &f, "weights1: ");
}

// Saves step 1 with the case's own model, then loads with another one; the message is in `text`.
static int load_other_model(Case *c, const char *name, size_t dim0, size_t dim1, char text[2048])
{
    Params other = {0};
    params_add(&other, 0, "embed.tokens.weight", 2, 2, 3, 0, 0, true, 0);
    params_add(&other, 1, "layers.0.ffn_norm.bias", 1, 3, 0, 0, 0, false, -1);
    if (name) params_add(&other, 2, name, dim1 ? 2 : 1, dim0, dim1, 0, 0, true, 0);
    Params own = c->params;
    c->params = other;
    int status = load_in_child(c, text);
    c->params = own;
    params_free(&other);
    return status;
}

CKPT_TEST(test_other_model)
{
    Case *c = *state;
    char text[2048];
    assert_true(save(c, 1, 1));
    assert_int_equal(load_other_model(c, "head.weight", 1, 4, text), 1);
    assert_non_null(
        strstr(text, "tensor head.weight: stored with shape (4,1), this run's model has (1,4)"));
    assert_int_equal(load_other_model(c, "head.weight", 4, 0, text), 1);
    assert_non_null(strstr(text, "(4,1), this run's model has (4)"));
    assert_int_equal(load_other_model(c, "tail.weight", 4, 1, text), 1);
    assert_non_null(strstr(text, "holds tensor head.weight, which this run's model lacks"));
    assert_int_equal(load_other_model(c, NULL, 0, 0, text), 1);
    assert_non_null(strstr(text, "holds tensor head.weight"));
    params_add(&c->params, 3, "more", 1, 1, 0, 0, 0, true, 0);
    assert_int_equal(load_in_child(c, text), 1);
    assert_non_null(strstr(text, "no tensor more, which this run's model has"));
}

static int load_first(void *c)
{
    return load_newest(c) && ((Case *)c)->state.step == 1 ? 0 : 98;
}

// Heads leave no trace in the shapes; the configuration tells.
CKPT_TEST(test_other_switches)
{
    Case *c = *state;
    char error[1024], value[64];
    fill(c, 1);
    c->state.config =
        "[run]\nheads = 9\n[model]\nheads = 4  # tiny.toml:3\nqk_norm = true\nnorm = \"rmsnorm\"  # x\n# bias = true\n";
    assert_true(ckpt_model_key(c->state.config, "heads", value, sizeof value));
    assert_string_equal(value, "4");
    assert_true(ckpt_model_key(c->state.config, "norm", value, sizeof value));
    assert_string_equal(value, "rmsnorm");
    assert_false(ckpt_model_key(c->state.config, "bias", value, sizeof value));
    assert_true(save_as_is(c, 1, error, sizeof error));
    // The same but for where it came from, quotes, and a key that only one knows: loads.
    CkptState got = {.config = "[model]\nheads = 4\nbias = true\nqk_norm = \"true\"\nnorm = \"rmsnorm\"\n"
                               "rope_scaling = \"none\"\n"};
    assert_true(flat_load(c->run, &c->params, c->weights, arrays(c).at, N_ARRAYS, &got));
    assert_int_equal(got.step, 1);
    const char *const other[6][2] = { // the checkpoint is older than rope_scaling, window, norm_place and logit_cap
        {"[model]\nheads = 8\n", "model.heads: the checkpoint was trained with 4, this run has 8"},
        {"[model]\nheads = 4\nrope_scaling = \"yarn\"\n",
         "model.rope_scaling: the checkpoint was trained with none, this run has yarn"},
        {"[model]\nheads = 4\nqk_norm = \"whole\"\n",
         "model.qk_norm: the checkpoint was trained with true, this run has whole"},
        {"[model]\nheads = 4\nwindow = 5\n", "model.window: the checkpoint was trained with 0, this run has 5"},
        {"[model]\nheads = 4\nnorm_place = \"output\"\n",
         "model.norm_place: the checkpoint was trained with input, this run has output"},
        {"[model]\nheads = 4\nlogit_cap = 30\n",
         "model.logit_cap: the checkpoint was trained with 0, this run has 30"}};
    for (int i = 0; i < 6; i++) {
        c->state = (CkptState){.config = other[i][0]};
        expect_die(load_first, c, other[i][1]);
    }
}

// The arrays of one optimizer say nothing to another, even where the names are the same (Adam, AdamW).
CKPT_TEST(test_other_optimizer)
{
    Case *c = *state;
    char error[1024], text[2048];
    fill(c, 1);
    c->state.optim = "adam";
    assert_true(save_as_is(c, 1, error, sizeof error));
    const char *const names[] = {"adam", "adamw", NULL};
    for (int i = 0; i < 3; i++) {
        c->state.optim = names[i];
        if (i == 1) {
            expect_die(load_first, c, "optim.name: the checkpoint was trained with adam, this run has adamw");
            continue;
        }
        assert_int_equal(run_child(load_first, c, text, sizeof text), 0);
        assert_string_equal(text, "");
    }
    // A manifest from before the key: AdamW's.
    forge(c, ",\"optim\":\"adam\"", "");
    Ckpt *ckpt = ckpt_open(c->run, true, error, sizeof error);
    assert_non_null(ckpt);
    assert_string_equal(ckpt->state.optim, "adamw");
    ckpt_close(ckpt);
}

CKPT_TEST(test_extras)
{
    Case *c = *state;
    char error[1024];
    double scale = 65536.0 / 3, amax[5] = {-0.0, NAN, INFINITY, -INFINITY, -0x1p-1074}, got[5], other = 7, more[6];
    const CkptExtra stored[] = {{"loss_scale", 1, &scale}, {"amax", 5, amax}};
    fill(c, 1);
    c->state.extra = stored;
    c->state.n_extra = 2;
    assert_true(save_as_is(c, 1, error, sizeof error));
    // In another order, with a name that is not there.
    double back = 0;
    const CkptExtra wanted[] = {{"amax", 5, got}, {"other", 1, &other}, {"loss_scale", 1, &back}};
    c->state.extra = wanted;
    c->state.n_extra = 3;
    assert_true(load_newest(c));
    assert_true(back == scale && other == 7);
    assert_true(got[0] == 0 && signbit(got[0]) && isnan(got[1]) && got[2] == INFINITY);
    assert_true(got[3] == -INFINITY && got[4] == -0x1p-1074);
    assert_ptr_equal(c->state.extra, wanted);
    // Another length: refused.
    const CkptExtra longer = {"amax", 6, more};
    c->state.extra = &longer;
    c->state.n_extra = 1;
    expect_die(load_first, c, "amax: the checkpoint holds 5 numbers, this run has 6");
}

CKPT_TEST(test_unwritable)
{
    Case *c = *state;
    char file[300], error[1024];
    snprintf(file, sizeof file, "%s/file", c->root);
    assert_true(disk_write_file(file, "x", 1));
    snprintf(c->run, sizeof c->run, "%s/run", file); // below a regular file: not even root may write there
    fill(c, 1);
    assert_false(save_as_is(c, 1, error, sizeof error));
    assert_non_null(strstr(error, "cannot create the directory: Not a directory"));
    snprintf(c->run, sizeof c->run, "%s", file);
    assert_false(save_as_is(c, 1, error, sizeof error));
    assert_non_null(strstr(error, "file: cannot create the directory: Not a directory"));
}

// ---- ckpt slice: Slices of tensors: what two of them share, against a loop over every element; and which sets of them
// form a tensor.

// Index in the tensor of element j of a slice.
static size_t index_of(const size_t shape[2], const CkptSlice *s, size_t j)
{
    Param row = {.cut = s->cut, .first = s->first, .dim = {s->dim[0], s->dim[1]}, .whole = {shape[0], shape[1]}};
    return params_whole_index(&row, s->from + j);
}

static size_t draw(uint32_t *at, size_t n)
{
    return (size_t)(rng_uniform(rng_make(1, "slices", 0), (*at)++) * (double)n);
}

static CkptSlice random_slice(const size_t shape[2], uint32_t *at)
{
    CkptSlice s = ckpt_slice_whole(shape);
    s.cut = (int)draw(at, 3) - 1;
    if (s.cut >= 0) {
        s.first = draw(at, shape[s.cut]);
        s.dim[s.cut] = 1 + draw(at, shape[s.cut] - s.first);
    }
    size_t n = s.dim[0] * s.dim[1];
    s.from = draw(at, n + 1);
    s.to = s.from + draw(at, n - s.from + 1);
    if (draw(at, 4) == 0) s.from = 0, s.to = n;
    return s;
}

TEST(test_copy)
{
    uint32_t at = 0;
    size_t met = 0, shared = 0;
    for (int round = 0; round < 20000; round++) {
        size_t shape[2] = {1 + draw(&at, 6), 1 + draw(&at, 6)};
        CkptSlice want = random_slice(shape, &at), have = random_slice(shape, &at);
        assert_true(ckpt_slice_fits(&want, shape, 2) && ckpt_slice_fits(&have, shape, 2));
        uint16_t src[36], dst[36], expected[36];
        bool there[36] = {false};
        memset(dst, 0xEE, sizeof dst);
        memset(expected, 0xEE, sizeof expected);
        for (size_t j = 0; j < have.to - have.from; j++) {
            src[j] = (uint16_t)(100 + index_of(shape, &have, j));
            there[index_of(shape, &have, j)] = true;
        }
        size_t n = 0;
        for (size_t j = 0; j < want.to - want.from; j++) {
            size_t i = index_of(shape, &want, j);
            if (there[i]) expected[j] = (uint16_t)(100 + i), n++;
        }
        assert_int_equal(ckpt_slice_copy(shape, &want, dst, &have, src, 2), n);
        assert_memory_equal(dst, expected, sizeof dst);
        if (n) assert_true(ckpt_slice_meets(&want, &have)); // no false alarm of the quick look
        met += ckpt_slice_meets(&want, &have), shared += n > 0;
    }
    assert_true(shared > 1000 && met < 20000);
}

TEST(test_fits)
{
    const size_t shape[2] = {4, 6}, vector[2] = {5, 1};
    static const struct {
        CkptSlice s;
        bool fits;
    } rows[] = {
        {{-1, 0, {4, 6}, 0, 24}, true},  {{-1, 0, {4, 6}, 7, 7}, true},  {{-1, 0, {4, 6}, 0, 25}, false},
        {{-1, 0, {4, 6}, 9, 8}, false},  {{-1, 1, {4, 6}, 0, 24}, false}, {{-1, 0, {3, 6}, 0, 18}, false},
        {{0, 1, {3, 6}, 0, 18}, true},   {{0, 2, {3, 6}, 0, 18}, false}, {{0, SIZE_MAX, {3, 6}, 0, 18}, false},
        {{1, 5, {4, 1}, 0, 4}, true},    {{1, 5, {4, 2}, 0, 4}, false},  {{1, 0, {3, 6}, 0, 4}, false},
        {{2, 0, {4, 6}, 0, 4}, false},   {{-2, 0, {4, 6}, 0, 4}, false}, {{0, 0, {5, 6}, 0, 4}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ckpt_slice_fits(&rows[i].s, shape, 2) != rows[i].fits) fail_msg("row %zu", i);
    const CkptSlice along = {1, 0, {5, 1}, 0, 5};
    assert_false(ckpt_slice_fits(&along, vector, 1)); // a vector has no axis 1
    assert_true(ckpt_slice_fits(&along, vector, 2));
}

// Cuts a tensor at random: into parts, and those into ranges; that tiles. Any slice left out, doubled, moved or
// stretched does not.
TEST(test_tiles)
{
    uint32_t at = 0;
    for (int round = 0; round < 3000; round++) {
        size_t shape[2] = {1 + draw(&at, 5), 1 + draw(&at, 5)};
        CkptSlice s[64];
        int n = 0, cut = (int)draw(&at, 3) - 1;
        size_t whole = cut < 0 ? 1 : shape[cut];
        for (size_t first = 0, size; first < whole; first += size) {
            size = cut < 0 ? 1 : 1 + draw(&at, whole - first);
            CkptSlice part = ckpt_slice_whole(shape);
            if (cut >= 0) part.cut = cut, part.first = first, part.dim[cut] = size;
            size_t elems = part.dim[0] * part.dim[1];
            for (size_t from = 0, to; from < elems; from = to) {
                to = from + 1 + draw(&at, elems - from);
                s[n] = part;
                s[n].from = from, s[n++].to = to;
            }
        }
        assert_true(ckpt_slice_tiles(s, n, shape));
        int i = (int)draw(&at, (size_t)n);
        CkptSlice bad[65];
        memcpy(bad, s, sizeof s);
        memmove(bad + i, bad + i + 1, (size_t)(n - i - 1) * sizeof *s);
        assert_false(ckpt_slice_tiles(bad, n - 1, shape)); // left out
        memcpy(bad, s, sizeof s);
        memmove(bad + i + 1, bad + i, (size_t)(n - i) * sizeof *s);
        assert_false(ckpt_slice_tiles(bad, n + 1, shape)); // twice
        memcpy(bad, s, sizeof s);
        bad[i].from++;
        assert_false(ckpt_slice_tiles(bad, n, shape));
        bad[i] = s[i];
        bad[i].to--;
        assert_false(ckpt_slice_tiles(bad, n, shape));
        bad[i] = s[i];
        if (cut >= 0) {
            bad[i].first++;
            assert_false(ckpt_slice_tiles(bad, n, shape));
        }
        if (n > 1) { // out of order
            memcpy(bad, s, sizeof s);
            int other = (i + 1) % n;
            bad[i] = s[other], bad[other] = s[i];
            assert_false(ckpt_slice_tiles(bad, n, shape));
        }
    }
    const size_t none[2] = {0, 3};
    assert_true(ckpt_slice_tiles(NULL, 0, none));
    const size_t some[2] = {1, 3};
    assert_false(ckpt_slice_tiles(NULL, 0, some));
}

TESTS(NULL, NULL)
