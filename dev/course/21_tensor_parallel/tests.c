#define RANKS_BODY
#include "../ranks.h"

#include "../grade.h"

#include "tp.h"

#include <math.h>

// The answer on N ranks, and one process with the whole weights in double.
typedef struct {
    int N, T, C, F;
    float *x, *w1, *b1, *w2, *b2, *dy;
    double *y, *dw1, *db1, *dw2, *db2, *dx;
    struct {
        Shard *s; // of its own, so that the answer is given nothing else
        float *z, *y, *dw1, *db1, *dw2, *db2, *dx;
    } r[16];
    size_t forward[16], backward[16]; // floats summed over the ranks
} Mlp;

static size_t summed[16];

void all_reduce(Link *link, float *x, size_t n) // by messages, so that a rank that does not call it is found
{
    int me = link_rank(link), N = link_size(link);
    float *in = random_floats(n, 1);
    summed[me] += n;
    for (int from = 1; from < N; from++) {
        if (me == from) link_send(link, 0, x, n * sizeof *x);
        if (me == 0) link_recv(link, from, in, n * sizeof *x);
        for (size_t i = 0; me == 0 && i < n; i++) x[i] += in[i];
    }
    for (int to = 1; to < N; to++) {
        if (me == 0) link_send(link, to, x, n * sizeof *x);
        if (me == to) link_recv(link, 0, x, n * sizeof *x);
    }
    free(in);
}

static double act(double z) { return z * 0.5 * erfc(-z / sqrt(2)); }

static void whole(Mlp *m)
{
    int T = m->T, C = m->C, F = m->F;
    double *z = calloc((size_t)(T * F), sizeof *z), *dz = calloc((size_t)(T * F), sizeof *z);
#define ROOM(name, n) m->name = calloc((size_t)(n), sizeof *m->name)
    ROOM(y, T * C), ROOM(dx, T * C), ROOM(dw1, C * F), ROOM(db1, F), ROOM(dw2, F * C), ROOM(db2, C);
    for (int t = 0; t < T; t++)
        for (int j = 0; j < F; j++) {
            double *a = &z[t * F + j], *da = &dz[t * F + j], e = 1e-5;
            *a = m->b1[j];
            for (int c = 0; c < C; c++) *a += (double)m->x[t * C + c] * m->w1[c * F + j];
            for (int c = 0; c < C; c++) *da += (double)m->dy[t * C + c] * m->w2[j * C + c];
            *da *= (act(*a + e) - act(*a - e)) / (2 * e);
            m->db1[j] += *da;
            for (int c = 0; c < C; c++) {
                m->y[t * C + c] += act(*a) * m->w2[j * C + c] + (j == 0 ? (double)m->b2[c] : 0);
                m->dw1[c * F + j] += m->x[t * C + c] * *da, m->dx[t * C + c] += *da * m->w1[c * F + j];
                m->dw2[j * C + c] += act(*a) * m->dy[t * C + c], m->db2[c] += j == 0 ? (double)m->dy[t * C + c] : 0;
            }
        }
    free(z), free(dz);
}

static Mlp *mlp(int N, int T, int C, int F)
{
    Mlp *m = calloc(1, sizeof *m);
    size_t TC = (size_t)(T * C), CF = (size_t)(C * F), Cf = CF / (size_t)N, f = (size_t)(F / N);
    m->N = N, m->T = T, m->C = C, m->F = F;
    m->x = random_floats(TC, 1), m->dy = random_floats(TC, 2), m->w1 = random_floats(CF, 3);
    m->b1 = random_floats((size_t)F, 4), m->w2 = random_floats(CF, 5), m->b2 = random_floats((size_t)C, 6);
    whole(m);
    for (int r = 0; r < N; r++) {
        m->r[r].s = malloc(sizeof(Shard));
        *m->r[r].s = (Shard){T, C, F, equal_floats(Cf, 9), equal_floats(f, 9), equal_floats(Cf, 9), m->b2};
        m->r[r].z = equal_floats((size_t)T * f, 9), m->r[r].y = equal_floats(TC, 9), m->r[r].dx = equal_floats(TC, 9);
        m->r[r].dw1 = equal_floats(Cf, 9), m->r[r].db1 = equal_floats(f, 9), m->r[r].dw2 = equal_floats(Cf, 9);
        m->r[r].db2 = equal_floats((size_t)C, 9);
        tp_cut(r, N, m->w1, m->b1, m->w2, m->r[r].s);
    }
    return m;
}

