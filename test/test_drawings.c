// drawings: what build/collectives, build/mesh and build/zero draw is well-formed and has the right marks, counted by
// hand for small groups. (The programs check their data themselves before they draw.)
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/disk.h"

#define PROGRAM "collectives"
#include "program.h"

static void use(const char *name) // another program of the same directory
{
    strcpy(strrchr(program, '/') + 1, name);
}

// Every tag is closed in order, attributes are quoted, no number is missing.
static void check_xml(const char *text)
{
    char open[20][32];
    int depth = 0;
    for (const char *s = text; *s; s++) {
        assert_true((unsigned char)*s >= 0x20 || *s == '\n');
        if (*s == '&') assert_true(!strncmp(s, "&amp;", 5) || !strncmp(s, "&lt;", 4) || !strncmp(s, "&gt;", 4));
        if (*s != '<') continue;
        bool closing = s[1] == '/', quoted = false;
        char name[32] = "";
        s += 1 + closing;
        for (int n = 0; isalpha((unsigned char)*s) && n < 31; s++) name[n++] = *s;
        for (; *s && (quoted || *s != '>'); s++) {
            if (*s == '"') quoted = !quoted;
            assert_true(*s != '<');
        }
        assert_true(name[0] && *s == '>');
        if (closing) {
            assert_true(depth-- > 0);
            assert_string_equal(open[depth], name);
        } else if (s[-1] != '/') {
            assert_true(depth < 20);
            strcpy(open[depth++], name);
        }
    }
    assert_int_equal(depth, 0);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
}

static char *picture(const char *arguments)
{
    char path[400], all[600];
    size_t n;
    snprintf(all, sizeof all, "%s x.svg", arguments);
    assert_int_equal(run(all), 0);
    snprintf(path, sizeof path, "%s/x.svg", dir);
    char *text = disk_read_file(path, &n, 1 << 24);
    assert_non_null(text);
    assert_int_equal(unlink(path), 0);
    check_xml(text);
    return text;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text += strlen(word)) n++;
    return n;
}

static void test_collectives(void **state)
{
    (void)state;
    // Four ranks with four shards each, one row more than steps. Shards that are whole after each step, and messages:
    // ring     0 0 4 8 12 16, 4 a step;   halving  0 4 8 16, 4 a step;   tree  0 4 8 16, 2 1 1 2;
    // direct   0 0 4 8 12 16, 4 a step
    static const struct {
        const char *draw;
        int rows, whole, messages;
    } CASE[] = {{"draw ring 4", 7, 40, 24}, {"draw halving 4", 5, 28, 16}, {"draw tree 4", 5, 28, 6},
                {"draw direct 4", 7, 40, 24},
                {"draw hierarchical 4", 5, 28, 16}, {"draw ring,halving 4", 12, 68, 40}};
    use("collectives");
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        char *text = picture(CASE[i].draw);
        assert_true(strlen(text) < 60000);
        assert_int_equal(count(text, "class=\"whole\""), CASE[i].whole);
        assert_int_equal(count(text, "class=\"part\""), CASE[i].rows * 16 - CASE[i].whole);
        assert_int_equal(count(text, "class=\"arrow\""), CASE[i].messages);
        free(text);
    }
    free(picture("draw halving 7")); // three of them lend their vector first
    free(picture("draw tree 8"));
    free(picture("draw ring 2"));
    assert_int_equal(run("draw mpi 4 x.svg"), 2);
    assert_int_equal(run("draw ring 9 x.svg"), 2);
    assert_int_equal(run("draw ring 4 /nowhere/x.svg"), 1);
}

