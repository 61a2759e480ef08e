// prepare: the commands of build/prepare that have a file of their own.
//
// Each takes its command line, argv[0] being its name, and returns the exit status.
#ifndef PREPARE_H
#define PREPARE_H

int prepare_dedup(int argc, char **argv);
int prepare_filter(int argc, char **argv);
int prepare_tokenizer(int argc, char **argv);

#endif