static void body(Link *link, void *arg)
{
    Mlp *m = arg;
    int r = link_rank(link);
    summed[r] = 0;
    tp_forward(link, m->r[r].s, m->x, m->r[r].z, m->r[r].y);
    m->forward[r] = summed[r];
    tp_backward(link, m->r[r].s, m->x, m->r[r].z, m->dy, m->r[r].dw1, m->r[r].db1, m->r[r].dw2, m->r[r].db2,
                m->r[r].dx);
    m->backward[r] = summed[r] - m->forward[r];
}

// The rank's part of `all`, (rows, F) by columns or (F, cols) by rows.
static double *part(const double *all, int rows, int cols, int row, int col, int of)
{
    double *p = calloc((size_t)(rows * cols), sizeof *p);
    for (int i = 0; i < rows * cols; i++) p[i] = all[(row + i / cols) * of + col + i % cols];
    return p;
}

static void check_cut(const Mlp *m)
{
    int C = m->C, F = m->F, f = F / m->N;
    double *w1 = doubles((size_t)(C * F), m->w1), *b1 = doubles((size_t)F, m->b1);
    double *w2 = doubles((size_t)(C * F), m->w2);
    char what[64];
    for (int r = 0; r < m->N; r++) {
        snprintf(what, sizeof what, "w1 of rank %d of %d", r, m->N);
        expect_array(what, m->r[r].s->w1, part(w1, C, f, 0, r * f, F), (size_t)C, (size_t)f, 0,
                     (Mistake[]){{w1 + r * f * C, "these lie together in memory, they are not columns"}}, 1);
        snprintf(what, sizeof what, "b1 of rank %d of %d", r, m->N);
        expect_array(what, m->r[r].s->b1, b1 + r * f, 1, (size_t)f, 0, NULL, 0);
        snprintf(what, sizeof what, "w2 of rank %d of %d", r, m->N);
        expect_array(what, m->r[r].s->w2, w2 + r * f * C, (size_t)f, (size_t)C, 0, NULL, 0);
    }
}

static void check_y(const Mlp *m, double tol)
{
    size_t T = (size_t)m->T, C = (size_t)m->C;
    double *often = calloc(T * C, sizeof *often), *none = calloc(T * C, sizeof *none);
    double *own = calloc(T * C, sizeof *own);
    for (size_t i = 0; i < T * C; i++)
        often[i] = m->y[i] + (m->N - 1) * (double)m->b2[i % C],
        none[i] = m->y[i] - m->b2[i % C];
    for (int r = 0; r < m->N; r++) {
        for (size_t i = 0; i < T * C; i++) { // from what the answer keeps
            int f = m->F / m->N;
            own[i] = m->b2[i % C];
            for (int j = 0; j < f; j++)
                own[i] += act(m->r[r].z[(int)(i / C) * f + j]) * m->w2[(r * f + j) * m->C + (int)(i % C)];
        }
        expect_array("y", m->r[r].y, m->y, T, C, tol,
                     (Mistake[]){{often, "b2 was added by every rank"}, {none, "b2 is missing"},
                                 {own, "it is the rank's part: nothing was summed over the ranks"}}, m->N > 1 ? 3 : 0);
    }
}

