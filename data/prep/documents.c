// documents: the texts that a preparation works on, in parts that are files with names.
//
// Invariant: a part exists when its .json exists, and then its other files are complete. They are written and synced
// to the disk before the .json gets its name (disk.h), so a program that is killed at any point leaves finished parts,
// and files that the next run writes again. Nothing is ever added to a finished part.
//
//     part_000007_000.text   the documents, one after another: the first part of group 7
//     part_000007_000.rows   24 bytes a document: bytes and file, line, hash of the text
//     part_000007_000.json   source, documents, bytes, the hash of the rows, and what the caller adds (`about`)
//
// Two numbers, because several processes make groups at the same time, and none knows how many parts another's group
// will have.
//
// The hash of the text is here because three later steps need it. The split (a document is for validation or for
// training whatever other documents there are) and the sample that trains a tokenizer should not have to read all
// texts. And each time a text is read, it is checked, so that a byte that changed on the disk reaches no tokenizer and
// no shard. The rows are checked against their own hash when the folder is opened.
//
// Memory: 8 bytes a document, the place of its end. The rest of a row stays on the disk until it is asked for.
//
// Rejected: one file that grows (after a kill its end must be found, and trusted), a database (only one process
// writes, in order), and compressed texts (dedup reads documents in any order).
#include "data/prep/recipe_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/disk.h"
#include "base/words.h"

typedef struct {
    size_t first, source;
    uint64_t at; // where its text begins, were all texts one file
    int text, rows;
    size_t group, number; // of its files
} Part;

struct Documents {
    char dir[PATH_MAX];
    Part *part; // (n_parts)
    size_t n_parts, cap_parts, n, cap;
    uint64_t *end; // (n)
};

static void name_file(char path[PATH_MAX + 64], const char *dir, size_t group, size_t part, const char *kind)
{
    snprintf(path, PATH_MAX + 64, "%s/part_%06zu_%03zu.%s", dir, group, part, kind);
}

// ---- writing
void documents_add(DocumentPart *part, const char *text, size_t n_bytes, uint32_t file, uint64_t line)
{
    if (n_bytes > UINT32_MAX) die("documents: a document of %zu bytes (4 GiB are the most)", n_bytes);
    part->text = words_grow(part->text, &part->cap_text, part->n_bytes + n_bytes, 1);
    part->row = words_grow(part->row, &part->cap_rows, part->n + 1, sizeof *part->row);
    memcpy(part->text + part->n_bytes, text, n_bytes);
    part->row[part->n++] = (DocumentRow){(uint32_t)n_bytes, file, line, XXH3_64bits(text, n_bytes)};
    part->n_bytes += n_bytes;
}

static void write_file(const char *path, const void *data, size_t n_bytes)
{
    if (!disk_write_file(path, data, n_bytes)) die("%s: %s (is the disk full?)", path, strerror(errno));
}

void documents_commit(DocumentPart *docs, const char *dir, size_t group, size_t part, size_t source, json_t *about)
{
    char path[PATH_MAX + 64], sum[17];
    size_t n_rows = docs->n * sizeof *docs->row;
    name_file(path, dir, group, part, "text");
    write_file(path, docs->text, docs->n_bytes);
    name_file(path, dir, group, part, "rows");
    write_file(path, docs->row, n_rows);
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)XXH3_64bits(docs->row, n_rows));
    json_t *all = json_pack("{s:I, s:I, s:I, s:s}", "source", (json_int_t)source, "documents", (json_int_t)docs->n,
                            "bytes", (json_int_t)docs->n_bytes, "rows_xxh3", sum);
    char *dump = all && json_object_update(all, about) == 0 ? json_dumps(all, JSON_INDENT(1)) : NULL;
    name_file(path, dir, group, part, "json");
    if (!dump) die("%s: cannot be put together (no memory)", path);
    if (!disk_replace_file(path, dump, strlen(dump))) die("%s: %s (is the disk full?)", path, strerror(errno));
    free(dump);
    json_decref(all);
    json_decref(about);
    docs->n = docs->n_bytes = 0;
}

void documents_free(DocumentPart *part)
{
    free(part->text);
    free(part->row);
    *part = (DocumentPart){0};
}

// ---- reading
static void check_size(const char *dir, size_t group, size_t part, const char *kind, uint64_t expected)
{
    char path[PATH_MAX + 64];
    struct stat st;
    name_file(path, dir, group, part, kind);
    if (stat(path, &st) != 0) die("%s: %s (delete %s to begin again)", path, strerror(errno), dir);
    if ((uint64_t)st.st_size != expected)
        die("%s: %lld bytes, but %llu were written (changed since? delete %s to begin again)", path,
            (long long)st.st_size, (unsigned long long)expected, dir);
}

