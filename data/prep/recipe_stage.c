// recipe_stage: folders that say what they were made from, so that what is there can be trusted or done again.
//
//     out/NAME/key           hash of: the key of the stage before, this stage's name and settings. Written first
//     out/NAME/...           units of work, each there completely or not at all
//     out/NAME/stage.json    counts, the files with their sizes, and the key again. Written last
//
// Invariant: if there is a stage.json with the key that this recipe gives, and all files that it lists, the folder
// holds, byte for byte, what running the stage would write. If files are missing, the stage runs again. If there is
// only a `key` file with that key, the same is true of the finished units. With any other key the folder is emptied,
// stage.json first and `key` last, so a kill in between leaves a folder that is emptied again. A folder without `key`
// is not ours, and is not touched. A stage's folder may be a link to one on another disk: that one is emptied, and the
// link stays. Links inside a folder are removed, not what they point to.
//
// The first stage's settings contain the name, the size and the time of the last change of every file of the input (a
// hash would mean reading a corpus to find out that there is nothing to do). Contents decide what is written; times
// decide only whether it is written again. After a file has been read, its size and time must still be those that
// were listed.
//
// Keys are chained, so a change in the middle changes every later key. Rejected: comparing times of outputs with those
// of inputs, as make does (settings have none, and clocks of two machines differ), and a journal beside the files (a
// file that has its final name is the record).
#define _GNU_SOURCE // asprintf
#include "data/prep/recipe_stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/disk.h"
#include "tools/disk_folder.h"
#include "comm/launch.h"

enum { VERSION = 3 }; // of all stages: changes when a stage writes other files for the same settings

// ---- the run
// Every rank holds the lock: as long as one of them is alive, it may write, and nobody else may begin.
static void lock_folder(RecipeRun *run)
{
    if (run->rank == 0) run->lock = disk_folder_lock(run->dir);
    if (run->ranks == 1) return;
    if (run->rank == 0) disk_folder_join(run->dir, run->lock);
    exchange_wait(run->world);
    if (run->rank > 0) run->lock = disk_folder_join(run->dir, -1);
    exchange_wait(run->world);
}

RecipeRun *recipe_stage_open(const Recipe *r, Comm *world)
{
    RecipeRun *run = calloc(1, sizeof *run);
    if (!run || !(run->stages = json_array())) die("memory: no room for a preparation");
    run->recipe = r;
    run->source = r->sources.source;
    run->n_sources = r->sources.n;
    run->world = world;
    run->rank = exchange_rank(world);
    run->ranks = exchange_size(world);
    run->threads = world ? launch_threads(world, r->recipe_threads) : (int)r->recipe_threads;
    if (!run->threads) run->threads = omp_get_max_threads();
    snprintf(run->dir, sizeof run->dir, "%s", r->recipe_out);
    if (run->rank == 0) disk_folder_make(run->dir, "recipe.out");
    exchange_wait(world);
    for (size_t i = 0; i < run->n_sources; i++) disk_folder_check_outside(run->source[i].path, run->dir, "recipe.out");
    if (*r->contamination_evaluation) disk_folder_check_outside(r->contamination_evaluation, run->dir, "recipe.out");
    lock_folder(run);
    struct rlimit files; // two descriptors for each part of the documents
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); // if it fails: the first file over the limit says so
    }
    return run;
}

void recipe_stage_close(RecipeRun *run)
{
    documents_close(run->docs);
    json_decref(run->stages);
    free(run->removed);
    close(run->lock);
    free(run);
}

