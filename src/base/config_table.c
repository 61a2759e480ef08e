// config_table: the table of all settings, one row per key, and the functions that find, read, write and print rows.
//
// This table is the only list of the keys: the parser, --help, the start-up table, the written config.toml and the
// reference in doc/config.md walk its rows. To add a key: add the member in config.h, add the row here, and read the
// member where it matters (test_config fails while no code reads it).
//
// Invariants: a row's name and offset belong to one member, since both come from the same macro arguments. For every
// row config_table_parse() reads back what config_table_format() wrote, so a written config.toml is the configuration
// that ran.
//
// The start-up table shows the values that the run uses, derived ones too, each with its origin: file and line, command
// line, derived or default. Keys that have no effect on this run are left out, except those that a file sets (the
// command line has switched off what they depend on).
//
// Rejected: a macro list that declares member and row at once (X-macros: it saves one line a key, and hides the struct
// that every other file reads from); a help text kept beside the parser (the two drift apart).
#include "base/config.h"

#include "base/check.h"
#include "base/words.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// (section, key, default, allowed values, unit, needs, help), as far as the type has them
#define ROW(s, k, type, def, allowed, unit, needs, help) \
    {#s "." #k, type, offsetof(Config, s.k), def, allowed, unit, needs, help}
#define INT(s, k, def, range, unit, needs, help) ROW(s, k, CONFIG_INTEGER, def, range, unit, needs, help)
#define NUM(s, k, def, range, unit, needs, help) ROW(s, k, CONFIG_NUMBER, def, range, unit, needs, help)
#define BOOL(s, k, def, help) ROW(s, k, CONFIG_BOOL, def, "", "", "", help)
#define FLAG(s, k, def, needs, help) ROW(s, k, CONFIG_BOOL, def, "", "", needs, help)
#define TEXT(s, k, def, help) ROW(s, k, CONFIG_STRING, def, "", "", "", help)
#define ONE_OF(s, k, def, choices, help) CHOICE(s, k, def, choices, "", help)
#define CHOICE(s, k, def, choices, needs, help) ROW(s, k, CONFIG_CHOICE, def, choices, "", needs, help)

static const ConfigKey TABLE[] = {
    TEXT(run, name, "run", "name of the run; its directory is run.dir/run.name"),
    TEXT(run, dir, "runs", "directory that holds the runs"),
    INT(run, seed, "1337", "[0, inf)", "", "", "seed of initial weights, data order and samples"),
    INT(run, steps, "0", "[0, inf)", "steps", "",
        "optimizer steps in all; 0: as many as run.minutes allows"),
    NUM(run, minutes, "0", "[0, inf)", "minutes", "run.steps=0",
        "the run's time, with what earlier processes spent; its length follows from the speed"),
    ROW(run, pace, CONFIG_STRING, "", "", "", "run.steps=0",
        "metrics.jsonl of a run of so many minutes, to repeat its length; empty: by the clock"),
    INT(run, stop_at, "0", "[0, inf)", "steps", "",
        "end early at this step, with the schedule unchanged; 0: do not"),
    INT(run, log_every, "1", "[1, inf)", "steps", "", "steps from one logged step to the next"),
    INT(run, eval_every, "250", "[0, inf)", "steps", "",
        "steps from one evaluation to the next; 0: at the end only"),
    INT(run, save_every, "0", "[0, inf)", "steps", "",
        "steps from one checkpoint to the next; 0: at the end only"),
    INT(run, sample_every, "0", "[0, inf)", "steps", "",
        "steps from one sample to the next; 0: at the end only"),
    TEXT(run, device, "", "build/train_gpu: numbers of the machine's GPUs that its ranks take in turn, such as 0,2; "
        "empty: all"),
    INT(run, threads, "0", "[0, 4096]", "threads", "", "CPU threads; 0: all cores"),
    NUM(run, peak, "0", "[0, inf)", "GFLOP/s", "",
        "what MFU is a fraction of, for one rank; a data sheet's number, say; 0: the rate measured at the start"),
    BOOL(run, account, "false",
        "write account.json after the first step: the bytes held, by kind; compare build/plan memory"),
    BOOL(run, supervisor, "true",
        "under a launcher: a process above each rank that names the one that fails; set it on the command line"),
    NUM(run, hang_timeout, "600", "[0, inf)", "seconds", "run.supervisor=true",
        "end the job when a rank gets nowhere for so long; longer than writing one tensor takes; 0: never"),
    TEXT(run, fault, "",
        "for exercises and tests: what goes wrong on purpose, such as kill:rank=2,step=30 (doc/fault.md)"),
    INT(run, norms_every, "0", "[0, inf)", "steps", "",
        "steps from one line a tensor in norms.csv (weight, gradient and update norms) to the next; 0: none"),
    INT(run, noise_every, "0", "[0, inf)", "steps", "",
        "steps from one measurement of the gradient noise scale to the next; 0: none"),
    INT(run, dump, "0", "[0, inf)", "steps", "",
        "write what this update (from 1) computes to dump/: weights, activations, losses, gradients, state; for "
        "build/diff; 0: do not"),
    INT(run, trace, "0", "[0, inf)", "steps", "parallel.pp>1",
        "write what every stage does in this update (from 1) to trace.json, for ui.perfetto.dev; 0: do not"),

    TEXT(data, train, "", "token shards to train on; a path or a pattern such as data/train_*.bin"),
    TEXT(data, val, "", "token shards to evaluate on; a path or a pattern"),
    TEXT(data, tokenizer, "", "folder of the tokenizer that made the shards; empty: none, for a run without samples"),
    TEXT(data, floor, "", "floor.json with the entropy of the validation text, where its source knows it"),
    BOOL(data, shuffle, "true",
        "windows of the training text in random order, anew each epoch; false: in the order of the files"),
    BOOL(data, document_mask, "false",
        "attention stays within documents, and positions count from their start; in training and evaluation"),
    CHOICE(data, packing, "cut", "cut|best_fit", "data.document_mask=true",
           "sequences of the training text: cut from the stream of documents, or filled with whole documents"),
    ONE_OF(data, loss, "all", "all|assistant",
           "targets that count: all tokens, or of conversations (prepare tokens --chat) what the assistant says; in "
           "training and in data.val"),
    NUM(data, max_repeat, "1", "[0, 1]", "", "",
        "while reading: a document's part in a sequence counts no loss when more than this part of its 4-grams occurred "
        "earlier in it; 1: off"),
    NUM(data, max_broken, "1", "[0, 1]", "", "", "the same, when more than this part of its bytes is U+FFFD; 1: off"),

    TEXT(model, preset, "", "preset of the model; its [model] section fills the model keys that are not set"),
    INT(model, layers, "4", "[1, 100000]", "", "", "transformer blocks"),
    INT(model, channels, "128", "[1, 1000000]", "", "", "width of the residual stream"),
    INT(model, heads, "4", "[1, 100000]", "", "", "query heads"),
    INT(model, kv_heads, "0", "[0, 100000]", "", "",
        "key/value heads; divides model.heads; 0: model.heads"),
    INT(model, head_size, "0", "[0, 100000]", "", "", "elements of one head; 0: channels / heads"),
    INT(model, ffn, "0", "[0, 10000000]", "", "",
        "width of the feed-forward layer; 0: 4 * channels; for swiglu 8/3 * channels, "
        "rounded up to a multiple of 64"),
    INT(model, vocab, "0", "[0, 2147483647]", "tokens", "", "vocabulary size; 0: the tokenizer's"),
    INT(model, context, "128", "[1, 100000000]", "tokens", "", "sequence length"),
    ONE_OF(model, norm, "layernorm", "layernorm|rmsnorm",
        "normalisation before attention, feed-forward and head"),
    NUM(model, norm_eps, "1e-5", "(0, 1]", "", "",
        "added to the variance (layernorm) or mean square (rmsnorm)"),
    ONE_OF(model, activation, "gelu", "gelu|swiglu|relu2",
        "feed-forward: gelu (tanh form), swiglu with a gate matrix, or relu2: max(x, 0)^2"),
    ONE_OF(model, position, "learned", "learned|rope",
        "learned position embedding, or rotary queries and keys"),
    NUM(model, rope_theta, "10000", "[1, inf)", "", "model.position=rope", "base of the rotary angles"),
    CHOICE(model, rope_scaling, "none", "none|linear|ntk|yarn|llama3", "model.position=rope",
        "how the angles are stretched to a context longer than the one of training"),
    NUM(model, rope_factor, "0", "[0, inf)", "", "model.rope_scaling=linear|ntk|yarn|llama3",
        "how many times longer; 0: context / rope_original"),
    INT(model, rope_original, "0", "[0, 100000000]", "tokens", "model.rope_scaling=linear|ntk|yarn|llama3",
        "context of training; 0: context / rope_factor"),
    NUM(model, rope_slow, "1", "(0, inf)", "turns", "model.rope_scaling=yarn|llama3",
        "a pair that makes no more turns in rope_original tokens is stretched by the whole factor"),
    NUM(model, rope_fast, "0", "[0, inf)", "turns", "model.rope_scaling=yarn|llama3",
        "one that makes so many is not stretched; 0: 32 for yarn, 4 for llama3"),
    INT(model, window, "0", "[0, 100000000]", "tokens", "",
        "sliding-window attention: tokens that a query sees, itself the last of them; 0: all before it"),
    ROW(model, window_pattern, CONFIG_STRING, "s", "", "", "model.window>0",
        "which layers have the window: letters repeated over the layers, s: sliding, f: full, such as sssssf"),
    BOOL(model, bias, "true", "linear layers (and layernorm) have biases"),
    BOOL(model, tie, "true", "the head shares the token embedding's matrix"),
    BOOL(model, zero_init, "false",
        "the projections of attention and feed-forward into the residual stream start at 0, so a block starts as the "
        "identity"),
    ONE_OF(model, qk_norm, "false", "false|true|whole",
        "RMSNorm on queries and keys; true: of each head's, whole: of all heads' of a token together"),
    ONE_OF(model, norm_place, "input", "input|output",
        "both norms of a block: of what attention and the feed-forward network read, or of what they give (OLMo 2)"),
    NUM(model, dropout, "0", "[0, 1)", "", "",
        "part of the embedding, of attention and of both branches that is dropped in training"),
    NUM(model, logit_cap, "0", "[0, 1e6]", "", "",
        "the logits z become cap tanh(z / cap), in training, evaluation and samples (Gemma 2: 30); 0: they stay as they "
        "are"),
    INT(model, experts, "0", "[0, 100000]", "", "",
        "mixture of experts: feed-forward networks of a layer, of which each token uses some; 0: one, used by all"),
    INT(model, experts_active, "2", "[1, 100000]", "", "model.experts>0", "experts that a token uses"),
    INT(model, experts_ffn, "0", "[0, 10000000]", "", "model.experts>0", "width of an expert; 0: model.ffn"),
    INT(model, experts_shared, "0", "[0, 10000000]", "", "model.experts>0",
        "width of an expert that all tokens use beside theirs; 0: there is none"),
    INT(model, experts_dense, "0", "[0, 100000]", "layers", "model.experts>0", "first layers that have no experts"),
    INT(model, experts_every, "1", "[1, 100000]", "layers", "model.experts>0",
        "of the layers after those, every so-manyth has experts"),
    CHOICE(model, experts_score, "softmax", "softmax|sigmoid", "model.experts>0",
        "what the router's outputs become: a softmax over all experts, or a sigmoid of each"),
    FLAG(model, experts_renorm, "true", "model.experts>0", "the weights of a token's experts are divided by their sum"),
    NUM(model, experts_scale, "1", "(0, inf)", "", "model.experts>0", "factor of those weights"),
    INT(model, experts_groups, "0", "[0, 100000]", "", "model.experts>0",
        "groups of neighbouring experts; a token uses those of a few groups only; 0: no groups"),
    INT(model, experts_groups_active, "1", "[1, 100000]", "", "model.experts_groups>0",
        "groups whose experts a token may use"),

    CHOICE(moe, balance, "sequence", "none|sequence|batch|bias", "model.experts>0",
        "what keeps experts evenly used: a loss over each sequence, a loss over the batch (with the loads of the step "
        "before), or a bias on the choice, without a loss"),
    NUM(moe, balance_coef, "0.01", "[0, inf)", "", "moe.balance=sequence|batch",
        "factor of the balance loss, which is 1 times this when loads are even"),
    NUM(moe, bias_rate, "0.001", "[0, inf)", "", "moe.balance=bias", "how far a step moves an expert's bias"),
    NUM(moe, z_coef, "0", "[0, inf)", "", "model.experts>0",
        "factor of the z loss, the mean square of log sum exp of the router's outputs"),
    NUM(moe, capacity, "0", "[0, inf)", "", "model.experts>0",
        "slots that an expert takes of a sequence in training, as a multiple of the even load; 0: all"),
    NUM(moe, room, "0", "[0, inf)", "", "parallel.ep>1",
        "rows for which a rank of parallel.ep has memory, as a multiple of its own tokens' slots; 0: for all that can "
        "come"),
    CHOICE(moe, drop, "last", "last|lightest", "moe.capacity>0",
        "slots that are dropped: the last ones of the sequence, or those with the smallest weights"),

    INT(batch, tokens, "4096", "[1, 1000000000000]", "tokens", "",
        "tokens of one optimizer step, over all micro-batches"),
    INT(batch, micro, "8", "[1, 1000000]", "sequences", "",
        "sequences of one micro-batch on one rank: what is in memory at once; a file's value is lowered to a rank's "
        "share of the batch"),
    INT(batch, accum, NULL, "[1, inf)", "micro-batches", "",
        "gradient accumulation: tokens / (parallel.dp * micro * model.context)"),
    INT(batch, ramp_from, "0", "[0, inf)", "tokens", "",
        "the batch grows from so many tokens to batch.tokens; 0: it does not"),
    INT(batch, ramp_by, "0", "[0, inf)", "tokens", "batch.ramp_from>0",
        "it grows by so many at a time; 0: by ramp_from"),
    INT(batch, ramp_tokens, "0", "[0, inf)", "tokens", "batch.ramp_from>0",
        "tokens after which it is full"),

    ONE_OF(optim, name, "adamw", "adamw|adam|sgd|momentum|adafactor|lion|adamw8bit|muon|normuon",
        "optimizer; adam: decay through the gradient (L2); muon, normuon: for the matrices of blocks, AdamW for "
        "the rest"),
    NUM(optim, lr, "1e-3", "[0, inf)", "", "", "peak learning rate"),
    NUM(optim, min_lr, "-1", "[-1, inf)", "", "optim.schedule=cosine|linear|wsd",
        "learning rate at the end; -1: lr / 10"),
    INT(optim, warmup_tokens, "0", "[0, inf)", "tokens", "", "length of the warm-up in tokens; 0: in steps"),
    NUM(optim, warmup_part, "0", "[0, 1)", "", "optim.warmup_tokens=0", "as a part of run.steps; 0: in steps"),
    INT(optim, warmup, "50", "[0, inf)", "steps", "optim.warmup_part=0", "steps of linear growth from 0 to lr"),
    ONE_OF(optim, schedule, "cosine", "cosine|linear|invsqrt|constant|wsd",
        "learning rate after the warm-up; wsd: constant, then a short decay"),
    INT(optim, decay_tokens, "0", "[0, inf)", "tokens", "optim.schedule=cosine|linear|wsd",
        "tokens after which the learning rate is min_lr; 0: decay_steps"),
    INT(optim, decay_steps, "0", "[0, inf)", "steps", "optim.decay_tokens=0",
        "step from which on the learning rate is min_lr; 0: run.steps"),
    INT(optim, wsd_decay, "0", "[0, inf)", "steps", "optim.schedule=wsd",
        "steps of the decay at the end; 0: wsd_part of what lies before its end"),
    NUM(optim, wsd_part, "0.1", "(0, 1]", "", "optim.wsd_decay=0", "the decay as a part of those steps"),
    CHOICE(optim, wsd_shape, "sqrt", "linear|cosine|exponential|sqrt", "optim.schedule=wsd",
        "form of that decay; sqrt: 1 - sqrt"),
    CHOICE(optim, ramp_lr, "none", "none|sqrt", "batch.ramp_from>0",
        "learning rate while the batch grows; sqrt: times sqrt(batch / batch.tokens)"),
    NUM(optim, beta1, "0.9", "[0, 1)", "", "optim.name=adamw|adam|momentum|lion|adamw8bit|muon|normuon",
        "decay of the mean of gradients (momentum)"),
    NUM(optim, beta2, "0.95", "[0, 1)", "", "optim.name=adamw|adam|lion|adamw8bit|muon|normuon",
        "decay of the mean of squared gradients (lion: of the gradients)"),
    NUM(optim, eps, "1e-8", "(0, 1]", "", "optim.name=adamw|adam|adamw8bit|muon|normuon",
        "added to the root of the second moment"),
    NUM(optim, momentum, "0.95", "[0, 1)", "", "optim.name=muon|normuon", "decay of the momentum of Muon's matrices"),
    INT(optim, momentum_warmup, "0", "[0, inf)", "steps", "optim.name=muon|normuon",
        "steps over which it goes from momentum_start to momentum; 0: constant"),
    NUM(optim, momentum_start, "0.85", "[0, 1)", "", "optim.momentum_warmup>0", "its value at step 0"),
    NUM(optim, row_beta2, "0.95", "[0, 1)", "", "optim.name=normuon",
        "decay of the mean square of each row of an orthogonal update"),
    NUM(optim, matrix_lr, "1", "(0, inf)", "", "optim.name=muon|normuon",
        "learning rate of Muon's matrices, in optim.lr"),
    FLAG(optim, relative_step, "false", "optim.name=adafactor",
        "Adafactor's own learning rate, min(0.01, 1 / sqrt(step)); optim.lr is not used"),
    NUM(optim, weight_decay, "0.1", "[0, inf)", "", "",
        "decoupled decay of the matrices (never of vectors)"),
    FLAG(optim, cautious_decay, "false", "optim.name=adamw|muon|normuon",
        "decay only the elements that the update itself does not drive away from zero"),
    NUM(optim, clip, "1.0", "[0, inf)", "", "", "largest global gradient norm; 0: off"),
    NUM(optim, agc, "0", "[0, inf)", "", "",
        "adaptive clipping: largest ratio of gradient to weight norm, for each unit; 0: off"),
    CHOICE(optim, agc_unit, "row", "row|tensor", "optim.agc>0", "unit of it: a row of a matrix, or a whole tensor"),
    INT(optim, mup_base, "0", "[0, 1000000]", "", "",
        "muP: channels of the small model for which lr was chosen; 0: off"),
    INT(optim, mup_base_head, "0", "[0, 1000000]", "", "optim.mup_base>0",
        "its head size, where that grows with the width; 0: it does not"),

    ONE_OF(numerics, dtype, "fp32", "fp32|bf16|fp16|fp8|tf32",
        "storage of weights and activations; master weights, gradients and optimizer stay fp32. fp8: bf16, with the "
        "blocks' matmuls in 8 bits. tf32: fp32, with the operands of matmuls rounded to 10 bits of mantissa"),
    CHOICE(numerics, bf16_products, "auto", "auto|hardware|widened", "numerics.dtype=bf16",
        "products of matrices and of attention on a CPU: by its bf16 instruction, or widened to fp32; auto: by the "
        "instruction where there is one"),
    CHOICE(numerics, embed_dtype, "storage", "storage|fp32", "numerics.dtype=bf16|fp16|fp8",
        "what the lookup of tokens and learned positions reads: the stored 2-byte table, or the fp32 master weights, so "
        "that their sum is rounded once; a tied head reads the stored table in any case"),
    BOOL(numerics, deterministic, "false",
        "one order for every sum: the same bits for any threads, cut into micro-batches and layout of ranks; every axis, "
        "and with parallel.dp above 1 a rank's sequences of a step, is a power of two, parallel.tp at most kv_heads and "
        "with fp32 or tf32 alone; not with fp8"),
    BOOL(numerics, check, "false",
        "do every op on two devices and compare each result with a derived bound: a GPU with the CPU, the CPU with "
        "other orders of sums; slow"),
    TEXT(numerics, override, "",
        "ops of your own, from shared libraries: OP:FILE,OP:FILE, such as norm_forward:./mine.so (doc/override.md)"),
    INT(numerics, loss_scale, "65536", "[1, 16777216]", "", "numerics.dtype=fp16",
        "first scale of the loss, a power of two"),
    INT(numerics, loss_growth, "2000", "[0, inf)", "steps", "numerics.dtype=fp16",
        "finite steps after which the scale doubles; 0: it stays as it is"),
    CHOICE(numerics, fp8_scaling, "delayed", "current|delayed", "numerics.dtype=fp8",
        "scales of tensors: from the tensor itself, or from the steps before"),
    INT(numerics, amax_history, "16", "[1, 10000]", "steps", "numerics.fp8_scaling=delayed",
        "steps whose largest values make the scale"),
    ROW(numerics, fp8_keep, CONFIG_STRING, "", "", "", "numerics.dtype=fp8",
        "matrices that stay bf16: parts of their names, with commas; embedding and head always do"),

    ONE_OF(memory, recompute, "none", "none|selective|attention|sqrt|every|full",
        "activations that are recomputed in backward: none; norms and activation functions; those, q, k, v and "
        "attention; segments of sqrt(layers), of recompute_every blocks, of one"),
    INT(memory, recompute_every, "2", "[1, 100000]", "blocks", "memory.recompute=every", "blocks of a segment"),
    ONE_OF(memory, compress, "none", "none|int8",
        "activations that wait for backward: as they are, or in 8 bits (which changes gradients a little)"),
    ONE_OF(memory, offload_acts, "none", "none|cpu",
        "where the activations of a block wait for backward: in device memory, in the host's"),
    ONE_OF(memory, offload, "none", "none|cpu|disk",
        "where the optimizer's state waits between updates, in stage 3 the weights too: beside the rest, in host "
        "memory, in a file of the run's directory"),
    CHOICE(memory, offload_update, "none", "none|cpu", "memory.offload=cpu",
        "where state that waits in host memory is updated: none: it travels to the device and back; cpu: where it is, "
        "and gradients come down, weights go up"),

    INT(parallel, ranks, NULL, "[1, inf)", "ranks", "", "ranks of the job, as many as the launcher started"),
    INT(parallel, dp, NULL, "[1, inf)", "ranks", "",
        "data parallelism: the ranks that share each batch: parallel.ranks / (tp * cp * pp)"),
    INT(parallel, tp, "1", "[1, 4096]", "ranks", "",
        "tensor parallelism: the ranks that hold each layer's matrices between them"),
    FLAG(parallel, sp, "false", "parallel.tp>1",
        "sequence parallelism: these ranks share the rows of the residual stream too"),
    INT(parallel, ep, "1", "[1, 4096]", "ranks", "model.experts>0",
        "expert parallelism: of the dp * cp ranks with the same layers, so many neighbours hold the experts between them"),
    INT(parallel, cp, "1", "[1, 4096]", "ranks", "",
        "context parallelism: the ranks that hold each sequence between them"),
    CHOICE(parallel, cp_assign, "zigzag", "zigzag|contiguous", "parallel.cp>1",
        "which tokens a rank has: one chunk from the front and one from the back, which balances; or neighbours"),
    CHOICE(parallel, cp_way, "ring", "ring|gather", "parallel.cp>1",
        "keys and values come block by block around a ring, or all at once"),
    INT(parallel, pp, "1", "[1, 64]", "ranks", "", "pipeline parallelism: stages that hold the layers between them"),
    CHOICE(parallel, schedule, "1f1b", "gpipe|1f1b|interleaved|zb-h1|zb-v|v-half|v-min|user", "parallel.pp>1",
        "order of the stages' forwards and backwards; build/show pipeline draws each"),
    INT(parallel, chunks, "0", "[0, 16]", "", "parallel.pp>1",
        "pieces of the model on each stage; 0: what the schedule needs"),
    ROW(parallel, table, CONFIG_STRING, "", "", "", "parallel.schedule=user",
        "the schedule, a file as build/show pipeline writes it (CSV)"),
    ROW(parallel, layers, CONFIG_STRING, "", "", "", "parallel.pp>1",
        "layers of each piece, in the order of the network, with commas; empty: as even as can be"),
    INT(parallel, zero, "0", "[0, 3]", "", "",
        "ZeRO stage: what the ranks hold once between them; 1: the optimizer's state; 2: gradients too; 3: weights "
        "too (FSDP)"),
    INT(parallel, shard, "0", "[0, 65536]", "ranks", "parallel.zero>0",
        "hybrid sharding: of the dp * cp ranks, so many neighbours hold once what ZeRO cuts, and the others copies of "
        "it; 0: all"),
    FLAG(parallel, reshard, "true", "parallel.zero=3",
        "gathered weights are freed after forward and gathered again for backward; false: they stay until the next "
        "update"),
    INT(parallel, prefetch, "1", "[0, 6]", "units", "parallel.zero=3",
        "units whose weights are gathered ahead while one runs; 0: each is gathered when it is needed"),
    INT(parallel, keep, "0", "[0, inf)", "parameters", "parallel.reshard=true",
        "units with fewer parameters than this stay gathered until the next update"),
    BOOL(parallel, overlap, "true", "communication runs beside computation; false: every call is waited for at once"),
    CHOICE(parallel, reduce_dtype, "fp32", "fp32|storage", "numerics.dtype=bf16|fp16|fp8",
        "gradients on their way to other ranks: fp32, or rounded to 16 bits; added and kept in fp32 in any case"),

    ONE_OF(comm, backend, "auto", "auto|nccl|staged",
        "build/train_gpu: what carries the ranks' arrays: NCCL, or MPI through the host's memory; auto: NCCL where "
        "each rank has a GPU of its own"),
    CHOICE(comm, all_reduce, "mpi", "mpi|ring|tree|halving|hierarchical", "parallel.zero=0",
        "how gradients are added over the ranks: as MPI (or NCCL) does it, or by hand; hierarchical: within nodes, "
        "between them, within them"),
    INT(comm, node, "0", "[0, 65536]", "replicas", "comm.all_reduce=hierarchical",
        "neighbouring replicas that a node has; divides their number; 0: as many as a host has"),
    INT(comm, bucket, "26214400", "[0, inf)", "bytes", "parallel.zero=0",
        "gradients that are added in one call, at least"),
    BOOL(comm, measure, "false",
        "at the start measure the links inside a host and between hosts, and write them to links.json of the run"),
    BOOL(comm, checked, "false", "compare every call over the ranks before it runs; slow"),
    NUM(comm, slow_alpha, "0", "[0, inf)", "seconds", "",
        "for experiments: a slow network in front of every rank, so long for a message"),
    NUM(comm, slow_beta, "0", "[0, inf)", "seconds", "", "and so long for a byte"),

    INT(eval, tokens, "0", "[0, inf)", "tokens", "",
        "tokens to evaluate on; 0: the whole validation set"),
    INT(eval, stride, "0", "[0, inf)", "tokens", "",
        "from one window to the next; 0: model.context, no overlap. Each token is scored once; the smaller "
        "the stride, the more context it has: at least context - stride tokens"),
    TEXT(eval, sets, "",
        "more validation sets: NAME=SHARDS,NAME=SHARDS or a mixture (*.toml); a loss for each of its sources"),
    TEXT(eval, tasks, "",
        "benchmark tasks: NAME=FILE,NAME=FILE or sources in a *.toml (doc/eval.md); after the last step"),
    INT(eval, tasks_every, "0", "[0, inf)", "steps", "", "and after each so many steps; 0: not"),
    INT(eval, tasks_limit, "0", "[0, inf)", "items", "", "of each task, the first; 0: all"),

    TEXT(sample, prompt, "", "text that the samples continue; empty: start of a document"),
    INT(sample, tokens, "200", "[1, inf)", "tokens", "", "length of one sample"),
    INT(sample, count, "1", "[0, 1000000]", "", "", "samples at a time; 0: none"),
    NUM(sample, temperature, "0.8", "[0, inf)", "", "",
        "divides the logits; 0: always the likeliest token"),
    INT(sample, top_k, "0", "[0, inf)", "tokens", "sample.temperature>0",
        "draw from the k likeliest tokens; 0: all"),
    NUM(sample, top_p, "1.0", "(0, 1]", "", "sample.temperature>0",
        "draw from the fewest tokens that hold this probability; 1: all"),
    NUM(sample, min_p, "0", "[0, 1]", "", "sample.temperature>0",
        "draw from tokens with at least this part of the likeliest one's probability; 0: all"),
    NUM(sample, repetition, "1", "[1, inf)", "", "",
        "divides positive logits of tokens that the text has already, multiplies negative ones; 1: off"),

    ONE_OF(ckpt, resume, "false", "false|true|auto",
        "continue from the run's newest complete checkpoint; auto: where there is one; false: a new run, in NAME-2 where "
        "NAME is taken"),
    TEXT(ckpt, init, "",
        "run, one of its checkpoints, or a safetensors file with our names, whose weights a new run starts with"),
    BOOL(ckpt, init_state, "false",
        "with them the optimizer's state, scales and the place in the data: a further stage, not a beginning"),
    BOOL(ckpt, async, "false",
        "write checkpoints while training goes on, from a copy in memory; at most two at a time"),
    INT(ckpt, keep, "2", "[0, inf)", "", "", "newest checkpoints to keep; 0: all"),
    INT(ckpt, keep_every, "0", "[0, inf)", "steps", "ckpt.keep>0",
        "keep also each checkpoint whose step is a multiple of this; 0: none"),

    NUM(monitor, skip_z, "6", "[0, inf)", "standard deviations", "",
        "a spike: a batch whose loss or gradient norm is so far above its window's mean; 0: off"),
    INT(monitor, window, "128", "[8, 1000000]", "steps", "", "accepted steps that the next one is compared with"),
    INT(monitor, max_skips, "2", "[1, inf)", "steps", "",
        "batches skipped in a row; the next is accepted, and the window starts anew"),
    CHOICE(monitor, on_spike, "warn", "none|warn|cool|skip|rollback", "monitor.skip_z>0",
        "then: warn; cool: lower the learning rate for a while; skip: make no update; rollback: go back to a "
        "checkpoint and around the data"),
    ONE_OF(monitor, on_not_finite, "skip", "skip|rollback", "what is done when loss or gradient is not finite"),
    TEXT(monitor, rules, "",
         "more rules: a loss or norm so many times its window's mean, a norm so many times optim.clip, or a plateau: "
         "loss:1.5:warn, loss:3:rollback, norm:3:skip, clip:3:warn, plateau:0.01:cool (doc/monitor.md)"),
    INT(monitor, plateau_steps, "1000", "[2, inf)", "steps", "",
        "a plateau: the mean loss of so many steps is not lower by that part than the mean of as many before"),
    INT(monitor, experts_steps, "100", "[0, inf)", "steps", "model.experts>0",
        "warn of an expert that no token has used for so many steps, and of uneven loads; 0: do not"),
    NUM(monitor, experts_entropy, "0.5", "[0, 1)", "", "monitor.experts_steps>0",
        "uneven: an entropy of the loads below this part of the way from k experts for all tokens (0) to even loads (1)"),
    NUM(monitor, cool, "0.5", "(0, 1]", "", "", "cool: the learning rate is multiplied by it"),
    INT(monitor, cool_steps, "100", "[1, inf)", "steps", "", "for so many steps"),
    INT(monitor, rollback_steps, "0", "[0, inf)", "steps", "",
        "a rollback goes to the newest checkpoint at least so many updates before the bad one"),
    INT(monitor, rollback_skip, "0", "[0, inf)", "batches", "",
        "and around so many batches after it; at least up to the bad one"),
    BOOL(monitor, rollback_cool, "false", "and goes on with a lower learning rate for cool_steps"),
    INT(monitor, max_rollbacks, "3", "[0, inf)", "", "", "rollbacks of a run; one more ends it"),
    INT(monitor, rollback_at, "0", "[0, inf)", "steps", "",
        "a drill: roll back in place of this update (from 1), the first time; 0: do not"),
    INT(monitor, agree_every, "0", "[0, inf)", "steps", "",
        "steps from one comparison of what ranks hold alike to the next (also at checkpoints); 0: there alone"),
    BOOL(monitor, locate, "true", "look for the first tensor that is not finite, as it is computed"),
};
enum { N_KEYS = sizeof TABLE / sizeof *TABLE };
_Static_assert((int)N_KEYS <= (int)CONFIG_MAX_KEYS, "Config.origin has one entry for each row");

const ConfigKey *config_table(int *n_keys)
{
    if (n_keys) *n_keys = N_KEYS;
    return TABLE;
}

// ---- rows by their names


int config_table_find(const char *name)
{
    for (int i = 0; i < N_KEYS; i++)
        if (!strcmp(TABLE[i].name, name)) return i;
    return -1;
}

const char *config_table_section(const char *name, int *n)
{
    const char *best = NULL;
    int best_distance = 0;
    for (int i = 0; i < N_KEYS; i++) {
        char section[32];
        int length = (int)strcspn(TABLE[i].name, ".");
        snprintf(section, sizeof section, "%.*s", length, TABLE[i].name);
        int distance = words_distance(name, section, 1000);
        if (best && distance >= best_distance) continue;
        best = TABLE[i].name;
        best_distance = distance;
        *n = length;
    }
    return best;
}

// The right key in the wrong section (optim.steps) counts as two edits.
int config_table_nearest(const char *name)
{
    const char *dot = strchr(name, '.');
    const char *short_name = dot ? dot + 1 : name;
    int best = -1, best_distance = (int)strlen(short_name) / 2 + 2;
    for (int i = 0; i < N_KEYS; i++) {
        int whole = words_distance(name, TABLE[i].name, best_distance);
        int key_only = 2 + words_distance(short_name, strchr(TABLE[i].name, '.') + 1, whole - 2);
        int distance = whole < key_only ? whole : key_only;
        if (distance < best_distance) {
            best = i;
            best_distance = distance;
        }
    }
    return best;
}

const ConfigGone *config_table_gone(const char *name)
{
    static const ConfigGone gone[] = {
        {"run.tensorboard", "false", "scripts/tensorboard.py RUN"},
        {"ckpt.on_full", "wait", "a save waits for an older one"},
        {"monitor.ratio_low", NULL, ""}, {"monitor.ratio_mid", NULL, ""}, {"monitor.ratio_high", NULL, ""},
        {"monitor.ratio_norm", NULL, ""}, {"monitor.ratio_clip", NULL, ""}, {"monitor.plateau", NULL, ""},
        {"monitor.on_ratio_low", "none", "monitor.rules=loss:1.5:warn"},
        {"monitor.on_ratio_mid", "none", "monitor.rules=loss:2:warn"},
        {"monitor.on_ratio_high", "none", "monitor.rules=loss:3:warn"},
        {"monitor.on_ratio_norm", "none", "monitor.rules=norm:3:warn"},
        {"monitor.on_ratio_clip", "none", "monitor.rules=clip:3:warn"},
        {"monitor.on_plateau", "none", "monitor.rules=plateau:0.01:warn"},
    };
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (!strcmp(name, gone[i].name)) return &gone[i];
    return NULL;
}

// ---- values

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// Removes the underscores between digits (1_000); false when one stands elsewhere or text does not fit.
static bool plain_number(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; text[i]; i++) {
        if (text[i] == '_') {
            if (i == 0 || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) return false;
            continue;
        }
        if (!strchr("0123456789+-.eE", text[i]) || n + 1 >= size) return false;
        out[n++] = text[i];
    }
    out[n] = 0;
    return n > 0;
}

