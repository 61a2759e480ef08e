// runs: targets about what a run reads and leaves: settings, metrics, pages, schedules. See doc/fuzz.md.
#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/disk.h"
#include "base/words.h"
#include "dev/draw/curve.h"
#include "parallel/pipeline_check.h"
#include "parallel/pipeline_table.h"
#include "record/metrics.h"

// ---- config: the reader of configurations. What it takes is written, and read again with the same values.
static void config_seeds(void)
{
    fuzz_seed_file("scripts/presets/tiny.toml");
    fuzz_seed_file("scripts/presets/tiny-llama.toml");
    fuzz_seed_file("scripts/presets/stories.toml");
    fuzz_seed_file("scripts/presets/llama3-8b.toml");
    static const char all[] = "# comment\n[run]\nname = \"a\\tb \\u00e9\"\nsteps = 1_000\n[model]\npreset = tiny\n"
                              "dropout = 1e-1\n[optim]\nname = 'adamw'\n[numerics]\ndeterministic = true\n";
    fuzz_seed("values", all, sizeof all - 1);
}

static void config_one(const uint8_t *data, size_t n)
{
    static Config cfg, again;
    char out[300];
    config_defaults(&cfg);
    config_load_file(&cfg, fuzz_file("x.toml", data, n));
    config_resolve(&cfg);
    snprintf(out, sizeof out, "%s/out.toml", fuzz_dir());
    config_write(&cfg, out);
    fuzz_must_take();
    config_defaults(&again);
    config_load_file(&again, out);
    config_resolve(&again);
    fuzz_check(again.model.layers == cfg.model.layers && again.model.ffn == cfg.model.ffn);
    fuzz_check(again.run.steps == cfg.run.steps && again.optim.lr == cfg.optim.lr);
    fuzz_check(!strcmp(again.run.name, cfg.run.name));
}

FUZZ(config, NULL)

// ---- metrics: the readers of metrics.jsonl: the plot's and the curve's, and the one that drops lines when a run resumes.
enum { RESUMED = 5 };

static void metrics_seeds(void)
{
    static const char run[] =
        "{\"event\":\"start\",\"step\":0,\"name\":\"x\",\"text\":\"2 layers\",\"params\":1000,\"steps\":6,\"t\":1}\n"
        "{\"event\":\"val\",\"step\":0,\"tokens\":0,\"val_loss\":5.5,\"val_bpb\":2.1,\"seconds\":0.0,\"t\":1}\n"
        "{\"event\":\"train\",\"step\":1,\"tokens\":512,\"loss\":5.4,\"lr\":0.001,"
        "\"grad_norm\":1.5,\"dt_ms\":2,\"t\":2}\n"
        "{\"event\":\"train\",\"step\":2,\"loss\":null,\"loss_nan\":true,\"loss_inf\":-1,\"grad_norm\":1e300,\"t\":2}\n"
        "{\"event\":\"rollback\",\"step\":1,\"text\":\"\\u00e9\",\"t\":3}\n{\"event\":\"unheard\",\"step\":1}\n"
        "{\"event\":\"train\",\"step\":3,\"loss\":5.2,\"grad_norm\":1.25,\"t\":4}\n"
        "{\"event\":\"end\",\"step\":6,\"val_loss\":5,\"t\":9}\n{\"event\":\"tra";
    fuzz_seed("run", run, sizeof run - 1);
    static char many[8192];
    size_t n = 0;
    for (int i = 1; i <= 40; i++)
        n += (size_t)snprintf(many + n, sizeof many - n,
                              "{\"event\":\"train\",\"step\":%d,\"loss\":%g,\"grad_norm\":1}\n", i,
                              i == 30 ? 50.0 : 6 - 0.1 * i);
    fuzz_seed("spike", many, n);
}

static void metrics_one(const uint8_t *data, size_t n)
{
    const char *path = fuzz_file("x.jsonl", data, n);
    MetricsLog log = metrics_read(path);
    Curve c = curve_read(&log, (CurveSettings){.spike_z = 3, .plateau = 0.01});
    FILE *out = fopen("/dev/null", "w");
    fuzz_check(out);
    curve_print(&c, "x", out);
    fclose(out);
    curve_free(&c);
    metrics_log_free(&log);
    metrics_close(metrics_open(path, RESUMED, RESUMED));
    log = metrics_read(path);
    fuzz_check(log.n_bad == 0);
    for (size_t i = 0; i < log.n_rows; i++)
        fuzz_check(log.row[i].step <= RESUMED && log.row[i].event != METRICS_END);
    metrics_log_free(&log);
}

FUZZ(metrics, NULL)