// ---- folders
static void name_file(char path[PATH_MAX], const char *dir, const char *name)
{
    if (snprintf(path, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX) die("%s: the name is too long", dir);
}

// ---- results: the files of a folder
//
// The list has the files that stages write, by their names (is_result), and nothing else: files that an editor, a file
// system or a person leaves there do not matter. For small files (.tsv, .json) the bytes are compared too; large files
// have their own checks where they are read: a hash for each document (documents.c), sizes and tokens of shards
// (dataset.c). Rejected: a hash of everything (a terabyte would be read to find out that there is nothing to do).

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

// What follows in a name after a prefix and a number of so many digits or more; NULL: it is another name.
static const char *after_number(const char *name, const char *prefix, size_t digits)
{
    size_t n = strlen(prefix), k;
    if (!name || strncmp(name, prefix, n) != 0 || (k = strspn(name + n, "0123456789")) < digits) return NULL;
    return name + n + k;
}

static bool is_one(const char *name, const char *const *ending)
{
    while (name && *ending && strcmp(name, *ending) != 0) ending++;
    return name && *ending;
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
    return is_one(after_number(after_number(e->d_name, "part_", 6), "_", 3), part) ||
           is_one(after_number(e->d_name, "run_", 6), run) || is_one(after_number(e->d_name, "train_", 6), shard) ||
           is_one(after_number(e->d_name, "val_", 6), shard);
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

// {"NAME": {"bytes": n, "xxh3": "..."}, ...} of the files in a stage's folder whose names are those of results.
static json_t *list_results(const RecipeRun *run, const char *dir)
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

// The first file that disagrees with such a list, as a line to free(); NULL: none.
static char *results_amiss(const char *dir, const json_t *list)
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

static void remove_below(const char *dir, int depth)
{
    DIR *list = opendir(dir);
    if (!list && errno == ENOENT) return;
    if (!list) die("%s: cannot be emptied: %s", dir, strerror(errno));
    char path[PATH_MAX];
    name_file(path, dir, "stage.json");
    unlink(path); // first: from here on the stage is not done
    for (struct dirent *e; (e = readdir(list));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || strcmp(e->d_name, "key") == 0) continue;
        name_file(path, dir, e->d_name);
        if (lstat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode) && depth > 0) {
            remove_below(path, depth - 1);
            if (rmdir(path) != 0) die("%s: cannot be removed: %s", path, strerror(errno));
        } else if (unlink(path) != 0) {
            die("%s: cannot be removed: %s", path, strerror(errno));
        }
    }
    closedir(list);
    name_file(path, dir, "key");
    unlink(path); // last: until now it was ours
}

static bool holds(const char *dir, const char *name)
{
    char path[PATH_MAX];
    name_file(path, dir, name);
    return access(path, F_OK) == 0;
}

// Whether it holds no file of another program.
static bool is_ours(const char *dir)
{
    if (holds(dir, "key")) return true;
    DIR *list = opendir(dir);
    bool empty = true;
    if (!list) return errno == ENOENT;
    for (struct dirent *e; (e = readdir(list));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "key.tmp")) empty = false;
    closedir(list);
    return empty;
}

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

void recipe_stage_remove(const RecipeRun *run, const char *name)
{
    char dir[PATH_MAX];
    name_file(dir, run->dir, name);
    if (!is_ours(dir)) die("%s: not made by this program (choose another recipe.out)", dir);
    remove_below(dir, 1);
    if (!is_link(dir) && rmdir(dir) != 0 && errno != ENOENT) die("%s: cannot be removed: %s", dir, strerror(errno));
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX];
    name_file(path, dir, name);
    if (!disk_replace_file(path, text, strlen(text))) die("%s: %s (is the disk full?)", path, strerror(errno));
}

static bool has_key(const char *dir, const char *key)
{
    char path[PATH_MAX];
    size_t n;
    name_file(path, dir, "key");
    char *text = disk_read_file(path, &n, 1024);
    bool same = text && strncmp(text, key, strlen(key)) == 0;
    free(text);
    return same;
}

// The record of a folder that has the right key; NULL: the stage is not done, or a file that it lists is missing or
// changed (*amiss says which; free() it).
static json_t *read_record(const RecipeStage *s, char **amiss)
{
    char path[PATH_MAX];
    json_error_t error;
    *amiss = NULL;
    name_file(path, s->dir, "stage.json");
    if (access(path, F_OK) != 0) return NULL;
    json_t *about = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const char *key = json_string_value(json_object_get(about, "key"));
    json_t *results = json_object_get(about, "results");
    if (!key || strcmp(key, s->key) != 0 || !json_is_object(results))
        die("%s: damaged (delete %s to begin again)", path, s->dir);
    if (!(*amiss = results_amiss(s->dir, results))) return about;
    json_decref(about);
    return NULL;
}