// Is x in the interval "[0, 1)", as a double, or with everything rounded to the 32-bit numbers that are computed with?
// An empty interval holds everything.
static bool in_interval(const char *interval, double x, bool rounded)
{
    if (!*interval) return true;
    char *end;
    double low = strtod(interval + 1, &end);
    double high = strtod(end + 1, &end);
    if (rounded) x = (float)x, low = (float)low, high = (float)high;
    return (interval[0] == '(' ? x > low : x >= low) && (*end == ')' ? x < high : x <= high);
}

// The index of text in "a|b|c", or -1.
static int choice_index(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *at = choices; *at; index++) {
        size_t n = strcspn(at, "|");
        if (n == length && !memcmp(at, text, n)) return index;
        at += n + (at[n] == '|');
    }
    return -1;
}

void config_table_range(const ConfigKey *key, char *out, size_t size)
{
    const char *interval = key->type == CONFIG_CHOICE ? "" : key->allowed, *inf = strstr(interval, ", inf)");
    const char *above = *interval == '(' ? ">" : ">=";
    if (inf) snprintf(out, size, "%s %.*s", above, (int)(inf - interval) - 1, interval + 1);
    else snprintf(out, size, "%s%s", *interval ? "in " : "", interval);
}

static bool parse_number(const ConfigKey *key, const char *text, bool quoted, double *number, long *integer)
{
    char plain[64], *end = plain;
    if (quoted || !plain_number(text, plain, sizeof plain)) return false;
    errno = 0;
    if (key->type == CONFIG_INTEGER) {
        *integer = strtol(plain, &end, 10);
        *number = (double)*integer;
    } else {
        *number = strtod(plain, &end);
    }
    bool overflow = errno == ERANGE && (key->type == CONFIG_INTEGER || isinf(*number));
    return !*end && end != plain && !overflow;
}

