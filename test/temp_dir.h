// temp_dir: a directory of a test's own, under TMPDIR, and the paths of files in it.
//
// Pass temp_dir_make and temp_dir_remove to cmocka, for a group of tests or for each. What a test leaves in `dir` is
// removed with it. Files are written as NAME.tmp and renamed when they are whole (disk.h): so a name with
// ".tmp" that is left at the end is a mistake of the code under test, and fails. A test that leaves one on purpose
// removes it itself. Include it after cmocka.h.
#ifndef TEST_TEMP_DIR_H
#define TEST_TEMP_DIR_H
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[200], outer_dir[200]; // outer: the group's, while a test has one of its own

static inline int temp_dir_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR"), *name = strrchr(__BASE_FILE__, '/');
    memcpy(outer_dir, dir, sizeof dir);
    snprintf(dir, sizeof dir, "%s/%s.XXXXXX", tmp && *tmp ? tmp : "/tmp", name ? name + 1 : __BASE_FILE__);
    return mkdtemp(dir) ? 0 : -1;
}

static inline int temp_dir_remove(void **state)
{
    (void)state;
    int failed = 0;
    DIR *d = opendir(dir);
    if (!d) return -1;
    for (struct dirent *entry; (entry = readdir(d));)
        if (strstr(entry->d_name, ".tmp")) {
            fprintf(stderr, "%s/%s was left behind\n", dir, entry->d_name);
            failed = -1;
        }
    closedir(d);
    char command[220];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    memcpy(dir, outer_dir, sizeof dir);
    *outer_dir = 0;
    return system(command) == 0 ? failed : -1;
}

static inline char *in_dir(const char *name) // a static buffer each of eight calls
{
    static char path[8][700];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

// ---- files of the directory

static inline char *put_bytes(const char *name, const void *bytes, size_t n) // returns the path, as in_dir does
{
    char *path = in_dir(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline char *put_text(const char *name, const char *text)
{
    return put_bytes(name, text, strlen(text));
}

// A whole file with a zero behind it, which the caller frees; n may be NULL. NULL when it cannot be opened.
static inline char *whole_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    size_t size = 1 << 16, got = 0, k;
    char *text = malloc(size);
    while (text && (k = fread(text + got, 1, size - got - 1, f)) > 0)
        if ((got += k) > size / 2) text = realloc(text, size *= 2);
    assert_non_null(text);
    fclose(f);
    text[got] = 0;
    if (n) *n = got;
    return text;
}

static inline char *take_file(const char *name, size_t *n)
{
    char *text = whole_file(in_dir(name), n);
    if (!text) fail_msg("no file %s", name);
    return text;
}

static inline void has_bytes(const char *name, const void *want, size_t n)
{
    size_t n_got;
    char *got = take_file(name, &n_got);
    if (n_got != n || memcmp(got, want, n)) fail_msg("%s has %zu bytes, not the %zu wanted: %s", name, n_got, n, got);
    free(got);
}

static inline void has_text(const char *name, const char *want)
{
    has_bytes(name, want, strlen(want));
}

static inline void same_files(const char *a, const char *b)
{
    size_t n;
    char *bytes = take_file(b, &n);
    has_bytes(a, bytes, n);
    free(bytes);
}

static inline int count_of(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}
#endif
