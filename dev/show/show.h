// show: the parts of build/show, each a small program that draws or prints one idea with the functions that training
// uses.
//
// Each takes its command line, argv[0] being its name, and returns the exit status.
#ifndef SHOW_H
#define SHOW_H

int show_collectives(int argc, char **argv);
int show_cp(int argc, char **argv);
int show_curve(int argc, char **argv);
int show_draw(int argc, char **argv);
int show_gradients(int argc, char **argv);
int show_loader(int argc, char **argv);
int show_mesh(int argc, char **argv);
int show_offload(int argc, char **argv);
int show_optimizers(int argc, char **argv);
int show_overlay(int argc, char **argv);
int show_packing(int argc, char **argv);
int show_pipeline(int argc, char **argv);
int show_plot(int argc, char **argv);
int show_scaling(int argc, char **argv);
int show_tp(int argc, char **argv);
int show_zero(int argc, char **argv);

#endif
