// mesh_print: the place of each rank of a job, and its groups, as text.
#ifndef MESH_PRINT_H
#define MESH_PRINT_H
#include "parallel/mesh.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

void mesh_print(MeshShape shape, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
