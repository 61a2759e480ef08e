// stop: handlers that set a flag. See stop.h.
//
// Libraries take signals: UCX catches SIGHUP in its constructor, whether it was ignored or not (a switch of its own,
// UCX_DEBUG_SIGNO), and MPICH SIGUSR1. So what is ignored is read before any library is initialised (.preinit_array), and
// these signals are taken from the libraries (launch_start, after MPI has begun).
#define _GNU_SOURCE // SIGSTKFLT
#include "base/stop.h"

#include "base/clock.h"

#include <stdbool.h>

volatile sig_atomic_t stop_asked, stop_unread;

static const int asks[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU,
#ifdef SIGPWR // Linux
                           SIGPWR, SIGSTKFLT,
#endif
                           SIGIO, SIGALRM, SIGVTALRM, SIGPROF}; // these four unless somebody catches them
enum { ASKS = sizeof asks / sizeof *asks, TIMERS = 4 };
static bool ignored[ASKS];

static void look(void)
{
    struct sigaction now;
    for (int i = 0; i < ASKS; i++) ignored[i] = !sigaction(asks[i], NULL, &now) && now.sa_handler == SIG_IGN;
}

#ifdef __linux__
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = look;
#endif
void stop_as_started(void)
{
    for (int i = 0; i < ASKS - TIMERS; i++) signal(asks[i], ignored[i] ? SIG_IGN : SIG_DFL);
}

static void on_signal(int number)
{
    static volatile double first;
    if (!stop_asked) first = clock_seconds();
    else if (number != SIGXCPU && number != SIGALRM && number != SIGVTALRM && number != SIGPROF && // these come again
             clock_seconds() - first > 1) signal(number, SIG_DFL), raise(number);
    stop_asked = 1;
}

static void on_broken_pipe(int number)
{
    (void)number;
    stop_unread = stop_asked = 1;
}

void stop_listen_to_pipes(void)
{
    signal(SIGPIPE, on_broken_pipe);
}

void stop_listen(void)
{
    struct sigaction now;
    stop_as_started();
    for (int i = 0; i < ASKS; i++)
        if (!sigaction(asks[i], NULL, &now) && now.sa_handler == SIG_DFL) signal(asks[i], on_signal);
}
