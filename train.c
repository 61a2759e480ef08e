// train: trains a language model.
//
//   build/train presets/tiny.toml --data.train='DIR/train_*.bin' --data.val='DIR/val_*.bin' --data.tokenizer=DIR
//
// The whole program is train_loop.c, on the CPU; train_gpu.cu is the same on a GPU.
#include "train/train_loop.h"

int main(int argc, char **argv)
{
    return train_loop_run(argc, argv, NULL);
}
