// tensorboard: event files that TensorBoard shows: scalars by step.
#ifndef TENSORBOARD_H
#define TENSORBOARD_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct TensorBoard TensorBoard;
typedef struct {
    char tag[64]; // "train/loss"
    double value; // kept as a float; may be NAN or infinite
} TensorBoardScalar;

// A new file events.out.tfevents.TIME.HOST.PROCESS.N in `dir`. resume_step 0: a new run. resume_step n: continues after
// update n; TensorBoard then forgets what other files of the folder have of later steps. Dies when it cannot be made.
TensorBoard *tensorboard_open(const char *dir, int64_t resume_step);
// One event with n scalars; wall: Unix time. Flushed: a killed program cuts at most the event that it was writing, and
// readers ignore a cut one. Dies when the disk is full.
void tensorboard_write(TensorBoard *board, int64_t step, double wall, const TensorBoardScalar *scalar, int n);
void tensorboard_close(TensorBoard *board); // NULL is allowed

// ---- the parts, for tests

// The checksum of a record: CRC-32C, then rotated by 15 bits plus a constant.
uint32_t tensorboard_crc(const void *data, size_t n_bytes);
uint32_t tensorboard_mask(uint32_t crc);
// Records, to out; they return their bytes (at most 64 + 128 n). The first one of a file: which format it is. One that
// marks a restart before `step`. n scalars.
size_t tensorboard_version(unsigned char *out, double wall);
size_t tensorboard_restart(unsigned char *out, double wall, int64_t step);
size_t tensorboard_event(unsigned char *out, double wall, int64_t step, const TensorBoardScalar *scalar, int n);

#ifdef __cplusplus
}
#endif
#endif
