// slow_disk: a disk that is slow for some checkpoints, for LD_PRELOAD. fsync of a file of tensors whose path contains
// one of the words in SLOW_DISK (separated by spaces) returns when the directory SLOW_DISK_UNTIL exists, or after
// a minute, so that a test in which nothing comes fails instead of hanging. (test_slow_disk.sh)
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_slow(int fd)
{
    char link[64], path[4096] = "", words[256];
    char *rest = NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(words, sizeof words, "%s", getenv("SLOW_DISK") ? getenv("SLOW_DISK") : "");
    if (readlink(link, path, sizeof path - 1) < 0 || !strstr(path, ".safetensors")) return 0;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (strstr(path, word)) return 1;
    return 0;
}

int fsync(int fd)
{
    const char *until = getenv("SLOW_DISK_UNTIL");
    struct timespec pause = {.tv_nsec = 10000000};
    struct stat info;
    for (int i = 0; i < 6000 && until && is_slow(fd) && stat(until, &info); i++) nanosleep(&pause, NULL);
    return (int)syscall(SYS_fsync, fd);
}
