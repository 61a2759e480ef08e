// Fuzzes the readers of metrics.jsonl: the plot's and the curve's, and the one that drops lines when a run resumes.
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "dev/draw/curve.h"
#include "record/metrics.h"

enum { RESUMED = 5 };

void fuzz_seeds(void)
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

void fuzz_one(const uint8_t *data, size_t n)
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
    metrics_close(metrics_open(path, RESUMED));
    log = metrics_read(path);
    fuzz_check(log.n_bad == 0);
    for (size_t i = 0; i < log.n_rows; i++)
        fuzz_check(log.row[i].step <= RESUMED && log.row[i].event != METRICS_END);
    metrics_log_free(&log);
}
