// Fuzzes the parts of tensors in dumps: one that is taken can be put into the whole, from as many elements as it says.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "train/dump.h"

void fuzz_seeds(void)
{
    static const char *const text[] = {
        "{\"shape\":[8,4,6],\"width\":6,\"rows\":[[0,3],[9,2]],\"columns\":[[3,3]],"
        "\"at\":7,\"error\":0.5,\"stored\":\"BF16\"}",
        "{\"shape\":[12],\"width\":1,\"rows\":[[4,8]],\"columns\":[[0,1]],\"at\":0,\"error\":0,\"stored\":\"F32\"}",
        "{\"shape\":[],\"width\":1,\"rows\":[[0,1]],\"columns\":[[0,1]],\"at\":0,\"error\":1e-3,\"stored\":\"F64\"}",
        "{\"shape\":[6,4],\"width\":4,\"rows\":[[0,3],[2,3]],\"columns\":[[0,2],[0,1],[3,1]],"
        "\"at\":1,\"error\":0,\"stored\":\"F16\"}"};
    for (int i = 0; i < 4; i++) fuzz_seed((char[]){'t', (char)('0' + i), 0}, text[i], strlen(text[i]));
}

void fuzz_one(const uint8_t *data, size_t n)
{
    enum { MOST = 1 << 16 };
    char *text = malloc(n + 1);
    Part part, again;
    fuzz_check(text);
    memcpy(text, data, n);
    text[n] = 0;
    if (dump_part_parse(&part, text)) {
        size_t held = dump_part_elems(&part), whole = dump_part_whole_elems(&part);
        fuzz_check(held <= whole);
        if (whole <= MOST) {
            char *to = calloc(whole + 1, 2), *from = calloc(held + 1, 2);
            uint8_t *seen = calloc(whole + 1, 1);
            fuzz_check(to && from && seen);
            dump_part_place(&part, to, seen, from, 2);
            size_t sum = 0;
            for (size_t i = 0; i < whole; i++) sum += seen[i];
            fuzz_check(sum <= held);
            free(to), free(from), free(seen);
        }
        char *written = dump_part_text(&part);
        fuzz_check(dump_part_parse(&again, written) && dump_part_elems(&again) == held && again.stored == part.stored);
        free(written);
        dump_part_free(&again);
        dump_part_free(&part);
    }
    free(text);
}