bool config_table_parse(const ConfigKey *key, Config *cfg, const char *text, bool quoted,
                        char *why, size_t why_size)
{
    void *member = (char *)cfg + key->offset;
    char kind[256], range[64];
    double number = 0;
    long integer = 0;
    int choice = 0;
    size_t bad, n_bad;
    config_table_describe(key, kind, sizeof kind);
    if (!key->def) {
        snprintf(why, why_size, "%s cannot be set, it is derived (%s)", key->name, key->help);
        return false;
    }
    switch (key->type) {
    case CONFIG_STRING:
        if (strlen(text) >= CONFIG_TEXT) {
            snprintf(why, why_size, "%s is %zu bytes long (at most %d)", key->name, strlen(text),
                     CONFIG_TEXT - 1);
            return false;
        }
        bad = words_utf8_invalid(text, strlen(text), 0, &n_bad);
        if (bad < strlen(text)) {
            snprintf(why, why_size, "%s is not UTF-8: byte 0x%02X after '%.*s' (manifests and logs are; a link with "
                     "another name will do)", key->name, (unsigned char)text[bad], (int)bad, text);
            return false;
        }
        strcpy(member, text);
        return true;
    case CONFIG_BOOL:
        if (quoted || (strcmp(text, "true") && strcmp(text, "false"))) break;
        *(bool *)member = !strcmp(text, "true");
        return true;
    case CONFIG_CHOICE:
        choice = choice_index(key->allowed, text);
        if (choice < 0) break;
        *(int *)member = choice;
        return true;
    case CONFIG_INTEGER:
    case CONFIG_NUMBER:
        if (!parse_number(key, text, quoted, &number, &integer)) break;
        if (integer > CONFIG_LARGEST || integer < -CONFIG_LARGEST) {
            snprintf(why, why_size, "%s is %s, beyond 2^53 (JSON holds no larger integers exactly)", key->name, text);
            return false;
        }
        bool in = in_interval(key->allowed, number, false);
        if (!in || (key->type == CONFIG_NUMBER && !in_interval(key->allowed, number, true))) {
            config_table_range(key, range, sizeof range);
            snprintf(why, why_size, "%s is %s%s, not %s (%s)", key->name, text, in ? ", rounded to 32 bits" : "", range,
                     key->help);
            return false;
        }
        if (key->type == CONFIG_INTEGER) *(long *)member = integer;
        else *(double *)member = number;
        return true;
    }
    const char *quote = quoted ? "\"" : "'";
    snprintf(why, why_size, "%s must be %s, not %s%.200s%s", key->name, kind, quote, text, quote);
    return false;
}

