// machines: the device and link tables of the plan. See plan_job.h.
//
// Each row has two rates. `peak` is the data sheet's, and MFU is a share of it. `reachable` is what one
// large matmul in bf16 was measured to reach ("maximum achievable matmul FLOPS", the table of stas00/ml-engineering,
// compute/accelerator; random inputs, best of all shapes): 87% of the peak on A100, 80% on H100, 78% on B200, because
// a chip lowers its clock when all of it multiplies. A plan that starts from `peak` promises of an H100 what is never
// reached. Where no measurement is published the row says so, and has the A100's 87%.
//
// `tf32` is the data sheet's rate of matmuls of fp32 numbers whose operands are rounded to TF32: A100 156 TFLOP/s
// (NVIDIA A100 data sheet, 2021), H100 SXM 494.7 (H100 data sheet: 989 with half of the operands zero), half of bf16.
// No measured rate is published, so reachable is bf16's share of it. Rows without it are not planned in TF32.
//
// Links: `inside` a node, `between` nodes, one accelerator's share of each. alpha is the time of a step of a ring that
// moves no bytes: a microsecond over NVLink, several over a network with its switches.
//
// The host: the accelerator's PCIe slot, and its share of what the processors of a node read and write, channels times
// rate: V100 DGX-1 8 x DDR4-2133, A100 DGX and AWS g5 16 x DDR4-3200, H100 DGX 16 x DDR5-4800, B200 DGX 16 x DDR5-5600,
// all for 8 accelerators.
//
// Prices are those of one hour on demand around 2024. They fall, and contracts differ; --price overrides them. The
// H100's price is from llm.c's report (8 of them for 24 hours: 672 dollars). Those of four clouds are the ones that
// guides print, without a date: by them the same run costs two and a half times as much at the dearest.
//
// The invariant: every rate is that of dense matmuls. Data sheets also print twice that number, for matrices of which
// half is zero.
//
// Rejected: a file that users edit. The rows are thirty numbers that change once a year, and a table in a file has no
// room for the reason of a number.
#include "dev/plan/plan_job.h"

#include "ops/dev_cpu.h"
#include "base/check.h"
#include "base/words.h"
#include "base/clock.h"
#include "base/config.h"

#include <ctype.h>
#include <jansson.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const MachineLink link_table[] = {
    {"nvlink2", "NVLink 2, V100", 1.5e-6, 150e9, "NVIDIA V100 data sheet: 300 GB/s both ways"},
    {"nvlink3", "NVLink 3, A100", 1.5e-6, 300e9, "NVIDIA A100 data sheet: 600 GB/s both ways"},
    {"nvlink4", "NVLink 4, H100", 1.5e-6, 450e9, "NVIDIA H100 data sheet: 900 GB/s both ways"},
    {"nvlink5", "NVLink 5, B200", 1.5e-6, 900e9, "NVIDIA B200 data sheet: 1.8 TB/s both ways"},
    {"pcie3", "PCIe 3.0 x16", 5e-6, 15.75e9, "8 GT/s, 16 lanes, 128b/130b"},
    {"pcie4", "PCIe 4.0 x16", 5e-6, 31.5e9, "16 GT/s, 16 lanes, 128b/130b"},
    {"pcie5", "PCIe 5.0 x16", 5e-6, 63e9, "32 GT/s, 16 lanes, 128b/130b"},
    {"edr", "InfiniBand EDR", 5e-6, 12.5e9, "100 Gbit/s"},
    {"hdr", "InfiniBand HDR", 5e-6, 25e9, "200 Gbit/s"},
    {"ndr", "InfiniBand NDR, RoCE 400", 5e-6, 50e9, "400 Gbit/s"},
    {"eth400", "Ethernet, RoCE", 6e-6, 50e9, "400 Gbit/s"},
    {"eth100", "Ethernet, RoCE", 8e-6, 12.5e9, "100 Gbit/s"},
    {"eth50", "Ethernet, 8 share 400", 8e-6, 6.25e9, "400 Gbit/s of a node, by 8 accelerators"},
    {"eth25", "Ethernet, TCP", 30e-6, 3.125e9, "25 Gbit/s"},
    {"eth10", "Ethernet, TCP", 40e-6, 1.25e9, "10 Gbit/s"},
    {"eth1", "Ethernet, TCP", 50e-6, 0.125e9, "1 Gbit/s"},
    {"memory", "memory of one machine", 1e-6, 10e9, "between processes of one CPU; plan time --gpu cpu measures it"},
};
enum { LINKS = sizeof link_table / sizeof *link_table };

