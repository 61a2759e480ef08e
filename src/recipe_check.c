// recipe_check: what is wrong with a recipe and can be known before any work begins.
//
// Invariant: when recipe_check_inputs returns, no stage will refuse a value of the recipe or a file that it names. It
// runs before any folder is touched, because a stage whose settings changed empties its folder: a slip of the pen must
// not cost what hours have made. What the texts themselves say (no document is left, the disk is full) comes later.
//
// Everything is asked of the code that will use it: the filter is made, the sources are listed. So there is no second
// opinion about what is allowed.
//
// Rejected: a check in recipe_load (a recipe can be read, and its keys shown, where its files are not).
#include "check.h"
#include "recipe_stage.h"

static void check_source(const CorpusSource *source)
{
    size_t n_files;
    CorpusReader *all = corpus_open((const char *const *)&source->path, 1, recipe_read_options(source));
    corpus_all_files(all, &n_files);
    if (!n_files) die("%s: no file in it ([source.%s])", source->path, source->name);
    corpus_close(all);
}

void recipe_check_inputs(const Recipe *r)
{
    for (size_t i = 0; i < r->sources.n; i++) check_source(&r->sources.source[i]);
    if (*r->filter_rules) filter_free(recipe_read_filter(r));
}