void config_table_format(const ConfigKey *key, const Config *cfg, char *out, size_t size)
{
    const void *member = (const char *)cfg + key->offset;
    double number;
    switch (key->type) {
    case CONFIG_INTEGER: snprintf(out, size, "%ld", *(const long *)member); break;
    case CONFIG_BOOL: snprintf(out, size, "%s", *(const bool *)member ? "true" : "false"); break;
    case CONFIG_STRING: snprintf(out, size, "%s", (const char *)member); break;
    case CONFIG_NUMBER: // the shortest digits that read back to the same double
        number = *(const double *)member;
        if (fabs(number) < 1e9 && number == floor(number)) {
            snprintf(out, size, "%.0f", number);
            break;
        }
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(out, size, "%.*g", digits, number);
            if (strtod(out, NULL) == number) break;
        }
        break;
    case CONFIG_CHOICE: {
        const char *at = key->allowed;
        for (int i = 0; i < *(const int *)member && *at; i++) {
            at += strcspn(at, "|");
            at += *at == '|';
        }
        snprintf(out, size, "%.*s", (int)strcspn(at, "|"), at);
        break;
    }
    }
}

void config_table_describe(const ConfigKey *key, char *out, size_t size)
{
    const char *kinds[] = {"an integer", "a number", "true or false", "a string"};
    if (key->type != CONFIG_CHOICE) {
        snprintf(out, size, "%s", kinds[key->type]);
        return;
    }
    size_t n = 0;
    for (const char *at = key->allowed; *at && n + 8 < size; at++) {
        if (*at != '|') out[n++] = *at;
        else n += (size_t)snprintf(out + n, size - n, strchr(at + 1, '|') ? ", " : " or ");
    }
    out[n] = 0;
}

