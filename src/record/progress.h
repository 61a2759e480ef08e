// progress: the output of a run for people; the training loop reports only here.
//
// On a terminal: one live line, redrawn in place, and notes above it. Elsewhere (file, pipe, CI): about
// 50 plain lines. In the run's directory: log.txt (the plain lines), metrics.jsonl and loss.svg (see
// metrics.h), the picture redrawn at every evaluation. Rank 0 alone makes one; every function accepts
// NULL and does nothing, so all ranks run the same loop.
#ifndef PROGRESS_H
#define PROGRESS_H
#include "record/metrics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *dir;          // the run's directory, which exists
    const char *name, *model; // the run's name; the model in a few words, "GPT, 6 layers x 192 channels"
    int64_t params, batch_tokens;
    int64_t steps;      // of the whole run; > 0
    int64_t eval_tokens; // as in metrics.h
    int64_t first_step; // updates done before: 0 for a new run, n when resumed from the checkpoint of step n
    int64_t log_every;  // train lines of metrics.jsonl: every so many steps (0 means 1)
    double floor_loss, floor_bpb; // nats per token, bits per byte; 0: not known
    bool floor_is_bound;          // the floor is an upper bound of the corpus' entropy
    int64_t mem[MEM_TAGS];        // bytes that rank 0 holds, by tag
} ProgressPlan;

typedef struct Progress Progress;

// Opens log.txt and metrics.jsonl (appends when first_step > 0) and writes the start or resume line.
// Copies the plan.
Progress *progress_begin(const ProgressPlan *plan);
// The width of the terminal that standard output is, 100 where it is none.
int progress_columns(void);
// log.txt itself, for a table that the caller prints to both; NULL for NULL.
FILE *progress_log(Progress *progress);

// After each update: all that a train line has (NAN: not known). save_ms and eval_ms: since the last call; spikes: 1 or
// 0, whether this step was one. The counts of the file are summed here.
void progress_step(Progress *progress, const MetricsRow *row);
// After an evaluation: row's step, tokens, val_loss, val_bpb, seconds; name: of what, ", of a part" (NULL: of all). The
// floor is the plan's.
void progress_val(Progress *progress, const MetricsRow *row);
// One more validation set: row's step, tokens, name, val_loss, val_bpb. A task: row's step, tokens, name and figures;
// `text` says them.
void progress_set(Progress *progress, const MetricsRow *row);
void progress_task(Progress *progress, const MetricsRow *row, const char *text);
// The loads of one layer's experts (loads.h): to the metrics alone.
void progress_experts(Progress *progress, const MetricsRow *row);
// Something else that belongs into metrics.jsonl: a sample (its text), a save (the checkpoint's path),
// a skip or a rollback (the reason). Printed above the live line.
void progress_event(Progress *progress, MetricsEvent event, int64_t step, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
// The run is rolled back to update `step`, and continues there: lines after it are removed from metrics.jsonl, then the
// rollback's own line is written.
void progress_rollback(Progress *progress, int64_t step, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// The run has so many steps now, after `seconds` of it.
void progress_pace(Progress *progress, int64_t step, int64_t steps, double seconds);
// Any other line above the live line, and in log.txt.
void progress_note(Progress *progress, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// The end line of metrics.jsonl (row as for progress_val), the last loss.svg, the closing summary;
// closes and frees.
void progress_end(Progress *progress, const MetricsRow *row);

// ---- the parts, for tests
typedef struct {
    int64_t step, steps; // steps 0: not known
    double loss, floor, grad_norm, lr, tok_s, mfu, eta; // floor 0, mfu and eta NAN: not known
} ProgressView;
// The live line: at most `columns` columns of a terminal, fields dropped from the least important on.
// Writes UTF-8 blocks or plain ASCII, with ANSI colours or none; returns the columns used.
int progress_line(char *out, size_t n_bytes, const ProgressView *view, int columns, bool utf8, bool color);
// The plain lines' interval: a multiple of log_every that gives at most about 50 lines.
int64_t progress_interval(int64_t steps, int64_t log_every);
// "1m05s", "2h03m", "850 ms"; "12.3M", "980"
void progress_time(char out[32], double seconds);
void progress_count(char out[32], double count);

#ifdef __cplusplus
}
#endif
#endif
