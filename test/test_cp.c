// test_cp: which rank has which tokens, and how even that is; ring attention and its gather twin against the serial op,
// forward and backward, on ranks that are threads; the same bits on any number of ranks; bytes sent; and that the next
// block is being received while this one is computed.
//
// The cases and their bounds: cp_run.h.
#include "test/test.h"

#include "ops/attn.h"
#include "dev/check/comm_threads.h"
#include "cp_run.h"
#include "expect_die.h"

#include <pthread.h>

// ---- who has what

TEST(test_every_token_has_one_place)
{
    for (int size = 1; size <= MAX_RANKS; size++)
        for (size_t n = 1; n <= 5; n += 2)
            for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++) {
                size_t T = 2 * (size_t)size * n, own = T / (size_t)size;
                int seen[2 * MAX_RANKS * 5] = {0};
                for (int r = 0; r < size; r++)
                    for (size_t i = 0, back; i < own; i++) {
                        size_t at = cp_position(assign, T, r, size, i);
                        assert_true(at < T && seen[at]++ == 0);
                        assert_true(i == 0 || at > cp_position(assign, T, r, size, i - 1));
                        assert_int_equal(cp_rank(assign, T, size, at, &back), r);
                        assert_int_equal(back, i);
                    }
            }
    assert_int_equal(cp_position(CP_ZIGZAG, 12, 0, 2, 3), 9); // chunks 0 and 3 of 3 tokens
    assert_int_equal(cp_position(CP_ZIGZAG, 12, 1, 2, 3), 6); // 1 and 2
    assert_int_equal(cp_position(CP_CONTIGUOUS, 12, 1, 2, 3), 9);
}

TEST(test_cut)
{
    int32_t whole[2][12], part[2][6];
    for (int i = 0; i < 24; i++) whole[i / 12][i % 12] = 100 * (i / 12) + i % 12;
    for (int r = 0; r < 2; r++)
        for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++) {
            cp_cut(part, whole, sizeof **whole, 2, assign, 12, r, 2);
            for (int b = 0; b < 2; b++)
                for (size_t i = 0; i < 6; i++)
                    assert_int_equal(part[b][i], 100 * b + (int)cp_position(assign, 12, r, 2, i));
        }
}

TEST(test_work)
{
    for (int size = 1; size <= MAX_RANKS; size++)
        for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++) {
            size_t n = 3, T = 2 * (size_t)size * n;
            uint64_t N = (uint64_t)size, sum = 0;
            for (int r = 0; r < size; r++) {
                uint64_t own = 0;
                for (int owner = 0; owner < size; owner++) {
                    uint64_t pairs = 0;
                    for (size_t i = 0; i < 2 * n; i++)
                        for (size_t j = 0; j < 2 * n; j++)
                            pairs += cp_position(assign, T, owner, size, j) <= cp_position(assign, T, r, size, i);
                    assert_int_equal(cp_work(assign, T, r, size, owner), pairs);
                    if (assign == CP_ZIGZAG && owner != r) assert_int_equal(pairs, 2 * n * n); // even in every step
                    own += pairs;
                }
                uint64_t formula = assign == CP_ZIGZAG ? 2 * N - 1 : 4 * (uint64_t)r + 1;
                assert_int_equal(own, formula * n * n + n * (n + 1));
                sum += own;
            }
            assert_int_equal(sum, T * (T + 1) / 2);
        }
}

typedef struct {
    CpSettings set;
    size_t T;
    int size;
} Wrong;

static int check_wrong(void *arg)
{
    Wrong *w = arg;
    cp_check(w->set, w->T, w->size);
    return 0;
}

TEST(test_refused)
{
    expect_die(check_wrong, (&(Wrong){.T = 30, .size = 4}), "30 tokens in 2 x 4 equal chunks");
    expect_die(check_wrong, (&(Wrong){.T = 30, .size = 4}), "24 tokens would do");
    expect_die(check_wrong, (&(Wrong){.T = 2, .size = 4}), "8 tokens would do");
    expect_die(check_wrong, (&(Wrong){.set = {.blocks = 16}, .T = 48, .size = 3}), "over 3 ranks: 16 blocks");
    expect_die(check_wrong, (&(Wrong){.set = {.blocks = 4}, .T = 48, .size = 4}), "over 4 ranks: 4 blocks");
    expect_die(check_wrong, (&(Wrong){.set = {.blocks = 16}, .T = 8, .size = 1}), "8 tokens in 16 blocks");
    expect_die(check_wrong, (&(Wrong){.set = {.blocks = 16, .assign = CP_CONTIGUOUS}, .T = 48, .size = 2}),
               "contiguous chunks over 2 ranks");
    cp_check((CpSettings){.blocks = 16}, 48, 8);
    cp_check((CpSettings){.blocks = 16, .assign = CP_CONTIGUOUS}, 48, 1);
    cp_check((CpSettings){0}, 30, 5);
}

