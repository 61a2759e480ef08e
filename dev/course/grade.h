// grade: what graders are written with.
//
// A grader is tests.c, of which students do not see what is below the line that includes hidden.h, linked with grade.c;
// the answer runs in another process (apart.c). Each test runs in a process of its own, under a time limit: one that
// crashes or never ends fails alone, and the rest run. It calls the answer through the header of the assignment
// only, and says of a wrong result what was expected, what came, and which known mistake gives just that.
//
//     TEST(mean_of_rows, 2, "the mean of each row") { ... expect_array("mean", got, want, 3, 4, 1e-6, NULL, 0); }
//
// Points are of a whole test. Floats are drawn from fixed seeds, so a grade is the same every time.
#ifndef GRADE_H
#define GRADE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct GradeTest {
    const char *title;
    double points;
    int line;
    bool hidden;
    void (*run)(void);
    struct GradeTest *next;
} GradeTest;

void grade_add(GradeTest *test);

#define GRADE_IS_HIDDEN false // until hidden.h
#define TEST(function, points, title)                                                                                  \
    static void function(void);                                                                                        \
    __attribute__((constructor)) static void function##_is_a_test(void)                                                \
    {                                                                                                                  \
        static GradeTest test = {title, points, __LINE__, GRADE_IS_HIDDEN, function, NULL};                 \
        grade_add(&test);                                                                                              \
    }                                                                                                                  \
    static void function(void)

// Ends the test as failed, with this one line: what was expected, what came, and why.
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);
// The same where something does not hold.
#define expect(holds, ...) ((holds) ? (void)0 : fail(__VA_ARGS__))

// The result that a known mistake gives, and what the mistake is: "not divided by the number of rows".
typedef struct {
    const double *values;
    const char *because;
} Mistake;

// got (rows, cols) equals want within tolerance * max(1, |want|), or the test fails: "dx, row 3, column 0: expected
// 0.25, got 0.5: not divided by the number of rows". NULL, 0: no known mistakes.
void expect_array(const char *what, const float *got, const double *want, size_t rows, size_t cols, double tolerance,
                  const Mistake *mistakes, int n);
void expect_number(const char *what, double got, double want, double tolerance, const Mistake *mistakes, int n);
// What this test measured, for the leaderboard (a line `Leaderboard: NAME asc` in handout.md). Counts when it passes.
void grade_measured(double value);

// Ends a process in which answer and tests ran together, as one that has passed; is it that? An answer can exit.
void grade_done(void) __attribute__((noreturn));
bool grade_is_done(int status);
// The process of the answer.
pid_t grade_answer(void);

// n floats in [-1, 1), the same for the same seed. For the life of the test; never NULL. Under AddressSanitizer a read
// or write outside is an error.
float *random_floats(size_t n, uint64_t seed);
// n floats with this value.
float *equal_floats(size_t n, float value);
// n doubles: those of x; zeros where x is NULL.
double *doubles(size_t n, const float *x);
// A number in [0, n), the next one of a sequence.
uint64_t random_below(uint64_t *state, uint64_t n);

// ---- calls between the process of the tests and that of the answer (apart.c)

// A function that one process has and the other one calls, and the block of its arguments and its result. calls.awk
// writes the table from the header of the assignment.
typedef struct {
    size_t offset, size; // in the block
    int hops;            // of a float *: 1; of a float **, or of a struct with a float *: 2; of an unknown struct: 0
    bool constant;
} ApartArg;
typedef struct {
    void (*run)(void *block); // NULL in the process that calls
    size_t block;
    const ApartArg *args; // those with pointers, and one of size 0
} ApartCall;
extern const ApartCall apart_call_table[];
extern const int apart_calls;

void apart_call(int call, void *block);
void apart_end(void);
// Starts the program of the answer, with this descriptor as its number 3, as a user without rights and with limits.
pid_t grade_start(int socket, int test);
// Ends the test: the process of the answer, or where both are one that of the test, has ended.
void grade_ended(int status) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
