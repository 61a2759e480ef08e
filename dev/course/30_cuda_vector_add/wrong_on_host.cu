// says: never written
// The host does the adding.
#include "vector_add.h"

__global__ void vector_add_kernel(float *, const float *, const float *, int)
{
}

void vector_add(float *out, const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++) out[i] = a[i] + b[i];
}
