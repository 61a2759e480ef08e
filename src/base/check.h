// check: one way to stop.
//
// Every error a user can cause ends in die(): one line that says where, what, the value seen and what to try next, then
// exit status 1. A program whose standard output could not be written ends the same way. In a job of several ranks the
// line starts with "rank R: ", and the exit handler of comm_mpi ends the other ranks.
#ifndef CHECK_H
#define CHECK_H
#ifdef __cplusplus
extern "C" {
#endif

// Prints "error: MESSAGE [file:line]" as one line on stderr (in a job of several ranks "rank R: " comes first), and
// exits with status 1. Write the message as: where: what: value (what to try).
#define die(...) check_die(__FILE__, __LINE__, __VA_ARGS__)
// The same with exit status 2, for a wrong command line.
#define die_usage(...) check_die_status(2, __VA_ARGS__)
// Dies when an invariant of the program is broken: a bug, not a mistake of the user.
#define check(cond) ((cond) ? (void)0 : check_die(__FILE__, __LINE__, "broken invariant: %s", #cond))

// When -h or --help is among the arguments: prints `text` and exits with status 0.
void check_help(int argc, char **argv, const char *text);

// Several processes that run the same program share *voice, 0 at first: of their errors the first one is printed.
void check_share_voice(int *voice);

void check_die(const char *file, int line, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void check_die_status(int status, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));

// Prints "warning: MESSAGE" as one line on stderr; control characters of what it quotes become '?', as in die().
void check_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// The same characters of a text that is printed otherwise.
void check_clean(char *text);

#ifdef __cplusplus
}
#endif
#endif
