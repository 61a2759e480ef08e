// Gossip: people are mentioned as often as Zipf's law says, facts do not change, and every text is read back with
// exactly the probability with which it was written.
#include "data/stories/gossip.h"
#include "data/stories/stories.h"

#include "test/test.h"
#define PROGRAM "stories"
#include "program.h"

enum { DRAWN = 40000 };

// The rank of a text follows from its probability: log of verbs and numbers - log p(k), and p falls with k.
static size_t rank_of(const double *p, double nats)
{
    double probability = GOSSIP_VERBS * GOSSIP_NUMBERS * exp(-nats);
    size_t low = 0, high = GOSSIP_PEOPLE - 1;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (p[mid] > probability * (1 + 1e-6)) low = mid + 1;
        else high = mid;
    }
    return low;
}

// p(k) by the formula of gossip.h, summed from the smallest: another way than that of gossip.c.
static void zipf(double p[GOSSIP_PEOPLE])
{
    double sum = 0;
    for (size_t k = GOSSIP_PEOPLE; k-- > 0;) sum += p[k] = exp(-GOSSIP_ZIPF * log((double)k + 1));
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) p[k] /= sum;
}

// Counts of ranks lie within 5 standard deviations of DRAWN p; so does the mean of the self-information of the entropy,
// which the formula gives again.
TEST(test_zipf)
{
    static double p[GOSSIP_PEOPLE];
    static size_t count[GOSSIP_PEOPLE];
    Gossip *g = gossip_load();
    GrammarText text = {0};
    double sum = 0, squares = 0, entropy = log(GOSSIP_VERBS * GOSSIP_NUMBERS), tail = 0;
    size_t n_tail = 0;
    zipf(p);
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) entropy -= p[k] * log(p[k]);
    assert_true(fabs(gossip_entropy(g) / entropy - 1) < 1e-9);
    for (uint64_t i = 0; i < DRAWN; i++) {
        gossip_write(g, 3, i, &text);
        count[rank_of(p, text.nats)]++;
        sum += text.nats, squares += text.nats * text.nats;
    }
    for (size_t k = 0; k < GOSSIP_PEOPLE; k++) {
        if (DRAWN * p[k] < 30) tail += p[k], n_tail += count[k]; // together
        else if (fabs((double)count[k] - DRAWN * p[k]) > 5 * sqrt(DRAWN * p[k]))
            fail_msg("rank %zu: %zu times, expected %g", k, count[k], DRAWN * p[k]);
    }
    assert_true(fabs((double)n_tail - DRAWN * tail) < 5 * sqrt(DRAWN * tail));
    double mean = sum / DRAWN, deviation = sqrt(squares / DRAWN - mean * mean);
    assert_true(fabs(mean - entropy) < 5 * deviation / sqrt(DRAWN));
    free(text.bytes);
    gossip_free(g);
}

typedef struct {
    char first[20], last[20], verb[20], number[20], thing[20];
} Words;

static Words words_of(const GrammarText *text)
{
    char line[128];
    Words w;
    assert_true(text->n_bytes < sizeof line);
    memcpy(line, text->bytes, text->n_bytes);
    line[text->n_bytes] = 0;
    assert_int_equal(sscanf(line, "%19s %19s %19s %19s %19[^.].", w.first, w.last, w.verb, w.number, w.thing), 5);
    return w;
}

// One derivation, of exactly the writer's probability; and what goes with a person and a verb never changes, whatever
// the number.
TEST(test_facts)
{
    enum { N = 300 };
    static Words w[N];
    Gossip *g = gossip_load();
    GrammarText text = {0};
    size_t again = 0, other_number = 0;
    for (uint64_t i = 0; i < N; i++) {
        gossip_write(g, 5, i, &text);
        GrammarScore score = gossip_score(g, text.bytes, text.n_bytes);
        assert_int_equal(score.derivations, 1);
        assert_true(score.nats == text.nats && score.reached == text.n_bytes);
        w[i] = words_of(&text);
        for (uint64_t j = 0; j < i; j++) {
            bool same = !strcmp(w[i].first, w[j].first) && !strcmp(w[i].last, w[j].last);
            if (!same || strcmp(w[i].verb, w[j].verb)) continue;
            assert_string_equal(w[i].thing, w[j].thing);
            again++;
            other_number += strcmp(w[i].number, w[j].number) != 0;
        }
    }
    assert_true(again > 100 && other_number > again / 2);
    free(text.bytes);
    gossip_free(g);
}

TEST(test_not_gossip)
{
    Gossip *g = gossip_load();
    GrammarText text = {0};
    gossip_write(g, 5, 0, &text);
    char changed[200];
    for (size_t n = 0; n < text.n_bytes; n++) // each part of it, each letter changed
        assert_int_equal(gossip_score(g, text.bytes, n).derivations, 0);
    for (size_t i = 0; i < text.n_bytes; i++) {
        memcpy(changed, text.bytes, text.n_bytes);
        changed[i] = '#';
        GrammarScore score = gossip_score(g, changed, text.n_bytes);
        assert_true(!score.derivations && isinf(score.nats) && score.reached <= i);
    }
    memcpy(changed, text.bytes, text.n_bytes);
    changed[text.n_bytes] = '\n';
    assert_int_equal(gossip_score(g, changed, text.n_bytes + 1).derivations, 0);
    free(text.bytes);
    gossip_free(g);
}

// The program's files (test_stories has their form): train.txt begins with text 0 and val.txt with STORIES_VAL_FIRST, and
// all of their texts are gossip.
TEST(test_corpus)
{
    const char *const name[] = {"train", "val"};
    Gossip *g = gossip_load();
    GrammarText text = {0};
    char line[200];
    assert_int_equal(run("--gossip --bytes 20000 --val-bytes 5000 --seed 8 --out new"), 0);
    for (int f = 0; f < 2; f++) {
        size_t n, good, all;
        snprintf(line, sizeof line, "new/%s.txt", name[f]);
        FREED char *file = take_file(line, &n);
        gossip_write(g, 8, f ? STORIES_VAL_FIRST : 0, &text);
        assert_memory_equal(file, text.bytes, text.n_bytes);
        snprintf(line, sizeof line, "--check new/%s.txt | tail -n 1", name[f]);
        assert_int_equal(run(line), 0);
        assert_int_equal(sscanf(output, "%zu of %zu texts are stories", &good, &all), 2);
        assert_true(good == all && all >= (f ? 100 : 400));
    }
    free(text.bytes);
    gossip_free(g);
}

TESTS(program_set_up, temp_dir_remove)
