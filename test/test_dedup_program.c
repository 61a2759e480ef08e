// test_dedup_program: build/prepare dedup: where documents begin and end, what it writes, contamination, errors with file and
// line. (What it finds: test_dedup, test_contamination.)
#include "test/test.h"

#define PROGRAM "prepare"
#define PART "dedup"
#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TEST(test_files)
{
    put_text("a.jsonl", "{\"text\": \"one\\u0000 two\", \"id\": 1}\n\n  \n{\"id\": 2, \"text\": \"three\"}\n"
                   "{\"text\": \"ONE\\u0000  two\"}\n");
    put_text("b.txt", "\n three<|endoftext|>four\nlines\n<|endoftext|> \n<|endoftext|>Four lines");
    expect_run("--exact --write keep.out --removed removed.out --clusters clusters.out --bench "
               "a.jsonl b.txt", 0, "exact                   6            3            3");
    says(" documents/s ");
    has_text("keep.out", "one\xEF\xBF\xBD two<|endoftext|>three<|endoftext|>four\nlines\n<|endoftext|>");
    has_text("removed.out", "a.jsonl:5\nb.txt:1\nb.txt:5\n");
    has_text("clusters.out", "{\"keep\":0,\"remove\":[2]}\n{\"keep\":1,\"remove\":[3]}\n{\"keep\":4,\"remove\":[5]}\n");
    expect_run("a.jsonl b.txt --exact --write keep.jsonl", 0, ""); // lines of JSON stay as they are
    has_text("keep.jsonl", "{\"text\": \"one\\u0000 two\", \"id\": 1}\n{\"id\": 2, \"text\": \"three\"}\n"
                        "{\"text\":\"four\\nlines\\n\",\"source\":\"b.txt\",\"index\":1}\n");
    expect_run("--exact - --format jsonl --write keep.jsonl <a.jsonl", 0, "");
    has_text("keep.jsonl", "{\"text\": \"one\\u0000 two\", \"id\": 1}\n{\"id\": 2, \"text\": \"three\"}\n");
    expect_run("b.txt --separator-line lines --exact --write keep.out", 0, "");
    has_text("keep.out", "\n three<|endoftext|>four\nlines\n<|endoftext|> \n<|endoftext|>Four lines\nlines\n");
    expect_run("--show 4 a.jsonl b.txt", 0, "");
    assert_string_equal(output, "four\nlines\n\n");
    expect_run("--separator line b.txt", 0, "exact                   3            0            3");
    put_text("c.jsonl", "{\"body\": \"x\"}");
    expect_run("--field body c.jsonl", 0, "");
    put_text("empty.txt", "");
    expect_run("empty.txt", 0, "");
    expect_run("--threshold 0.8 --curve curve.svg", 0, "9 bands of 13 rows");
    says("   0.80      0.3988");
    char end[20];
    assert_int_equal(symlink("curve.svg", in_dir("link.svg")), 0);
    expect_run("--threshold 0.8 --curve link.svg", 0, ""); // goes where the link leads
    assert_int_equal(readlink(in_dir("link.svg"), end, sizeof end), strlen("curve.svg"));
}

// A text that holds the separator is two documents when it is read back: said, and no matter for lines of JSON.
TEST(test_separator_in_text)
{
    put_text("in.jsonl", "{\"text\": \"a<|endoftext|>b\"}\n{\"text\": \"c\\n--\\r\\nd\"}\n"
             "{\"text\": \"e--\\n\\nf\"}\n");
    const char *said = " documents hold the separator '";
    expect_run("in.jsonl --write out.txt", 0,
               "1 documents hold the separator '<|endoftext|>' themselves and will be read as several (write .jsonl ");
    expect_run("in.jsonl --separator-line -- --write out.txt", 0, "out.txt: 1 documents hold the separator '--' ");
    expect_run("in.jsonl --separator-line '' --write out.txt", 0, "out.txt: 1 documents hold the separator '' ");
    expect_run("in.jsonl --separator , --write out.txt", 0, "");
    assert_null(strstr(output, said));
    expect_run("in.jsonl --write out.jsonl", 0, "");
    assert_null(strstr(output, said));
}

TEST(test_evaluation)
{
    put_text("eval.jsonl", "{\"text\": \"the quick brown fox jumps over it\"}\n{\"text\": \"too short\"}\n");
    put_text("corpus.txt", "nothing here at all, so it stays<|endoftext|>"
                      "see: The QUICK brown\nfox jumps away<|endoftext|>brown fox");
    expect_run("--ngram 4 --evaluation eval.jsonl --write kept.out --removed hit.out corpus.txt", 0,
               "1 of 3 documents hold 1 or more 4-grams of the evaluation set\n");
    says("1 of 2 examples: some of their 4-grams stand in the corpus; of 1 half or more, of 0 all\n");
    says("1 examples have fewer than 4 words");
    says("document 1: 2 of 4 4-grams, the first at word 1, of example 0\n");
    has_text("kept.out", "nothing here at all, so it stays<|endoftext|>brown fox<|endoftext|>");
    has_text("hit.out", "corpus.txt:1\n");
    put_text("body.jsonl", "{\"body\": \"see: the quick brown fox jumps\"}\n");
    expect_run("--ngram 4 --field body --evaluation-field text --evaluation eval.jsonl body.jsonl", 0,
               "1 of 1 documents hold 1 or more 4-grams of the evaluation set\n");
}

