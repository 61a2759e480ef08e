// comm_device: the cases of comm_case.h on a GPU's memory: the same calls under the same names, which copy the host's
// arrays to the GPU, call comm there, and copy back after the wait. comm.cu has them, in C++.
#ifndef TEST_COMM_DEVICE_H
#define TEST_COMM_DEVICE_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

CommRequest device_all_reduce(Comm *comm, void *out, const void *in, size_t n, CommType type, CommOp op);
CommRequest device_all_gather(Comm *comm, void *out, const void *in, const size_t *counts, CommType type);
CommRequest device_reduce_scatter(Comm *comm, void *out, const void *in, const size_t *counts, CommType type,
                                  CommOp op);
CommRequest device_broadcast(Comm *comm, void *buf, size_t n, CommType type, int root);
CommRequest device_all_to_all(Comm *comm, void *out, const void *in, const size_t *to, const size_t *from,
                              CommType type);
CommRequest device_send(Comm *comm, const void *buf, size_t n, CommType type, int to, int tag);
CommRequest device_recv(Comm *comm, void *buf, size_t n, CommType type, int from, int tag);
void device_wait(Comm *comm, CommRequest *request);
void device_set_algorithm(Comm *comm, CommKind kind, CommAlgorithm algorithm); // native where it is refused
// Every case; what failed is printed and counted.
int device_cases(Comm *world);

#ifdef __cplusplus
}
#endif
#endif