// ---- against the serial op

static void expect(const Case *c, const char *what, const void *got_, const void *want_, const double *err, size_t rows,
                   size_t width, size_t ld)
{
    double *got = widen(c, got_, rows * ld), *want = widen(c, want_, rows * ld);
    for (size_t i = 0; i < rows * ld; i++) {
        double bound = 2 * err[i];
        if (c->c.x_type != X_FP32) bound += 0x1p-7 * (fabs(want[i]) + bound);
        if (i % ld < width && !(fabs(got[i] - want[i]) <= bound))
            fail_msg("%s[%zu] on %d ranks, %s, %s, %d blocks, T %zu, heads %zu/%zu of %zu, kind %d, window %zu: %.9g, "
                     "serial %.9g, bound %.3g", what, i, c->c.ranks,
                     c->c.set.assign == CP_ZIGZAG ? "zig-zag" : "contiguous",
                     c->c.set.way == CP_RING ? "ring" : "gather", c->c.set.blocks, c->c.T, c->c.H, c->c.G, c->c.D,
                     c->c.kind, c->c.window, got[i], want[i], bound);
    }
    free(got), free(want);
}

// The serial op once, then every way over every number of ranks.
static void compare(Spec spec, const int *ranks, int n_ranks)
{
    static const char *const name[] = {"dq", "dk", "dv"};
    Case *serial = case_make(spec);
    run_serial(serial);
    for (int n = 0; n < n_ranks; n++)
        for (int way = 0; way < 5; way++) {
            Spec one = spec;
            one.ranks = ranks[n];
            one.set = (CpSettings){.assign = way & 1 ? CP_CONTIGUOUS : CP_ZIGZAG, .way = way & 2 ? CP_GATHER : CP_RING};
            if (way == 4) {
                if (ranks[n] & (ranks[n] - 1)) continue;
                one.set.blocks = 16;
            }
            Case *c = case_make(one);
            c->given_out = serial->out, c->given_lse = serial->lse;
            comm_threads_run(one.ranks, play, c);
            Bounds b = bounds(c);
            expect(c, "out", c->out, serial->out, b.out, c->rows, c->width[0], c->width[0]);
            for (size_t i = 0; i < c->rows * spec.H; i++)
                if (!(fabs((double)c->lse[i] - serial->lse[i]) <= 2 * b.lse[i]))
                    fail_msg("lse[%zu] is %.9g, serial %.9g, bound %.3g", i, c->lse[i], serial->lse[i], 2 * b.lse[i]);
            for (int i = 0; i < 3; i++)
                expect(c, name[i], c->d[i], serial->d[i], b.d[i], c->rows, c->width[i], c->ld[i]);
            free(b.out), free(b.lse), free(b.d[0]), free(b.d[1]), free(b.d[2]);
            case_free(c);
        }
    case_free(serial);
}

TEST(test_against_the_serial_op)
{
    const int ranks[] = {2, 4};
    for (int kind = 0; kind < 4; kind++)
        compare((Spec){.B = 2, .T = 72, .H = 4, .G = 2, .D = 6, .gap = 3, .kind = kind}, ranks, 2);
    compare((Spec){.B = 1, .T = 40, .H = 2, .G = 2, .D = 5, .gap = 0, .kind = DOCUMENTS}, ranks, 2);
    compare((Spec){.B = 1, .T = 24, .H = 3, .G = 1, .D = 4, .gap = 1, .kind = DROPPED}, ranks, 2);
}

// Chunks longer than a block of queries, and keys of more than a tile.
TEST(test_long_chunks)
{
    const int ranks[] = {2, 4};
    compare((Spec){.B = 1, .T = 536, .H = 2, .G = 1, .D = 4, .gap = 1, .kind = DROPPED}, ranks, 2);
    compare((Spec){.B = 1, .T = 536, .H = 1, .G = 1, .D = 4, .gap = 0, .kind = DOCUMENTS}, ranks + 1, 1);
}

