// Fuzzes the reader of tokenizer.json: vocabulary, merges, added tokens, SentencePiece's spaces, and the regular
// expression of other people. After a line of four dashes: tokenizer_config.json.
#include "tokenize.h"

#define UNKNOWN "{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, {\"id\": 1, \"content\": \"<s>\", \"special\": true}"
#define MODEL "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true, "
#define SPACES "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}"

void fuzz_seeds(void)
{
    const char *patterns[] = {"gpt2", "cl100k", "smollm"};
    for (int i = 0; i < 3; i++) {
        Tokenizer *t = small_tokenizer(patterns[i]);
        size_t n;
        tokenizer_save(t, fuzz_dir());
        const char *bytes = slurp("tokenizer.json", &n);
        fuzz_seed(patterns[i], bytes, n);
        tokenizer_free(t);
    }
    static const char *const other[] = {
        "{\"added_tokens\": [" UNKNOWN ", {\"id\": 7, \"content\": \"hat\", \"normalized\": false}], \"normalizer\": "
        "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}, " SPACES "]}, "
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]}, "
        MODEL "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\u2581\": 2, \"t\": 3, \"h\": 4, \"th\": 5, \"\u2581th\": 6}, "
        "\"merges\": [[\"t\", \"h\"], \"\u2581 th\"]}}\n----\n{\"eos_token\": \"<s>\", \"bos_token\": \"<s>\"}",
        "{\"added_tokens\": [" UNKNOWN "], \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
        "\"prepend_scheme\": \"first\", \"split\": true}, "
        MODEL "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"a\": 2, \"t\": 3, \"at\": 4}, \"merges\": [\"a t\"]}}",
        "{\"added_tokens\": [" UNKNOWN ", {\"id\": 6, \"content\": \"e\u0301\", \"normalized\": false}], "
        "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
        "\"model\": {\"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\u00C3\": 2, \"\u00A9\": 3, "
        "\"\u00C3\u00A9\": 4, \"e\": 5}, \"merges\": [\"\u00C3 \u00A9\"]}}",
        "{\"added_tokens\": [" UNKNOWN ", {\"id\": 5, \"content\": \"  \"}, {\"id\": 6, \"content\": \"cat  and\"}], "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": {\"unk_token\": \"<unk>\", "
        "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"a\": 2, \"t\": 3, \"at\": 4}, \"merges\": [\"a t\"]}}"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        fuzz_seed((char[]){'o', (char)('0' + i), 0}, other[i], strlen(other[i]));
}

void fuzz_one(const uint8_t *data, size_t n)
{
    size_t second, first = fuzz_cut(data, n, &second);
    clean_folder();
    fuzz_file("tokenizer.json", data, first);
    if (second < n) fuzz_file("tokenizer_config.json", data + second, n - second);
    Tokenizer *t = tokenizer_load(fuzz_dir());
    use_tokenizer(t);
    use_again(t);
    tokenizer_free(t);
}
