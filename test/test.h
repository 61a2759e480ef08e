// test: what a unit test includes first of all: cmocka, and the list of a program's tests.
//
//     TEST(test_name) { ... }                        a test; its parameter is `state`
//     TEST_FIRST(test_name) { ... }                  one that runs before all others: it forks, and OpenMP must not have
//                                                    threads yet; or it counts on an empty process
//     TEST_WITH(test_name, set_up, tear_down) { ... }    one that needs these, functions of void **state, or NULL
//     TESTS(set_up, tear_down)                       at the end of the file: main, which runs them in the file's order,
//                                                    between two functions of void **state for all, or NULL
//     RUN_TESTS(set_up, tear_down)                   the same in a main of one's own
#ifndef TEST_TEST_H
#define TEST_TEST_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

__attribute__((unused)) static struct CMUnitTest test_list[400];
__attribute__((unused)) static size_t n_listed;

#define TEST_LISTED(test, set_up, tear_down, ...)                                                                      \
    static void test(void **state);                                                                                    \
    __attribute__((constructor __VA_ARGS__)) static void list_##test(void)                                             \
    {                                                                                                                  \
        test_list[n_listed++] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(test, set_up, tear_down);           \
    }                                                                                                                  \
    static void test(__attribute__((unused)) void **state)
#define TEST_WITH(test, set_up, tear_down) TEST_LISTED(test, set_up, tear_down)
#define TEST_FIRST(test) TEST_LISTED(test, NULL, NULL, (1000)) // a constructor that runs before those without a number
#define TEST(test) TEST_WITH(test, NULL, NULL)
#define TEST_IN_DIR(test) TEST_WITH(test, temp_dir_make, temp_dir_remove) // in a directory of its own: temp_dir.h
#define RUN_TESTS(set_up, tear_down) _cmocka_run_group_tests("tests", test_list, n_listed, set_up, tear_down)
#define TESTS(set_up, tear_down)                                                                                       \
    int main(void) { return RUN_TESTS(set_up, tear_down); }

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Whether a program is to run its deeper form, as test/run.sh --long asks. One that has one says what it is in a line
// "// deeper: WHAT" of its head.
__attribute__((unused)) static bool deeper(void)
{
    const char *set = getenv("TEST_LONG");
    return set && *set;
}

// What the statements print to the FILE *out: text, which the caller frees.
#define PRINTED(out, ...)                                                                                              \
    ({                                                                                                                 \
        char *text_ = NULL;                                                                                            \
        size_t n_;                                                                                                     \
        FILE *out = open_memstream(&text_, &n_);                                                                       \
        assert_non_null(out);                                                                                          \
        __VA_ARGS__;                                                                                                   \
        assert_int_equal(fclose(out), 0);                                                                              \
        text_;                                                                                                         \
    })

// Text as printf makes it, in a static buffer each of eight calls.
__attribute__((unused, format(printf, 1, 2))) static char *formatted(const char *format, ...)
{
    static char text[8][2400];
    static int turn;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text[turn = (turn + 1) % 8], sizeof text[0], format, arguments);
    va_end(arguments);
    return text[turn];
}

// Memory, zeroed, without which the test fails.
__attribute__((unused)) static void *zeroed(size_t n_bytes)
{
    void *p = calloc(1, n_bytes ? n_bytes : 1);
    if (!p) fail_msg("no memory for %zu bytes", n_bytes);
    return p;
}

// Bytes and their number, each of what came and of what is wanted.
#define same_bytes(a, n_a, b, n_b) (assert_int_equal(n_a, n_b), assert_memory_equal(a, b, n_b))

// A variable that frees what it holds at the end of its block:
//     FREED char *text = ...                         memory of malloc, by free
//     OWN(Tokenizer) *t = ...                        by the function that OWNER(Tokenizer, tokenizer_free) names
//     ENDED(token_ids_free) TokenIds ids = {0}       a struct, by a function of its address
#define ENDED(end) __attribute__((cleanup(end), unused))
#define FREED ENDED(end_memory)
#define OWN(type) ENDED(end_##type) type
#define OWNER(type, end)                                                                                               \
    __attribute__((unused)) static void end_##type(type **p) { end(*p); }

__attribute__((unused)) static void end_memory(void *p)
{
    free(*(void **)p);
}

// The end of a model, what it was allocated from, and its device.
#define end_model(model, mem, dev) (model_free(model), mem_free_all(mem), dev_cpu_free(dev))
#endif
