// comm_device: comm_case.h, with its calls redirected to the GPU's memory (comm_device.h).
#include "comm_device.h"

#define comm_all_reduce device_all_reduce
#define comm_all_gather device_all_gather
#define comm_reduce_scatter device_reduce_scatter
#define comm_broadcast device_broadcast
#define comm_all_to_all device_all_to_all
#define comm_send device_send
#define comm_recv device_recv
#define comm_wait device_wait
#define comm_set_algorithm device_set_algorithm
#include "comm_case.h"

int device_cases(Comm *world)
{
    CommCase cc = {0};
    case_everything(&cc, world);
    comm_set_checked(world, true);
    case_in_flight(&cc, world);
    comm_set_checked(world, false);
    return cc.failed;
}
