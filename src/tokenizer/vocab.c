// vocab: the tables of a BPE tokenizer, and how files spell them. The files: vocab_json.c, vocab_ranks.c,
// vocab_sentencepiece.c.
//
// JSON strings hold characters, tokens are bytes. So byte-level files spell every byte as a printable character,
// GPT-2's alphabet: the 188 bytes that print in Latin-1 (0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF) stand for themselves, the
// other 68, in order, are U+0100 and up; a space is U+0120. SentencePiece's files hold characters, and spell a space
// U+2581. There a byte has a token named <0x0A>, and the character of that byte may have another one. Special tokens
// are spelled as they are.
//
// Invariant of a loaded vocabulary: ids are 0..n-1 without a hole, no two tokens have the same bytes, every merge joins
// two tokens into a third whose bytes are theirs. In a rank file and after training every byte has a token; in
// tokenizer.json one may be missing.
//
// SentencePiece has scores instead of merges: of all neighbours whose joined characters are a token, those are merged
// whose token has the highest score, the leftmost among equals. So the pairs that join to a token, sorted by its score,
// are the merges. Their order among pairs of the same result does not matter: what becomes that token has been merged,
// up to then, as if it stood alone, so of these pairs only one ever occurs. When the scores of two results are equal,
// the position decides, which a rank cannot say, and the file is refused.
#include "tokenizer/vocab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

// ---- the alphabet ----
static bool prints(int byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The character (a code point) that spells a byte, and back (-1: it spells none).
static int letter_of_byte(int byte)
{
    return prints(byte) ? byte : byte <= 0x20 ? 0x100 + byte : byte <= 0xA0 ? 0x121 + byte - 0x7F : 0x143;
}

static int byte_of_letter(int letter)
{
    if (letter < 0x100) return prints(letter) ? letter : -1;
    return letter <= 0x120   ? letter - 0x100
           : letter <= 0x142 ? letter - 0x121 + 0x7F
           : letter == 0x143 ? 0xAD
                             : -1;
}

int32_t vocab_byte_id(uint8_t byte)
{
    if (!prints(byte)) return 188 + letter_of_byte(byte) - 0x100;
    return byte <= 0x7E ? byte - 0x21 : byte <= 0xAC ? 94 + byte - 0xA1 : 106 + byte - 0xAE;
}

void vocab_spell(const Vocab *v, const char *bytes, size_t n, char *spelled)
{
    for (size_t i = 0; i < n; i++) {
        int letter = v->chars ? (uint8_t)bytes[i] : letter_of_byte((uint8_t)bytes[i]);
        if (v->chars && letter == ' ') spelled = stpcpy(spelled, SPACE_SIGN);
        else if (v->chars || letter < 0x80) *spelled++ = (char)letter;
        else *spelled++ = (char)(0xC0 | letter >> 6), *spelled++ = (char)(0x80 | (letter & 0x3F));
    }
    *spelled = 0;
}

long vocab_unspell(const Vocab *v, const char *spelled, size_t n, char *bytes)
{
    long o = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (uint8_t)spelled[i];
        if (v->chars) {
            bool space = n - i >= 3 && memcmp(spelled + i, SPACE_SIGN, 3) == 0;
            bytes[o++] = space ? ' ' : (char)c;
            i += space ? 2 : 0;
            continue;
        }
        if (c >= 0x80) { // the whole alphabet is below U+0800: two bytes
            if (c < 0xC2 || c > 0xC5 || i + 1 >= n) return -1;
            c = (c & 0x1F) << 6 | (spelled[++i] & 0x3F);
        }
        c = byte_of_letter(c);
        if (c < 0) return -1;
        bytes[o++] = (char)c;
    }
    return o;
}

// ---- tables
Vocab vocab_new(const char *pattern)
{
    Vocab v = {.eot = -1, .pattern = strdup(pattern)};
    char by_id[256];
    for (int b = 0; b < 256; b++) by_id[vocab_byte_id((uint8_t)b)] = (char)b;
    for (int id = 0; id < 256; id++) words_add(&v.token, &by_id[id], 1);
    if (!v.pattern) die("memory: no room for a vocabulary");
    return v;
}

void vocab_free(Vocab *v)
{
    words_free(&v->token);
    free(v->special);
    free(v->added);
    free(v->merge);
    free(v->pattern);
    free(v->chat);
    *v = (Vocab){0};
}