// Files about all stages are removed before any stage changes, because train.toml would lead the trainer to shards
// that do not exist yet, or that another tokenizer made.
static void withdraw_report(const RecipeRun *run)
{
    static const char *const names[] = {"train.toml", "report.json", "report.html"};
    char path[PATH_MAX];
    for (int i = 0; i < 3; i++) {
        name_file(path, run->dir, names[i]);
        if (unlink(path) != 0 && errno != ENOENT) die("%s: cannot be removed: %s", path, strerror(errno));
    }
}

// Looks at the folder, and empties it unless it is this stage's. Returns the record if the stage is done.
static json_t *prepare_folder(const RecipeRun *run, const RecipeStage *s)
{
    char *amiss = NULL;
    if (has_key(s->dir, s->key)) {
        json_t *about = read_record(s, &amiss);
        if (!about) withdraw_report(run);
        if (!amiss) {
            fprintf(stderr, "%s: %s\n", s->name, about ? "done before" : "going on");
            return about;
        }
        fprintf(stderr, "%s: %s: begins again\n", s->name, amiss);
        free(amiss);
    } else {
        if (!is_ours(s->dir)) die("%s: not made by this program (choose another recipe.out)", s->dir);
        withdraw_report(run);
        if (holds(s->dir, "key")) fprintf(stderr, "%s: made from other settings or input, begins again\n", s->name);
    }
    remove_below(s->dir, 1);
    disk_folder_make(s->dir, "recipe.out");
    if (!disk_sync_parent(s->dir)) die("%s: %s", s->dir, strerror(errno));
    write_file(s->dir, "key", s->key);
    return NULL;
}

// Rank 0's record of a stage, for all ranks; NULL: there is none. Takes the reference.
static json_t *share_record(const RecipeRun *run, json_t *about)
{
    if (run->ranks == 1) return about;
    char *text = exchange_text(run->world, about ? json_dumps(about, JSON_COMPACT) : NULL);
    json_t *same = text ? json_loads(text, 0, NULL) : NULL;
    json_decref(about);
    free(text);
    return same;
}

// Seconds of processors of this process.
static double processor_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

RecipeStage recipe_stage_begin(RecipeRun *run, const char *name, const char *settings)
{
    RecipeStage s = {.name = name};
    char *all, key[sizeof s.key];
    size_t n;
    if (run->world) supervisor_phase(comm_heartbeat(run->world), -1, name);
    snprintf(s.dir, sizeof s.dir, "%s/%s", run->dir, name);
    FILE *f = open_memstream(&all, &n);
    if (!f || fprintf(f, "%d\n%s\n%s\n%s", VERSION, run->key, name, settings) < 0 || fclose(f) != 0)
        die("memory: no room for the settings of %s", name);
    XXH128_hash_t hash = XXH3_128bits(all, n);
    free(all);
    snprintf(s.key, sizeof s.key, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    strcpy(run->key, s.key);
    strcpy(key, s.key);
    exchange_share(run->world, 0, key, sizeof key);
    if (strcmp(key, s.key) != 0)
        die("%s: settings or input differ from rank 0's (start all ranks with the same recipe and options, on the same "
            "files)", name);
    exchange_wait(run->world); // a rank that has died ends the job before rank 0 empties a folder
    json_t *about = share_record(run, run->rank == 0 ? prepare_folder(run, &s) : NULL);
    if (!has_key(s.dir, s.key)) die("%s/key: not rank 0's (recipe.out must be a folder that all ranks share)", s.dir);
    s.done = about != NULL;
    if (about) json_array_append_new(run->stages, about);
    s.cpu = processor_seconds();
    return s;
}

// What all ranks took, and the part of the busiest: of processors, in milliseconds.
static void say_work(const RecipeRun *run, const char *what, double seconds)
{
    uint64_t sum = (uint64_t)(1e3 * seconds), most = sum;
    exchange_sum(run->world, &sum, 1);
    exchange_max(run->world, &most, 1);
    if (run->ranks > 1 && run->rank == 0)
        fprintf(stderr, "%s: %d ranks took %.2f s of processors, the busiest %.0f%% of it\n", what, run->ranks,
                1e-3 * (double)sum, sum ? 100 * (double)most / (double)sum : 0);
}

void recipe_stage_say_work(const RecipeRun *run)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    uint64_t most = (uint64_t)used.ru_maxrss;
    say_work(run, "all stages", processor_seconds());
    exchange_max(run->world, &most, 1);
    if (run->ranks > 1 && run->rank == 0)
        fprintf(stderr, "memory: at most %.0f MiB on a rank\n", (double)most / 1024);
}