// Windows shorter than a chunk, of one, that reach several chunks back, and that reach all.
TEST(test_windows)
{
    const int ranks[] = {2, 3, 4};
    const size_t windows[] = {1, 7, 9, 10, 11, 19, 40, 72};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        compare((Spec){.B = 1, .T = 72, .H = 2, .G = 1, .D = 6, .gap = 3, .window = windows[i]}, ranks, 3);
    compare((Spec){.B = 2, .T = 72, .H = 2, .G = 2, .D = 5, .gap = 0, .kind = DOCUMENTS | DROPPED, .window = 13}, ranks,
            3);
}

// A rank computes the steps of which it sees a key, and no others.
TEST(test_steps_outside_the_window_are_skipped)
{
    enum { T = 32, RANKS = 4, OWN = T / RANKS };
    for (int assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++)
        for (size_t window = 1; window <= T; window++) {
            Case *c = case_make((Spec){.set = {.assign = assign}, .ranks = RANKS, .B = 1, .T = T, .H = 1, .G = 1,
                                       .D = 4, .watched = true, .window = window});
            comm_threads_run(RANKS, play, c);
            for (int r = 0; r < RANKS; r++) {
                int steps = 0;
                for (int owner = 0; owner < RANKS; owner++) {
                    bool any = false;
                    for (size_t i = 0; i < OWN * OWN; i++) {
                        size_t t = cp_position(assign, T, r, RANKS, i / OWN);
                        size_t j = cp_position(assign, T, owner, RANKS, i % OWN);
                        any |= j <= t && t - j < window;
                    }
                    steps += any;
                }
                assert_int_equal(c->parts[r], 2 * steps); // forward, backward
            }
            case_free(c);
        }
}

TEST(test_odd_numbers_of_ranks)
{
    const int ranks[] = {3, 5};
    compare((Spec){.B = 1, .T = 90, .H = 2, .G = 1, .D = 4, .gap = 2, .kind = DOCUMENTS | DROPPED}, ranks, 2);
}

TEST(test_two_bytes)
{
    const int ranks[] = {2, 4};
    compare((Spec){.B = 2, .T = 40, .H = 4, .G = 2, .D = 6, .gap = 3, .kind = DOCUMENTS | DROPPED, .x_type = X_BF16},
            ranks, 2);
}

// A 2-byte device's pieces are those of the fp32 device on the widened numbers, to the bit; also in several chunks.
TEST(test_two_bytes_are_widened)
{
    enum { B = 3, T = 12, OWN = 6, H = 4, G = 2, D = 3, HD = H * D, GD = G * D, GAP = 1 };
    Spec spec = {.B = B, .T = OWN, .H = H, .G = G, .D = D, .gap = GAP, .kind = DOCUMENTS | DROPPED, .x_type = X_BF16};
    Case *c = case_make(spec);
    fill(c, c->out, "out", HD, HD);
    Dev *cpu = dev_cpu_create(1);
    AttnShape s = c->s;
    s.T = T, s.q_start = s.q_cut = 3, s.k_cut = 3, s.k_jump = 6; // rank 1's queries, rank 0's keys
    for (size_t i = 0; i < B * OWN; i++) c->first[i] = (int32_t)(i % 3);
    float *wide[5]; // q, k, v, dout, out
    const void *narrow_in[] = {c->in[0], c->in[1], c->in[2], c->dout, c->out};
    const size_t n[] = {B * OWN * (HD + GAP), B * OWN * (GD + GAP), B * OWN * (GD + GAP), B * OWN * HD, B * OWN * HD};
    for (int i = 0; i < 5; i++) {
        wide[i] = room(n[i], sizeof(float));
        formats_to_float(wide[i], FORMAT_BF16, narrow_in[i], n[i]);
    }
    float out[2][B * OWN * HD], lse[2][B * H * OWN], d[2][3][B * OWN * HD];
    for (size_t chunk = 0; chunk <= OWN * HD; chunk += OWN * HD) {
        Dev *dev = narrow_create(cpu, (NarrowOptions){.x_type = X_BF16, .chunk_floats = chunk});
        cpu->attention_part_forward(cpu, out[0], lse[0], XC(wide[0]), XC(wide[1]), XC(wide[2]), s);
        dev->attention_part_forward(dev, out[1], lse[1], XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), s);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
        cpu->attention_part_backward(cpu, d[0][0], d[0][1], d[0][2], XC(wide[3]), XC(wide[4]), lse[0], XC(wide[0]),
                                     XC(wide[1]), XC(wide[2]), s);
        dev->attention_part_backward(dev, d[1][0], d[1][1], d[1][2], XC(c->dout), XC(c->out), lse[0], XC(c->in[0]),
                                     XC(c->in[1]), XC(c->in[2]), s);
        assert_memory_equal(d[0][0], d[1][0], B * OWN * HD * sizeof(float));
        assert_memory_equal(d[0][1], d[1][1], B * OWN * GD * sizeof(float));
        assert_memory_equal(d[0][2], d[1][2], B * OWN * GD * sizeof(float));
        narrow_free(dev);
    }
    for (int i = 0; i < 5; i++) free(wide[i]);
    dev_cpu_free(cpu);
    case_free(c);
}

