// dev_check: a device that runs every op on two devices and compares.
//
// Wraps a fast device and a reference of the same storage type. Each op copies its inputs to the host, runs on
// both, and compares every element of every result against a bound derived for the op; the caller gets the fast
// device's results. So any program that takes a Dev checks itself, at whatever sizes and layout it runs.
#ifndef DEV_CHECK_H
#define DEV_CHECK_H
#include "ops/dev.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *op;
    long calls;
    double worst;    // the largest |fast - reference| / bound of all elements so far; infinite: NaN, or a bound of 0
    char where[160]; // that element, the two values, the bound
} DevCheckRow;

// `fast`: memory anywhere that its to_host reaches; `reference`: host memory, the same x_type. Both still belong to the
// caller and must live longer. to_x, from_x, zero and to_device are checked too; to_host is trusted.
Dev *dev_check_create(Dev *fast, Dev *reference);
void dev_check_free(Dev *dev);

// The ops that were called, in the order of their first calls.
size_t dev_check_rows(const Dev *dev, const DevCheckRow **rows);
// The largest `worst` of all rows; at most 1: everything agrees.
double dev_check_worst(const Dev *dev);
// The table: op, calls, worst error / bound, and the place of an error beyond it. False when an element exceeds its
// bound.
bool dev_check_print(const Dev *dev, FILE *out);

// ---- for the files that fill the table (dev_check.c, dev_check_*.c)
#define DEV_CHECK_U 0x1p-24 // unit roundoff of fp32
enum { DEV_CHECK_ROOMS = 96, DEV_CHECK_FN = 8 }; // FN: exp, log, tanh, sqrt ... err by at most this many units
typedef struct {
    Dev *fast, *ref, *wide; // wide: fp32 on the CPU, for the sizes of terms
    DevCheckRow *row;
    double ux; // unit roundoff of X: 0 for fp32
    void *room[DEV_CHECK_ROOMS];
    size_t n_rooms;
    XType x_type;
} DevCheckCall;

DevCheckCall dev_check_begin(Dev *dev, const char *op);
void dev_check_end(DevCheckCall *c);
// Memory until the end of the call: zeros, or a copy of the fast device's (NULL for NULL). Results that are written in
// part, or added to, start from such a copy.
void *dev_check_room(DevCheckCall *c, size_t n_bytes);
void *dev_check_copy(DevCheckCall *c, const void *fast, size_t n_bytes);
X *dev_check_x(DevCheckCall *c, const X *fast, size_t n);
float *dev_check_f(DevCheckCall *c, const float *fast, size_t n);
int32_t *dev_check_i(DevCheckCall *c, const int32_t *fast, size_t n);
double *dev_check_d(DevCheckCall *c, size_t n); // zeros
// n elements of X in host memory as fp32; absolute: without their signs.
float *dev_check_wide(DevCheckCall *c, const X *host, size_t n, bool absolute);
float *dev_check_abs(DevCheckCall *c, const float *host, size_t n);

// Compares the fast device's result with `want` (host memory). err: how far each may be from the true result before it
// is stored; NULL: both must be the same. (rows, used) elements, ld apart; err is contiguous.
void dev_check_expect_x(DevCheckCall *c, const char *name, const X *want, const X *fast, size_t rows, size_t used,
                        size_t ld, const double *err);
void dev_check_expect_f(DevCheckCall *c, const char *name, const float *want, const float *fast, size_t n,
                        const double *err);
void dev_check_expect_bytes(DevCheckCall *c, const char *name, const void *want, const void *fast, size_t n_bytes);
void dev_check_expect_one(DevCheckCall *c, const char *name, size_t i, size_t n, double got, double want, double bound);

void dev_check_matmul_fill(Dev *dev);
void dev_check_rows_fill(Dev *dev);
void dev_check_experts_fill(Dev *dev);

// ---- of one token's choice of experts, in double, with bounds of what fp32 may make of it; for tests too
// May `choice` (k), from logits z and bias (E, or NULL), be what a right device chose?
bool dev_check_route_choice(const int32_t *choice, const float *z, const float *bias, DevRouter r);
void dev_check_route_weights(double *gate, double *err, const float *z, const int32_t *choice, DevRouter r);
void dev_check_route_backward(double *dz, double *err, const float *dgate, const float *z, const int32_t *choice,
                              const float *even, float even_scale, float z_scale, DevRouter r);

#ifdef __cplusplus
}
#endif
#endif