// ---- page: what a run's page is made from: metrics.jsonl, config.toml and trace.json, one after another in the input.
static void page_seeds(void)
{
    static const char run[] =
        "{\"event\":\"start\",\"step\":0,\"name\":\"x\",\"text\":\"2 <layers>\",\"params\":1000,\"steps\":6,"
        "\"floor_loss\":2.5,\"mem_parameters\":4000,\"t\":1}\n"
        "{\"event\":\"train\",\"step\":1,\"tokens\":512,\"loss\":5.4,\"lr\":0.001,\"grad_norm\":1.5,\"dt_ms\":2,"
        "\"tok_s\":9,\"data_ms\":0.5,\"forward_ms\":1,\"save_ms\":3,\"x\\\"<\":1,\"t\":2}\n"
        "{\"event\":\"train\",\"step\":2,\"loss\":null,\"loss_nan\":true,\"loss_inf\":-1,\"grad_norm\":1e300,\"t\":2}\n"
        "{\"event\":\"rollback\",\"step\":1,\"text\":\"\\u00e9</td>\",\"t\":3}\n{\"event\":\"<b>\",\"step\":1}\n"
        "{\"event\":\"sample\",\"step\":2,\"text\":\"</pre><script>\"}\n"
        "{\"event\":\"val\",\"step\":3,\"val_loss\":5,\"val_x_loss\":4,\"t\":9}\n"
        "{\"event\":\"set\",\"step\":3,\"name\":\"<a>,\",\"val_loss\":5,\"val_bpb\":2}\n"
        "{\"event\":\"task\",\"step\":3,\"name\":\"acc\",\"items\":9,\"acc\":0.5,\"perplexity\":null}\n"
        "{\"event\":\"tra"
        "\n----\n"
        "# settings\n[run]\nname = \"a \\\"b\\\" <c>\"  # command line\nsteps = 6  # x.toml:3\n# trace = 0  # no\n"
        "[optim]\nlr = 0.001\nq = \n[x\n= 3\n"
        "\n----\n"
        "{\"traceEvents\":[{\"ph\":\"M\",\"name\":\"thread_name\"},"
        "{\"ph\":\"X\",\"name\":\"F0\",\"ts\":1.5,\"dur\":2,\"tid\":0,\"args\":{\"micro\":0}},"
        "{\"ph\":\"X\",\"name\":\"B0\",\"ts\":3.5,\"dur\":4,\"tid\":1,\"args\":{\"micro\":7}}]}";
    fuzz_seed("run", run, sizeof run - 1);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, what)); s++) n++;
    return n;
}

static void page_one(const uint8_t *data, size_t n)
{
    size_t second, third, length, n_bytes;
    size_t first = fuzz_cut(data, n, &second), rest = n - second;
    size_t config = fuzz_cut(data + second, rest, &third);
    fuzz_file("metrics.jsonl", data, first);
    fuzz_file("config.toml", data + second, config);
    fuzz_file("trace.json", data + second + third, rest - third);
    char out[4096];
    snprintf(out, sizeof out, "%s/report.html", fuzz_dir());
    fuzz_check(page_write(fuzz_dir(), NULL));
    char *page = disk_read_file(out, &n_bytes, 1 << 28);
    fuzz_check(page && strlen(page) == n_bytes && words_utf8_invalid(page, n_bytes, 0, &length) == n_bytes);
    fuzz_check(count(page, "<script") == 2 && count(page, "</script") == 2); // of the page itself, as these:
    fuzz_check(count(page, "</body>") == 1 && count(page, "<style") == 1);
    const char *begin = strchr(strstr(page, "id=\"data\""), '>') + 1;
    json_t *run = json_loadb(begin, (size_t)(strchr(begin, '<') - begin), JSON_REJECT_DUPLICATES, NULL); // no "<" in it
    fuzz_check(run);
    json_decref(run);
    free(page);
}

FUZZ(page, NULL)

// ---- schedule: the reader of pipeline schedules, the checker that proves them, and the writer of files.
static void schedule_seeds(void)
{
    const PipelineSchedule schedule[] = {PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZB_V};
    for (int i = 0; i < 3; i++) {
        char path[300];
        PipelineTable *t = pipeline_table_make(schedule[i], 2, 4, 0);
        snprintf(path, sizeof path, "%s/%s", fuzz_dir(), pipeline_table_name(schedule[i]));
        pipeline_table_write(t, path);
        fuzz_seed_file(path);
        pipeline_table_free(t);
    }
}

static void schedule_one(const uint8_t *data, size_t n)
{
    char why[400] = "", out[300];
    PipelineProof proof;
    PipelineTable *t = pipeline_table_read(fuzz_file("x.csv", data, n));
    bool sound = pipeline_check(t, &proof, why, sizeof why);
    fuzz_check(sound || *why);
    snprintf(out, sizeof out, "%s/out.csv", fuzz_dir());
    pipeline_table_write(t, out);
    fuzz_must_take();
    PipelineTable *again = pipeline_table_read(out);
    fuzz_check(again->p == t->p && again->m == t->m && again->v == t->v && again->split == t->split);
    for (int s = 0; s < t->p; s++) fuzz_check(again->n[s] == t->n[s]);
    fuzz_check(pipeline_check(again, &proof, why, sizeof why) == sound);
    pipeline_table_free(again);
    pipeline_table_free(t);
}

FUZZ(schedule, NULL)