json_t *documents_about(const char *dir, size_t group, size_t part)
{
    char path[PATH_MAX + 64];
    json_error_t error;
    json_int_t source, n, bytes;
    size_t n_text;
    name_file(path, dir, group, part, "json");
    char *text = disk_read_file(path, &n_text, (size_t)1 << 30);
    if (!text && errno == ENOENT) return NULL;
    if (!text) die("%s: %s", path, strerror(errno));
    json_t *all = json_loadb(text, n_text, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!all || json_unpack(all, "{s:I, s:I, s:I}", "source", &source, "documents", &n, "bytes", &bytes) != 0)
        die("%s: damaged (delete %s to begin again)", path, dir);
    check_size(dir, group, part, "text", (uint64_t)bytes);
    check_size(dir, group, part, "rows", (uint64_t)n * sizeof(DocumentRow));
    return all;
}

static int open_file(const char *dir, size_t group, size_t part, const char *kind)
{
    char path[PATH_MAX + 64];
    name_file(path, dir, group, part, kind);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die("%s: %s%s", path, strerror(errno), errno == EMFILE ? " (raise ulimit -n, or recipe.unit)" : "");
    return fd;
}

// The rows of a part become ends of documents.
static void add_part(Documents *d, size_t group, size_t part, json_t *about)
{
    size_t n = (size_t)json_integer_value(json_object_get(about, "documents"));
    uint64_t at = d->n ? d->end[d->n - 1] : 0, bytes = (uint64_t)json_integer_value(json_object_get(about, "bytes"));
    char path[PATH_MAX + 64], sum[17];
    name_file(path, d->dir, group, part, "rows");
    size_t n_read;
    char *rows = disk_read_file(path, &n_read, n * sizeof(DocumentRow));
    if (!rows) die("%s: %s", path, strerror(errno));
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)XXH3_64bits(rows, n_read));
    const char *written = json_string_value(json_object_get(about, "rows_xxh3"));
    if (n_read != n * sizeof(DocumentRow) || !written || strcmp(sum, written) != 0)
        die("%s: damaged (delete %s to begin again)", path, d->dir);
    if (d->n + n > UINT32_MAX) die("%s: more than 2^32 - 1 documents (prepare the corpus in pieces)", d->dir);
    d->part = words_grow(d->part, &d->cap_parts, d->n_parts + 1, sizeof *d->part);
    d->part[d->n_parts++] =
        (Part){d->n, (size_t)json_integer_value(json_object_get(about, "source")), at,
               open_file(d->dir, group, part, "text"), open_file(d->dir, group, part, "rows"), group, part};
    d->end = words_grow(d->end, &d->cap, d->n + n, sizeof *d->end);
    for (size_t i = 0; i < n; i++) {
        DocumentRow row;
        memcpy(&row, rows + i * sizeof row, sizeof row);
        d->end[d->n] = (d->n ? d->end[d->n - 1] : 0) + row.n_bytes;
        d->n++;
    }
    if (d->n && d->end[d->n - 1] != at + bytes) die("%s: damaged (delete %s to begin again)", path, d->dir);
    free(rows);
}

Documents *documents_open(const char *dir)
{
    Documents *d = calloc(1, sizeof *d);
    if (!d) die("memory: no room for documents");
    snprintf(d->dir, sizeof d->dir, "%s", dir);
    for (size_t group = 0, part = 1; part > 0; group++) { // a group has one part at least
        part = 0;
        for (json_t *about; (about = documents_about(dir, group, part)); json_decref(about))
            add_part(d, group, part++, about);
    }
    return d;
}

void documents_close(Documents *d)
{
    if (!d) return;
    for (size_t p = 0; p < d->n_parts; p++) {
        close(d->part[p].text);
        close(d->part[p].rows);
    }
    free(d->part);
    free(d->end);
    free(d);
}

size_t documents_count(const Documents *d)
{
    return d->n;
}

size_t documents_parts(const Documents *d)
{
    return d->n_parts;
}

size_t documents_begin(const Documents *d, size_t part)
{
    return part < d->n_parts ? d->part[part].first : d->n;
}

size_t documents_source(const Documents *d, size_t part)
{
    return d->part[part].source;
}

size_t documents_part_of(const Documents *d, size_t i)
{
    size_t low = 0, high = d->n_parts; // part[low].first <= i < part[high].first; a part may be empty
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (d->part[middle].first <= i) low = middle;
        else high = middle;
    }
    return low;
}

size_t documents_size(const Documents *d, size_t i)
{
    return (size_t)(d->end[i] - (i ? d->end[i - 1] : 0));
}

DocumentRow documents_row(const Documents *d, size_t i)
{
    DocumentRow row;
    const Part *p = &d->part[documents_part_of(d, i)];
    if (!disk_read_at(p->rows, &row, sizeof row, (i - p->first) * sizeof row))
        die("%s: row of document %zu: %s", d->dir, i, strerror(errno));
    return row;
}

bool documents_read(const Documents *d, size_t i, void *out)
{
    size_t n = documents_size(d, i);
    const Part *p = &d->part[documents_part_of(d, i)];
    if (!disk_read_at(p->text, out, n, (i ? d->end[i - 1] : 0) - p->at)) return false;
    if (XXH3_64bits(out, n) != documents_row(d, i).hash)
        die("%s/part_%06zu_%03zu.text: document %zu: changed since it was written (delete %s to begin again)", d->dir,
            p->group, p->number, i - p->first, d->dir);
    return true;
}
