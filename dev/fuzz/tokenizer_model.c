// Fuzzes the reader of SentencePiece's model files.
#include "tokenize.h"

typedef struct {
    char bytes[16384];
    size_t n;
} Proto;

static void put(Proto *p, int field, int kind, const void *bytes, size_t n)
{
    p->bytes[p->n++] = (char)(field << 3 | kind);
    if (kind == 2) p->bytes[p->n++] = (char)n; // short ones only
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

static void put_piece(Proto *p, const char *piece, float score, char type)
{
    Proto m = {0};
    put(&m, 1, 2, piece, strlen(piece));
    put(&m, 2, 5, &score, 4);
    put(&m, 3, 0, &type, 1);
    put(p, 1, 2, m.bytes, m.n);
}

// flags: 1: bytes have pieces; 2: no prefix; 4: spaces are kept; 8: two pieces are user-defined.
static void seed(int flags)
{
    static const char *const pieces[] = {"\u2581", "t", "h", "a", "c", "at", "th", "\u2581th", "cat", "\u2581\u2581"};
    Proto p = {0}, trainer = {0}, normalizer = {0};
    put_piece(&p, "<unk>", 0, 2);
    put_piece(&p, "<s>", 0, 3);
    put_piece(&p, "</s>", 0, 3);
    for (int b = 0; b < 256 && flags & 1; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        put_piece(&p, name, 0, 6);
    }
    for (int i = 0; i < 10; i++) put_piece(&p, pieces[i], -(float)i, 1);
    if (flags & 8) put_piece(&p, "<x>", 0, 4), put_piece(&p, "hat", 0, 4);
    put(&trainer, 3, 0, "\x02", 1);
    if (flags & 1) put(&trainer, 35, 0, "", 0); // of two bytes: below
    if (flags & 1) memcpy(trainer.bytes + trainer.n - 1, "\x98\x02\x01", 3), trainer.n += 2;
    put(&p, 2, 2, trainer.bytes, trainer.n);
    put(&normalizer, 1, 2, "identity", 8);
    put(&normalizer, 3, 0, flags & 2 ? "\x00" : "\x01", 1);
    put(&normalizer, 4, 0, flags & 4 ? "\x00" : "\x01", 1);
    put(&p, 3, 2, normalizer.bytes, normalizer.n);
    fuzz_seed((char[]){'m', (char)('a' + flags), 0}, p.bytes, p.n);
}

void fuzz_seeds(void)
{
    const int flags[] = {0, 1, 2, 4, 5, 6, 15};
    for (int i = 0; i < 7; i++) seed(flags[i]);
}

void fuzz_one(const uint8_t *data, size_t n)
{
    clean_folder();
    Tokenizer *t = tokenizer_load(fuzz_file("tokenizer.model", data, n));
    use_tokenizer(t);
    use_again(t);
    tokenizer_free(t);
}