int vocab_byte_of(const Vocab *v, int32_t id)
{
    static const char digits[] = "0123456789ABCDEF";
    Word w = v->token.word[id];
    const char *s = v->token.bytes + w.at, *high, *low;
    if (!v->byte_fallback || w.n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    high = memchr(digits, s[3], 16);
    low = memchr(digits, s[4], 16);
    return high && low ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

int64_t vocab_find(const Vocab *v, const char *bytes, size_t n)
{
    int64_t id = words_find(&v->token, bytes, n);
    return id >= 0 && ((v->special && v->special[id]) || vocab_byte_of(v, (int32_t)id) >= 0) ? -1 : id;
}

int64_t vocab_find_special(const Vocab *v, const char *name)
{
    int64_t id = words_find(&v->token, name, strlen(name));
    return id >= 0 && v->special && v->special[id] ? id : -1;
}

bool vocab_has_bytes(const Vocab *v, const char *path)
{
    int n = 0;
    char name[8], missing[8] = "";
    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", b);
        if (words_find(&v->token, name, 6) >= 0) n++;
        else strcpy(missing, name);
    }
    if (n > 0 && n < 256)
        die("%s: %d of 256 bytes have a token, and %s is missing (byte_fallback with some is not supported)", path, n,
            missing);
    return n > 0;
}

void vocab_find_eot(Vocab *v)
{
    const char *names[] = {TOKENIZER_EOT, "<|end_of_text|>"};
    for (int i = 0; i < 2 && v->eot < 0; i++) v->eot = (int32_t)vocab_find_special(v, names[i]);
    if (v->eot < 0 && v->has_eos) v->eot = v->eos;
}

// ---- merges
void vocab_add_merge(Vocab *v, size_t *cap, const char *left, size_t n_left, const char *right, size_t n_right,
                     const char *path, size_t where)
{
    char *bytes = malloc(n_left + n_right + 1);
    if (!bytes) die("%s: no memory to read it (is it a tokenizer?)", path);
    long a = vocab_unspell(v, left, n_left, bytes), b = a < 0 ? -1 : vocab_unspell(v, right, n_right, bytes + a);
    int64_t l = b < 0 ? -1 : vocab_find(v, bytes, (size_t)a), r = b < 0 ? -1 : vocab_find(v, bytes + a, (size_t)b);
    int64_t joined = b < 0 ? -1 : vocab_find(v, bytes, (size_t)(a + b));
    if (l < 0 || r < 0 || joined < 0)
        die("%s: merge %zu: '%.*s' and '%.*s' do not join to a token (do the files belong together?)", path,
            where, n_left < 80 ? (int)n_left : 80, left, n_right < 80 ? (int)n_right : 80, right);
    v->merge = words_grow(v->merge, cap, v->n_merges + 1, sizeof *v->merge);
    v->merge[v->n_merges++] = (BpeMerge){(int32_t)l, (int32_t)r, (int32_t)joined};
    free(bytes);
}

typedef struct {
    BpeMerge merge;
    float score;
    uint32_t n_left; // bytes of the left one
} Scored;

// The highest score first; then, as Transformers' conversion lists them, the shortest left one.
static int by_score(const void *a, const void *b)
{
    const Scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->merge.result != y->merge.result) return x->merge.result < y->merge.result ? -1 : 1;
    return (x->n_left > y->n_left) - (x->n_left < y->n_left);
}

void vocab_merge_by_score(Vocab *v, const float *score, const char *path)
{
    Scored *list = NULL;
    size_t n = 0, cap = 0;
    bool valid;
    for (size_t i = 0; i < v->token.n; i++) {
        Word w = v->token.word[i];
        const char *s = v->token.bytes + w.at;
        if (v->special[i] || (v->added && v->added[i]) || vocab_byte_of(v, (int32_t)i) >= 0) continue;
        if (isnan(score[i])) die("%s: piece %zu, '%.*s': its score is not a number", path, i, (int)w.n, s);
        for (size_t at = 0, k; at < w.n; at += k) {
            k = words_utf8_length(s + at, w.n - at, &valid);
            if (k < w.n && vocab_find(v, s + at, k) < 0)
                die("%s: piece %zu, '%.*s': its character '%.*s' has no piece (not supported: ids would differ)", path,
                    i, (int)w.n, s, (int)k, s + at);
            int64_t l = vocab_find(v, s, at), r = at ? vocab_find(v, s + at, w.n - at) : -1;
            if (l < 0 || r < 0) continue;
            list = words_grow(list, &cap, n + 1, sizeof *list);
            list[n++] = (Scored){{(int32_t)l, (int32_t)r, (int32_t)i}, score[i], (uint32_t)at};
        }
    }
    if (n) qsort(list, n, sizeof *list, by_score);
    v->merge = malloc((n + 1) * sizeof *v->merge);
    if (!v->merge) die("%s: no memory for %zu merges", path, n);
    for (size_t i = 0; i < n; i++) {
        int32_t last = i ? list[i - 1].merge.result : -1, this = list[i].merge.result;
        if (i && last != this && list[i - 1].score == list[i].score)
            die("%s: pieces %d and %d have the same score, %g (not supported: ids would differ)", path, last, this,
                (double)list[i].score);
        v->merge[i] = list[i].merge;
    }
    v->n_merges = n;
    free(list);
}

// ---- which file
Vocab vocab_load(const char *path)
{
    struct stat st;
    char file[4096];
    size_t n = strlen(path);
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        if (n > 6 && strcmp(path + n - 6, ".model") == 0) return vocab_load_sentencepiece(path);
        if (n > 5 && strcmp(path + n - 5, ".json") == 0) return vocab_load_json(path);
        die("%s: not a tokenizer by its name (give a folder, a tokenizer.json or a tokenizer.model)", path);
    }
    snprintf(file, sizeof file, "%s/tokenizer.json", path);
    if (access(file, F_OK) == 0) return vocab_load_json(file);
    snprintf(file, sizeof file, "%s/tokenizer.model", path);
    if (access(file, F_OK) == 0) return vocab_load_sentencepiece(file);
    snprintf(file, sizeof file, "%s/vocab.json", path);
    if (access(file, F_OK) == 0) return vocab_load_gpt2(path);
    bool ours = !strcmp(path, "runs/stories/data"); // of the small presets
    die("%s: no tokenizer.json, tokenizer.model or vocab.json there (%s)", path,
        ours ? "`make run`, without TEXT, writes it" : "give a folder that 'prepare' wrote, or GPT-2's");
}
