// dump: what one update saw and computed, as named tensors in one file. See dump.h.
//
// Two runs that should agree (1 thread and 2, one micro-batch and four, another device) differ somewhere. A
// loss curve says so hundreds of steps later; the dump says where. It holds, in the order in which a step
// has them:
//
//     weight.NAME   before the update, in the order of the table (what went in)
//     loss          of every token of the global batch, whatever the micro-batches were (what forward made)
//     grad.NAME     summed over the micro-batches, before clipping, last row first (what backward made)
//
// The invariant: the metadata "order" is this order, so the first tensor that build/diff finds out of bound
// is the first one that went wrong: a wrong weight comes before any loss, and a gradient of the last block
// before that of the first.
//
// The gradients are those of the loss of the step: each micro-batch was scaled by 1 / valid tokens of the
// global batch already.
//
// Rejected: dumping activations too. They are many times the size, and a gradient is wrong wherever an
// activation was.
#include "dump.h"

#include "check.h"
#include "disk.h"
#include "safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME = PARAM_NAME + 8 };

static SafeTensor tensor_of(char name[NAME], const char *kind, const Param *row, const float *flat)
{
    snprintf(name, NAME, "%s.%s", kind, row->name);
    return (SafeTensor){.name = name, .dtype = ST_F32, .ndim = row->ndim, .shape = row->dim,
                        .data = flat + row->offset};
}

void dump_write(const char *run_dir, long update, const Params *params, const float *weights, const float *grads,
                const float *loss, size_t rows, size_t context)
{
    int n_rows = params->n_rows, n = 0;
    size_t loss_shape[2] = {rows, context};
    SafeTensor *tensor = calloc(2 * (size_t)n_rows + 1, sizeof *tensor);
    char (*name)[NAME] = calloc(2 * (size_t)n_rows, sizeof *name);
    if (!tensor || !name) die("dump: no memory for the names of %d tensors", 2 * n_rows);
    for (int i = 0; i < n_rows; i++, n++)
        tensor[n] = tensor_of(name[i], "weight", &params->row[i], weights);
    tensor[n++] = (SafeTensor){.name = "loss", .dtype = ST_F32, .ndim = 2, .shape = loss_shape, .data = loss};
    for (int i = n_rows - 1; i >= 0; i--, n++)
        tensor[n] = tensor_of(name[n_rows + i], "grad", &params->row[i], grads);

    char path[800], temporary[810], step[24], error[1024];
    snprintf(path, sizeof path, "%s/dump", run_dir);
    if (mkdir(path, 0777) && errno != EEXIST) die("%s: cannot be made: %s", path, strerror(errno));
    snprintf(path, sizeof path, "%s/dump/step_%08ld.safetensors", run_dir, update);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    snprintf(step, sizeof step, "%ld", update);
    SafeMeta meta = {"step", step};
    if (!safetensors_write(temporary, tensor, n, &meta, 1, NULL, NULL, error, sizeof error)) die("%s", error);
    if (rename(temporary, path) || !disk_sync_parent(path)) die("%s: %s", path, strerror(errno));
    free(tensor);
    free(name);
}
