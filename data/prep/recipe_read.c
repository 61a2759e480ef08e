// recipe_read: the first stage: files become documents, and the filter judges each.
//
// Files are read in groups: neighbours of one source that together have no more bytes on the disk than recipe.unit, or
// one larger file. A group belongs to one rank (exchange_deal), so on several ranks each reads only its own files.
//
// Invariant: where a part ends depends on the files and recipe.unit alone: after the first document at which the
// bytes of text read for the part, before the filter, reach recipe.unit, or at the end of a group. So the parts
// are the same whichever of them were made before a kill, and for any number of threads and ranks.
//
// A part's record says how far the reader was: files that are finished, and documents taken from the next one. After a
// kill the next run opens that file again and skips so many documents. It still unpacks and cuts them, which is a
// small part of the work; so the counts and the hash of a file come from one reading of the whole file.
//
// Every thread has a filter of its own: rules judge each document independently, and counts are added up. Examples
// are not kept, because which came first would depend on threads: build/prepare filter --report shows them.
//
// Rejected: threads that read (one unpacks and parses faster than the rules judge on several), a position in the
// packed file at which to resume (gzip has none), and one file for several ranks (each would unpack and cut all of it
// to find its part).
#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "data/prep/filter.h"
#include "data/prep/recipe_stage.h"
#include "tokenizer/tokenizer.h"
#include "base/words.h"

enum { PACKED = 4 }; // bytes of text in a byte of a packed file, about

typedef struct {
    const char *text; // into Unit.text once it is full
    size_t at, n, n_kept;
    char *kept; // NULL: removed, or as it was
    uint32_t file;
    uint64_t line;
    bool keep;
} Document;

// What is read for one part.
typedef struct {
    char *text;
    Document *doc;
    size_t n_bytes, n, cap_text, cap_docs;
    json_t *files; // those that ended in it
} Unit;

// Where the reader is in one source.
typedef struct {
    const Source *source;
    const char *listing; // of all files when the stage began
    size_t number; // of the source
    CorpusOptions options;
    char **file; // (n_files)
    size_t n_files, at_file, end, taken; // end: of the group, a file; taken: documents given of the open file
    CorpusReader *reader;                // of file[at_file]; NULL: not open
    uint64_t size, shown;                // of that file on the disk; how much of it progress knows of
    char what[80];                       // for progress
} Input;

// Files [first, end) of a source.
typedef struct {
    size_t source, first, end;
} Group;

CorpusOptions recipe_read_options(const Recipe *r, const Source *source)
{
    CorpusOptions o = {.format = source->format, .field = source->field, .separator = source->separator,
                       .line = source->line, .log = stderr,
                       .max_bytes = (size_t)r->recipe_max_document << 20, .raise = "recipe.max_document"};
    if (!source->separator && !source->line) o.separator = TOKENIZER_EOT; // as build/prepare tokens
    if (source->separator && !*source->separator) o.separator = NULL;
    return o;
}

static Input open_input(const RecipeRun *run, size_t number, const char *listing)
{
    const Source *source = &run->source[number];
    Input in = {.source = source, .listing = listing, .number = number,
                .options = recipe_read_options(run->recipe, source)};
    snprintf(in.what, sizeof in.what, "read %s", source->name);
    CorpusReader *all = corpus_open((const char *const *)&source->path, 1, in.options);
    const CorpusFile *file = corpus_all_files(all, &in.n_files);
    in.file = calloc(in.n_files, sizeof *in.file);
    for (size_t i = 0; i < in.n_files; i++)
        if (!in.file || !(in.file[i] = strdup(file[i].path))) die("memory: no room for file names");
    corpus_close(all);
    return in;
}

static void close_input(Input *in)
{
    for (size_t i = 0; i < in->n_files; i++) free(in->file[i]);
    free(in->file);
    corpus_close(in->reader);
}

static uint64_t bytes_on_disk(const Input *in, size_t from, size_t to)
{
    struct stat st;
    uint64_t n = 0;
    for (size_t i = from; i < to; i++)
        if (stat(in->file[i], &st) == 0) n += (uint64_t)st.st_size;
    return n;
}

static json_t *about_file(const CorpusReader *r, size_t source)
{
    size_t n;
    const CorpusFile *file = corpus_files(r, &n);
    CorpusCounts c = corpus_counts(r);
    char hex[33];
    snprintf(hex, sizeof hex, "%016llx%016llx", (unsigned long long)file->hash[0], (unsigned long long)file->hash[1]);
    char *name = words_utf8_copy(file->path); // bytes, as the system has it
    json_t *about = json_pack("{s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "path", name, "source",
                              (json_int_t)source, "bytes", (json_int_t)file->n_bytes, "xxh3_128", hex, "documents",
                              (json_int_t)c.documents, "bad_utf8", (json_int_t)c.bad_utf8, "nul", (json_int_t)c.nul,
                              "bad_lines", (json_int_t)c.bad_lines, "empty", (json_int_t)c.empty, "too_long",
                              (json_int_t)c.too_long, "no_text", (json_int_t)c.no_text, "damaged",
                              (json_int_t)c.damaged);
    if (!about) die("memory: no room for what is known of %s", file->path);
    free(name);
    return about;
}

