// test_plan_prepare: build/plan prepare against numbers worked out by hand, from a log as build/prepare prints it; a
// log that is not one, and settings that make no sense, are one line.
#include "test/test.h"

#define PROGRAM "plan"
#include "plan_case.h"

#include "dev/plan/plan_show.h"

// 2 GB in, of which the filter leaves 1.6 and duplicates 1.2; 300 million tokens of 4 bytes of text.
static const char log_text[] =
    "rank 0: process 1 on a\nread crawl: 47%, 22.4 MB\r                        \rdocuments: 2 ranks took 100.00 s of "
    "processors, the busiest 56% of it\n"
    "exact: 2 ranks took 16.00 s of processors, the busiest 50% of it\n"
    "near: 2 ranks took 80.00 s of processors, the busiest 50% of it\n"
    "runs: 2 ranks took 60.00 s of processors, the busiest 50% of it\n"
    "shards: 2 ranks took 30.00 s of processors, the busiest 55% of it\n"
    "after             documents           bytes          tokens   most frequent\n"
    "read                 500000      2000000000      ~500000000   empty 2\n"
    "filter               400000      1600000000      ~400000000   guide.letters 40\n"
    "exact                350000      1400000000      ~350000000   removed 50000\n"
    "near                 300000      1200000000      ~300000000   removed 50000\n"
    "train                299000      1196000000       299000000\n"
    "val                    1000         4000000         1000000\n"
    "\n4 bytes a token. To train on it:\nall stages: 2 ranks took 286.00 s of processors, the busiest 53% of it\n";

static double cell(json_t *root, int row, const char *column)
{
    json_t *table = json_object_get(json_object_get(root, "corpus"), "stages, of one part");
    json_t *value = json_object_get(json_array_get(table, (size_t)row), column);
    if (!json_is_number(value)) fail_msg("row %d has no number %s:\n%s", row, column, output);
    return json_number_value(value);
}

// 300 billion tokens are k = 1000 samples, in 4 parts 250 each. 10 hosts of 10 cores, 1 GB/s, and no failures to speak
// of. Of each stage cores take work * 250 / 100 seconds.
TEST(test_by_hand)
{
    put_text("log", log_text);
    json_t *a = json_of("prepare --log log --tokens 300e9 --hosts 10 --cores 10 --io 1 --parts 4 --mtbf 1e15 --bands 9 "
                        "--price 2 --json");
    static const struct {
        double in, work, reads, writes, sent; // sent: bytes a sample
    } row[] = {{2e9, 100, 2e9, 1.6e9, 0}, {1.6e9, 16, 1.6e9, 0, 32 * 4e5}, {1.4e9, 80, 2.8e9, 0, 16 * 9 * 3.5e5},
               {1.2e9, 60, 1.2e9, 1.2e9, 0}, {1.2e9, 30, 1.2e9, 1.2e9, 0}};
    double seconds = 0, files = 0;
    for (int i = 0; i < 5; i++) {
        double cores = row[i].work * 250 / 100, disk = (row[i].reads + row[i].writes) * 250 / 10e9;
        near(cell(a, i, "TB in"), row[i].in * 250 / 1e12, 1e-9);
        near(cell(a, i, "core hours"), row[i].work * 250 / 3600, 1e-9);
        near(cell(a, i, "TB read"), row[i].reads * 250 / 1e12, 1e-9);
        near(cell(a, i, "TB written"), row[i].writes * 250 / 1e12, 1e-9);
        near(cell(a, i, "TB of messages"), row[i].sent * 250 / 1e12, 1e-9);
        near(cell(a, i, "hours, cores"), cores / 3600, 1e-9);
        near(cell(a, i, "hours, files"), disk / 3600, 1e-9);
        seconds += fmax(cores, disk), files += row[i].reads + row[i].writes;
    }
    near(number(a, "all parts", "days without failures"), 4 * seconds / 86400, 1e-9);
    near(number(a, "all parts", "files"), files * 1000 / 1e12, 1e-9);
    near(number(a, "all parts", "dollars"), 4 * seconds / 3600 * 10 * 2, 1e-9);
    near(number(a, "memory of a host", "documents"), 13 * 500000 * 250.0 / 1e9, 1e-9);
    json_decref(a);
    // A file system that is slow decides: 1 MB/s a host.
    near(number_of("prepare --log log --tokens 300e9 --hosts 10 --cores 10 --io 0.001 --mtbf 1e15 --json", "all parts",
                   "days without failures"), files * 1000 / 10e6 / 86400, 1e-9);
    // 500 million documents take 6.5 GB: more than 2, and 4 parts are enough.
    expect_run("prepare --log log --tokens 300e9 --ram 2", 0, "does not fit into 2 GB: --parts 4 would");
    expect_run("prepare --log log --tokens 300e9 --ram 2 --parts 4", 0, "fits into 2 GB");
}

// A renewal process: failures at rate 1 / M; played here with 200,000 stages.
TEST(test_failures)
{
    double t = 2, M = 3, r = 0.5, sum = 0;
    uint64_t x = 88172645463325252u;
    enum { PLAYED = 200000 };
    for (int i = 0; i < PLAYED; i++)
        for (;;) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            double fails = -M * log(((double)(x >> 11) + 0.5) / 9007199254740992.0);
            sum += fmin(fails, t);
            if (fails >= t) break;
            sum += r;
        }
    double formula = plan_prepare_expected(t, M, r, true, 0);
    assert_true(fabs(sum / PLAYED - formula) < 0.02 * formula);
    near(plan_prepare_expected(100, 50, 3, false, 2), 110, 1e-9);
    near(plan_prepare_expected(100, INFINITY, 3, true, 2), 100, 1e-9);
}

TEST(test_nonsense)
{
    static const struct {
        const char *arguments, *text, *line;
    } bad[] = {
        {"prepare --tokens 1e9", log_text, "plan prepare: no --log FILE"},
        {"prepare --log log", log_text, "plan prepare: no --tokens N"},
        {"prepare --log none --tokens 1e9", log_text, "--log: none cannot be read"},
        {"prepare --log log --tokens 1e9", "", "--log: log: has no work of documents"},
        {"prepare --log log --tokens 1e9",
         "documents: 2 ranks took 1 s of processors\nruns: 2 ranks took 1 s of processors\n"
         "shards: 2 ranks took 1 s of processors\n", "--log: log: has no table"},
        {"prepare --log log --tokens 1e9 --hosts 0", log_text, "--hosts: 0: not a whole number"},
        {"prepare --log log --tokens 1e9 --tp 2", log_text, "--tp: has no effect on plan prepare"},
        {"prepare --log log --tokens 1e9 --price aws", log_text, "--price: aws (dollars an hour of a host)"},
        {"time tiny --hosts 3", log_text, "--hosts: has no effect on plan time"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text("log", bad[i].text);
        assert_int_not_equal(run(bad[i].arguments), 0);
        if (!strstr(output, bad[i].line) || strchr(output, '\n') != output + strlen(output) - 1)
            fail_msg("%s: %s", bad[i].arguments, output);
    }
}

TESTS(program_set_up, temp_dir_remove)
