// recipe_results: the files that a stage has left, as its record lists them, so that one that is gone is missed.
//
//     "results": {"removed.tsv": {"bytes": 812, "xxh3": "0f6c..."}, "web/train_000000.bin": {"bytes": 200001024}, ...}
//
// Invariant: a list has the files that stages write, by their names (is_result), in the stage's folder and in those of
// the sources below it, and nothing else: what an editor, a file system or a person leaves there may come and go. A
// stage is done when its record says so and every file of the list is there with its size. Lists and
// records (.tsv, .json: the tokenizer is one) are small, and their bytes are compared too. What is large has its own
// checks where it is read: a hash for each document (documents.c), sizes and tokens of shards (dataset.c).
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

#include "base/check.h"
#include "data/prep/recipe_stage.h"

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

// 000000 and up, then one of the endings, NULL behind the last. More digits come when six are too few.
static bool is_numbered(const char *name, const char *prefix, const char *const *ending)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || strspn(name + n, "0123456789") < 6) return false;
    name += n + strspn(name + n, "0123456789");
    while (*ending && strcmp(name, *ending) != 0) ending++;
    return *ending;
}

// documents.c; recipe_remove.c; tokenizer.h; recipe_encode.c; shards.c
static int is_result(const struct dirent *e)
{
    static const char *const single[] = {"removed.tsv", "tokenizer.json", "tokenizer_config.json"};
    static const char *const part[] = {".text", ".rows", ".json", NULL};
    static const char *const run[] = {".json", "_train.tokens", "_train.rows", "_val.tokens", "_val.rows", NULL};
    static const char *const shard[] = {".bin", NULL};
    for (int i = 0; i < 3; i++)
        if (strcmp(e->d_name, single[i]) == 0) return 1;
    return is_numbered(e->d_name, "part_", part) || is_numbered(e->d_name, "run_", run) ||
           is_numbered(e->d_name, "train_", shard) || is_numbered(e->d_name, "val_", shard);
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

// below: "", or a folder's name and a slash. A folder that is not there has no files.
static void add_folder(json_t *list, const char *dir, const char *below)
{
    struct dirent **entry;
    char path[PATH_MAX], name[600], hex[17];
    if (snprintf(path, sizeof path, "%s/%s", dir, below) >= PATH_MAX) die("%s: the name is too long", dir);
    int n = scandir(path, &entry, is_result, by_bytes);
    if (n < 0 && *below && (errno == ENOENT || errno == ENOTDIR)) return;
    if (n < 0) die("%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        struct stat st;
        snprintf(name, sizeof name, "%s%s", below, entry[i]->d_name);
        if (snprintf(path, sizeof path, "%s/%s", dir, name) >= PATH_MAX) die("%s: the name is too long", dir);
        free(entry[i]);
        if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) continue; // no stage has written that
        json_t *about = json_pack("{s:I}", "bytes", (json_int_t)st.st_size);
        if (ends_in(name, ".json") || ends_in(name, ".tsv")) {
            if (!hash_file(path, hex)) die("%s: %s", path, strerror(errno));
            json_object_set_new(about, "xxh3", json_string(hex));
        }
        if (json_object_set_new(list, name, about) != 0) die("%s: cannot be listed (no memory)", path);
    }
    free(entry);
}

json_t *recipe_results_list(const RecipeRun *run, const char *dir)
{
    json_t *list = json_object();
    add_folder(list, dir, "");
    for (size_t i = 0; i < run->n_sources; i++) {
        char below[80]; // recipe.c: a name has 60 letters at most
        snprintf(below, sizeof below, "%s/", run->source[i].name);
        add_folder(list, dir, below);
    }
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