// `needs` is "section.key=value", "section.key=value|value" or "section.key>NUMBER". A key that depends on one without
// effect has no effect either.
bool config_table_has_effect(const ConfigKey *key, const Config *cfg, int *needed)
{
    if (!*key->needs) return true;
    char name[64], value[CONFIG_TEXT];
    size_t n = strcspn(key->needs, "=>");
    snprintf(name, sizeof name, "%.*s", (int)n, key->needs);
    int row = config_table_find(name);
    const ConfigKey *other = &TABLE[row];
    if (!config_table_has_effect(other, cfg, needed)) return false;
    *needed = row;
    config_table_format(other, cfg, value, sizeof value);
    return key->needs[n] == '>' ? strtod(value, NULL) > strtod(key->needs + n + 1, NULL)
                               : choice_index(key->needs + n + 1, value) >= 0;
}

// ---- output for people: --help, the reference, the first lines of a run

// The bytes of the first word: to a space that stands between no two quotation marks, so that a path stays whole.
static int first_word(const char *text)
{
    bool quoted = false;
    int n = 0;
    for (; text[n] && (quoted || text[n] != ' '); n++)
        if (text[n] == '"') quoted = !quoted && strchr(text + n + 1, '"');
    return n;
}

// Prints text from column `indent` on, broken between words so that no line is longer than `width`.
static void print_wrapped(FILE *out, int column, int indent, int width, const char *text)
{
    while (*text) {
        int word = first_word(text);
        if (column > indent && column + 1 + word > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", word, text);
        column += word;
        text += word + (text[word] == ' ');
    }
    fputc('\n', out);
}

// True at the first row of each section.
static bool section_starts(int i, int *n)
{
    *n = (int)strcspn(TABLE[i].name, ".");
    return i == 0 || strncmp(TABLE[i].name, TABLE[i - 1].name, (size_t)*n + 1);
}

// "integer >= 1, steps": type, range or choices, unit.
static void print_kind(const ConfigKey *key, char *out, size_t size)
{
    const char *names[] = {"integer", "number", "true or false", "text"};
    char choices[256], range[64];
    config_table_describe(key, choices, sizeof choices);
    config_table_range(key, range, sizeof range);
    if (key->type == CONFIG_CHOICE) snprintf(out, size, "%s", choices);
    else snprintf(out, size, "%s%s%s%s%s", names[key->type], *range ? " " : "", range, *key->unit ? ", " : "",
                  key->unit);
}

// The keys of a section, NULL: of all. Returns how many those are.
static int print_keys(const char *section)
{
    int n, printed = 0;
    char left[128], kind[320], text[1024];
    for (int i = 0; i < N_KEYS; i++) {
        const ConfigKey *key = &TABLE[i];
        size_t length = strcspn(key->name, ".");
        if (section && (strncmp(section, key->name, length) || section[length])) continue;
        printed++;
        if (section_starts(i, &n)) printf("\n[%.*s]\n", n, key->name);
        print_kind(key, kind, sizeof kind);
        snprintf(left, sizeof left, "--%s=%s", key->name, key->def ? key->def : "");
        snprintf(text, sizeof text, "%s (%s%s%s%s)", key->help, key->def ? "" : "always derived; ", kind,
                 *key->needs ? "; only with " : "", key->needs);
        int column = printf("  %-31s ", key->def ? left : key->name);
        if (column > 34) column = printf("\n%*s", 34, "") - 1;
        print_wrapped(stdout, column, 34, 100, text);
    }
    return printed;
}

static void print_help(const char *program)
{
    char presets[2048];
    config_list_presets(presets, sizeof presets);
    printf("usage: %s [FILE.toml or preset] [--section.key=value ...]\n\n", program);
    print_wrapped(stdout, 0, 0, 100, "The file has lines 'key = value' under '[section]'; what the command line says "
                             "wins. Each key is listed with its default.");
    printf("presets: ");
    print_wrapped(stdout, 9, 9, 100, presets);
    print_keys(NULL);
    printf("\n  --help                          this page\n"
                 "  --help SECTION                  of it the keys of one section, such as model\n"
                 "  --help-markdown                 the same as a table: what stands in doc/config.md\n");
}

static void help_section(const char *section)
{
    if (print_keys(section)) return;
    char names[400] = "";
    for (int i = 0, n; i < N_KEYS; i++)
        if (section_starts(i, &n))
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.*s", *names ? ", " : "", n, TABLE[i].name);
    die("--help %s: no such section (there are %s)", section, names);
}

void config_print_reference(FILE *out)
{
    int n;
    char kind[320];
    for (int i = 0; i < N_KEYS; i++) {
        const ConfigKey *key = &TABLE[i];
        if (section_starts(i, &n))
            fprintf(out, "%s**[%.*s]**\n\n| key | default | takes | meaning |\n|---|---|---|---|\n",
                    i ? "\n" : "", n, key->name);
        print_kind(key, kind, sizeof kind);
        const char *def = !key->def ? "derived" : *key->def ? key->def : "\"\"";
        fprintf(out, "| `%s` | `%s` | %s | %s", key->name, def, kind, key->help);
        if (*key->needs) fprintf(out, " (only with `%s`)", key->needs);
        fprintf(out, " |\n");
    }
}

// --print KEY,KEY: what the other arguments make of them, a line each. They are checked as for one process, unless an
// axis asks for more.
static void print_values(int argc, char **argv, int at)
{
    static Config cfg;
    char *rest[argc], value[CONFIG_TEXT];
    int n = 0;
    if (at + 1 == argc) die_usage("--print: of which settings? (--print run.dir,run.name)");
    for (int i = 0; i < argc; i++)
        if (i != at && i != at + 1) rest[n++] = argv[i];
    config_defaults(&cfg);
    config_parse(&cfg, n, rest);
    if (cfg.parallel.tp * cfg.parallel.cp * cfg.parallel.pp * cfg.parallel.ep == 1) config_resolve(&cfg);
    for (char *key = strtok(argv[at + 1], ","); key; key = strtok(NULL, ",")) {
        int row = config_table_find(key);
        if (row < 0) die_usage("--print: unknown key '%s' (--help lists the keys)", key);
        config_table_format(&TABLE[row], &cfg, value, sizeof value);
        puts(value);
    }
}

void config_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
        if (help && i + 1 < argc && *argv[i + 1] != '-') help_section(argv[i + 1]);
        else if (help) print_help(argv[0]);
        else if (!strcmp(argv[i], "--help-markdown")) config_print_reference(stdout);
        else if (!strcmp(argv[i], "--print")) print_values(argc, argv, i);
        else continue;
        exit(0);
    }
}

