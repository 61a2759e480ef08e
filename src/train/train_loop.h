// train_loop: the program that trains: the same loop on every device.
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H
#include "comm/comm.h"
#include "base/config.h"
#include "ops/dev.h"
#ifdef __cplusplus
extern "C" {
#endif

// Where a program computes, when that is not the CPU.
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

// Parses, opens, trains, saves, closes. device NULL: the CPU. Returns the program's exit status: 1 when the last
// checkpoint was not saved, or with numerics.check when an op left its bound.
int train_loop_run(int argc, char **argv, const TrainDevice *device);

#ifdef __cplusplus
}
#endif
#endif
