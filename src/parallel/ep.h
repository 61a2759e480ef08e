// ep: expert parallelism: the ranks of a group have a layer's experts between them, E / ep neighbours each.
//
// Everything else they have whole, with other tokens each, as data-parallel ranks do. Rows of tokens travel to the ranks
// that have their experts, and back. Units do not depend on it: ep_fill fills entries of the table that they call.
#ifndef EP_H
#define EP_H
#include "comm/comm.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Ep Ep;
typedef struct Parts Parts; // parts.h

// What rank `rank` of `size` has of a shape: experts alone are divided. Dies where they cannot be.
ModelShape ep_shape(const ModelShape *whole, int rank, int size);
// For the ranks of `group`, two or more.
Ep *ep_create(Comm *group, const ModelShape *part);
void ep_free(Ep *ep);
// Sets the entries of *linear for experts that ranks divide. parts->ep is set.
void ep_fill(Parts *parts, Linear *linear);

#ifdef __cplusplus
}
#endif
#endif
