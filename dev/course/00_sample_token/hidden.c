#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

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