static void complains(const char *arguments, int status, const char *words)
{
    int got = run(arguments);
    if (got != status || !strstr(output, words) || strncmp(output, "error: ", 7) || strchr(output, '\n')[1])
        fail_msg("%s: status %d, expected %d and '%s': %s", arguments, got, status, words, output);
}

// Nothing was looked for: no clean bill, and nothing is written.
TEST(test_nothing_looked_for)
{
    put_text("eval.jsonl", "{\"text\": \"the quick brown fox jumps over it\"}\n{\"text\": \"too short\"}\n");
    put_text("none.jsonl", "");
    put_text("body.jsonl", "{\"body\": \"see: the quick brown fox jumps\"}\n");
    expect_run("--field body --evaluation eval.jsonl --write clean.jsonl body.jsonl", 1,
               "dedup: eval.jsonl: no example in it: 2 bad lines, 0 empty (is 'body' its field? --evaluation-field)");
    complains("--field body --evaluation none.jsonl --write clean.jsonl body.jsonl", 1, "none.jsonl: no example in it");
    expect_run("--field body --evaluation-field text --evaluation eval.jsonl --write clean.jsonl body.jsonl", 1,
               "eval.jsonl: no example to look for: all 2 have fewer than 13 words");
    assert_int_equal(access(in_dir("clean.jsonl"), F_OK), -1);
}

TEST(test_errors)
{
    put_text("bad.jsonl", "{\"text\": \"x\"}\n\n{\"text\": }\n{\"text\": }\n");
    put_text("a.txt", "x");
    complains("--strict bad.jsonl", 1, "bad.jsonl:3: not JSON");
    expect_run("bad.jsonl a.txt --exact", 0, "bad.jsonl:4: left out: not JSON");
    says("2 files, 2 documents, 2 bytes of text");
    says("2 bad lines left out\n");
    says("exact                   2            1            1");
    complains("missing.jsonl", 1, "missing.jsonl: cannot read: No such file or directory");
    complains("a.txt --folder missing", 1, "missing: no temporary file: No such file or directory");
    complains("a.txt --write a.jsonl.gz", 1, "a.jsonl.gz: what is written is not packed");
    complains("a.txt --separator x --separator-line y", 2, "(choose one)");
    complains("a.txt --format json", 1, "format: 'json': not known");
    complains("--write no/folder a.txt", 1, "no/folder.tmp: cannot write: No such file or directory");
    complains("--show 9 a.txt", 1, "--show 9: there are 1 documents");
    complains("", 2, "name at least one file");
    complains("--nonsense 3 a.txt", 2, "--nonsense: no such option");
    complains("--threshold 0 a.txt", 2, "--threshold: 0: not above 0");
    complains("--threshold nan a.txt", 2, "--threshold: nan: not above 0");
    complains("--ngram 0 a.txt", 2, "--ngram: 0: not a whole number from 1 to 8796093022207");
    complains("--permutations 2000 a.txt", 2, "--permutations: 2000: not a whole number from 1 to 1024");
    complains("--bands 9 a.txt", 2, "--bands and --rows go together");
    complains("--bands 20 --rows 20 a.txt", 2, "20 bands of 20 rows: more than the 128 permutations");
    complains("--evaluation a.txt --clusters c a.txt", 2, "--clusters does not go with --evaluation");
    complains("a.txt --exact --threshold 0.7", 2, "--threshold: does nothing with --exact");
    complains("a.txt --no-verify --exact", 2, "--no-verify: does nothing with --exact");
    complains("a.txt --min-grams 3", 2, "--min-grams: does nothing without --evaluation");
    complains("a.txt --min-grams 3 --exact", 2, "--min-grams: does nothing with --exact");
    complains("a.txt --evaluation a.txt --exact", 2, "--exact: does nothing with --evaluation");
    complains("a.txt --evaluation a.txt --threshold 0.5", 2, "--threshold: does nothing with --evaluation");
    complains("a.txt --show 0 --write x.jsonl", 2, "--write: does nothing with --show");
    complains("--curve c.svg --no-verify", 2, "--no-verify: does nothing without an input");
    complains("a.txt --field body", 2, "--field: no input is JSONL");
    complains("bad.jsonl --evaluation a.txt --evaluation-field body", 2, "--evaluation-field: a.txt is not JSONL");
    complains("--threads 0 a.txt", 2, "--threads: 0: not a whole number from 1 to 1024");
    complains("--threads 65536 missing.txt", 2, "--threads: 65536: not a whole number from 1 to 1024");
    complains("--memory 99999999999 missing.txt", 2, "--memory: 99999999999: not a whole number from 1 to ");
    complains("--memory", 2, "--memory: no such option, or its value is missing");
}

TESTS(program_set_up, temp_dir_remove)