// The value as it stands on the screen: numbers to six digits (config.toml has all).
static void shown_value(const ConfigKey *key, const Config *cfg, char *out, size_t size)
{
    config_table_format(key, cfg, out, size);
    if (key->type == CONFIG_NUMBER && strlen(out) > 10)
        snprintf(out, size, "%.6g", *(const double *)((const char *)cfg + key->offset));
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20) *c = ' ';
}

// What this process was given or worked out, of one section: "key=value key=value".
static size_t changed_values(const Config *cfg, int first, bool derived, char *out, size_t size)
{
    char value[CONFIG_TEXT + 2];
    size_t used = 0;
    int section = (int)strcspn(TABLE[first].name, "."), needed = 0;
    *out = 0;
    for (int i = first; i < N_KEYS && !strncmp(TABLE[i].name, TABLE[first].name, (size_t)section + 1); i++) {
        ConfigSource source = cfg->origin[i].source;
        if (source == CONFIG_DEFAULT || derived != (source == CONFIG_DERIVED)) continue;
        bool acts = config_table_has_effect(&TABLE[i], cfg, &needed) || cfg->origin[needed].source == CONFIG_DERIVED;
        if (!acts && source != CONFIG_COMMAND_LINE) continue; // (run.steps may be derived from run.minutes)
        shown_value(&TABLE[i], cfg, value, sizeof value);
        const char *quote = *value && !strchr(value, ' ') ? "" : "\"";
        int n = snprintf(out + used, size - used, "%s%s=%s%s%s", used ? " " : "", TABLE[i].name + section + 1, quote,
                         value, quote);
        used = used + (size_t)n < size ? used + (size_t)n : size - 1;
    }
    return used;
}