// Opens the next file, if one is to be opened, and moves to where the reader was. False: the group is over.
static bool ready(Input *in)
{
    CorpusRecord doc;
    if (in->reader) return true;
    if (in->at_file == in->end) return false;
    in->size = bytes_on_disk(in, in->at_file, in->at_file + 1);
    in->shown = 0;
    in->reader = corpus_open((const char *const *)&in->file[in->at_file], 1, in->options);
    for (size_t i = 0; i < in->taken; i++)
        if (!corpus_next(in->reader, &doc))
            die("%s: fewer documents than before the kill (was it changed?)", in->file[in->at_file]);
    return true;
}

// Where in the file on the disk a document is, for progress; of a packed file an estimate.
static void show(Input *in, const CorpusRecord *doc, RecipeProgress *progress)
{
    uint64_t at = sources_is_packed(doc->path) ? doc->offset / PACKED : doc->offset;
    if (at > in->size) at = in->size;
    if (at < in->shown) return;
    recipe_stage_advance(progress, at - in->shown);
    in->shown = at;
}

// Reads documents up to unit_bytes of text. False: the group had none left.
static bool read_unit(Input *in, size_t unit_bytes, Unit *u, RecipeProgress *progress)
{
    CorpusRecord doc;
    u->n = u->n_bytes = 0;
    u->files = json_array();
    bool any = false;
    while (u->n_bytes < unit_bytes && ready(in)) {
        any = true;
        if (!corpus_next(in->reader, &doc)) {
            recipe_stage_check_file(&in->listing, in->file[in->at_file]);
            json_array_append_new(u->files, about_file(in->reader, in->number));
            recipe_stage_advance(progress, in->size - in->shown);
            corpus_close(in->reader);
            in->reader = NULL;
            in->at_file++;
            in->taken = 0;
            continue;
        }
        in->taken++;
        show(in, &doc, progress);
        u->text = words_grow(u->text, &u->cap_text, u->n_bytes + doc.n_bytes, 1);
        memcpy(u->text + u->n_bytes, doc.text, doc.n_bytes);
        u->doc = words_grow(u->doc, &u->cap_docs, u->n + 1, sizeof *u->doc);
        u->doc[u->n++] = (Document){.at = u->n_bytes, .n = doc.n_bytes, .file = (uint32_t)in->at_file,
                                        .line = doc.line};
        u->n_bytes += doc.n_bytes;
    }
    if (!any) json_decref(u->files);
    return any;
}

// ---- the filter
Filter *recipe_read_filter(const Recipe *r)
{
    Filter *f = filter_new(r->filter_rules, 0);
    char set[CONFIG_TEXT], *rest = set;
    snprintf(set, sizeof set, "%s", r->filter_set);
    for (char *one; (one = strsep(&rest, ", "));)
        if (*one) filter_set(f, one);
    if (*r->filter_bad_words) filter_bad_words(f, r->filter_bad_words);
    return f;
}

static Filter **make_filters(const Recipe *r, int n)
{
    Filter **f = calloc((size_t)n, sizeof(Filter *));
    if (!f) die("memory: no room for filters");
    for (int t = 0; t < n; t++) f[t] = recipe_read_filter(r);
    return f;
}

// Judges all documents of a unit. Returns the rules that did something, with what they did; the filters' counts start
// from 0 because each unit has new filters.
static json_t *judge(const Recipe *r, Unit *u, int n_threads)
{
    json_t *rules = json_object();
    for (size_t i = 0; i < u->n; i++) u->doc[i].text = u->text + u->doc[i].at, u->doc[i].keep = true;
    if (!*r->filter_rules) return rules;
    Filter **filter = make_filters(r, n_threads);
    #pragma omp parallel for schedule(dynamic, 16) num_threads(n_threads)
    for (size_t i = 0; i < u->n; i++) {
        Document *d = &u->doc[i];
        const char *kept;
        d->keep = filter_document(filter[omp_get_thread_num()], d->text, d->n, "", i, &kept, &d->n_kept);
        if (!d->keep || kept == d->text) continue;
        if (!(d->kept = malloc(d->n_kept + 1))) die("memory: no room for an edited document");
        memcpy(d->kept, kept, d->n_kept);
    }
    for (int k = 0; k < filter_n_rules; k++) {
        json_int_t removed = 0, edited = 0, bytes_removed = 0, bytes_edited = 0;
        for (int t = 0; t < n_threads; t++) {
            FilterCounts c = filter_counts(filter[t], filter_rules[k].name);
            removed += (json_int_t)c.removed, bytes_removed += (json_int_t)c.bytes_removed;
            edited += (json_int_t)c.edited, bytes_edited += (json_int_t)c.bytes_edited;
        }
        if (removed + edited)
            json_object_set_new(rules, filter_rules[k].name,
                                json_pack("[I, I, I, I]", removed, bytes_removed, edited, bytes_edited));
    }
    for (int t = 0; t < n_threads; t++) filter_free(filter[t]);
    free(filter);
    return rules;
}

