// recipe_results: the files that a stage has left, as its record lists them, so that one that is gone is missed.
//
//     "results": {"removed.tsv": {"bytes": 812, "xxh3": "0f6c..."}, "web/train_000000.bin": {"bytes": 200001024}, ...}
//
// Invariant: a stage is done when its record says so and every file of the list is there with its size. Lists and
// records (.tsv, .json: the tokenizer is one) are small, and their bytes are compared too. What is large has its own
// checks where it is read: a hash for each document (documents.c), sizes and tokens of shards (dataset_file.c).
//
// Rejected: a hash of everything (to find out that there is nothing to do, a terabyte would be read), and looking for
// files that are not on the list (a note that somebody left there does no harm).
#define _GNU_SOURCE // asprintf
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "check.h"
#include "recipe_stage.h"

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcmp(name + n - k, end) == 0;
}

// The XXH3 of a file, as 16 digits. False, with errno, when it cannot be read.
static bool hash_file(const char *path, char hex[17])
{
    enum { BYTES = 1 << 18 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *bytes = malloc(BYTES);
    XXH3_state_t *state = XXH3_createState();
    ssize_t n = -1;
    if (!bytes || !state) die("memory: no room to check %s", path);
    XXH3_64bits_reset(state);
    while (fd >= 0 && ((n = read(fd, bytes, BYTES)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) XXH3_64bits_update(state, bytes, (size_t)n);
    snprintf(hex, 17, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
    XXH3_freeState(state);
    free(bytes);
    if (fd >= 0) close(fd);
    return n == 0;
}

static int is_result(const struct dirent *e)
{
    static const char *const others[] = {".", "..", "key", "stage.json"};
    for (int i = 0; i < 4; i++)
        if (strcmp(e->d_name, others[i]) == 0) return 0;
    return !ends_in(e->d_name, ".tmp");
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

// below: "", or a folder's name and a slash.
static void add_folder(json_t *list, const char *dir, const char *below)
{
    struct dirent **entry;
    char path[PATH_MAX], name[600], hex[17];
    snprintf(path, sizeof path, "%s/%s", dir, below);
    int n = scandir(path, &entry, is_result, by_bytes);
    if (n < 0) die("%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        struct stat st;
        snprintf(name, sizeof name, "%s%s", below, entry[i]->d_name);
        if (snprintf(path, sizeof path, "%s/%s", dir, name) >= PATH_MAX) die("%s: the name is too long", dir);
        if (lstat(path, &st) != 0) die("%s: %s", path, strerror(errno));
        free(entry[i]);
        if (S_ISDIR(st.st_mode) && !*below) {
            strcat(name, "/");
            add_folder(list, dir, name);
        }
        if (!S_ISREG(st.st_mode)) continue;
        json_t *about = json_pack("{s:I}", "bytes", (json_int_t)st.st_size);
        if (ends_in(name, ".json") || ends_in(name, ".tsv")) {
            if (!hash_file(path, hex)) die("%s: %s", path, strerror(errno));
            json_object_set_new(about, "xxh3", json_string(hex));
        }
        if (json_object_set_new(list, name, about) != 0) die("%s: cannot be listed (a name that is not UTF-8?)", path);
    }
    free(entry);
}

json_t *recipe_results_list(const char *dir)
{
    json_t *list = json_object();
    add_folder(list, dir, "");
    return list;
}

char *recipe_results_amiss(const char *dir, const json_t *list)
{
    const char *name;
    char path[PATH_MAX], hex[17], *why = NULL;
    json_t *about;
    json_object_foreach((json_t *)list, name, about) {
        struct stat st;
        const char *sum = json_string_value(json_object_get(about, "xxh3"));
        long long bytes = json_integer_value(json_object_get(about, "bytes"));
        snprintf(path, sizeof path, "%s/%s", dir, name);
        int n = 0;
        if (stat(path, &st) != 0) n = asprintf(&why, "%s: %s", name, strerror(errno));
        else if (st.st_size != bytes)
            n = asprintf(&why, "%s: %lld bytes, but %lld were written", name, (long long)st.st_size, bytes);
        else if (sum && !hash_file(path, hex)) n = asprintf(&why, "%s: %s", name, strerror(errno));
        else if (sum && strcmp(sum, hex) != 0) n = asprintf(&why, "%s: changed since it was written", name);
        if (n < 0) die("memory: no room to say what is wrong with %s", path);
        if (why) return why;
    }
    return NULL;
}
