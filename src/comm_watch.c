// comm_watch: names the rank that was killed.
//
// A process that dies by a signal (out of memory, kill -9, a crash) cannot say so, and the launcher does not say which
// one was the first: Hydra kills the other ranks at once and may then report one of those. So each rank
// has a watcher: a forked process that holds one end of a pipe and reads. A byte means a planned end. End of file
// without a byte means that the rank is gone, and the watcher prints the one line that the rank would have printed.
//
// The others then die by the launcher's hand, and their watchers notice too. The first to bind an abstract socket
// named after the launcher's process speaks; the rest keep quiet. A rank that ends the job itself, by die(), has its
// watcher take the name in silence. The name is held for LINGER seconds, until all are gone.
//
// The invariant: the launcher learns of a death only after the line is written. It notices that the rank's sockets
// and pipes are closed; the watcher has copies of them, and closes them last. It leaves the rank's session, so that
// a signal to the process group does not reach it. On several machines each has a first one.
//
// Rejected: the rank as the child of its watcher (knows the signal, but signals would have to be passed on, and
// debuggers see the wrong process); heartbeats (slower than the launcher; they belong to hanging ranks).
#include "comm_watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { LINGER = 2, FILES = 4096 };
static const char DONE = 'd', JOB = 'j';

// A socket for the first of the processes that share a launcher, -1 for the others.
static int claim(long launcher)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX}; // sun_path begins with a zero: abstract, no file
    int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "comm_watch.%ld", launcher);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int s = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&name, size) == 0) return s;
    close(s);
    return -1;
}

static void watch(int pipe_end, int own_end, const char *rank, long process, long launcher)
{
    char byte = 0, line[160];
    setsid();
    close(own_end);
    ssize_t n = read(pipe_end, &byte, 1);
    if (n == 1 && byte == DONE) _exit(0);
    int name = claim(launcher);
    bool mine = name >= 0;
    int length = snprintf(line, sizeof line, "rank %s: error: process %ld was killed or crashed\n", rank, process);
    if (mine && byte != JOB && write(STDERR_FILENO, line, (size_t)length) != length) _exit(1);
    for (int fd = 0; mine && fd < FILES; fd++)
        if (fd != name) close(fd); // now the launcher may notice
    if (mine) sleep(LINGER);
    _exit(0);
}

int comm_watch_start(void)
{
    const char *rank = getenv("PMI_RANK"), *size = getenv("PMI_SIZE");
    int ends[2];
    long process = getpid(), launcher = getppid();
    if (!rank || !size || atoi(size) < 2 || pipe(ends) != 0) return -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) watch(ends[0], ends[1], rank, process, launcher);
    close(ends[0]);
    if (child > 0) {
        fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        return ends[1];
    }
    close(ends[1]); // no watcher: the job runs as well
    return -1;
}

void comm_watch_end(int handle, bool job)
{
    const char *byte = job ? &JOB : &DONE;
    if (handle >= 0 && write(handle, byte, 1) == 1) close(handle);
}
#else
int comm_watch_start(void)
{
    return -1;
}

void comm_watch_end(int handle, bool job)
{
    (void)handle, (void)job;
}
#endif
