// doing: says on a terminal what a program does, from a thread that looks at the clock. See clock.h.
//
// The line is redrawn in place and the cursor waits at its start, so whatever the program says next takes its place.
// Rejected: a signal at intervals (it interrupts the system calls of the libraries); a line per phase also where there
// is no terminal (a log would depend on the machine's speed).

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    char what[160];
    double since;
    bool shown, asked, terminal;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *look(void *unused)
{
    for (;;) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        pthread_mutex_lock(&state.lock);
        double seconds = clock_seconds() - state.since;
        if (*state.what && seconds >= 2) {
            fprintf(stderr, "\r\x1b[K... %s, %.0f s\r", state.what, seconds);
            state.shown = true;
        }
        pthread_mutex_unlock(&state.lock);
    }
    return unused;
}

// At the first call.
static void begin(void)
{
    const char *term = getenv("TERM");
    pthread_t thread;
    state.asked = true;
    state.terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") &&
                     !pthread_create(&thread, NULL, look, NULL) && !pthread_detach(thread);
}

void doing(const char *what)
{
    if (!state.asked) begin();
    if (!state.terminal) return;
    pthread_mutex_lock(&state.lock);
    if (state.shown) fprintf(stderr, "\r\x1b[K");
    state.shown = false;
    state.since = clock_seconds();
    snprintf(state.what, sizeof state.what, "%s", what ? what : "");
    pthread_mutex_unlock(&state.lock);
}
