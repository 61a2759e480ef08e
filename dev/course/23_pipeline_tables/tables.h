// tables: what each stage of a pipeline does, in order.
//
// p stages, m micro-batches. A stage holds v chunks of the model: chunk c of stage s is piece c p + s of p v pieces.
// F of a micro-batch goes through pieces 0, 1, ..., its B back from the last piece to piece 0.
#ifndef TABLES_H
#define TABLES_H

typedef struct {
    char kind; // 'F' forward; 'B' backward; 'W' gradient of the weights, only where B is split from it
    int micro; // 0 to m - 1
    int chunk; // 0 to v - 1; 0 where there is one chunk
} Action;

// Each writes the actions of `stage` (0 to p - 1) in their order to out, which has room for exactly so many, and
// returns how many they are. B contains W, except in zero_bubble.
int gpipe(int stage, int p, int m, Action *out);              // 2 m
int one_f_one_b(int stage, int p, int m, Action *out);        // 2 m
int interleaved(int stage, int p, int m, int v, Action *out); // 2 m v; p divides m, v is at least 2
int zero_bubble(int stage, int p, int m, Action *out);        // 3 m; m is at least p
#endif