// ---- the stage
static char *settings_of(const RecipeRun *run)
{
    const Recipe *r = run->recipe;
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f) die("memory: no room for settings");
    fprintf(f, "unit %.17g\nmax_document %ld\nrules %s\nset %s\n", r->recipe_unit, r->recipe_max_document,
            r->filter_rules, r->filter_set);
    for (size_t i = 0; i <= run->n_sources; i++) {
        const Source *s = &run->source[i];
        if (i == run->n_sources && !*r->filter_bad_words) break;
        char *files = recipe_stage_files(i < run->n_sources ? s->path : r->filter_bad_words);
        if (i < run->n_sources)
            fprintf(f, "%s %d|%s|%s|%s\n", s->name, (int)s->format, s->separator ? s->separator : "<none>",
                    s->line ? s->line : "<none>", s->field ? s->field : "text");
        fputs(files, f);
        free(files);
    }
    if (fclose(f) != 0 || !text) die("memory: no room for settings");
    return text;
}

static void add_number(json_t *to, const char *key, json_int_t n)
{
    json_object_set_new(to, key, json_integer(json_integer_value(json_object_get(to, key)) + n));
}

// Adds up the records of the parts: what came in and went out, in all and by source; rules; files.
static json_t *add_up(const RecipeRun *run, const char *dir, size_t n_groups, uint64_t n_made)
{
    size_t n_parts = 0;
    json_t *in = json_object(), *rules = json_object(), *files = json_array(), *sources = json_array();
    json_t *out = json_pack("{s:I, s:I}", "documents", (json_int_t)0, "bytes", (json_int_t)0);
    for (size_t s = 0; s < run->n_sources; s++)
        json_array_append_new(sources, json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", run->source[s].name, "documents",
                                                 (json_int_t)0, "bytes", (json_int_t)0, "documents_in", (json_int_t)0,
                                                 "bytes_in", (json_int_t)0));
    for (size_t group = 0, part = 0; group < n_groups;) {
        json_t *about = documents_about(dir, group, part), *value;
        if (!about) { // the group's parts are over
            group++, part = 0;
            continue;
        }
        n_parts++, part++;
        const char *name, *numbers[] = {"documents", "bytes", "documents_in", "bytes_in"};
        size_t s = (size_t)json_integer_value(json_object_get(about, "source"));
        for (int k = 0; k < 4; k++) {
            json_int_t n = json_integer_value(json_object_get(about, numbers[k]));
            add_number(json_array_get(sources, s), numbers[k], n);
            add_number(k < 2 ? out : in, numbers[k % 2], n);
        }
        json_object_foreach(json_object_get(about, "rules"), name, value) {
            json_t *sum = json_object_get(rules, name);
            if (!sum) json_object_set_new(rules, name, sum = json_pack("[i, i, i, i]", 0, 0, 0, 0));
            for (size_t k = 0; k < 4; k++)
                json_array_set_new(sum, k, json_integer(json_integer_value(json_array_get(sum, k)) +
                                                        json_integer_value(json_array_get(value, k))));
        }
        json_array_extend(files, json_object_get(about, "files"));
        json_decref(about);
    }
    if (n_parts != n_made)
        die("%s: %zu parts, but %llu were made (if a file system shows files late, start again)", dir, n_parts,
            (unsigned long long)n_made);
    json_object_set_new(out, "sources", sources);
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "parts", (json_int_t)n_parts, "in", in, "out", out, "rules", rules,
                     "files", files);
}

// Moves to where an earlier run was in a group: behind the parts that it made. Returns how many there are.
static size_t find_place(Input *in, const char *dir, size_t number, Group group)
{
    size_t n_parts = 0;
    in->at_file = group.first, in->end = group.end, in->taken = 0;
    for (json_t *about; (about = documents_about(dir, number, n_parts)); json_decref(about), n_parts++) {
        in->at_file = (size_t)json_integer_value(json_object_get(about, "next_file"));
        in->taken = (size_t)json_integer_value(json_object_get(about, "taken"));
    }
    return n_parts;
}

