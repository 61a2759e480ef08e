#include "../grade.h"

#include "draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 32, DRAWS = 20000 };
enum { RIGHT, AS_IT_IS, TIMES, EQUAL, P_OF_ALL, NO_TOP_K, NO_TOP_P, NOT_REACHED, P_UNSCALED, MISTAKES };
static const char *const because[] = {
    NULL, "the temperature is ignored", "the logits are multiplied by the temperature, not divided",
    "all kept tokens are drawn equally often", "top_p is of the probabilities relative to what top_k kept, not to all",
    "top_k is ignored", "top_p is ignored", "the token that reaches top_p is left out",
    "top_p is taken of the probabilities before the temperature"};

typedef struct {
    double temperature;
    size_t top_k;
    double top_p;
} Settings;

// keep[v]: whether token v is one of the fewest whose weights reach `share` of `sum`.
static void nucleus(bool *keep, const double *weight, size_t V, double share, double sum, int mistake)
{
    bool was[MOST];
    double mass = 0;
    memcpy(was, keep, sizeof was);
    memset(keep, 0, MOST);
    for (size_t n = 0; n < V && (n == 0 || mass < share * sum); n++) {
        size_t best = V;
        for (size_t v = 0; v < V; v++)
            if (was[v] && !keep[v] && (best == V || weight[v] > weight[best])) best = v;
        if (best == V || (mistake == NOT_REACHED && n && mass + weight[best] >= share * sum)) return;
        keep[best] = true, mass += weight[best];
    }
}

static void probabilities(double *p, const float *logits, size_t V, Settings s, int mistake)
{
    double top = -INFINITY, weight[MOST], plain[MOST], all = 0, kept = 0, last = 0;
    bool keep[MOST] = {false};
    double t = mistake == AS_IT_IS ? 1 : mistake == TIMES ? 1 / s.temperature : s.temperature;
    for (size_t v = 0; v < V; v++) top = fmax(top, logits[v]);
    for (size_t v = 0; v < V; v++) {
        plain[v] = exp(logits[v] - top);
        weight[v] = s.temperature == 0 ? logits[v] == top : exp((logits[v] - top) / t);
        all += weight[v], keep[v] = true;
    }
    for (size_t v = 0; v < V; v++) {
        size_t above = 0;
        for (size_t w = 0; w < V; w++) above += logits[w] > logits[v];
        if (s.top_k && above >= s.top_k && mistake != NO_TOP_K) keep[v] = false;
        kept += keep[v] ? mistake == P_UNSCALED ? plain[v] : weight[v] : 0;
    }
    if (s.top_p < 1 && mistake != NO_TOP_P)
        nucleus(keep, mistake == P_UNSCALED ? plain : weight, V, s.top_p, mistake == P_OF_ALL ? all : kept, mistake);
    for (size_t v = 0; v < V; v++) {
        p[v] = keep[v] ? mistake == EQUAL ? weight[v] > 0 : weight[v] : 0;
        last += p[v];
    }
    for (size_t v = 0; v < V; v++) p[v] /= last;
}

// Evenly spread u. The u of a token are at most V intervals, each with at most one value more or less than its share.
static void expect_frequencies(const char *what, const float *logits, size_t V, Settings s)
{
    float *exact = random_floats(V, 0), *got = equal_floats(V, 0);
    memcpy(exact, logits, V * sizeof *exact);
    for (int i = 0; i < DRAWS; i++) {
        size_t v = draw_token(exact, V, s.temperature, s.top_k, s.top_p, (i + 0.5) / DRAWS);
        expect(v < V, "%s: token %zu of %zu tokens", what, v, V);
        got[v] += 1.0f / DRAWS;
    }
    expect(!memcmp(exact, logits, V * sizeof *exact), "%s: the logits were changed", what);
    double p[MISTAKES][MOST];
    Mistake known[MISTAKES - 1];
    int n = 0;
    for (int m = 0; m < MISTAKES; m++) {
        if (s.temperature == 0 && m) continue;
        probabilities(p[m], logits, V, s, m);
        if (m) known[n++] = (Mistake){p[m], because[m]};
    }
    expect_array(what, got, p[0], 1, V, ((double)V + 2) / DRAWS, known, n);
}

static const float six[6] = {1.5f, -0.5f, 2.5f, 0, 2, -3};

