// Tests of recipe: what a file may say, and what is refused before any work begins. What comes out: test_recipe.sh.

#include "test/test.h"
#include <fcntl.h>
#include <sys/file.h>

#include "expect_die.h"
#include "temp_dir.h"
#include "tools/disk_folder.h"
#include "data/prep/recipe.h"

static const char head[] = "[recipe]\nout = \"out\"\n[source.a]\npath = \"a.txt\"\n";

TEST(test_reading)
{
    char *options[] = {"--recipe.threads=3", "--filter.rules=guide,c4"};
    put_text("r.toml", "# comment\n[recipe]\nout = \"out\" # here\nunit = 0.5\nseed = 1_000\n"
                         "[source.a-b]\npath = \"a.txt\"\nweight = 2.5\nfield = \"body\"\n"
                         "[dedup]\nnear = true\nthreshold = 0.7\n[source.c]\npath = \"/x/c.txt\"\n"
                         "[contamination]\nevaluation = \"test\"\n[shards]\ndtype = uint32\n");
    Recipe *r = recipe_load(in_dir("r.toml"), options, 2);
    assert_string_equal(r->recipe_out, in_dir("out"));
    assert_true(r->recipe_unit == 0.5);
    assert_int_equal(r->recipe_seed, 1000);
    assert_int_equal(r->recipe_threads, 3);
    assert_string_equal(r->filter_rules, "guide,c4");
    assert_true(r->dedup_near && !r->dedup_exact);
    assert_true(r->dedup_threshold == 0.7);
    assert_int_equal(r->dedup_ngram, 13); // as it is without the file
    assert_string_equal(r->contamination_evaluation, in_dir("test"));
    assert_int_equal(r->shards_dtype, 2);
    assert_int_equal(r->sources.n, 2);
    assert_string_equal(r->sources.source[0].name, "a-b");
    assert_string_equal(r->sources.source[0].path, in_dir("a.txt"));
    assert_string_equal(r->sources.source[0].field, "body");
    assert_true(r->sources.source[0].weight == 2.5);
    assert_string_equal(r->sources.source[1].path, "/x/c.txt");
    recipe_free(r);
}

// The recipes of this tree are current.
TEST(test_examples)
{
    Recipe *r = recipe_load("scripts/recipes/web.toml", NULL, 0);
    assert_int_equal(r->sources.n, 2);
    assert_true(r->shards_val == 0.001);
    recipe_free(r);
    r = recipe_load("scripts/recipes/stories.toml", NULL, 0);
    assert_int_equal(r->tokenizer_vocab, 2048);
    recipe_free(r);
    r = recipe_load("scripts/recipes/c4.toml", NULL, 0);
    assert_string_equal(r->filter_rules, "c4,repeat");
    recipe_free(r);
    r = recipe_load("scripts/recipes/fineweb.toml", NULL, 0);
    assert_int_equal(r->dedup_permutations, 112);
    recipe_free(r);
}

static int load_with(void *arg)
{
    char *option = arg;
    recipe_free(recipe_load(in_dir("r.toml"), &option, 1));
    return 0;
}

TEST(test_refused)
{
    const struct {
        const char *text, *words;
    } rows[] = {
        {"[dedup]\nnaer = true\n", "r.toml:6: unknown key 'dedup.naer' (exact, near, threshold, ngram, permutations)"},
        {"[dedupe]\nnear = true\n", "r.toml:6: unknown section [dedupe] (recipe, source.NAME, filter"},
        {"[dedup]\nthreshold = 1.5\n", "r.toml:6: dedup.threshold is 1.5, not in (0, 1]"},
        {"[dedup]\nnear = yes\n", "dedup.near must be true or false"},
        {"[dedup]\nthreshold = 0.7\n", "dedup.threshold has no effect: dedup.near is not set"},
        {"[filter]\nset = \"guide.words.min=3\"\n", "filter.set has no effect: filter.rules is not set"},
        {"[recipe]\nseed = 1\n[shards]\nval = 0\n[recipe]\nseed = 2\n",
         "r.toml:10: recipe.seed is already set on line 6"},
        {"[tokenizer]\npath = \"t\"\nvocab = 300\n", "tokenizer.vocab has no effect: tokenizer.path gives"},
        {"[tokenizer]\npattern = \"o200k\"\n", "tokenizer.pattern: 'o200k'"},
        {"[source.b/c]\npath = \"x\"\n", "[source.b/c]: a name is letters"},
        {"seed = 1\n", "unknown key 'seed'"},
        {"[shards]\ntokens = 0\n", "shards.tokens is 0, not in [1, 2147483647]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s", head, rows[i].text);
        put_text("r.toml", text);
        expect_dies(rows[i].words, recipe_free(recipe_load(in_dir("r.toml"), NULL, 0)));
    }
    put_text("r.toml", "[source.a]\npath = \"a.txt\"\n");
    expect_dies("recipe.out is not set", recipe_free(recipe_load(in_dir("r.toml"), NULL, 0)));
    expect_dies("none.toml: cannot read", recipe_free(recipe_load(in_dir("none.toml"), NULL, 0)));
    put_text("r.toml", head);
    expect_die(load_with, "--dedup.naer=true", "--dedup.naer=true: unknown key 'dedup.naer'");
    expect_die(load_with, "--recipe.threads=-1", "recipe.threads is -1");
    assert_true(ends_with_error(load_with, "--threads", 2, "'--threads': not an option of a recipe", true));
}

static int run_it(void *arg)
{
    Recipe *r = recipe_load(in_dir("r.toml"), NULL, 0);
    recipe_run(r, NULL, stdout);
    recipe_free(r);
    (void)arg;
    return 0;
}

// Before the first document is read: somebody else's folder, another run, no input, output inside the input.
TEST(test_folder)
{
    put_text("r.toml", head);
    expect_die(run_it, NULL, "a.txt: cannot read");
    assert_int_equal(access(in_dir("out"), F_OK), -1); // nothing is made for a recipe that is refused
    put_text("a.txt", "text");
    assert_int_equal(mkdir(in_dir("out"), 0777), 0);
    int other = open(in_dir("out"), O_RDONLY | O_DIRECTORY);
    assert_true(other >= 0);
    assert_int_equal(flock(other, LOCK_EX), 0);
    expect_die(run_it, NULL, "out: another preparation is at work there");
    close(other);
    // Two ranks hold the lock. It is free when both are gone.
    int first = disk_folder_join(in_dir("out"), disk_folder_lock(in_dir("out"))),
        second = disk_folder_join(in_dir("out"), -1);
    expect_die(run_it, NULL, "out: another preparation is at work there");
    close(first);
    expect_die(run_it, NULL, "out: another preparation is at work there");
    close(second);
    mkdir(in_dir("out/documents"), 0777);
    put_text("out/documents/thesis.txt", "text");
    expect_die(run_it, NULL, "out/documents: not made by this program");
    assert_int_equal(access(in_dir("out/documents/thesis.txt"), F_OK), 0);
    assert_int_equal(unlink(in_dir("out/documents/thesis.txt")), 0);
    // One document goes to one of the two parts, and the other is empty.
    assert_true(ends_with_error(run_it, NULL, 1, "none fell to validation", false));
    mkdir(in_dir("data"), 0777);
    put_text("data/a.txt", "text");
    put_text("r.toml", "[recipe]\nout = \"data/out\"\n[source.a]\npath = \"data\"\n");
    expect_die(run_it, NULL, "data/out: lies in the input folder");
}

TESTS(temp_dir_make, temp_dir_remove)
