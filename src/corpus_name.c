// corpus_name: what the name of a file says of its content. Upper and lower case are the same.
#include <string.h>
#include <strings.h>

#include "check.h"
#include "corpus.h"

CorpusFormat corpus_format(const char *name)
{
    if (strcmp(name, "auto") == 0) return CORPUS_AUTO;
    if (strcmp(name, "text") == 0) return CORPUS_TEXT;
    if (strcmp(name, "jsonl") == 0) return CORPUS_JSONL;
    die("format: '%s': not known (auto, text or jsonl)", name);
}

static bool ends_with(const char *name, size_t n, const char *end)
{
    size_t k = strlen(end);
    return n > k && strncasecmp(name + n - k, end, k) == 0;
}

// The bytes of a name without .gz or .zst.
static size_t unpacked_name(const char *path)
{
    size_t n = strlen(path);
    return ends_with(path, n, ".gz") ? n - 3 : ends_with(path, n, ".zst") ? n - 4 : n;
}

bool corpus_is_packed(const char *path)
{
    return path[unpacked_name(path)] != 0;
}

bool corpus_is_jsonl(const char *path)
{
    size_t n = unpacked_name(path);
    return ends_with(path, n, ".jsonl") || ends_with(path, n, ".ndjson") || ends_with(path, n, ".json");
}
