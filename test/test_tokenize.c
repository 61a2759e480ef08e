// Tests of build/tokenize: every command once, and what it refuses.

#include "test/test.h"

#define PROGRAM "tokenize"
#include "program.h"

static const char sample[] = "aaabd aaabac<|endoftext|>\nit's aaab, caf\xC3\xA9 \xFF 123";

static void put(const char *name, const char *bytes, size_t n)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_sample(void)
{
    put("in.txt", sample, sizeof sample - 1);
}

static void expect(const char *arguments, int status, const char *words)
{
    if (run(arguments) != status || !strstr(output, words))
        fail_msg("tokenize %s: expected status %d and '%s', got: %s", arguments, status, words, output);
}

TEST(test_commands)
{
    write_sample();
    expect("train --special --vocab 265 --threads 3 --out tok in.txt", 0, "tok: 265 tokens from 35 bytes");
    expect("count --special --tokenizer tok in.txt", 0, "2 texts, 35 bytes, ");
    expect("count --tokenizer tok in.txt", 0, "1 texts, 48 bytes, ");
    expect("encode --special --tokenizer tok in.txt", 0, " 264 198 "); // the last id, and the line end behind it
    for (int raw = 0; raw < 2; raw++) {
        const char *flag = raw ? "--raw" : "";
        for (int special = 0; special < 2; special++) {
            char line[300];
            snprintf(line, sizeof line, "encode %s %s --tokenizer tok in.txt > ids", flag, special ? "--special" : "");
            expect(line, 0, "");
            snprintf(line, sizeof line, "decode %s --tokenizer tok ids", flag);
            expect(line, 0, sample);
            assert_string_equal(output, sample);
        }
    }
}

TEST(test_formats)
{
    write_sample();
    expect("train --special --vocab 265 --out tok in.txt", 0, "");
    expect("encode --tokenizer tok in.txt", 0, "");
    char want[20000];
    strcpy(want, output);
    expect("convert --tokenizer tok --to ranks --out r.tiktoken", 0, "");
    expect("encode --tokenizer r.tiktoken in.txt", 0, want);
    expect("convert --tokenizer r.tiktoken --to gpt2 --out two", 0, "");
    expect("encode --tokenizer two in.txt", 0, want);
    expect("convert --tokenizer two --to json --out three", 0, "");
    expect("encode --tokenizer three in.txt", 0, want);
}

// Lines of JSON are documents, alone and in a folder: the tokenizer learns their texts, and not the signs around them.
TEST(test_jsonl)
{
    const char lines[] = "{\"body\": \"aaabd aaabac\\n\"}\n{\"body\": \"it's aaab\"}\nbad\n";
    put("in.jsonl", lines, sizeof lines - 1);
    put("one.txt", "aaabd aaabac\n", 13);
    put("two.txt", "it's aaab", 9);
    expect("train --vocab 262 --out from_text one.txt two.txt", 0, "262 tokens from 22 bytes");
    put("text.jsonl", "{\"text\": \"aaabd aaabac\\n\"}", 26);
    expect("count --tokenizer from_text text.jsonl", 0, "1 texts, 13 bytes, ");
    expect("train --vocab 262 --out from_json --field body in.jsonl", 0, "262 tokens from 22 bytes");
    assert_non_null(strstr(output, "in.jsonl:3: left out: not JSON"));
    assert_non_null(strstr(output, "1 files, 2 documents, 22 bytes of text"));
    expect("--help; cmp from_text/tokenizer.json from_json/tokenizer.json", 0, "");
    expect("count --tokenizer from_json --field body in.jsonl 2>/dev/null", 0, "2 texts, 22 bytes, ");
    expect("encode --tokenizer from_text one.txt two.txt > a; mkdir f; cp in.jsonl f; gzip in.jsonl", 0, "");
    expect("encode --special --tokenizer from_json --field body in.jsonl.gz 2>/dev/null", 0, " 261 ");
    expect("encode --tokenizer from_json --field body f > b 2>/dev/null; cmp a b", 0, "");
    expect("encode --tokenizer from_json --field body --format jsonl - <f/in.jsonl > b 2>/dev/null; cmp a b", 0, "");
    expect("count --tokenizer from_json --format text f/in.jsonl", 0, "1 texts, 53 bytes, "); // as it is
    expect("count --tokenizer from_json in.jsonl.gz", 1, "no document in it (is 'text' its field? --field)");
}

TEST(test_bench)
{
    write_sample();
    expect("bench --vocab 260 --threads 2 in.txt", 0, "training MB/s");
    assert_non_null(strstr(output, "\n      1 "));
    assert_non_null(strstr(output, "\n      2 "));
}

TEST(test_errors)
{
    write_sample();
    expect("train --special --vocab 265 --out tok in.txt", 0, "");
    expect("--help", 0, "--tokenizer PATH");
    expect("", 2, "'': not a command");
    expect("spell", 2, "'spell': not a command");
    expect("count --speed in.txt", 2, "'--speed': no such option");
    expect("count --tokenizer", 2, "'--tokenizer': takes PATH");
    expect("count in.txt", 2, "which tokenizer?");
    expect("count --tokenizer tok", 2, "no input");
    expect("decode --tokenizer tok", 2, "no input");
    expect("train in.txt", 2, "where to?");
    expect("convert --tokenizer tok", 2, "give --to");
    expect("convert --tokenizer tok --to xml --out x", 1, "'xml' (json, gpt2 or ranks)");
    expect("train --tokenizer tok --out x in.txt", 2, "train: '--tokenizer': does nothing here (encode decode count ");
    expect("encode --vocab 300 --tokenizer tok in.txt", 2, "'--vocab': does nothing here (train bench)");
    expect("count --raw --tokenizer tok in.txt", 2, "'--raw': does nothing here (encode decode)");
    expect("count --field body --tokenizer tok in.txt", 2, "--field: no input is JSONL");
    expect("train --vocab 12 --out x in.txt", 1, "--vocab: '12'");
    expect("train --vocab 1e3 --out x in.txt", 1, "--vocab: '1e3'");
    expect("train --threads 0 --out x in.txt", 1, "--threads: '0'");
    expect("train --out /dev/null/x in.txt", 1, "/dev/null/x: ");
    expect("count --tokenizer tok none.txt", 1, "none.txt: ");
    expect("count --tokenizer none in.txt", 1, "none: no tokenizer.json");
    expect("decode --tokenizer tok in.txt", 1, "number 1, 'aaabd': not a token id");
    expect("encode --raw --tokenizer tok in.txt > ids; printf '12 265 ' > bad", 0, "");
    expect("decode --raw --tokenizer tok bad", 1, "bad: 7 bytes: not a list of int32");
    expect("decode --tokenizer tok bad", 1, "number 2, 265: not a token (0 to 264)");
    expect("decode --tokenizer tok ids", 1, "ids: ");
}

TESTS(program_set_up, temp_dir_remove)
