// plan_show: the plans about machines, as reports: traffic, time, layout, scaling, recipes, cluster.
#ifndef PLAN_SHOW_H
#define PLAN_SHOW_H
#include "dev/plan/plan_options.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

void plan_show_traffic(const PlanOptions *o, FILE *out);
void plan_show_time(const PlanOptions *o, FILE *out);
// Searches what the options leave open; writes the winner's settings to o->write.
void plan_show_layout(PlanOptions *o, FILE *out);
void plan_show_scaling(const PlanOptions *o, FILE *out);
void plan_show_cluster(PlanOptions *o, FILE *out);
// The named preset as a configuration file; NULL: all of them in a table.
void plan_show_recipe(const char *name, FILE *out);

// argv[1] names one of the plans above, or machines or published: runs it and returns true. False: it is none of them.
bool plan_show(int argc, char **argv, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