void recipe_stage_end(RecipeRun *run, RecipeStage *stage, json_t *about)
{
    say_work(run, stage->name, processor_seconds() - stage->cpu);
    json_t *all = NULL;
    if (run->rank == 0) {
        all = json_pack("{s:s, s:s, s:o}", "stage", stage->name, "key", stage->key, "results",
                        list_results(run, stage->dir));
        char *text = all && json_object_update(all, about) == 0 ? json_dumps(all, JSON_INDENT(1)) : NULL;
        if (!text) die("%s: stage.json cannot be put together (no memory)", stage->dir);
        write_file(stage->dir, "stage.json", text);
        free(text);
    }
    json_decref(about);
    json_array_append_new(run->stages, share_record(run, all));
    stage->done = true;
}

static void print_file(const char *path, FILE *f)
{
    struct stat st;
    if (stat(path, &st) != 0) die("%s: cannot read: %s", path, strerror(errno));
    // A pipe, which `prepare tokens` takes, has the time of the last write; no recipe comes here with one.
    if (!S_ISREG(st.st_mode)) fprintf(f, "%s no file\n", path);
    else fprintf(f, "%s %lld %lld.%09ld\n", path, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                 st.st_mtim.tv_nsec);
}

void recipe_stage_check_file(const char **listing, const char *path)
{
    char *line = NULL;
    size_t n;
    FILE *f = open_memstream(&line, &n);
    if (!f) die("memory: no room for a file name");
    print_file(path, f);
    if (fclose(f) != 0 || !line) die("memory: no room for a file name"); // glibc's may succeed and leave NULL
    const char *found = strstr(*listing, line);
    if (!found) die("%s: changed while the input was read (start again when it is complete)", path);
    *listing = found + n;
    free(line);
}

char *recipe_stage_files(const char *path)
{
    char *text = NULL;
    size_t n, n_files;
    FILE *f = open_memstream(&text, &n);
    if (!f) die("memory: no room for file names");
    CorpusReader *r = corpus_open(&path, 1, (CorpusOptions){0});
    const CorpusFile *file = corpus_all_files(r, &n_files);
    for (size_t i = 0; i < n_files; i++) print_file(file[i].path, f);
    corpus_close(r);
    if (fclose(f) != 0 || !text) die("memory: no room for file names");
    return text;
}

void recipe_stage_say_left(const RecipeRun *run)
{
    static const char *const optional[] = {"exact", "near", "contamination"};
    for (int k = 0; k < 3 && run->rank == 0; k++) {
        char dir[PATH_MAX];
        size_t i;
        json_t *stage;
        bool asked = false;
        json_array_foreach(run->stages, i, stage)
            asked = asked || strcmp(json_string_value(json_object_get(stage, "stage")), optional[k]) == 0;
        name_file(dir, run->dir, optional[k]);
        if (!asked && holds(dir, "key"))
            fprintf(stderr, "%s: of an earlier recipe, not part of this one (delete %s if it is not wanted again)\n",
                    optional[k], dir);
    }
}

