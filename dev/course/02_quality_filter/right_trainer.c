// The trainer's own rules, one filter for each.
#include "quality.h"

#include "data/prep/filter.h"

Rule broken_rule(const char *text, size_t n)
{
    static const char *const name[] = {"gopher.words",        "gopher.word_length",  "gopher.hashes",
                                       "gopher.ellipses",     "gopher.bullets",      "gopher.ellipsis_lines",
                                       "gopher.letter_words", "gopher.stop_words",   "gopher.repeat_lines"};
    static Filter *filter[9];
    for (int i = 0; i < 9; i++) {
        const char *kept;
        size_t n_kept;
        if (!filter[i]) filter[i] = filter_new(name[i], 0);
        if (!filter_document(filter[i], text, n, "", 0, &kept, &n_kept)) return (Rule)(i + 1);
    }
    return KEPT;
}
