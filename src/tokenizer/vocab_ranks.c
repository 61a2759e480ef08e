// vocab_ranks: tiktoken's rank files.
//
// A rank file has one line per token, sorted by rank: base64(bytes) SPACE rank LF. It lists no merges. tiktoken merges
// the two neighbours whose joined bytes are the token of the lowest rank; a token's rank is both its id and its place
// in the order of merging. So apply all merges of lower rank to the bytes of a token: the two tokens that remain are
// its merge. If more remain, merging could never produce the token, and the file is refused. Doing this in the order of
// ranks gives the list of merges, with the same ids (bpe.c says why merging by pair and by joined bytes agree). Saving
// is refused where a rank file cannot express the vocabulary (merges in another order than their ids, tokens without a
// merge, special tokens before others), so load(save(v)) has the tokens, merges and ids of v.
//
// Special tokens are not in a rank file; tiktoken keeps them in code. <|endoftext|> is given the id after the last one,
// as in GPT-2. cl100k_base, recognised by its pattern and size, has it one higher. The id between is unused there; here
// it becomes a special token that no text encodes to, because ids have no holes here.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/disk.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

enum { MAX_RANKS_BYTES = 1 << 30, CL100K_BASE_RANKS = 100256 };

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// ---- base64
static void write_base64(FILE *f, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++) three = three << 8 | (i + k < n ? (uint8_t)bytes[i + k] : 0);
        char four[4];
        for (int k = 0; k < 4; k++) four[k] = base64_digits[three >> (18 - 6 * k) & 63];
        for (size_t k = n - i; k < 3; k++) four[k + 1] = '=';
        fwrite(four, 1, 4, f);
    }
}

// Decodes n characters to at most 3n/4 bytes; -1 when they are not base64 (with padding).
static int64_t decode_base64(const char *s, size_t n, char *bytes)
{
    size_t o = 0;
    if (n % 4) return -1;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t three = 0;
        int n_digits = 0;
        while (n_digits < 4 && s[i + (size_t)n_digits] != '=') {
            const char *digit = memchr(base64_digits, s[i + (size_t)n_digits], 64);
            if (!digit) return -1;
            three |= (uint32_t)(digit - base64_digits) << (18 - 6 * n_digits++);
        }
        if (n_digits < 4 && (i + 4 < n || n_digits < 2 || s[i + 3] != '=')) return -1;
        if (three & (0xFFFFFFu >> 8 * (n_digits - 1))) return -1; // bits after the last byte
        for (int k = 0; k + 1 < n_digits; k++) bytes[o++] = (char)(three >> (16 - 8 * k));
    }
    return (int64_t)o;
}

// ---- rank files
void vocab_save_ranks(const Vocab *v, const char *path)
{
    size_t n_ranks = v->token.n;
    while (n_ranks > 0 && v->special[n_ranks - 1]) n_ranks--;
    if (n_ranks != 256 + v->n_merges || v->ignore_merges || v->chars || v->added || v->has_unk || v->nfc)
        die("%s: %zu tokens, but 256 bytes and %zu merges%s: a rank file cannot say that (write tokenizer.json)", path,
            n_ranks, v->n_merges, v->nfc ? ", of text in form C" : "");
    for (size_t i = 1; i < v->n_merges; i++)
        if (v->merge[i].result <= v->merge[i - 1].result)
            die("%s: merge %zu makes token %d after token %d: a rank file cannot say that (write tokenizer.json)", path,
                i, v->merge[i].result, v->merge[i - 1].result);
    char *text;
    size_t n_text;
    FILE *f = open_memstream(&text, &n_text);
    if (!f) die("%s: no memory to write it", path);
    for (size_t i = 0; i < n_ranks; i++) {
        if (v->special[i])
            die("%s: token %zu is special and stands before others: a rank file cannot say that (write tokenizer.json)",
                path, i);
        write_base64(f, v->token.bytes + v->token.word[i].at, v->token.word[i].n);
        fprintf(f, " %zu\n", i);
    }
    if (fclose(f) != 0 || !text) die("%s: no memory to write it", path);
    if (!disk_replace_file(path, text, n_text))
        die("%s: %s (does the folder exist, may you write there, is the disk full?)", path, strerror(errno));
    free(text);
}

