// Tests of build/prepare tokenizer: every command once, and what it refuses.

#include "test/test.h"

#define PROGRAM "prepare"
#define PART "tokenizer"
#include "program.h"

static const char sample[] = "aaabd aaabac<|endoftext|>\nit's aaab, caf\xC3\xA9 \xFF 123";

static void write_sample(void)
{
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

TEST(test_errors)
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
