// run_data: what a run reads: tokenizer, training and validation tokens, and what is known of their entropy.
//
// The invariant: all ranks, and all parts of a run that was stopped and resumed, train on the same data, or it is said.
// Each rank opens the files that its machine has under that name. A rank with other tokens would train well on other
// batches than everybody believes, and no loss would show it; with another tokenizer its documents begin elsewhere, or
// its model has another shape. Both are errors, found before anything is made from them. A checkpoint keeps a hash of
// the data, and a run that is resumed on other data says so in a `warn` line and goes on, for the last stage of a
// training is often on a mixture of its own. What it goes on from is the number of the sample, which means something
// else there.
//
// Rejected: comparing names and sizes of files (a file that is made again with another tokenizer setting may have
// both), and refusing other data (it would take the optimizer's state away from the last stage).
#include "train/run.h"

#include "base/check.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

// The corpus' entropy, where the validation text came from a source that knows it: floor.json of
// build/stories.
static void read_floor(Run *run)
{
    const char *path = run->cfg.data.floor;
    if (!path[0]) return;
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) die("%s:%d: %s (data.floor: the floor.json of build/stories)", path, error.line, error.text);
    json_t *val = json_object_get(root, "val");
    double nats = json_number_value(json_object_get(val, "nats"));
    double bits_per_byte = json_number_value(json_object_get(val, "bits_per_byte"));
    if (!(nats > 0) || !(bits_per_byte > 0)) die("%s: val.nats and val.bits_per_byte are not there", path);
    run->floor_loss = nats / (double)(dataset_tokens(run->val) - 1); // the targets; the first token is given
    run->floor_bpb = bits_per_byte;
    json_decref(root);
}

// Ends the job when a rank has another hash of this file than rank 0.
static void same_on_all(Run *run, uint64_t hash, const char *path, const char *what)
{
    uint64_t first = hash;
    run_tell(run, &first, sizeof first);
    if (hash != first)
        die("%s: %s than rank 0 reads under that name (copy it again to this machine)", path, what);
}

// Of the tokens' bytes, by number, and of <|endoftext|>'s, whatever files they came from.
static uint64_t tokenizer_hash(const Tokenizer *t)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) die("run: no memory to compare tokenizers");
    XXH3_64bits_reset(state);
    int32_t eot = tokenizer_eot(t);
    XXH3_64bits_update(state, &eot, sizeof eot);
    for (int32_t i = 0; i < tokenizer_vocab_size(t); i++) {
        size_t n;
        const char *bytes = tokenizer_decode(t, i, &n);
        XXH3_64bits_update(state, &n, sizeof n);
        XXH3_64bits_update(state, bytes, n);
    }
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

// Sets run->data: what decides which tokens sample s is, and what they mean, apart from the seed. Two numbers of 32
// bits, for a double holds 53.
static void hash_data(Run *run, uint64_t tokenizer)
{
    const Config *cfg = &run->cfg;
    uint64_t order[] = {dataset_hash(run->train), tokenizer, (uint64_t)cfg->model.context, (uint64_t)cfg->data.packing,
                        cfg->data.shuffle};
    uint64_t hash = XXH3_64bits(order, sizeof order);
    run->saved_data[0] = run->data[0] = (double)(hash >> 32);
    run->saved_data[1] = run->data[1] = (double)(hash & UINT32_MAX);
}

CkptExtra run_data_extra(Run *run)
{
    return (CkptExtra){"data", 2, run->saved_data};
}

void run_data_loaded(Run *run)
{
    for (int i = 0; i < 2; i++) {
        if (run->saved_data[i] != run->data[i]) run->other_data = true;
        run->saved_data[i] = run->data[i];
    }
}

void run_open_data(Run *run)
{
    Config *cfg = &run->cfg;
    if (!cfg->data.train[0] || !cfg->data.val[0] || !cfg->data.tokenizer[0])
        die("data.train, data.val and data.tokenizer: all three are needed (make them with build/prepare, "
            "or try: make run)");
    run->tokenizer = tokenizer_load(cfg->data.tokenizer);
    uint64_t tokenizer = tokenizer_hash(run->tokenizer);
    same_on_all(run, tokenizer, cfg->data.tokenizer, "another tokenizer");
    int vocab = tokenizer_vocab_size(run->tokenizer);
    if (!cfg->model.vocab) {
        config_set_derived(cfg, "model.vocab", vocab);
        config_resolve(cfg);
    }
    if (cfg->data.document_mask && tokenizer_eot(run->tokenizer) < 0)
        die("data.document_mask: the tokenizer in %s has no <|endoftext|>, which is where documents start",
            cfg->data.tokenizer);
    if (cfg->model.vocab < vocab)
        die("model.vocab = %ld: the tokenizer has %d tokens (try --model.vocab=0)", cfg->model.vocab, vocab);
    run->train = dataset_open(cfg->data.train, vocab);
    same_on_all(run, dataset_hash(run->train), cfg->data.train, "other tokens");
    if (cfg->data.packing == CONFIG_PACKING_BEST_FIT)
        dataset_pack(run->train, (int)cfg->model.context, tokenizer_eot(run->tokenizer));
    run->val = dataset_open(cfg->data.val, vocab);
    same_on_all(run, dataset_hash(run->val), cfg->data.val, "other tokens");
    hash_data(run, tokenizer);
    if (dataset_windows(run->train, (int)cfg->model.context) < 1)
        die("%s: %lld tokens are fewer than model.context + 1 = %ld", cfg->data.train,
            (long long)dataset_tokens(run->train), cfg->model.context + 1);
    run->token_bytes = calloc((size_t)cfg->model.vocab, sizeof *run->token_bytes);
    if (!run->token_bytes) die("run: no memory for %ld token lengths", cfg->model.vocab);
    for (int i = 0; i < vocab; i++) run->token_bytes[i] = (int32_t)tokenizer_text_bytes(run->tokenizer, i);
    read_floor(run);
}
