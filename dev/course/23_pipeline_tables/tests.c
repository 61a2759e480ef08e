#include "../grade.h"

#include "tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The pipeline of one answer, played.
typedef struct {
    const char *name;
    int p, m, v;
    bool split;
    Action *table[16];
    int n[16];
    int *end; // [kind][piece][micro]: when the action ended; -1: not yet
} Pipe;

static int *end_of(Pipe *t, char kind, int piece, int micro)
{
    int k = kind == 'F' ? 0 : kind == 'B' ? 1 : 2;
    return &t->end[(k * t->p * t->v + piece) * t->m + micro];
}

static const char *said(Action a, int v) // "B of micro-batch 2, chunk 1"
{
    static char text[8][64];
    static int next;
    char *s = text[next++ % 8];
    sprintf(s, "%c of micro-batch %d", a.kind, a.micro);
    if (v > 1) sprintf(s + strlen(s), ", chunk %d", a.chunk);
    return s;
}

// Every action once, and in its stage's own order B after F and W after B.
static void check_stage(const Pipe *t, int s)
{
    const char *kinds = t->split ? "FBW" : "FB";
    int want = (int)strlen(kinds) * t->m * t->v, *count = calloc((size_t)want, sizeof *count);
    if (t->n[s] < 0 || t->n[s] > want) fail("%s: stage %d returns %d actions; there are %d", t->name, s, t->n[s], want);
    for (int i = 0; i < t->n[s]; i++) {
        Action a = t->table[s][i];
        const char *k = a.kind ? strchr(kinds, a.kind) : NULL;
        if (!k) fail("%s: stage %d, action %d has the kind %d; expected one of %s", t->name, s, i, a.kind, kinds);
        if (a.micro < 0 || a.micro >= t->m || a.chunk < 0 || a.chunk >= t->v)
            fail("%s: stage %d, action %d is %s; there are %d micro-batches and %d chunk%s", t->name, s, i, said(a, 2),
                 t->m, t->v, t->v > 1 ? "s" : "");
        int *c = &count[(k - kinds) * t->m * t->v + a.chunk * t->m + a.micro];
        if (++*c > 1) fail("%s: stage %d does %s twice", t->name, s, said(a, t->v));
        if (k > kinds && !c[-t->m * t->v])
            fail("%s: stage %d does %s before its %c", t->name, s, said(a, t->v), k[-1]);
    }
    for (int i = 0; i < want; i++)
        if (!count[i])
            fail("%s: stage %d never does %s", t->name, s,
                 said((Action){kinds[i / (t->m * t->v)], i % t->m, i / t->m % t->v}, t->v));
    free(count);
}

// When the input of an action is there; -1: not yet.
static int input(Pipe *t, int s, Action a)
{
    int piece = a.chunk * t->p + s, last = t->p * t->v - 1;
    if (a.kind == 'W') return *end_of(t, 'B', piece, a.micro);
    if (a.kind == 'F') return piece == 0 ? 0 : *end_of(t, 'F', piece - 1, a.micro);
    return piece == last ? *end_of(t, 'F', piece, a.micro) : *end_of(t, 'B', piece + 1, a.micro);
}

static int play(Pipe *t) // the length
{
    int at[16] = {0}, clock[16] = {0}, length = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < t->p; s++)
            while (at[s] < t->n[s]) {
                Action a = t->table[s][at[s]];
                int ready = input(t, s, a), begin = ready > clock[s] ? ready : clock[s];
                if (ready < 0) break;
                clock[s] = begin + (a.kind == 'B' && !t->split ? 2 : 1);
                *end_of(t, a.kind, a.chunk * t->p + s, a.micro) = clock[s];
                length = clock[s] > length ? clock[s] : length;
                at[s]++, moved = true;
            }
    }
    char text[2048] = "";
    size_t used = 0;
    for (int s = 0; s < t->p; s++) {
        if (at[s] == t->n[s]) continue;
        Action a = t->table[s][at[s]];
        int piece = a.chunk * t->p + s, from = (a.kind == 'F' ? piece - 1 : piece + 1) % t->p;
        used += (size_t)sprintf(text + used,
                                "%sstage %d waits with %s for stage %d", used ? "; " : "", s, said(a, t->v), from);
    }
    if (used) fail("%s: no stage can go on: %s", t->name, text);
    return length;
}

