// plan_for: a model for a text and some minutes on this machine. It is the rule of "make run TEXT=FILE MINUTES=M".
#ifndef PLAN_FOR_H
#define PLAN_FOR_H
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double bytes, minutes; // of text; of training
    double peak;           // FLOP/s that large products reach on all cores; 0: measured, in a second
} PlanFor;

// What the rule says. The batch is in tokens.
typedef struct {
    double budget;                       // FLOP of training
    long vocab, width, layers, batch;
    double params, tokens, unique;       // tokens: that training reads; unique: of the text
    double dropout, lr;                  // lr: of the parameters that are not matrices
} PlanForModel;

PlanForModel plan_for_model(const PlanFor *f);
// Prints the model and why, a line each; the last one has the settings that make it of the preset text.
void plan_for_print(const PlanFor *f, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