// Machines with the names of their links, which machines_find looks up.
static const struct {
    Machine m;
    const char *inside, *between, *host;
} table[] = {
    {{.name = "A100-80", .peak = 312e12, .reachable = 271.2e12, .tf32 = 156e12, .memory = 80e9, .bandwidth = 2.039e12,
      .cores = 108, .node = 8, .host_memory = 51.2e9, .price = 1.8,
      .source = "A100 80 GB SXM; 271.2 measured"}, "nvlink3", "hdr", "pcie4"},
    {{.name = "A100-40", .peak = 312e12, .reachable = 271.2e12, .tf32 = 156e12, .memory = 40e9, .bandwidth = 1.555e12,
      .cores = 108, .node = 8, .host_memory = 51.2e9, .price = 1.3,
      .source = "A100 40 GB SXM; 271.2 measured (80 GB)"}, "nvlink3", "hdr", "pcie4"},
    {{.name = "H100", .peak = 989.4e12, .reachable = 794.5e12, .tf32 = 494.7e12, .memory = 80e9, .bandwidth = 3.35e12,
      .cores = 132, .node = 8, .host_memory = 76.8e9, .price = 3.5,
      .source = "H100 SXM; 794.5 measured"}, "nvlink4", "ndr", "pcie5"},
    {{.name = "H200", .peak = 989.4e12, .reachable = 794.5e12, .tf32 = 494.7e12, .memory = 141e9, .bandwidth = 4.8e12,
      .cores = 132, .node = 8, .host_memory = 76.8e9, .price = 4.0,
      .source = "H200 SXM; 794.5 measured (the same chip)"}, "nvlink4", "ndr", "pcie5"},
    {{.name = "B200", .peak = 2250e12, .reachable = 1745e12, .memory = 180e9, .bandwidth = 8e12,
      .cores = 148, .node = 8, .host_memory = 89.6e9, .price = 6.0,
      .source = "B200 SXM; 1745 measured"}, "nvlink5", "ndr", "pcie5"},
    {{.name = "V100", .peak = 125e12, .reachable = 108.6e12, .memory = 32e9, .bandwidth = 0.9e12,
      .cores = 80, .node = 8, .host_memory = 17.1e9, .price = 0.8,
      .source = "V100 32 GB SXM2, fp16; reachable as the A100's share"}, "nvlink2", "edr", "pcie3"},
    {{.name = "A10G", .peak = 70e12, .reachable = 60.8e12, .memory = 24e9, .bandwidth = 0.6e12,
      .cores = 80, .node = 8, .host_memory = 51.2e9, .price = 1.0,
      .source = "A10G, AWS g5; reachable as the A100's share"}, "pcie4", "eth25", "pcie4"},
    {{.name = "A10", .peak = 125e12, .reachable = 108.6e12, .memory = 24e9, .bandwidth = 0.6e12,
      .cores = 72, .node = 8, .host_memory = 51.2e9, .price = 0.75,
      .source = "A10; reachable as the A100's share"}, "pcie4", "eth25", "pcie4"},
};
enum { ROWS = sizeof table / sizeof *table };

static const char *const priced[] = {"A100-80", "H100", "A10G"};
enum { PRICED = sizeof priced / sizeof *priced };
static const struct {
    const char *cloud;
    double of[PRICED]; // 0: not known
} price_table[] = {
    {"aws", {3.97, 8, 1.006}}, {"gcp", {3.67, 7, 0}}, {"azure", {3.4, 6, 0}}, {"lambda", {1.99, 3.29, 0}}};
enum { CLOUDS = sizeof price_table / sizeof *price_table };

double machines_price(const char *cloud, const char *machine)
{
    for (int i = 0; i < CLOUDS; i++)
        for (int k = 0; k < PRICED; k++)
            if (!strcasecmp(cloud, price_table[i].cloud) && !strcmp(machine, priced[k]) && price_table[i].of[k] > 0)
                return price_table[i].of[k];
    die("--price: '%s' is no number, nor a cloud with a price for %s (aws, gcp, azure, lambda; plan machines lists "
        "them)", cloud, machine);
}

MachineLink machines_link(const char *name)
{
    int best = 0, best_distance = 1000;
    for (int i = 0; i < LINKS; i++) {
        if (!strcasecmp(name, link_table[i].name)) return link_table[i];
        int distance = words_distance(name, link_table[i].name, 1000);
        if (distance < best_distance) best = i, best_distance = distance;
    }
    die("--link: '%s' is no link of the table (did you mean %s? plan machines lists them)", name,
        link_table[best].name);
}

// Is it the row's name, with or without the memory after the hyphen? "A100" is the first row that it fits, A100-80.
static bool names(const char *name, const char *row)
{
    size_t n = strlen(name);
    return !strncasecmp(name, row, n) && (!row[n] || (n && row[n] == '-'));
}

Machine machines_find(const char *name)
{
    int best = 0, best_distance = 1000;
    if (!strcasecmp(name, "cpu")) return machines_measure(MACHINES_CPU_SECONDS);
    for (int i = 0; i < ROWS; i++) {
        Machine m = table[i].m;
        int distance = words_distance(name, m.name, 1000);
        if (names(name, m.name)) {
            m.inside = machines_link(table[i].inside), m.between = machines_link(table[i].between);
            m.host = machines_link(table[i].host);
            return m;
        }
        if (distance < best_distance) best = i, best_distance = distance;
    }
    die("--gpu: '%s' is no accelerator of the table (did you mean %s? plan machines lists them)", name,
        table[best].m.name);
}