// Appends the groups of a source to group (*n).
static Group *make_groups(const Input *in, uint64_t most_bytes, Group *group, size_t *n, size_t *cap)
{
    for (size_t first = 0, end; first < in->n_files; first = end) {
        uint64_t bytes = bytes_on_disk(in, first, first + 1), more;
        for (end = first + 1; end < in->n_files; end++, bytes += more) {
            more = bytes_on_disk(in, end, end + 1);
            if (bytes + more > most_bytes) break;
        }
        group = words_grow(group, cap, *n + 1, sizeof *group);
        group[(*n)++] = (Group){in->number, first, end};
    }
    return group;
}

// What files [from, to) will unpack to, about.
static uint64_t likely_bytes(const Input *in, size_t from, size_t to)
{
    uint64_t n = 0;
    for (size_t i = from; i < to; i++)
        n += bytes_on_disk(in, i, i + 1) * (sources_is_packed(in->file[i]) ? PACKED : 1);
    return n;
}

// The rank of each group, by the bytes that are left to read in it.
static int *deal_groups(const RecipeRun *run, const char *dir, Input *in, const Group *group, size_t n)
{
    uint64_t *left = calloc(n + 1, sizeof *left);
    if (!left) die("memory: no room for %zu groups of files", n);
    for (size_t g = 0; g < n && run->rank == 0; g++) {
        Input *of = &in[group[g].source];
        find_place(of, dir, g, group[g]);
        left[g] = likely_bytes(of, of->at_file, of->end);
    }
    int *owner = exchange_deal(run->world, left, n);
    free(left);
    return owner;
}

// Makes the parts of a group that are not there yet. Returns how many it has.
static size_t read_group(const RecipeRun *run, Input *in, const char *dir, size_t number, Group group,
                       RecipeProgress *progress)
{
    Unit u = {0};
    DocumentPart docs = {0};
    size_t part = find_place(in, dir, number, group);
    while (read_unit(in, (size_t)(run->recipe->recipe_unit * (1 << 20)), &u, progress)) {
        json_t *rules = judge(run->recipe, &u, run->threads);
        for (size_t i = 0; i < u.n; i++) {
            const Document *d = &u.doc[i];
            if (d->keep)
                documents_add(&docs, d->kept ? d->kept : d->text, d->kept ? d->n_kept : d->n, d->file, d->line);
            free(d->kept);
        }
        documents_commit(&docs, dir, number, part++, group.source,
                         json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "documents_in", (json_int_t)u.n, "bytes_in",
                                   (json_int_t)u.n_bytes, "next_file", (json_int_t)in->at_file, "taken",
                                   (json_int_t)in->taken, "rules", rules, "files", u.files));
    }
    documents_free(&docs);
    free(u.text);
    free(u.doc);
    return part;
}

// This rank's groups of one source. Returns how many parts they have.
static size_t read_source(const RecipeRun *run, Input *in, const char *dir, const Group *group, const int *owner,
                        size_t n_groups)
{
    uint64_t all = 0, first = 0;
    size_t n_parts = 0;
    for (size_t g = 0; g < n_groups; g++) {
        if (group[g].source != in->number || owner[g] != run->rank) continue;
        find_place(in, dir, g, group[g]);
        all += bytes_on_disk(in, group[g].first, group[g].end);
        first += bytes_on_disk(in, group[g].first, in->at_file);
    }
    RecipeProgress progress = recipe_stage_progress(run, in->what, first, all);
    for (size_t g = 0; g < n_groups; g++)
        if (group[g].source == in->number && owner[g] == run->rank)
            n_parts += read_group(run, in, dir, g, group[g], &progress);
    return n_parts;
}

void recipe_read_stage(RecipeRun *run)
{
    char *settings = settings_of(run);
    RecipeStage stage = recipe_stage_begin(run, "documents", settings);
    if (stage.done) {
        free(settings);
        return;
    }
    Input *in = calloc(run->n_sources, sizeof *in);
    Group *group = NULL;
    size_t n_groups = 0, cap = 0;
    uint64_t n_parts = 0;
    if (!in) die("memory: no room for %zu sources", run->n_sources);
    for (size_t s = 0; s < run->n_sources; s++) {
        in[s] = open_input(run, s, settings);
        group = make_groups(&in[s], (uint64_t)(run->recipe->recipe_unit * (1 << 20)), group, &n_groups, &cap);
    }
    int *owner = deal_groups(run, stage.dir, in, group, n_groups);
    for (size_t s = 0; s < run->n_sources; s++) {
        n_parts += read_source(run, &in[s], stage.dir, group, owner, n_groups);
        close_input(&in[s]);
    }
    free(owner);
    free(group);
    free(in);
    free(settings);
    exchange_sum(run->world, &n_parts, 1); // when it returns, the parts of all ranks are there
    recipe_stage_end(run, &stage, run->rank == 0 ? add_up(run, stage.dir, n_groups, n_parts) : NULL);
}
