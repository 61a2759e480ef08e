// Sharded checkpoints: whatever layout wrote one, every other reads the same bits of weights and optimizer state from
// it; damage anywhere is seen by all ranks, which then all take the checkpoint before.
// deeper: every pair of layouts with every optimizer; every byte damaged
#include "dev/check/comm_threads.h"
#include "layout_case.h"

// Not done here: there is no power to lose, and the real one is slow. test_ckpt_faults.c looks at its place.
int fsync(int fd)
{
    (void)fd;
    return 0;
}

static const Layout layouts[] = { // tp, stages, replicas, zero, store, narrow, shard
    {1, 1, 1, 0, false, false, 0}, {1, 1, 3, 0, false, false, 0}, {1, 1, 2, 1, false, false, 0},
    {1, 1, 4, 3, false, false, 0}, {1, 1, 3, 2, true, false, 0},  {1, 1, 2, 3, true, false, 0},
    {1, 1, 3, 3, true, true, 0},   {1, 3, 1, 0, false, false, 0}, {1, 2, 2, 1, true, false, 0},
    {2, 1, 1, 0, false, false, 0}, {2, 1, 2, 3, false, false, 0}, {4, 1, 2, 1, false, false, 0},
    {4, 2, 1, 0, true, false, 0},  {2, 2, 2, 0, false, false, 0}, {2, 1, 4, 1, true, false, 2},
    {1, 1, 6, 3, false, false, 2}};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

// Every pair of layouts; in the short form each is written once and read by some, others for each optimizer.
static void try_pairs(Case *c, OptimName optim, int skip)
{
    for (int a = 0; a < N_LAYOUTS; a++) {
        char command[500];
        snprintf(command, sizeof command, "rm -rf '%s'", c->run);
        assert_int_equal(system(command), 0);
        Play save = {.run_dir = c->run, .layout = &layouts[a], .optim = optim, .shape = &llama, .step = 5};
        comm_threads_run(world_of(&layouts[a]), play_save, &save);
        for (int r = 0; r < world_of(&layouts[a]); r++)
            if (!save.ok[r] || save.wrong[r]) fail_msg("layout %d, rank %d: not saved: %s", a, r, save.error[r]);
        for (int b = deeper() ? 0 : (a + (int)optim) % skip; b < N_LAYOUTS; b += deeper() ? 1 : skip) {
            Play load = {.run_dir = c->run, .layout = &layouts[b], .optim = optim, .shape = &llama};
            comm_threads_run(world_of(&layouts[b]), play_load, &load);
            assert_int_equal(load.step, 5);
            for (int r = 0; r < world_of(&layouts[b]); r++) {
                if (load.wrong[r])
                    fail_msg("from layout %d to %d: rank %d has %d wrong elements", a, b, r, load.wrong[r]);
                assert_true(load.extra[r] == 5.0 / 3); // on every rank
            }
        }
    }
}

CKPT_TEST(test_pairs)
{
    try_pairs(*state, OPTIM_ADAMW, 3);
}

// State that is not one number for each weight: blocks of 2,048 with a scale, rows and columns, only some tensors.
CKPT_TEST(test_pairs_of_other_optimizers)
{
    try_pairs(*state, OPTIM_ADAMW8BIT, 8);
    try_pairs(*state, OPTIM_ADAFACTOR, 8);
    try_pairs(*state, OPTIM_NORMUON, 8);
    try_pairs(*state, OPTIM_SGD, 8);
}

static void save_layout(Case *c, const Layout *l, long step)
{
    Play p = {.run_dir = c->run, .layout = l, .optim = OPTIM_ADAMW, .shape = &llama, .step = step};
    comm_threads_run(world_of(l), play_save, &p);
    for (int r = 0; r < world_of(l); r++) assert_true(p.ok[r]);
}

// Loads in a child, as some layout. Returns its exit status (100 + step when all ranks have the right bits) and stderr.
static int load_layout(Case *c, const Layout *l, const ModelShape *shape, OptimName optim, char text[2048])
{
    char path[400];
    snprintf(path, sizeof path, "%s/stderr", c->root);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        Play p = {.run_dir = c->run, .layout = l, .optim = optim, .shape = shape};
        if (!freopen(path, "w", stderr)) _exit(99);
        alarm(20); // ranks that wait for one that does not come
        comm_threads_run(world_of(l), play_load, &p);
        fflush(stderr);
        for (int r = 0; r < world_of(l); r++)
            if (p.wrong[r] || p.ok[r] != p.ok[0]) _exit(98);
        _exit((int)(100 + p.step));
    }
    return wait_for(pid, path, text);
}

