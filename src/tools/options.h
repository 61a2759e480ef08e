// options: a program's command line from one table: what it takes, its help, and what is wrong with it.
#ifndef OPTIONS_H
#define OPTIONS_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    OPTION_NOTE,   // no option: a heading of the help
    OPTION_SWITCH, // bool *to
    OPTION_TEXT,   // const char **to
    OPTION_LIST,   // OptionList *to: each value is added
    OPTION_WORDS,  // the same, and the words after it, up to the next option, are values too
    OPTION_INT, OPTION_SIZE, OPTION_NUMBER // int *, size_t *, double *to: from `least` to `most` (0: no limit)
} OptionKind;

typedef struct {
    const char **word; // (n), free() it
    size_t n, cap;
} OptionList; // starts as {0}

typedef struct {
    const char *name, *value; // "--steps", "N"
    const char *help;
    OptionKind kind;
    void *to;
    double least, most;
    int where;  // bits, for OptionSet.where and for the program; 0: everywhere
    bool given; // by the command line
} Option;
// A row: OPTION(INT, "--steps", "N", "of each (200)", &steps, .least = 1); or a heading.
#define OPTION(KIND, NAME, VALUE, HELP, TO, ...) \
    {.name = NAME, .value = VALUE, .help = HELP, .kind = OPTION_##KIND, .to = TO, __VA_ARGS__}
#define OPTION_HEAD(NAME) {.name = NAME}

typedef struct {
    const char *program; // in errors: "prepare tokens"
    const char *usage;   // of the help: what stands before the rows
    Option *row;         // (n)
    size_t n;
    int where;           // rows that have none of these bits are no options; 0: all are
    const char *quote, *missing; // of errors: around an unknown option (""); what an option without its value is told
} OptionSet;

// Reads argv[1] and up into the places of the rows. What is neither an option nor a value is moved to argv[1] and up
// in its order; returns how many there are. "--name=value" is read too. --help prints and ends the program; what is
// wrong ends it with exit status 2.
size_t options_read(OptionSet *set, int argc, char **argv);
// The rows of the set as help, one a line.
void options_print(const OptionSet *set);
// Whether the row of that name was given.
bool options_given(const OptionSet *set, const char *name);
// The value of --name, or die("PROGRAM: --NAME: 'TEXT' (a whole number from LOW to HIGH)").
long long options_count(const char *program, const char *name, const char *text, long long low, long long high);

#ifdef __cplusplus
}
#endif
#endif