void config_print(const Config *cfg, FILE *out, int width)
{
    static char given[N_KEYS * 64 + 8 * CONFIG_TEXT], derived[sizeof given];
    int n;
    for (int i = 0; i < N_KEYS; i++) {
        if (!section_starts(i, &n)) continue;
        size_t used = changed_values(cfg, i, false, given, sizeof given);
        if (changed_values(cfg, i, true, derived, sizeof derived))
            used += (size_t)snprintf(given + used, sizeof given - used, "%sderived: %s", used ? "; " : "", derived);
        if (used) print_wrapped(out, fprintf(out, "%-10.*s", n, TABLE[i].name), 10, width, given);
    }
}

// ---- as a file

static void write_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\') fprintf(out, "\\%c", byte);
        else if (byte < 0x20 || byte == 0x7F) fprintf(out, "\\u%04X", byte);
        else fputc(byte, out);
    }
    fputc('"', out);
}

// One "key = value  # where it came from" line; a comment when the value has no effect or cannot be set.
static void write_key(FILE *out, const Config *cfg, const ConfigKey *key, const ConfigOrigin *origin)
{
    char value[CONFIG_TEXT];
    int needed;
    // A preset's values follow, so the file depends on no other; how this process began is none of the next run's.
    bool comment = !strcmp(key->name, "model.preset") || !strcmp(key->name, "ckpt.resume");
    bool effect = config_table_has_effect(key, cfg, &needed) ||
                  (cfg->origin[needed].source == CONFIG_DERIVED && !strcmp(TABLE[needed].name, "run.steps"));
    // What follows from other settings, so that a run that begins from this file may have others.
    static const char *const length[] = {"run.steps", "eval.tokens", "optim.decay_steps", "batch.ramp_by"};
    for (int i = 0; i < 4; i++) comment |= origin->source == CONFIG_DERIVED && !strcmp(key->name, length[i]);
    config_table_format(key, cfg, value, sizeof value);
    fprintf(out, "%s%s = ", !effect || !key->def || comment ? "# " : "", strchr(key->name, '.') + 1);
    if (key->type == CONFIG_STRING || key->type == CONFIG_CHOICE) write_string(out, value);
    else fprintf(out, "%s", value);
    if (!effect) fprintf(out, "  # no effect: needs %s", key->needs);
    else if (*origin->where) fprintf(out, "  # %s", origin->where);
    fputc('\n', out);
}

void config_write(const Config *cfg, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out) die("%s: cannot write: %s", path, strerror(errno));
    fprintf(out, "# All settings of this run, resolved; after a value, where it came from.\n");
    for (int i = 0, n; i < N_KEYS; i++) {
        if (section_starts(i, &n)) fprintf(out, "\n[%.*s]\n", n, TABLE[i].name);
        write_key(out, cfg, &TABLE[i], &cfg->origin[i]);
    }
    bool failed = ferror(out);
    if (fclose(out) || failed) die("%s: cannot write: %s (is the disk full?)", path, strerror(errno));
}
