// plan_prepare: what preparing a large corpus takes, from the measured work of a small one. See plan_show.h.
//
// A preparation of a small part of the corpus, with the recipe that the whole will have, prints what each stage took:
// seconds of processors, documents and bytes. A stage's work grows with the bytes that go into it, so
//
//     core seconds = measured seconds * k,   k = tokens wanted / tokens of the sample
//
// and the stage takes the longer of two times: of the cores, and of the bytes between the hosts and the file system
// that they share (data/prep/recipe.h: texts and tokens are files). Messages are counted too; they are small beside it:
//
//     cores  = core seconds / (hosts * cores)
//     files  = (bytes read + bytes written) / (hosts * io)
//     memory = 13 bytes * documents, on every rank: a host has one rank, with a thread for each core
//
// Failures come every M = mean / hosts seconds. A stage of t seconds that begins again (exact, near, contamination)
// takes (M + r) (e^(t/M) - 1) on average, with r seconds for each restart; one that resumes at a unit does half a unit
// again on each core: t (1 + (r + u/2) / M).
//
// Not in it: stragglers, rank 0's own work (lists, merges), pairs of near duplicates (their number depends on the
// text), and that a larger corpus has a larger part of duplicates. The work of one core is taken to be the same whatever the
// machine.
//
// Rejected: constants for the stages' rates (they depend on the rules, the language and the machine).
#include "dev/plan/plan_show.h"

#include "base/check.h"
#include "data/prep/minhash.h"

#include <math.h>
#include <string.h>

enum { DOCUMENTS, EXACT, NEAR, CONTAMINATION, TOKENIZER, RUNS, SHARDS, STAGES };
enum { BYTES_A_DOCUMENT = 13, EXACT_BYTES = 24 + 8, BAND_BYTES = 16, NODE = 8 };

typedef struct {
    const char *name;
    bool begins_again;     // after a failure, from its beginning; otherwise at the unit that was not finished
    double work;           // seconds of one core, measured; 0: the log has no such stage
    double bytes, docs;    // that go in, of the log's corpus
    double reads, writes;  // times `bytes`: of files
    double sent;           // bytes of messages, of the log's corpus
} Stage;

typedef struct {
    Stage stage[STAGES];
    double documents, bytes, tokens; // read, before any stage; after all stages
} Sample;

// ---- the log

typedef struct {
    double documents, bytes;
} After;

// The row "NAME DOCUMENTS BYTES TOKENS" of the table that prepare prints.
static void read_after(const char *line, const char *name, After *a)
{
    char word[32];
    double documents, bytes;
    if (sscanf(line, "%31s %lf %lf", word, &documents, &bytes) == 3 && !strcmp(word, name))
        *a = (After){documents, bytes};
}

// Dies, with one line, when the log is not that of a whole preparation on several ranks.
static Sample read_log(const PlanPrepare *p)
{
    static const char *const names[] = {"documents", "exact", "near", "contamination", "tokenizer", "runs", "shards"};
    static const char *const rows[] = {"read", "filter", "exact", "near", "contamination", "train", "val"};
    enum { READ, FILTER, TRAIN = 5, VAL, ROWS };
    Sample s = {0};
    After after[ROWS] = {0};
    char line[512], name[32];
    double seconds, a_token = 0;
    int ranks;
    FILE *file = fopen(p->log, "r");
    if (!file) die("--log: %s cannot be read (what mpiexec -n 2 build/prepare RECIPE.toml printed, 2>&1)", p->log);
    for (int i = 0; i < STAGES; i++) s.stage[i].name = names[i];
    while (fgets(line, sizeof line, file)) {
        const char *text = strrchr(line, '\r') ? strrchr(line, '\r') + 1 : line; // after a line of progress
        for (int i = 0; i < ROWS; i++) read_after(text, rows[i], &after[i]);
        sscanf(text, "%lf bytes a token", &a_token);
        if (sscanf(text, "%31[a-z]: %d ranks took %lf s of processors", name, &ranks, &seconds) != 3) continue;
        for (int i = 0; i < STAGES; i++)
            if (!strcmp(name, names[i])) s.stage[i].work = seconds;
    }
    fclose(file);
    int needed[] = {DOCUMENTS, RUNS, SHARDS};
    for (int i = 0; i < 3; i++)
        if (s.stage[needed[i]].work <= 0)
            die("--log: %s: has no work of %s (the output, 2>&1, of a whole preparation on several ranks, which was "
                "not resumed and takes seconds)", p->log, names[needed[i]]);
    if (after[READ].bytes <= 0 || after[TRAIN].bytes <= 0 || a_token <= 0)
        die("--log: %s: has no table of documents and bytes (it is printed at the end of build/prepare)", p->log);
    s.documents = after[READ].documents, s.bytes = after[READ].bytes;
    s.tokens = (after[TRAIN].bytes + after[VAL].bytes) / a_token;
    // What goes into a stage is what the stage before it left.
    After now = after[READ];
    for (int i = 0; i < STAGES; i++) {
        s.stage[i].bytes = now.bytes, s.stage[i].docs = now.documents;
        const After *left = i == DOCUMENTS ? &after[FILTER] : i < TOKENIZER ? &after[1 + i] : &now;
        if (left->bytes > 0) now = *left;
    }
    return s;
}

