// test_blas: the choice of OpenBLAS' kernels, observed by starting this program again, and the measurement of the
// machine's peak.
//
//   test_blas            the tests
//   test_blas show A B   what the tests start: chooses as train does, prints kernel, reason and its arguments

#include "test/test.h"

#include "ops/dev_cpu.h"

#include <strings.h>

int openblas_get_num_threads(void);

typedef struct {
    char kernel[64], reason[128], rest[64];
    int status;
} Shown;

// This program again, with `environment` ("NAME=value NAME=value") added to one without OpenBLAS' variables.
static Shown show(const char *environment)
{
    Shown s = {.status = -1};
    char self[512], command[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) skip();
    self[n] = 0;
    snprintf(command, sizeof command, "env -u OPENBLAS_CORETYPE -u PRETRAIN_BLAS %s timeout 20 '%s' show 'a b' '*'",
             environment, self);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    int got = fscanf(pipe, "%63[^\n]\n%127[^\n]\n%63[^\n]\n", s.kernel, s.reason, s.rest);
    s.status = pclose(pipe);
    if (got != 3 || s.status != 0) fail_msg("%s: status %d, %d lines", command, s.status, got);
    return s;
}

#if defined(__x86_64__) // elsewhere the choice is OpenBLAS' own
// Does the library hold kernels for several processors, to choose from?
static bool has_choice(void)
{
    return strcmp(show("PRETRAIN_BLAS=keep OPENBLAS_CORETYPE=Nehalem").kernel, "Nehalem") == 0;
}
#endif

TEST(test_choice_keeps_arguments_and_ends)
{
    const char *environments[] = {"", "PRETRAIN_BLAS=keep", "OPENBLAS_CORETYPE=Haswell", "OPENBLAS_CORETYPE=nonsense"};
    for (size_t i = 0; i < sizeof environments / sizeof *environments; i++)
        assert_string_equal(show(environments[i]).rest, "show|a b|*|");
}

TEST(test_keep_is_kept)
{
    assert_string_equal(show("PRETRAIN_BLAS=keep").reason, "OpenBLAS' own choice");
    Shown s = show("PRETRAIN_BLAS=keep OPENBLAS_CORETYPE=Haswell");
    assert_string_equal(s.reason, "from OPENBLAS_CORETYPE");
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && has_choice()) assert_string_equal(s.kernel, "Haswell");
#endif
}

// With AVX-512, no start ends with the kernels of an older processor, whatever was preset.
TEST(test_wide_processors_get_wide_kernels)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (!wide || !has_choice()) skip();
    const char *good[] = {"SkylakeX", "Cooperlake", "SapphireRapids"};
    const char *presets[] = {"", "OPENBLAS_CORETYPE=Haswell", "OPENBLAS_CORETYPE=Nehalem"};
    for (int i = 0; i < 3; i++) {
        Shown s = show(presets[i]);
        bool found = false;
        for (int j = 0; j < 3; j++) found |= strcasecmp(s.kernel, good[j]) == 0;
        if (!found) fail_msg("%s: kernels for %s", presets[i], s.kernel);
        if (i > 0) assert_non_null(strstr(s.reason, "AVX-512"));
    }
#else
    skip();
#endif
}

// Not how fast, which is the machine's business, but that it is a rate: finite, positive, below a million cores.
TEST(test_peak_is_a_rate)
{
    MatmulShape shapes[] = {{64, 48, 32}, {1, 1, 1}, {130, 7, 65}};
    for (int n = 1; n <= 3; n++) {
        double rate = dev_cpu_peak(shapes, (size_t)n, 1 + n % 2, 0.01);
        assert_true(isfinite(rate) && rate > 0 && rate < 1e9);
        assert_int_equal(openblas_get_num_threads(), 1); // our own threads call it, one each
    }
    assert_true(strlen(dev_cpu_blas()) > 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        dev_cpu_choose_blas(argv);
        printf("%s\n%s\n", dev_cpu_blas(), dev_cpu_blas_reason());
        for (int i = 1; i < argc; i++) printf("%s|", argv[i]);
        printf("\n");
        return 0;
    }
    return RUN_TESTS(NULL, NULL);
}
