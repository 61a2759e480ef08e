// Fuzzes mixtures: the manifest of sources, and the order that its weights make.
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/sources.h"
#include "text/mixture.h"

void fuzz_seeds(void)
{
    static const char *const text[] = {
        "[source.a]\npath = \"a.bin\"\nweight = 3\n[source.b]\npath = 'b.bin'\n",
        "# three\n[source.web]  # x\npath = web\nweight = 0.625\nformat = jsonl\nfield = \"content\"\n\n"
        "[source.b]\npath = \"/b\\t\"\n"
        "weight=1e-1\nseparator = \"\\n\\n\"\n[source.c]\npath = c\nline = \"\"\nweight = 2.5\n",
        "[source.a]\npath = a\nweight = 4e307\n[source.b]\npath = b\nweight = 8e307\n"
        "[source.c]\npath = c\nweight = 6e307\n"};
    for (int i = 0; i < 3; i++) fuzz_seed((char[]){'t', (char)('0' + i), 0}, text[i], strlen(text[i]));
}

void fuzz_one(const uint8_t *data, size_t n)
{
    enum { SAMPLES = 1000, MOST = 16 };
    Sources list = sources_read(fuzz_file("x.toml", data, n));
    double sum = 0, weight[MOST];
    int64_t count[MOST] = {0}, index;
    fuzz_check(list.n > 0);
    for (size_t i = 0; i < list.n; i++) fuzz_check(list.source[i].name && list.source[i].path);
    size_t k = list.n < MOST ? list.n : MOST;
    for (size_t i = 0; i < k; i++) sum += (weight[i] = list.source[i].weight) / MOST;
    Mixture m = mixture_make(weight, k);
    for (int64_t s = 0; s < SAMPLES; s++) {
        size_t i = mixture_source(&m, s, &index);
        fuzz_check(i < k && index == count[i]++);
    }
    // Shares are rounded by less than 2^-20, and the order is off by less than one sample.
    for (size_t i = 0; i < k; i++)
        fuzz_check(fabs((double)count[i] - SAMPLES * (weight[i] / MOST / sum)) <= 1 + SAMPLES * 0x1p-20);
    mixture_free(&m);
    sources_free(&list);
}