// ---- the same bits

static void same(const Case *a, const Case *b, const char *what, const void *x, const void *y, size_t n_bytes)
{
    if (memcmp(x, y, n_bytes))
        fail_msg("%s differs between %d ranks and %d, %s, kind %d", what, a->c.ranks, b->c.ranks,
                 b->c.set.way == CP_RING ? "ring" : "gather", b->c.kind);
}

TEST(test_same_bits_on_any_number_of_ranks)
{
    for (int kind = 0; kind < 5; kind++) // 4: with a window
        for (XType type = X_FP32; type <= X_BF16; type++) {
            Spec spec = {.set = {.blocks = 16}, .ranks = 1, .B = 2, .T = 16 * (kind == 3 ? 21 : 5), .H = 4, .G = 2,
                         .D = 6, .gap = 2, .kind = kind % 4, .x_type = type, .window = kind == 4 ? 23 : 0};
            if (type == X_BF16 && kind != 3) continue;
            Case *one = case_make(spec);
            run_one_rank(one);
            for (int n = 2; n <= 8; n *= 2)
                for (CpWay way = CP_RING; way <= CP_GATHER; way++) {
                    spec.ranks = n, spec.set.way = way;
                    Case *c = case_make(spec);
                    comm_threads_run(n, play, c);
                    same(one, c, "out", one->out, c->out, c->rows * c->width[0] * c->x_bytes);
                    same(one, c, "lse", one->lse, c->lse, c->rows * spec.H * sizeof(float));
                    same(one, c, "dq", one->d[0], c->d[0], rows_bytes(c, 0));
                    same(one, c, "dk", one->d[1], c->d[1], rows_bytes(c, 1));
                    same(one, c, "dv", one->d[2], c->d[2], rows_bytes(c, 2));
                    case_free(c);
                }
            case_free(one);
        }
}

// ---- bytes

TEST(test_bytes)
{
    for (int n = 2; n <= 8; n *= 2)
        for (int way = 0; way < 4; way++) {
            Spec spec = {.ranks = n, .B = 2, .T = 48, .H = 4, .G = 2, .D = 3, .gap = 1,
                         .x_type = n == 4 ? X_BF16 : X_FP32};
            spec.set = (CpSettings){.way = way & 1 ? CP_GATHER : CP_RING, .blocks = way & 2 ? 16 : 0};
            Case *c = case_make(spec);
            comm_threads_run(n, play, c);
            for (int backward = 0; backward < 2; backward++) {
                const CommCount *count = c->count[backward];
                size_t sent = 0, received = 0, bytes = cp_bytes(n, c->x_bytes, 2, 48, 2, 3, backward);
                for (int k = 0; k < COMM_KINDS; k++) sent += count[k].sent, received += count[k].received;
                assert_int_equal(sent, bytes);
                assert_int_equal(received, bytes);
                // N - 1 times K and V, B T/N G D elements each; backward the same again, and their gradients in fp32
                size_t block = 2 * 2 * 48 / (size_t)n * 2 * 3;
                assert_int_equal(bytes, (size_t)(n - 1) * block * (c->x_bytes + (backward ? 4 : 0)));
                size_t messages = (size_t)(n - 1) * (backward ? 2 : 1);
                assert_int_equal(count[COMM_SEND].calls, way & 1 ? 0 : messages);
                assert_int_equal(count[COMM_ALL_GATHER].calls, way & 1);
                assert_int_equal(count[COMM_REDUCE_SCATTER].calls, way & 1 && backward);
            }
            for (int r = 0; r < n; r++)
                assert_int_equal(c->held[r], cp_memory(spec.set, n, c->x_bytes, 2, 48, 4, 2, 3));
            case_free(c);
        }
}

