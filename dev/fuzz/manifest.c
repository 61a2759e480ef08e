// Fuzzes the reader of a checkpoint's manifest. Its hash would reject nearly every mutation at once, so it is computed
// right again first: this is the forger's view.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "train/ckpt_manifest.h"

void fuzz_seeds(void)
{
    fuzz_seed_file("test/fixtures/ckpt_v1/manifest.json");
    fuzz_seed_file("test/fixtures/ckpt_v2/manifest.json");
    // Two files, a tensor that is cut along an axis, and one that is cut into ranges.
    static const char sliced[] =
        "{\"xxh3_128\": \"00000000000000000000000000000000\",\n\"format\": \"pretrain.c checkpoint\", \"version\": 2,\n"
        "\"state\": {\"step\": 3, \"adam_step\": 3, \"sample\": 24, \"tokens\": 768, \"seed\": 1, \"seconds\": 0.5, "
        "\"best_val\": 2.5, \"optim\": \"adamw\"}, \"config\": \"[run]\\nname = x\\n\",\n"
        "\"extra\": {\"loss_scale\": 65536.0, \"amax\": [1.5, \"nan\"]},\n\"files\": ["
        "{\"name\": \"model_00000.safetensors\", \"kind\": \"model\", \"bytes\": 100, \"xxh3_128\": \"0\"},"
        "{\"name\": \"optim_00001.safetensors\", \"kind\": \"optim\", \"bytes\": 100, \"xxh3_128\": \"0\"}],\n"
        "\"tensors\": [{\"name\": \"w\", \"dtype\": \"F32\", \"shape\": [4, 6], \"slices\": ["
        "{\"file\": \"model_00000.safetensors\", \"cut\": 0, \"first\": 0, \"extent\": 2, \"xxh3_128\": \"0\"},"
        "{\"file\": \"model_00000.safetensors\", \"cut\": 0, \"first\": 2, \"extent\": 2, \"xxh3_128\": \"0\"}]},"
        "{\"name\": \"exp_avg.w\", \"dtype\": \"BF16\", \"shape\": [4, 6], \"slices\": ["
        "{\"file\": \"optim_00001.safetensors\", \"range\": [0, 11], \"xxh3_128\": \"0\"},"
        "{\"file\": \"optim_00001.safetensors\", \"range\": [11, 24], \"xxh3_128\": \"0\"}]}]}\n";
    fuzz_seed("sliced", sliced, sizeof sliced - 1);
}

static void use(CkptManifest *m, CkptFailure f)
{
    double value[2];
    const CkptExtra extra[] = {{"loss_scale", 1, value}, {"amax", 2, value}};
    for (int i = 0; i < 2; i++) ckpt_manifest_extra(m, &extra[i], f);
    for (int i = 0; i < m->n_files; i++) {
        const char *name = m->file[i].name;
        fuzz_check(!strchr(name, '/') && strcmp(name, "..") != 0); // no way out of the directory
        if (i < 4) fuzz_check(!ckpt_manifest_open(m, i, false, f)); // there is no such file
    }
    for (int i = 0; i < m->n; i++) {
        const CkptTensor *t = &m->tensor[i];
        size_t held = 0;
        for (int k = 0; k < t->n; k++) {
            fuzz_check(t->place[k].file >= 0 && t->place[k].file < m->n_files);
            held += t->slice[k].to - t->slice[k].from;
        }
        fuzz_check(held == t->shape[0] * t->shape[1]);
        fuzz_check(ckpt_manifest_find(m, t->name) == t);
    }
}

void fuzz_one(const uint8_t *data, size_t n)
{
    static const char opening[] = "{\"xxh3_128\": \"";
    char error[600] = "", hash[ST_HASH], *text = malloc(n + 1);
    size_t at = sizeof opening - 1;
    fuzz_check(text);
    memcpy(text, data, n);
    text[n] = 0;
    if (n > at + ST_HASH && !memcmp(text, opening, at)) {
        memset(text + at, '0', ST_HASH - 1);
        safetensors_hash(hash, text, n);
        memcpy(text + at, hash, ST_HASH - 1);
    }
    CkptVerdict verdict;
    CkptFailure f = {error, sizeof error};
    CkptManifest *m = ckpt_manifest_parse(fuzz_dir(), text, n, &verdict, f);
    if (m) use(m, f);
    else fuzz_check(*error && verdict != CKPT_SOUND);
    ckpt_manifest_free(m);
    free(text);
}