// Bytes of files, as parts of the bytes that go in, and of messages. Tokens of 4 bytes: vocabularies of this size have
// more than 65,535 entries.
static void set_traffic(Sample *s, const PlanPrepare *p)
{
    Stage *t = s->stage;
    double bands = p->bands ? p->bands : (double)minhash_bands(128, 0.8).bands;
    double tokens = 4 * s->tokens / t[RUNS].bytes; // bytes of tokens for a byte of text
    t[DOCUMENTS].reads = 1, t[DOCUMENTS].writes = t[EXACT].bytes / t[DOCUMENTS].bytes;
    t[EXACT].reads = 1, t[EXACT].sent = EXACT_BYTES * t[EXACT].docs;
    t[NEAR].reads = 2, t[NEAR].sent = BAND_BYTES * bands * t[NEAR].docs;
    t[CONTAMINATION].reads = t[TOKENIZER].reads = t[RUNS].reads = 1;
    t[RUNS].writes = t[SHARDS].reads = t[SHARDS].writes = tokens;
    t[EXACT].begins_again = t[NEAR].begins_again = t[CONTAMINATION].begins_again = true;
}

double plan_prepare_expected(double seconds, double mean, double restart, bool begins_again, double again)
{
    if (!isfinite(mean)) return seconds;
    if (begins_again) return (mean + restart) * expm1(seconds / mean);
    return seconds * (1 + (restart + again) / mean);
}

// ---- the report

void plan_prepare_print(const PlanPrepare *p, bool json, bool explain, FILE *out)
{
    Sample s = read_log(p);
    set_traffic(&s, p);
    double k = p->tokens / s.tokens / p->parts, hosts = p->hosts, n = hosts * p->cores; // k: of one part
    double one = p->mean > 0 ? p->mean : plan_time_between_failures(NODE), mean = one / hosts;
    double hours = 0, clean = 0, core_hours = 0, moved = 0;
    Report *r = report_begin(out, json, explain);
    report_section(r, "sample");
    report_value(r, "read", s.bytes / 1e6, "MB", NULL);
    report_value(r, "tokens", s.tokens, "after all stages", NULL);
    report_value(r, "text for a token", s.bytes / s.tokens, "bytes that are read", "%.6g / %.6g", s.bytes, s.tokens);
    report_section(r, "corpus");
    report_value(r, "k", p->tokens / s.tokens, "times the sample", "tokens / its tokens = %.4g / %.4g", p->tokens,
                 s.tokens);
    report_value(r, "read", s.bytes * k * p->parts / 1e12, "TB", "k * %.4g bytes", s.bytes);
    report_value(r, "documents", s.documents * k * p->parts, "", "k * %.4g", s.documents);
    report_value(r, "parts", p->parts, "of it, prepared one after another", NULL);
    report_table(r, "stages, of one part", "stage|TB in|MB a core second|core hours|TB read|TB written|TB of messages|"
                 "hours, cores|hours, files|hours, with failures");
    for (int i = 0; i < STAGES; i++) {
        const Stage *t = &s.stage[i];
        if (t->work <= 0) continue;
        double rate = t->bytes / t->work, cpu = t->work * k / n, bytes = (t->reads + t->writes) * t->bytes * k;
        double files = bytes / (hosts * p->io), longest = fmax(cpu, files), unit = p->unit / rate / 2;
        double expected = plan_prepare_expected(longest, mean, p->restart, t->begins_again, unit);
        clean += longest, hours += expected, core_hours += t->work * k / 3600, moved += bytes;
        report_row(r, "%s|%.4g|%.3g|%.4g|%.4g|%.4g|%.3g|%.3g|%.3g|%.3g", t->name, t->bytes * k / 1e12, rate / 1e6,
                   t->work * k / 3600, t->reads * t->bytes * k / 1e12, t->writes * t->bytes * k / 1e12,
                   t->sent * k / 1e12, cpu / 3600, files / 3600, expected / 3600);
    }
    report_section(r, "all parts");
    report_value(r, "days", hours * p->parts / 86400, "with failures", "parts %d * sum of the stages %.4g h / 24",
                 p->parts, hours / 3600);
    report_value(r, "days without failures", clean * p->parts / 86400, "",
                 "of each stage the longer of cores and files");
    report_value(r, "core hours", core_hours * p->parts, "", "parts * sum");
    report_value(r, "files", moved * p->parts / 1e12, "TB read and written", "parts * sum");
    report_value(r, "failures", hours * p->parts / mean, "", "time / (%.4g h of one host / %d hosts = %.4g h)",
                 one / 3600, p->hosts, mean / 3600);
    if (p->price > 0)
        report_value(r, "dollars", hours * p->parts / 3600 * hosts * p->price, "", "hours * hosts * %.4g", p->price);
    double held = BYTES_A_DOCUMENT * s.documents * k, least = ceil(held * p->parts / p->ram);
    report_section(r, "memory of a host");
    report_value(r, "documents", held / 1e9, "GB", "%d bytes * %.4g documents of a part, on every host",
                 BYTES_A_DOCUMENT, s.documents * k);
    report_text(r, "verdict", held <= p->ram ? "fits into %.0f GB" : "does not fit into %.0f GB: --parts %.0f would",
                p->ram / 1e9, least);
    report_section(r, "assumed");
    report_value(r, "hosts", hosts, "", NULL);
    report_value(r, "cores", p->cores, "a host, each as fast as those of the sample", NULL);
    report_value(r, "file system", p->io / 1e9, "GB/s of each host", NULL);
    report_value(r, "restart", p->restart, "s after a failure", NULL);
    report_text(r, "not counted", "stragglers, rank 0's lists and merges, pairs of near duplicates, and that a larger "
                "corpus has more of them");
    report_end(r);
}