// False: the file has no such link.
static bool read_link(const json_t *root, const char *key, const char *path, MachineLink *link)
{
    const json_t *value = json_object_get(root, key);
    if (!value) return false;
    double alpha = json_number_value(json_object_get(value, "alpha"));
    double bandwidth = json_number_value(json_object_get(value, "bandwidth"));
    if (!(alpha > 0 && bandwidth > 0))
        die("--links %s: %s has no alpha (seconds) and bandwidth (bytes/s) above 0", path, key);
    *link = (MachineLink){"measured", "by comm.measure", alpha, bandwidth, NULL};
    return true;
}

void machines_links(Machine *m, const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) die("--links %s: %s (wants the links.json of a run with comm.measure=true)", path, error.text);
    bool inside = read_link(root, "inside", path, &m->inside);
    if (!read_link(root, "between", path, &m->between) && !inside)
        die("--links %s: neither \"inside\" nor \"between\" (wants the links.json of a run with comm.measure=true)",
            path);
    json_decref(root);
}

Machine machines_tf32(Machine m)
{
    if (!m.tf32) die("--gpu %s: no TF32 rate in the table (try A100-80, H100 or H200, or another numerics.dtype)", m.name);
    m.reachable *= m.tf32 / m.peak;
    m.peak = m.tf32;
    return m;
}

// Bytes read plus written a second by copies of 64 MB.
static double copy_rate(double seconds)
{
    size_t n = 64u << 20, copies = 0;
    char *from = malloc(n), *to = malloc(n);
    if (!from || !to) die("plan: no memory to measure copies (64 MB twice)");
    memset(from, 1, n), memset(to, 0, n);
    double begin = clock_seconds(), now = begin;
    for (; now - begin < seconds; now = clock_seconds(), copies++) {
        from[copies % n] ^= 1; // so that the compiler cannot leave out a copy
        memcpy(to, from, n);
    }
    if (to[0] == 2) die("plan: a copy went wrong");
    free(from), free(to);
    return 2 * (double)n * (double)copies / (now - begin);
}

Machine machines_measure(double seconds)
{
    MatmulShape square[] = {{1024, 1024, 1024}, {2048, 1024, 1024}};
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    Machine m = {.name = "cpu", .node = 1, .price = 0, .source = "measured: OpenBLAS' sgemm, copies of 64 MB"};
    m.cores = omp_get_max_threads();
    dev_cpu_blas_room(m.cores, true);
    doing("measuring this machine");
    m.peak = m.reachable = 1e9 * dev_cpu_peak(square, 2, m.cores, seconds);
    m.bandwidth = copy_rate(seconds / 4);
    doing(NULL);
    m.memory = (double)pages * (double)page;
    m.inside = machines_link("memory"), m.between = machines_link("eth1");
    m.host = m.inside, m.host_memory = m.bandwidth;
    m.inside.bandwidth = m.bandwidth / 2;
    return m;
}

void machines_print(FILE *out)
{
    fprintf(out, "| accelerator | peak, TFLOP/s | reachable | memory, GB | GB/s | cores | in the node | GB/s | "
                 "between nodes | GB/s | $ an hour | TF32 | host | its memory, GB/s | from |\n"
                 "|---|---:|---:|---:|---:|---:|---|---:|---|---:|---:|---:|---|---:|---|\n");
    for (int i = 0; i < ROWS; i++) {
        Machine m = machines_find(table[i].m.name);
        char tf32[16] = "-";
        if (m.tf32) snprintf(tf32, sizeof tf32, "%.1f", m.tf32 / 1e12);
        fprintf(out, "| %s | %.0f | %.1f | %.0f | %.0f | %d | %s | %.0f | %s | %.1f | %.2f | %s | %s | %.1f | %s |\n",
                m.name, m.peak / 1e12, m.reachable / 1e12, m.memory / 1e9, m.bandwidth / 1e9, m.cores, m.inside.name,
                m.inside.bandwidth / 1e9, m.between.name, m.between.bandwidth / 1e9, m.price, tf32,
                m.host.name, m.host_memory / 1e9, m.source);
    }
    fprintf(out, "\n| link | what | microseconds a message | GB/s one way | from |\n|---|---|---:|---:|---|\n");
    for (int i = 0; i < LINKS; i++) {
        const MachineLink *l = &link_table[i];
        fprintf(out, "| %s | %s | %.1f | %.2f | %s |\n", l->name, l->what, l->alpha * 1e6, l->bandwidth / 1e9,
                l->source);
    }
    fprintf(out, "\n| cloud, $ an hour | %s | %s | %s |\n|---|---:|---:|---:|\n", priced[0], priced[1], priced[2]);
    for (int i = 0; i < CLOUDS; i++) {
        fprintf(out, "| %s |", price_table[i].cloud);
        for (int k = 0; k < PRICED; k++)
            fprintf(out, price_table[i].of[k] > 0 ? " %.2f |" : " - |", price_table[i].of[k]);
        fputs("\n", out);
    }
}
