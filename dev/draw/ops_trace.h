// ops_trace: a device that notes which arrays each op of a step reads and writes, and of which type they are.
//
// It wraps another device, whose results it leaves as they are. The type is that of the op's own argument in ops/dev.h:
// X, the storage type, or float. It knows the ops of a dense model without dropout; another op ends the program.
#ifndef OPS_TRACE_H
#define OPS_TRACE_H
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { OPS_TRACE_USES = 12, OPS_TRACE_CALLS = 1000, OPS_TRACE_NO_UNIT = -1 };
typedef enum { OPS_TRACE_READ = 1, OPS_TRACE_WRITE = 2, OPS_TRACE_ADD = 4 } OpsTraceWay;

typedef struct {
    const void *array; // where the op's argument points to
    OpsTraceWay way;
    bool is_x;         // X, else float
} OpsTraceUse;

typedef struct {
    const char *op;    // its name in ops/dev.h
    int unit;          // index of the unit that runs (unit.h); OPS_TRACE_NO_UNIT: none
    UnitPass pass;
    OpsTraceUse use[OPS_TRACE_USES];
    int n;
} OpsTraceCall;

typedef struct {
    Dev dev;           // first: what a model is given
    Dev *inner;
    int unit;
    UnitPass pass;
    OpsTraceCall call[OPS_TRACE_CALLS];
    int n;
} OpsTrace;

// inner must live longer.
OpsTrace *ops_trace_create(Dev *inner);
void ops_trace_free(OpsTrace *trace);
// Sets the model's hooks, so that calls name the unit; the model's device is &trace->dev.
void ops_trace_follow(OpsTrace *trace, Model *model);

#ifdef __cplusplus
}
#endif
#endif
