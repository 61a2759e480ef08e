// Fuzzes what a run's page is made from: metrics.jsonl, config.toml and trace.json, one after another in the input.
#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/disk.h"
#include "base/words.h"
#include "record/page.h"

void fuzz_seeds(void)
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

void fuzz_one(const uint8_t *data, size_t n)
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
    fuzz_check(count(page, "<pre") == count(page, "</pre>") && count(page, "<td") == count(page, "</td>"));
    fuzz_check(!strstr(page, "<b>\"") && count(page, "<html") == 1 && count(page, "<style") == 1);
    const char *begin = strchr(strstr(page, "id=\"data\""), '>') + 1;
    json_t *numbers = json_loadb(begin, (size_t)(strstr(begin, "</script>") - begin), JSON_REJECT_DUPLICATES, NULL);
    fuzz_check(numbers);
    json_decref(numbers);
    free(page);
}
