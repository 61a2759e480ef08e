// machines: accelerators and links as numbers: peak rates, memory, what connects them, what an hour costs.
//
// The plan's only facts about hardware. Each row names where its numbers come from. Rates in FLOP/s of dense bf16 with
// fp32 sums (fp16 on V100, fp32 on this CPU), sizes in bytes, bandwidths in bytes/s in one direction, prices in US
// dollars for one hour of one accelerator.
#ifndef MACHINES_H
#define MACHINES_H
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *name, *what;
    double alpha, bandwidth; // seconds a message; bytes/s of one accelerator
    const char *source; // NULL: measured; bandwidth is what messages reach, and not a data sheet's
} MachineLink;

typedef struct {
    const char *name;
    double peak, reachable;   // of the data sheet; the best measured for one large matmul
    double tf32;              // the data sheet's peak for fp32 operands rounded to TF32; 0: not in the table
    double memory, bandwidth; // of the accelerator
    int cores;                // that share a matmul's tiles: streaming multiprocessors
    int node;                 // accelerators a node
    MachineLink inside, between, host; // host: to the memory of its node's processors
    double host_memory;                // bytes/s of that memory, one accelerator's share
    double price;
    const char *source;
} Machine;

enum { MACHINES_CPU_SECONDS = 2 };

// A copy of the row of that name, in upper or lower case; "A100" is A100-80, the first row with that name before the
// memory; "cpu" measures this machine (machines_measure). Dies for names that the table does not have, and suggests the
// nearest one.
Machine machines_find(const char *name);
// The same accelerator with both rates those of TF32; dies where the table has none.
Machine machines_tf32(Machine machine);
MachineLink machines_link(const char *name);
// Replaces machine's links inside and between nodes by those that the file has, which comm.measure wrote: {"inside":
// {"alpha": seconds, "bandwidth": bytes/s}, "between": {...}}, one of them at least. Dies for any other file.
void machines_links(Machine *machine, const char *path);
// Dollars an hour of the accelerator, by its full name, at a cloud (aws, gcp, azure, lambda); dies where none is known.
double machines_price(const char *cloud, const char *machine);
// This CPU: the best sgemm (dev_cpu_peak of square matrices) and a copy of memory, `seconds` each.
Machine machines_measure(double seconds);
// All tables, as markdown.
void machines_print(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