TEST(plain, 2, "temperature 1: each token as often as its probability")
{
    float logarithms[4] = {0, 0.6931472f, 1.0986123f, 1.3862944f};
    expect_frequencies("frequencies of logits ln 1, ln 2, ln 3, ln 4", logarithms, 4, (Settings){1, 0, 1});
    expect_frequencies("frequencies of six logits", six, 6, (Settings){1, 0, 1});
}

TEST(temperature, 2, "temperatures 0.5, 2 and 0")
{
    expect_frequencies("frequencies at temperature 0.5", six, 6, (Settings){0.5, 0, 1});
    expect_frequencies("frequencies at temperature 2", six, 6, (Settings){2, 0, 1});
    expect_frequencies("frequencies at temperature 0", six, 6, (Settings){0, 0, 1});
}

TEST(top_k, 1, "top-k: the k largest logits")
{
    expect_frequencies("frequencies with top_k 3", six, 6, (Settings){1, 3, 1});
    expect_frequencies("frequencies with top_k 1", six, 6, (Settings){1, 1, 1});
    expect_frequencies("frequencies with top_k 9 of 6 tokens", six, 6, (Settings){1, 9, 1});
}

TEST(top_p, 2, "top-p: the fewest tokens that reach top_p")
{
    expect_frequencies("frequencies with top_p 0.6", six, 6, (Settings){1, 0, 0.6}); // 0.46, 0.28, 0.17 ...
    expect_frequencies("frequencies with top_p 0.95", six, 6, (Settings){1, 0, 0.95});
    expect_frequencies("frequencies with top_p 0.01", six, 6, (Settings){1, 0, 0.01});
}

#include "../hidden.h"

TEST(together, 1, "temperature, then top-k, then top-p")
{
    expect_frequencies("frequencies with temperature 2, top_k 4, top_p 0.65", six, 6, (Settings){2, 4, 0.65});
    expect_frequencies("frequencies with temperature 0.5, top_p 0.7", six, 6, (Settings){0.5, 0, 0.7});
    expect_frequencies("frequencies with temperature 3, top_p 0.65", six, 6, (Settings){3, 0, 0.65});
    float *logits = random_floats(30, 1);
    for (int i = 0; i < 30; i++) logits[i] *= 3;
    expect_frequencies("frequencies of 30 tokens, temperature 1.5, top_k 12, top_p 0.8", logits, 30,
                       (Settings){1.5, 12, 0.8});
}

TEST(extremes, 1, "logits of a thousand, and of minus infinity")
{
    expect_frequencies("frequencies of logits 1000, 1001 and 998", (float[]){1000, 1001, 998}, 3, (Settings){1, 0, 1});
    expect_frequencies("frequencies of logits -1000, -1001", (float[]){-1000, -1001}, 2, (Settings){1, 0, 1});
    expect_frequencies("frequencies of logits -inf, 1, -inf, 0", (float[]){-INFINITY, 1, -INFINITY, 0}, 4,
                       (Settings){1, 0, 1});
    expect_frequencies("frequencies of logits -inf, 1, -inf, 0 with top_k 3", (float[]){-INFINITY, 1, -INFINITY, 0}, 4,
                       (Settings){1, 3, 1});
}

TEST(ends, 1, "u = 0 and the largest u below 1 give tokens that are kept")
{
    double ends[] = {0, 0x1p-1074, 1 - 0x1p-53, 1 - 0x1p-24};
    for (uint64_t i = 0; i < 200; i++) {
        size_t V = 1 + i % 20;
        float *logits = random_floats(V, 100 + i);
        for (size_t v = 0; v < V; v++) logits[v] = v % 3 == 0 && V > 1 ? -INFINITY : 5 * logits[v];
        Settings s = {1, i % 2 ? 0 : V / 2, i % 3 ? 1 : 0.8};
        double p[MOST];
        probabilities(p, logits, V, s, RIGHT);
        for (int e = 0; e < 4; e++) {
            size_t v = draw_token(logits, V, s.temperature, s.top_k, s.top_p, ends[e]);
            expect(v < V && p[v] > 0, "u = %s of %zu tokens: token %zu, which %s", e < 2 ? "0" : "nearly 1", V, v,
                   v >= V ? "is none" : logits[v] == -INFINITY ? "has probability 0" : "was cut off");
        }
    }
}