// ---- order of events: the next block is there before the work on this one ends

TEST(test_the_next_block_travels_meanwhile)
{
    for (int n = 2; n <= 4; n += 2)
        for (int blocks = 0; blocks <= 16; blocks += 16) {
            Case *c = case_make((Spec){.set = {.blocks = blocks}, .ranks = n, .B = 1, .T = 32, .H = 2, .G = 1, .D = 4,
                                       .watched = true});
            comm_threads_run(n, play, c);
            for (int r = 0; r < n; r++)
                if (!c->overlapped[r]) fail_msg("rank %d of %d had to wait for a block", r, n);
            case_free(c);
        }
}

typedef struct {
    int calls, elsewhere;
    pthread_t caller;
} Meanwhile;

static void count_call(void *arg)
{
    Meanwhile *m = arg;
    m->calls++;
    m->elsewhere += !pthread_equal(pthread_self(), m->caller);
}

// Messages are moved on the caller's thread, also when the op has several; the serial op moves none.
TEST(test_a_long_op_lets_messages_move)
{
    Case *c = case_make((Spec){.B = 1, .T = 640, .H = 2, .G = 1, .D = 4});
    Dev *dev = dev_cpu_create(3);
    Meanwhile m = {.caller = pthread_self()};
    float *part = room(c->rows * 8, sizeof *part), *d = room(c->rows * 16, sizeof *d);
    dev->meanwhile = count_call, dev->meanwhile_arg = &m;
    dev->attention_forward(dev, XM(c->out), c->lse, XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), c->s);
    assert_int_equal(m.calls, 0);
    AttnShape s = c->s;
    s.T = 640;
    for (int i = 0; i < 50 && !m.calls; i++) // who gets a task of the loop is open
        dev->attention_part_forward(dev, part, c->lse, XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), s);
    assert_true(m.calls > 0);
    assert_memory_equal(part, c->out, c->rows * 8 * sizeof *part); // all keys in one piece: the serial op's bits
    dev->threads = 1, m.calls = 0;
    dev->attention_part_backward(dev, d, d + c->rows * 8, d + c->rows * 12, XC(c->dout), XC(c->out), c->lse,
                                 XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), s);
    assert_int_equal(m.calls, 2 * ((640 + ATTN_QUERIES - 1) / ATTN_QUERIES));
    assert_int_equal(m.elsewhere, 0);
    dev_cpu_free(dev);
    free(part), free(d);
    case_free(c);
}

// ---- rotary positions are those of the whole sequence

TEST(test_rope_by_position)
{
    enum { T = 24, HEADS = 2, SIZE = 4, WIDTH = HEADS * SIZE, RANKS = 4, OWN = T / RANKS };
    float whole[T * WIDTH], part[OWN * WIDTH], want[OWN * WIDTH];
    int32_t pos[T], own[OWN];
    Dev *dev = dev_cpu_create(1);
    for (int rank = 0; rank < RANKS; rank++) {
        for (int t = 0; t < T; t++) pos[t] = t;
        for (size_t i = 0; i < T * WIDTH; i++) whole[i] = (float)rng_normal(rng_make(6, "x", 0), i);
        cp_cut(part, whole, WIDTH * sizeof *whole, 1, CP_ZIGZAG, T, rank, RANKS);
        cp_cut(own, pos, sizeof *pos, 1, CP_ZIGZAG, T, rank, RANKS);
        dev->rope_forward(dev, XM(part), own, OWN, HEADS, SIZE, WIDTH, (Rope){.theta = 1e4f});
        dev->rope_forward(dev, XM(whole), pos, T, HEADS, SIZE, WIDTH, (Rope){.theta = 1e4f});
        cp_cut(want, whole, WIDTH * sizeof *whole, 1, CP_ZIGZAG, T, rank, RANKS);
        assert_memory_equal(part, want, sizeof part);
    }
    dev_cpu_free(dev);
}

TESTS(NULL, NULL)
