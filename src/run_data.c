// run_data: what a run reads: tokenizer, training and validation tokens, and what is known of their entropy.
//
// The invariant: all ranks, and all parts of a run that was stopped and resumed, train on the same data, or it is said.
// Each rank opens the files that its machine has under that name. A rank with other tokens would train well on other
// batches than everybody believes, and no loss would show it: that is an error. A checkpoint keeps a hash of the data,
// and a run that is resumed on other data says so in a `warn` line and goes on, for the last stage of a training is
// often on a mixture of its own. What it goes on from is the number of the sample, which means something else there.
//
// Rejected: comparing names and sizes of files (a file that is made again with another tokenizer setting may have
// both), and refusing other data (it would take the optimizer's state away from the last stage).
#include "run.h"

#include "check.h"

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

// Sets run->data: what decides which tokens sample s is, apart from the seed. Two numbers of 32 bits, for a double holds
// 53. Ends the job when a rank has other data than rank 0.
static void compare_data(Run *run)
{
    const Config *cfg = &run->cfg;
    uint64_t order[] = {dataset_hash(run->train), (uint64_t)cfg->model.context, (uint64_t)cfg->data.packing,
                        cfg->data.shuffle};
    uint64_t train = XXH3_64bits(order, sizeof order);
    uint64_t mine[] = {train, dataset_hash(run->val)}, first[] = {train, mine[1]};
    run_tell(run, first, sizeof first);
    for (int i = 0; i < 2; i++)
        if (mine[i] != first[i])
            die("%s: other tokens than rank 0 reads under that name (copy them again to this machine)",
                i ? cfg->data.val : cfg->data.train);
    run->data[0] = (double)(train >> 32);
    run->data[1] = (double)(train & UINT32_MAX);
    run->saved_data[0] = run->data[0], run->saved_data[1] = run->data[1];
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
    if (cfg->data.packing == CONFIG_PACKING_BEST_FIT)
        dataset_pack(run->train, (int)cfg->model.context, tokenizer_eot(run->tokenizer));
    run->val = dataset_open(cfg->data.val, vocab);
    if (dataset_windows(run->train, (int)cfg->model.context) < 1)
        die("%s: %lld tokens are fewer than model.context + 1 = %ld", cfg->data.train,
            (long long)dataset_tokens(run->train), cfg->model.context + 1);
    compare_data(run);
    run->token_bytes = calloc((size_t)cfg->model.vocab, sizeof *run->token_bytes);
    if (!run->token_bytes) die("run: no memory for %ld token lengths", cfg->model.vocab);
    for (int i = 0; i < vocab; i++) run->token_bytes[i] = (int32_t)tokenizer_text_bytes(run->tokenizer, i);
    read_floor(run);
}