static void check_gradients(const Mlp *m, double tol)
{
    int T = m->T, C = m->C, F = m->F, f = F / m->N;
    double *times = calloc((size_t)C, sizeof *times), *added = calloc((size_t)F, sizeof *added);
    for (int j = 0; j < F; j++) added[j] = m->db1[j] + 9;
    for (int c = 0; c < C; c++) times[c] = m->N * m->db2[c];
    for (int r = 0; r < m->N; r++) {
        double *own = calloc((size_t)(T * C), sizeof *own), *dw2 = part(m->dw2, f, C, r * f, 0, C);
        expect_array("dw2", m->r[r].dw2, dw2, (size_t)f, (size_t)C, tol, NULL, 0);
        expect_array("db1, the column sums of dZ = dH * gelu'(Z)", m->r[r].db1, m->db1 + r * f, 1, (size_t)f, tol,
                     (Mistake[]){{added + r * f, "added to the 9 that was there: gradients are set"}}, 1);
        expect_array("dw1", m->r[r].dw1, part(m->dw1, C, f, 0, r * f, F), (size_t)C, (size_t)f, tol, NULL, 0);
        expect_array("db2", m->r[r].db2, m->db2, 1, (size_t)C, tol,
                     (Mistake[]){{times, "it was summed over the ranks, and dy is whole on each already"}}, m->N > 1);
        for (int i = 0; i < T * C && m->N > 1; i++)
            for (int j = r * f; j < r * f + f; j++) {
                double z = m->b1[j], dh = 0, e = 1e-5;
                for (int c = 0; c < C; c++) z += (double)m->x[i / C * C + c] * m->w1[c * F + j];
                for (int c = 0; c < C; c++) dh += (double)m->dy[i / C * C + c] * m->w2[j * C + c];
                own[i] += dh * (act(z + e) - act(z - e)) / (2 * e) * m->w1[i % C * F + j];
            }
        expect_array("dx", m->r[r].dx, m->dx, (size_t)T, (size_t)C, tol,
                     (Mistake[]){{own, "it is the rank's part: dx was not summed over the ranks"}}, m->N > 1);
    }
}

static void check_traffic(const Mlp *m)
{
    size_t most = (size_t)(m->T * m->C);
    for (int r = 0; r < m->N; r++) {
        expect(m->forward[r] <= most, "forward sums %zu floats over the ranks; y has %zu", m->forward[r], most);
        expect(m->backward[r] <= most, "backward sums %zu floats over the ranks; dx has %zu, no other sum is needed",
               m->backward[r], most);
    }
}

TEST(cut, 2, "the shards of two ranks") { check_cut(mlp(2, 1, 3, 4)); }

TEST(forward, 3, "y on two ranks")
{
    Mlp *m = mlp(2, 5, 3, 8);
    ranks_run(2, body, m, NULL);
    check_y(m, 1e-5);
}

TEST(backward, 3, "all gradients on two ranks")
{
    Mlp *m = mlp(2, 5, 3, 8);
    ranks_run(2, body, m, NULL);
    check_gradients(m, 2e-5);
}

TEST(traffic, 2, "forward and backward need one sum of T C floats each")
{
    Mlp *m = mlp(4, 6, 4, 8);
    ranks_run(4, body, m, NULL);
    check_y(m, 1e-5), check_traffic(m);
}

#include "../hidden.h"

static void tp_whole(int N, int T, int C, int F)
{
    Mlp *m = mlp(N, T, C, F);
    ranks_run(N, body, m, NULL);
    check_cut(m), check_y(m, 2e-5), check_gradients(m, 4e-5), check_traffic(m);
}

TEST(one, 2, "one rank has the whole MLP") { tp_whole(1, 3, 4, 6); }
TEST(six, 3, "six ranks, 7 tokens, 5 channels, 18 hidden") { tp_whole(6, 7, 5, 18); }
TEST(thin, 3, "a column a rank") { tp_whole(8, 2, 3, 8); }
TEST(large, 2, "four ranks, 33 tokens, 20 channels, 64 hidden") { tp_whole(4, 33, 20, 64); }
