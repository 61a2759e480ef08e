// prepare_options: the command line of build/prepare, but for recipes.
#ifndef PREPARE_OPTIONS_H
#define PREPARE_OPTIONS_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// The commands, as bits: an option goes with some of them.
enum { PREPARE_TOKENS = 1, PREPARE_TRAIN = 2, PREPARE_ENCODE = 4, PREPARE_DECODE = 8 };

typedef struct {
    int command;
    const char **input; // (n_inputs)
    size_t n_inputs, cap_inputs;
    const char *train, *val_file, *out, *vocab, *pattern, *val, *tokenizer, *separator, *dtype, *shard_tokens,
        *special, *format, *field, *line, *strict, *threads;
    const char *file; // encode, decode
} PrepareOptions;

// argv as build/prepare got it. Dies, with one line and status 2, for what it does not know and for an option that
// another one leaves without effect. free() input.
PrepareOptions prepare_options_read(int argc, char **argv);
void prepare_options_help(void); // prints it
// The number of option --NAME; dies unless it is a whole one from low to high.
long long prepare_options_count(const char *name, const char *text, long long low, long long high);

#ifdef __cplusplus
}
#endif
#endif