static void test_mesh(void **state)
{
    (void)state;
    // RANKS, options, frames of tp groups, links of cp and pp, links of dp in the last stage
    static const struct {
        const char *draw;
        int tp, cp, pp, dp, ranks, ep;
    } CASE[] = {{"16 --pp 2 --cp 2 --tp 2 --svg", 8, 8, 8, 4, 16, 1}, {"12 --pp 3 --tp 2 --svg", 6, 0, 8, 2, 12, 1},
                {"4 --ep 2 --svg", 4, 0, 0, 3, 4, 2}, {"1 --svg", 1, 0, 0, 0, 1, 1}};
    use("mesh");
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        char *text = picture(CASE[i].draw);
        assert_int_equal(count(text, "class=\"tp\""), CASE[i].tp);
        assert_int_equal(count(text, "class=\"cp\""), CASE[i].cp);
        assert_int_equal(count(text, "class=\"pp\""), CASE[i].pp);
        assert_int_equal(count(text, "class=\"dp\""), CASE[i].dp);
        // each rank: one part of the model and two chunks of the sequence; and one box of each in the legend
        assert_int_equal(count(text, "fill=\"#2563a8\"/>"), CASE[i].ranks + 1);
        assert_int_equal(count(text, "fill=\"#d1571b\"/>"), 2 * CASE[i].ranks + 1);
        // and, with ep, one part of the experts
        assert_int_equal(count(text, "fill=\"#2f7d4f\"/>"), CASE[i].ep > 1 ? CASE[i].ranks + 1 : 0);
        free(text);
    }
    assert_int_equal(run("128 --svg x.svg"), 2);
}

// A drawing of every rank: each tensor of a block once a panel, whole and what the rank has of it; and the stream
// thrice.
static void test_tp(void **state)
{
    (void)state;
    use("tp");
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        char command[40];
        snprintf(command, sizeof command, "tiny %d --svg", ranks);
        char *text = picture(command);
        assert_int_equal(count(text, "fill=\"none\" stroke=\"#b8c0c8\"/>"), 2 * ranks * (8 + 3)); // two panels
        assert_int_equal(count(text, "opacity=\"0.35\""), 2 * ranks * 2);                       // two norms, whole
        assert_int_equal(count(text, "opacity=\"0.9\""), 2 * ranks * 6);
        free(text);
    }
    assert_int_equal(run("tiny 3 --svg x.svg"), 1); // four heads
    assert_int_equal(run("tiny 1"), 2);
}

// The time line of real ranks. A model of 8 units: 8 forwards (the head's too) and 8 backwards a step.
static void test_timeline(void **state)
{
    (void)state;
    char command[1200];
    for (int stage = 0; stage <= 3; stage += 3) {
        snprintf(command, sizeof command,
                 "cd '%s' && export OMP_NUM_THREADS=1 && launcher=$(command -v mpiexec.mpich || command -v mpiexec || "
                 "ls /usr/lib64/mpich/bin/mpiexec) && "
                 "timeout 300 $launcher -n 2 '%.*s/zero' timeline %d t.svg </dev/null",
                 dir, (int)(strrchr(program, '/') - program), program, stage);
        assert_int_equal(system(command), 0);
        char path[400];
        size_t n;
        snprintf(path, sizeof path, "%s/t.svg", dir);
        char *text = disk_read_file(path, &n, 1 << 24);
        assert_non_null(text);
        check_xml(text);
        // of the naive twin, of the overlapped step, and in the legend
        assert_int_equal(count(text, "fill=\"#2563a8\"/>"), 2 * 8 + 1);
        assert_int_equal(count(text, "fill=\"#2f7d4f\"/>"), 2 * 8 + 1);
        assert_int_equal(count(text, "fill=\"#66727f\"/>"), 2 * 1 + 1);
        if (stage == 0) { // naive: one call; overlapped: a call for each of 6 blocks, the head with the block below
            assert_int_equal(count(text, "fill=\"#d1571b\"/>"), 1 + 7 + 1);
        } else { // gradients of 8 units; weights of 8 units, forward and again backward
            assert_int_equal(count(text, "fill=\"#d1571b\"/>"), 2 * 8 + 1);
            assert_int_equal(count(text, "fill=\"#7c52a8\"/>"), 2 * 2 * 8 + 1);
        }
        free(text);
    }
    use("zero");
    assert_int_equal(run("timeline 4 x.svg"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives), cmocka_unit_test(test_mesh), cmocka_unit_test(test_tp),
        cmocka_unit_test(test_timeline),
    };
    return cmocka_run_group_tests(tests, program_set_up, temp_dir_remove);
}
