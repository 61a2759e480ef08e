// clock: seconds, for durations; doing: says on a terminal what a program does while nothing else is to be seen.
#ifndef CLOCK_H
#define CLOCK_H
#ifdef __cplusplus
extern "C" {
#endif

// Seconds since some fixed moment; never goes back.
double clock_seconds(void);

// ---- doing.c
// From now on the program does this, "validation"; NULL: what can be seen. After two seconds, and each second from then
// on, standard error has a line with it and its seconds, which the next call removes. Nothing where standard error
// is no terminal. From one thread.
void doing(const char *what);

#ifdef __cplusplus
}
#endif
#endif