// One line, without its end: the token, which must be the next.
static void read_line(Vocab *v, const char *line, size_t n, char *bytes, const char *path)
{
    const char *space = memchr(line, ' ', n);
    size_t expected = v->token.n, rank = 0, at = space ? (size_t)(space - line) + 1 : n;
    int64_t n_bytes = space ? decode_base64(line, at - 1, bytes) : -1;
    if (n_bytes <= 0 || at == n || n - at > 9)
        die("%s:%zu: not base64, a space and a number (is it a tiktoken rank file?)", path, expected + 1);
    for (; at < n; at++) {
        if (line[at] < '0' || line[at] > '9')
            die("%s:%zu: not base64, a space and a number (is it a tiktoken rank file?)", path, expected + 1);
        rank = 10 * rank + (size_t)(line[at] - '0');
    }
    if (rank != expected)
        die("%s:%zu: rank %zu, expected %zu (ranks must be 0, 1, 2, ... in this order)", path, expected + 1, rank,
            expected);
    if (words_add(&v->token, bytes, (size_t)n_bytes) != expected)
        die("%s:%zu: the same token as an earlier line", path, expected + 1);
}

// Finds the merge that makes each token, in the order of ranks.
static void find_merges(Vocab *v, size_t n_ranks, const char *path)
{
    size_t n_longest = 1;
    int32_t byte_id[256];
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        byte_id[b] = (int32_t)words_find(&v->token, &byte, 1);
        if (byte_id[b] < 0) die("%s: byte 0x%02X has no token (not a byte-level tokenizer?)", path, b);
    }
    for (size_t i = 0; i < n_ranks; i++)
        if (v->token.word[i].n > n_longest) n_longest = v->token.word[i].n;
    v->merge = malloc(n_ranks * sizeof *v->merge);
    int32_t *ids = malloc(n_longest * sizeof *ids);
    if (!v->merge || !ids) die("%s: no memory to read it (is it a tokenizer?)", path);
    Bpe lower = bpe_empty(v->merge, n_ranks);
    for (size_t i = 0; i < n_ranks; i++) {
        size_t n = v->token.word[i].n;
        if (n == 1) continue;
        for (size_t k = 0; k < n; k++) ids[k] = byte_id[(uint8_t)v->token.bytes[v->token.word[i].at + k]];
        size_t n_parts = bpe_apply(&lower, ids, n);
        if (n_parts != 2)
            die("%s:%zu: the token is not two tokens of lower rank joined, but %zu (it could never be used)", path,
                i + 1, n_parts);
        v->merge[v->n_merges++] = (BpeMerge){ids[0], ids[1], (int32_t)i};
        bpe_add(&lower);
    }
    bpe_free(&lower);
    free(ids);
}

// Appends a token; returns its id, the highest.
static int32_t add_special(Vocab *v, const char *name, const char *path)
{
    size_t n = v->token.n;
    if (words_add(&v->token, name, strlen(name)) != n) die("%s: holds '%s', which is not a token of text", path, name);
    return (int32_t)n;
}

Vocab vocab_load_ranks(const char *path, const char *pattern)
{
    Vocab v = {.eot = -1, .pattern = strdup(pattern)};
    size_t n_text;
    char *text = disk_read_file(path, &n_text, MAX_RANKS_BYTES);
    if (!text) die("%s: %s (is it a tiktoken rank file?)", path, strerror(errno));
    char *bytes = malloc(n_text + 1);
    if (!bytes || !v.pattern) die("%s: no memory to read it (is it a tokenizer?)", path);
    for (size_t at = 0, end; at < n_text; at = end + 1) {
        const char *stop = memchr(text + at, '\n', n_text - at);
        end = stop ? (size_t)(stop - text) : n_text;
        read_line(&v, text + at, end - at - (end > at && text[end - 1] == '\r'), bytes, path);
    }
    free(bytes);
    free(text);
    size_t n_ranks = v.token.n;
    find_merges(&v, n_ranks, path);
    if (strcmp(pattern, "cl100k") == 0 && n_ranks == CL100K_BASE_RANKS) add_special(&v, "<|unused|>", path);
    v.eot = add_special(&v, TOKENIZER_EOT, path);
    v.special = calloc(v.token.n, sizeof *v.special);
    if (!v.special) die("%s: no memory to read it (is it a tokenizer?)", path);
    for (size_t i = n_ranks; i < v.token.n; i++) v.special[i] = true;
    v.has_bos = true;
    v.bos = v.eot;
    return v;
}
