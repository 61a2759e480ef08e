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

static char dir[200];

static inline int temp_dir_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR"), *name = strrchr(__BASE_FILE__, '/');
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
    return system(command) == 0 ? failed : -1;
}

// One test in a directory of its own.
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, temp_dir_make, temp_dir_remove)

static inline char *in_dir(const char *name) // a static buffer each of eight calls
{
    static char path[8][700];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}
#endif