// One element of each element is on disk: what the ranks wrote adds up to the model, in equal shares; with hybrid
// sharding the rows take units in turn.
static void try_share(Case *c, const Layout *l)
{
    save_layout(c, l, 1);
    size_t least = SIZE_MAX, most = 0, sum = 0;
    for (int r = 0; r < 8; r++) {
        char name[64];
        snprintf(name, sizeof name, "step_00000001/optim_%05d.safetensors", r);
        SafeTensors *st = safetensors_open(path_of(c, name), NULL, 0);
        size_t own = 0;
        for (int i = 0; i < st->n; i++) own += st->tensor[i].n_bytes;
        safetensors_close(st);
        sum += own;
        if (own < least) least = own;
        if (own > most) most = own;
    }
    Params params;
    Unit *units;
    model_describe(&llama, &params, &units);
    assert_int_equal(sum, 2 * sizeof(float) * params.n_elems);
    assert_true(l->shard ? least > 0 && most < sum / 4 : most < least + least / 8);
    free(units);
    params_free(&params);
    // And the tools find whole tensors.
    char error[1024];
    Ckpt *ckpt = ckpt_open(c->run, true, error, sizeof error);
    assert_non_null(ckpt);
    int wrong = 0;
    for (int i = 0; i < ckpt->n; i++) {
        const SafeTensor *t = ckpt->tensor[i];
        const char *dot = i < ckpt->n_model ? t->name : strchr(t->name, '.') + 1;
        char prefix[32] = "", want[8];
        if (i >= ckpt->n_model) snprintf(prefix, sizeof prefix, "%.*s", (int)(dot - t->name - 1), t->name);
        for (size_t j = 0; j < t->n_elems; j++) {
            element(prefix, dot, j, want, 4);
            wrong += memcmp((const char *)t->data + 4 * j, want, 4) != 0;
        }
    }
    assert_int_equal(wrong, 0);
    assert_string_equal(ckpt->tensor[0]->name, "embed.tokens.weight");
    assert_string_equal(ckpt->tensor[ckpt->n_model - 1]->name, "head.weight");
    ckpt_close(ckpt);
}

CKPT_TEST(test_each_writes_its_share)
{
    try_share(*state, &(Layout){2, 1, 4, 0, false, false, 0});
}

CKPT_TEST(test_copies_write_in_turn)
{
    try_share(*state, &(Layout){1, 1, 8, 1, false, false, 2});
}

CKPT_TEST(test_left_out_and_kept)
{
    Case *c = *state;
    for (long every = 1; every <= 3; every += 2) // the second time beside the first one's last two
        for (long step = 7 * (every == 3) + 1, last = step + 6; step <= last; step++) {
            char error[1024];
            fill(c, step);
            CkptPart none = {.whole = &(Params){0}};
            CkptRun run = {.run_dir = c->run, .keep = 2, .keep_every = every};
            if (!ckpt_save_part(&run, &c->state, &none, error, sizeof error)) fail_msg("%s", error);
            for (long s = 1; every == 1 && s <= step; s++) {
                char name[64];
                snprintf(name, sizeof name, "step_%08ld", s);
                assert_true(exists(c, name));
            }
        }
    for (long step = 1; step <= 14; step++) {
        char name[64];
        snprintf(name, sizeof name, "step_%08ld", step);
        assert_int_equal(exists(c, name), step % 3 == 0 || step >= 13);
    }
}

static void copy_file(Case *c, const char *from, const char *to)
{
    size_t n;
    char *bytes = disk_read_file(path_of(c, from), &n, 1 << 24);
    assert_non_null(bytes);
    assert_true(disk_write_file(path_of(c, to), bytes, n));
    free(bytes);
}

static void flip(const char *path, long at, int bits) // at < 0: from the end
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ bits, f), byte ^ bits);
    assert_int_equal(fclose(f), 0);
}