// ---- documents
void recipe_stage_remove_listed(RecipeRun *run, const char *stage)
{
    char path[PATH_MAX], *line = NULL;
    size_t cap = 0;
    snprintf(path, sizeof path, "%s/%s/removed.tsv", run->dir, stage);
    FILE *f = fopen(path, "r");
    if (!f) die("%s: %s (delete its folder to begin again)", path, strerror(errno));
    while (getline(&line, &cap, f) >= 0) {
        char *end;
        unsigned long long i = strtoull(line, &end, 10);
        if (end == line || *end != '\t' || i >= documents_count(run->docs))
            die("%s: damaged (delete its folder to begin again)", path);
        run->removed[i] = 1;
    }
    if (!feof(f)) die("%s: %s", path, strerror(errno));
    free(line);
    fclose(f);
}

void recipe_stage_documents(RecipeRun *run)
{
    char dir[PATH_MAX];
    size_t n_parts = (size_t)json_integer_value(json_object_get(json_array_get(run->stages, 0), "parts"));
    if (run->docs) return;
    name_file(dir, run->dir, "documents");
    run->docs = documents_open(dir);
    if (documents_parts(run->docs) != n_parts)
        die("%s: %zu parts, but there were %zu (delete it to begin again)", dir, documents_parts(run->docs), n_parts);
    run->removed = calloc(documents_count(run->docs) + 1, 1);
    if (!run->removed) die("memory: no room for %zu documents", documents_count(run->docs));
    for (size_t i = 1; i < json_array_size(run->stages); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(run->stages, i), "stage"));
        if (strcmp(name, "exact") == 0 || strcmp(name, "near") == 0 || strcmp(name, "contamination") == 0)
            recipe_stage_remove_listed(run, name);
    }
}

json_t *recipe_stage_counts(RecipeRun *run)
{
    recipe_stage_documents(run);
    json_t *sources = json_array();
    uint64_t all_docs = 0, all_bytes = 0;
    for (size_t s = 0; s < run->n_sources; s++) {
        uint64_t n = 0, bytes = 0;
        for (size_t p = 0; p < documents_parts(run->docs); p++) {
            if (documents_source(run->docs, p) != s) continue;
            for (size_t i = documents_begin(run->docs, p); i < documents_begin(run->docs, p + 1); i++)
                if (!run->removed[i]) n++, bytes += documents_size(run->docs, i);
        }
        json_array_append_new(sources, json_pack("{s:s, s:I, s:I}", "name", run->source[s].name, "documents",
                                                 (json_int_t)n, "bytes", (json_int_t)bytes));
        all_docs += n, all_bytes += bytes;
    }
    return json_pack("{s:I, s:I, s:o}", "documents", (json_int_t)all_docs, "bytes", (json_int_t)all_bytes, "sources",
                     sources);
}

// ---- progress
RecipeProgress recipe_stage_progress(const RecipeRun *run, const char *what, uint64_t first, uint64_t all)
{
    double now = clock_seconds();
    return (RecipeProgress){what, now, run->rank == 0 ? now + 2 : INFINITY, first, first, all};
}

void recipe_stage_advance(RecipeProgress *p, uint64_t n_bytes)
{
    p->done += n_bytes;
    double now = clock_seconds(), seconds = now - p->begun;
    if (now < p->next) return;
    p->next = now + 5;
    double rate = (double)(p->done - p->first) / seconds;
    double left = p->all > p->done ? (double)(p->all - p->done) / rate : 0;
    fprintf(stderr, "%s: %.0f%%, %.1f of %.1f MB, %.1f MB/s, about %.0f:%02d:%02d left\n", p->what,
            p->all > p->done ? 100 * (double)p->done / (double)p->all : 100, (double)p->done / 1e6,
            (double)(p->all > p->done ? p->all : p->done) / 1e6, rate / 1e6, (double)(long)(left / 3600),
            (int)((long)left / 60 % 60), (int)((long)left % 60));
}
