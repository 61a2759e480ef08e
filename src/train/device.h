// device: where a training program computes, when that is not the CPU: what train_gpu.cu gives to train.c.
#ifndef DEVICE_H
#define DEVICE_H
#include "base/config.h"
#include "comm/comm.h"
#include "ops/dev.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *name;
    int (*count)(void); // devices of this machine; dies with a line when there is none
    // Device number `device`, from 0, with the storage of numerics.dtype. threads: what dev->threads says.
    Dev *(*open)(const Config *cfg, int device, int threads);
    void (*close)(Dev *dev);
    // A group of the ranks of `world`, two or more, for the memory of `dev`, which is device number `device`.
    // Collective.
    Comm *(*ranks)(const Config *cfg, Comm *world, int device, Dev *dev);
    void (*part)(Dev *dev, Comm *ranks); // frees that group, before the device
} TrainDevice;

extern const TrainDevice train_device_gpu; // of programs that are linked with train_gpu.cu

#ifdef __cplusplus
}
#endif
#endif