// A shard that is missing, cut, swapped, of another step, or with one bit flipped: all ranks go back together, and rank
// 0 says which file it was.
CKPT_TEST(test_damaged_shards)
{
    Case *c = *state;
    static const Layout writer = {1, 1, 4, 1, false, false, 0}, reader = {2, 1, 2, 1, false, false, 0};
    static const char *const shard = "step_00000002/model_00002.safetensors", *const other = "model_00001.safetensors";
    char text[2048], away[700], path[600];
    save_layout(c, &writer, 1);
    for (int damage = 0; damage < 5; damage++) {
        save_layout(c, &writer, 2);
        snprintf(path, sizeof path, "%s", path_of(c, shard));
        snprintf(away, sizeof away, "%s.away", path);
        const char *says = "damaged";
        if (damage == 0) assert_int_equal(rename(path, away), 0), says = "cannot open: No such file";
        if (damage == 1) assert_int_equal(truncate(path, 3000), 0), says = "truncated file?";
        if (damage == 2) copy_file(c, "step_00000002/model_00001.safetensors", shard), says = "";
        if (damage == 3) {
            flip(path, -9, 4);
            says = "tensor layers.3.ffn.up.weight: hash is";
        }
        if (damage == 4) assert_int_equal(unlink(path), 0), assert_int_equal(symlink(other, path), 0), says = "";
        int status = load_layout(c, &reader, &llama, OPTIM_ADAMW, text);
        if (status != 101) fail_msg("damage %d: status %d, %s", damage, status, text);
        if (!strstr(text, "model_00002.safetensors: ") || !strstr(text, says)) fail_msg("damage %d: %s", damage, text);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); // one line, from one rank
        if (damage == 0) assert_int_equal(unlink(away), 0);
    }
}

