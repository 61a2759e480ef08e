// test_prepare_commands: build/prepare dedup and build/prepare tokenizer: where documents begin and end, what is
// written, every command once, errors with file and line. (What dedup finds: test_dedup.)
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

// ---- tokenize: Tests of build/prepare tokenizer: every command once, and what it refuses.

static const char sample[] = "aaabd aaabac<|endoftext|>\nit's aaab, caf\xC3\xA9 \xFF 123";

static void write_sample(void)
{
    part = "tokenizer";
    put_bytes("in.txt", sample, sizeof sample - 1);
}

TEST(test_commands)
{
    write_sample();
    expect_run("train --special --vocab 265 --threads 3 --out tok in.txt", 0, "tok: 265 tokens from 35 bytes");
    expect_run("count --special --tokenizer tok in.txt", 0, "2 texts, 35 bytes, ");
    expect_run("count --tokenizer tok in.txt", 0, "1 texts, 48 bytes, ");
    expect_run("encode --special --tokenizer tok in.txt", 0, " 264 198 "); // the last id, and the line end behind it
    for (int raw = 0; raw < 2; raw++) {
        const char *flag = raw ? "--raw" : "";
        for (int special = 0; special < 2; special++) {
            char line[300];
            snprintf(line, sizeof line, "encode %s %s --tokenizer tok in.txt > ids", flag, special ? "--special" : "");
            expect_run(line, 0, "");
            snprintf(line, sizeof line, "decode %s --tokenizer tok ids", flag);
            expect_run(line, 0, sample);
            assert_string_equal(output, sample);
        }
    }
}

TEST(test_formats)
{
    write_sample();
    expect_run("train --special --vocab 265 --out tok in.txt", 0, "");
    expect_run("encode --tokenizer tok in.txt", 0, "");
    char want[20000];
    strcpy(want, output);
    expect_run("convert --tokenizer tok --to ranks --out r.tiktoken", 0, "");
    expect_run("encode --tokenizer r.tiktoken in.txt", 0, want);
    expect_run("convert --tokenizer r.tiktoken --to gpt2 --out two", 0, "");
    expect_run("encode --tokenizer two in.txt", 0, want);
    expect_run("convert --tokenizer two --to json --out three", 0, "");
    expect_run("encode --tokenizer three in.txt", 0, want);
}

// Lines of JSON are documents, alone and in a folder: the tokenizer learns their texts, and not the signs around them.
TEST(test_jsonl)
{
    part = "tokenizer";
    const char lines[] = "{\"body\": \"aaabd aaabac\\n\"}\n{\"body\": \"it's aaab\"}\nbad\n";
    put_bytes("in.jsonl", lines, sizeof lines - 1);
    put_bytes("one.txt", "aaabd aaabac\n", 13);
    put_bytes("two.txt", "it's aaab", 9);
    expect_run("train --vocab 262 --out from_text one.txt two.txt", 0, "262 tokens from 22 bytes");
    put_bytes("text.jsonl", "{\"text\": \"aaabd aaabac\\n\"}", 26);
    expect_run("count --tokenizer from_text text.jsonl", 0, "1 texts, 13 bytes, ");
    expect_run("train --vocab 262 --out from_json --field body in.jsonl", 0, "262 tokens from 22 bytes");
    says("in.jsonl:3: left out: not JSON");
    says("1 file, 2 documents, 22 bytes of text");
    expect_run("--help; cmp from_text/tokenizer.json from_json/tokenizer.json", 0, "");
    expect_run("count --tokenizer from_json --field body in.jsonl 2>/dev/null", 0, "2 texts, 22 bytes, ");
    expect_run("encode --tokenizer from_text one.txt two.txt > a; mkdir f; cp in.jsonl f; gzip in.jsonl", 0, "");
    expect_run("encode --special --tokenizer from_json --field body in.jsonl.gz 2>/dev/null", 0, " 261 ");
    expect_run("encode --tokenizer from_json --field body f > b 2>/dev/null; cmp a b", 0, "");
    expect_run("encode --tokenizer from_json --field body --format jsonl - <f/in.jsonl > b 2>/dev/null; cmp a b", 0, "");
    expect_run("count --tokenizer from_json --format text f/in.jsonl", 0, "1 texts, 53 bytes, "); // as it is
    expect_run("count --tokenizer from_json in.jsonl.gz", 1, "no document in it (is 'text' its field? --field)");
}

TEST(test_bench)
{
    write_sample();
    expect_run("bench --vocab 260 --threads 2 in.txt", 0, "training MB/s");
    says("\n      1 ");
    says("\n      2 ");
}

TEST(test_tokenize_errors)
{
    write_sample();
    expect_run("train --special --vocab 265 --out tok in.txt", 0, "");
    expect_run("--help", 0, "--tokenizer PATH");
    expect_run("", 2, "'': not a command");
    expect_run("spell", 2, "'spell': not a command");
    expect_run("count --speed in.txt", 2, "'--speed': no such option");
    expect_run("count --tokenizer", 2, "'--tokenizer': takes PATH");
    expect_run("count in.txt", 2, "which tokenizer?");
    expect_run("count --tokenizer tok", 2, "no input");
    expect_run("decode --tokenizer tok", 2, "no input");
    expect_run("train in.txt", 2, "where to?");
    expect_run("convert --tokenizer tok", 2, "give --to");
    expect_run("convert --tokenizer tok --to xml --out x", 1, "'xml' (json, gpt2 or ranks)");
    expect_run("train --tokenizer tok --out x in.txt", 2, "train: '--tokenizer': does nothing here (encode decode count ");
    expect_run("encode --vocab 300 --tokenizer tok in.txt", 2, "'--vocab': does nothing here (train bench)");
    expect_run("count --raw --tokenizer tok in.txt", 2, "'--raw': does nothing here (encode decode)");
    expect_run("count --field body --tokenizer tok in.txt", 2, "--field: no input is JSONL");
    expect_run("train --vocab 12 --out x in.txt", 1, "--vocab: '12'");
    expect_run("train --vocab 1e3 --out x in.txt", 1, "--vocab: '1e3'");
    expect_run("train --threads 0 --out x in.txt", 1, "--threads: '0'");
    expect_run("train --out /dev/null/x in.txt", 1, "/dev/null/x: ");
    expect_run("count --tokenizer tok none.txt", 1, "none.txt: ");
    expect_run("count --tokenizer none in.txt", 1, "none: no tokenizer.json");
    expect_run("decode --tokenizer tok in.txt", 1, "number 1, 'aaabd': not a token id");
    expect_run("encode --raw --tokenizer tok in.txt > ids; printf '12 265 ' > bad", 0, "");
    expect_run("decode --raw --tokenizer tok bad", 1, "bad: 7 bytes: not a list of int32");
    expect_run("decode --tokenizer tok bad", 1, "number 2, 265: not a token (0 to 264)");
    expect_run("decode --tokenizer tok ids", 1, "ids: ");
}

TESTS(program_set_up, temp_dir_remove)
