// lock: flock on RUN/lock. See lock.h.
//
// Two runs in one directory would write the same metrics.jsonl and remove each other's checkpoints. flock belongs to
// the open file, so it ends with the process: no lock is ever stale, and nobody has to guess whether a process number
// that stands in a file is still the one that wrote it. What stands in the file is for the message alone.
//
// The invariant: the file is never removed. Whoever removed it could remove one that another process has just locked,
// and a third would lock a new file of the same name.
//
// Where the file system has no flock (some network file systems), the words in the file decide: they name a process of
// this host that lives, or another host, and the lock is refused. A run that was killed on another host then has to be
// declared dead by a person, who empties the file.
//
// Rejected: O_EXCL (stale after every kill); fcntl locks (any close of the file by the same process drops them).
#include "base/lock.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 200 };

// "node1, process 4211, since 2026-03-04 05:06:07"
static void words_of(char *text, size_t n)
{
    char host[64] = "", start[32];
    time_t now = time(NULL);
    struct tm at;
    gethostname(host, sizeof host - 1);
    strftime(start, sizeof start, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &at));
    snprintf(text, n, "%s, process %ld, since %s\n", host, (long)getpid(), start);
}

static void read_words(int fd, char text[WORDS])
{
    ssize_t n = pread(fd, text, WORDS - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20) *c = '?';
}

// Without flock: whether the words name somebody who may be there.
static bool may_live(const char *text)
{
    char host[64] = "", theirs[64];
    long process = 0;
    gethostname(host, sizeof host - 1);
    if (sscanf(text, "%63[^,], process %ld", theirs, &process) != 2) return false;
    return strcmp(host, theirs) || (process > 0 && (kill((pid_t)process, 0) == 0 || errno == EPERM));
}

int lock_take(const char *dir)
{
    char path[700], text[WORDS];
    if (snprintf(path, sizeof path, "%s/lock", dir) >= (int)sizeof path) die("lock: path too long: %s", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) die("%s: %s (another --run.dir?)", path, strerror(errno));
    bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0;
    if (taken) {
        bool unknown = errno != EWOULDBLOCK;
        read_words(fd, text);
        taken = !unknown || may_live(text);
    }
    if (taken)
        die("%s: another run is in this directory: %s (end it, or try another --run.name)", path,
            text[0] ? text : "it has not said which");
    words_of(text, sizeof text);
    if (ftruncate(fd, 0) || pwrite(fd, text, strlen(text), 0) != (ssize_t)strlen(text))
        die("%s: %s (is the disk full?)", path, strerror(errno));
    return fd;
}

void lock_release(int fd)
{
    if (fd < 0) return;
    if (ftruncate(fd, 0)) die("lock: cannot be emptied: %s", strerror(errno));
    close(fd);
}