static void check_memory(const Pipe *t, int s, int most)
{
    int held = 0;
    for (int i = 0; i < t->n[s]; i++) {
        held += t->table[s][i].kind == 'F' ? 1 : t->table[s][i].kind == (t->split ? 'W' : 'B') ? -1 : 0;
        if (held > most)
            fail("%s, %d stages, %d micro-batches: stage %d holds %d activations at its action %d (%s); at most %d are "
                 "allowed%s", t->name, t->p, t->m, s, held, i, said(t->table[s][i], t->v), most,
                 t->split ? ": they are held until W" : ": a B frees one");
    }
}

static int smaller(int a, int b) { return a < b ? a : b; }

// which: 0 gpipe, 1 one_f_one_b, 2 interleaved, 3 zero_bubble.
static void pipe_judge(int which, int p, int m, int v)
{
    const char *names[4] = {"gpipe", "one_f_one_b", "interleaved", "zero_bubble"};
    Pipe t = {names[which], p, m, v, which == 3, {0}, {0}, 0};
    bool at_once = which == 3;
    for (int s = 0; s < p; s++) {
        size_t room = (size_t)((t.split ? 3 : 2) * m * v);
        t.table[s] = calloc(room, sizeof(Action));
        t.n[s] = which == 0 ? gpipe(s, p, m, t.table[s]) : which == 1 ? one_f_one_b(s, p, m, t.table[s])
                 : which == 2 ? interleaved(s, p, m, v, t.table[s]) : zero_bubble(s, p, m, t.table[s]);
        check_stage(&t, s);
        for (int i = 0; i + 1 < t.n[s]; i++)
            at_once = at_once && (t.table[s][i].kind != 'B' || t.table[s][i + 1].kind == 'W');
    }
    t.end = malloc((size_t)(3 * p * v * m) * sizeof *t.end);
    for (int i = 0; i < 3 * p * v * m; i++) t.end[i] = -1;
    int length = play(&t), most = which == 3 ? 3 * m + p - 1 : 3 * (m * v + p - 1);
    for (int s = 0; s < p; s++) {
        int held[4] = {m, smaller(m, p - s), smaller(m * v, (v - 1) * p + 2 * (p - 1 - s) + 1), p};
        check_memory(&t, s, held[which]);
    }
    if (length <= most) return;
    const char *why = at_once ? ": each W follows its B at once, so the stage before waits for W too"
                      : which == 2 && length >= 3 * (m + p - 1) * v ? ": no shorter than 1F1B without chunks"
                      : length == 3 * m * p * v ? ": only one stage works at a time" : "";
    fail("%s, %d stages, %d micro-batches, %d chunk%s: takes %d (bubble %.3f); at most %d (bubble %.3f) expected%s",
         t.name, p, m, v, v > 1 ? "s" : "", length, 1 - 3.0 * m * v / length, most, 1 - 3.0 * m * v / most, why);
}

TEST(all_forward, 2, "gpipe: two stages, three micro-batches") { pipe_judge(0, 2, 3, 1); }
TEST(in_turn, 3, "one_f_one_b: four stages, eight micro-batches") { pipe_judge(1, 4, 8, 1); }
TEST(chunks, 3, "interleaved: two stages, four micro-batches, two chunks") { pipe_judge(2, 2, 4, 2); }
TEST(split, 3, "zero_bubble: four stages, eight micro-batches") { pipe_judge(3, 4, 8, 1); }

#include "../hidden.h"

TEST(all_forward_sizes, 1, "gpipe of 1 to 6 stages and 1 to 8 micro-batches")
{
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 8; m++) pipe_judge(0, p, m, 1);
}

TEST(in_turn_sizes, 3, "one_f_one_b of 1 to 8 stages and 1 to 12 micro-batches")
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 12; m++) pipe_judge(1, p, m, 1);
}

TEST(chunks_sizes, 2, "interleaved of 2 to 5 stages and 2 to 4 chunks")
{
    for (int p = 2; p <= 5; p++)
        for (int rounds = 1; rounds <= 3; rounds++)
            for (int v = 2; v <= 4; v++) pipe_judge(2, p, rounds * p, v);
}

TEST(split_sizes, 3, "zero_bubble of 1 to 8 stages and up to 16 micro-batches")
{
    for (int p = 1; p <= 8; p++)
        for (int m = p; m <= 16; m++) pipe_judge(3, p, m, 1);
}