// Every byte (in the short form, every fifth) of every file, flipped one at a time, is seen; the message names the file.
CKPT_TEST(test_all_damage_is_seen)
{
    Case *c = *state;
    static const Layout writer = {1, 1, 2, 1, false, false, 0};
    static const ModelShape tiny = {.layers = 1, .channels = 2, .heads = 1, .kv_heads = 1, .head_size = 2, .ffn = 2,
                                    .vocab = 3, .context = 2, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .tie = true};
    static const char *const names[] = {"manifest.json", "model_00000.safetensors", "model_00001.safetensors",
                                        "optim_00000.safetensors", "optim_00001.safetensors"};
    Play p = {.run_dir = c->run, .layout = &writer, .optim = OPTIM_ADAMW, .shape = &tiny, .step = 1};
    comm_threads_run(2, play_save, &p);
    assert_true(p.ok[0] && p.ok[1]);
    char dir[600], error[1024];
    snprintf(dir, sizeof dir, "%s", path_of(c, "step_00000001"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[700];
        size_t n;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        char *bytes = disk_read_file(path, &n, 1 << 20);
        assert_non_null(bytes);
        for (size_t k = 0; k < n; k += deeper() ? 1 : 5) {
            flip(path, (long)k, 1 << k % 8);
            Ckpt *ckpt = ckpt_open(dir, true, error, sizeof error);
            if (ckpt) fail_msg("%s: the flip of byte %zu was not seen", names[i], k);
            if (!strstr(error, names[i])) fail_msg("%s: byte %zu: the message is %s", names[i], k, error);
            flip(path, (long)k, 1 << k % 8);
        }
        free(bytes);
    }
    Ckpt *ckpt = ckpt_open(dir, true, error, sizeof error);
    assert_non_null(ckpt);
    ckpt_close(ckpt);
}

// Another model or optimizer: one line with the tensor and both shapes, and all ranks end.
CKPT_TEST(test_refused_together)
{
    Case *c = *state;
    static const Layout writer = {2, 1, 1, 0, false, false, 0}, reader = {1, 1, 4, 1, false, false, 0};
    char text[2048];
    save_layout(c, &writer, 1);
    ModelShape other = llama;
    other.vocab = 702;
    assert_int_equal(load_layout(c, &reader, &other, OPTIM_ADAMW, text), 1);
    assert_non_null(strstr(text, "tensor embed.tokens.weight: stored with shape (701,16), this run's model has "
                                 "(702,16)"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    other = llama, other.layers = 3;
    assert_int_equal(load_layout(c, &reader, &other, OPTIM_ADAMW, text), 1);
    assert_non_null(strstr(text, "holds tensor layers.3.attn_norm.weight, which this run's model lacks"));
    other = llama, other.layers = 5;
    assert_int_equal(load_layout(c, &reader, &other, OPTIM_ADAMW, text), 1);
    assert_non_null(strstr(text, "no tensor layers.4.attn_norm.weight, which this run's model has"));
    assert_int_equal(load_layout(c, &reader, &llama, OPTIM_LION, text), 1);
    assert_non_null(strstr(text, "optim.name: the checkpoint was trained with adamw, this run has lion"));
}

// One rank cannot write: nobody commits, all are told which rank it was, and the earlier checkpoint stays.
CKPT_TEST(test_one_rank_fails)
{
    Case *c = *state;
    static const Layout l = {1, 1, 4, 1, false, false, 0};
    save_layout(c, &l, 1);
    // Rank 2's file is there already as a directory, in a .tmp that cannot be removed.
    char inner[700];
    assert_int_equal(mkdir(path_of(c, "step_00000002.tmp"), 0777), 0);
    snprintf(inner, sizeof inner, "%s", path_of(c, "step_00000002.tmp/model_00002.safetensors"));
    assert_int_equal(mkdir(inner, 0777), 0);
    Play p = {.run_dir = c->run, .layout = &l, .optim = OPTIM_ADAMW, .shape = &llama, .step = 2};
    comm_threads_run(4, play_save, &p);
    for (int r = 0; r < 4; r++) {
        assert_false(p.ok[r]);
        assert_non_null(strstr(p.error[r], "step_00000002.tmp: cannot remove the left-over"));
    }
    assert_int_equal(rmdir(inner), 0);
    char text[2048];
    assert_int_equal(load_layout(c, &l, &llama, OPTIM_ADAMW, text), 101);
    save_layout(c, &l, 2);
    assert_int_equal(load_layout(c, &l, &llama, OPTIM_ADAMW, text), 102);
}

// Checkpoints that earlier versions of the format left behind still load, equal to the bit.
CKPT_TEST(test_golden_versions)
{
    Case *c = *state;
    Case want = *c;
    double scale = 0, amax[3] = {7, 7, 7};
    const CkptExtra extra[] = {{"loss_scale", 1, &scale}, {"amax", 3, amax}};
    c->state = (CkptState){.config = "[model]\nheads = 4\n", .optim = "adam", .extra = extra, .n_extra = 2};
    char command[1400], text[2048];
    snprintf(command, sizeof command, "mkdir -p '%s' && cp -r test/fixtures/ckpt_v1 '%s/step_00000007'", path_of(c, ""),
             path_of(c, ""));
    assert_int_equal(system(command), 0);
    assert_true(load_newest(c));
    fill(&want, 7);
    assert_memory_equal(c->weights, want.weights, sizeof want.weights);
    assert_memory_equal(c->m, want.m, sizeof want.m);
    assert_memory_equal(c->v, want.v, sizeof want.v);
    assert_memory_equal(c->sums, want.sums, sizeof want.sums);
    assert_int_equal(c->state.step, 7);
    assert_true(c->state.seed == want.state.seed && c->state.best_val == 0.75 && scale == 65536.0 / 3);
    assert_true(amax[0] == 0 && signbit(amax[0]) && isnan(amax[1]) && amax[2] == INFINITY);

    // Version 2, as two replicas of two tensor-parallel ranks wrote it with stage 1.
    static const ModelShape tiny = {.layers = 1, .channels = 4, .heads = 2, .kv_heads = 1, .head_size = 2, .ffn = 4,
                                    .vocab = 7, .context = 2, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .swiglu = true,
                                    .rope = true, .rotary.theta = 1e4f, .tie = true};
    static const Layout layouts[] = {{1, 1, 1, 0, false, false, 0}, {1, 1, 3, 3, false, false, 0}};
    snprintf(command, sizeof command, "cp -r test/fixtures/ckpt_v2 '%s/step_00000009'", path_of(c, ""));
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(load_layout(c, &layouts[i], &tiny, OPTIM_ADAMW, text), 109);
}

TESTS(NULL, NULL)
