// stack_depth: how many bytes of the stack a function needs, with all that it calls: it runs in a thread on a stack
// that was painted before, and what lies below the deepest byte that has changed was not used. Include after cmocka.h.
#ifndef TEST_STACK_DEPTH_H
#define TEST_STACK_DEPTH_H
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    void (*call)(void);
    unsigned char *top; // of what the function and its callees take
} OnStack;

static void *stack_depth_run(void *arg)
{
    OnStack *on = arg;
    unsigned char here = 0;
    on->top = &here;
    on->call();
    return NULL;
}

static size_t stack_depth(void (*call)(void))
{
#if defined(__SANITIZE_ADDRESS__) || __OPTIMIZE__ == 0
    skip(); // both make frames larger
#endif
    pthread_attr_t attributes;
    pthread_t thread;
    enum { SIZE = 4 << 20 };
    OnStack on = {.call = call};
    unsigned char *stack = aligned_alloc(4096, SIZE), *deepest = stack;
    assert_non_null(stack);
    memset(stack, 0x5A, SIZE);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, SIZE), 0);
    assert_int_equal(pthread_create(&thread, &attributes, stack_depth_run, &on), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attributes), 0);
    while (*deepest == 0x5A) deepest++;
    size_t depth = (size_t)(on.top - deepest);
    free(stack);
    return depth;
}
#endif
