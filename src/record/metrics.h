// metrics: the run's record, metrics.jsonl, and loss.svg, which is drawn from it.
//
// One JSON object a line, flushed line by line, so that a killed run loses at most the line it was
// writing. One table in metrics.c says which keys an event has; the writer and the reader both walk it.
//
//   start, resume  step, name, text (the model in words), params, steps, batch_tokens, floor_loss, floor_bpb,
//                  floor_is_bound, mem_TAG
//   train          step, tokens, loss, lr, grad_norm, dt_ms, tok_s, mfu, ppl, samples_s, data_ms, forward_ms,
//                  backward_ms, comm_ms, optim_ms, save_ms, eval_ms, noise_scale, screened, spikes, skips
//   val, end       step, tokens, val_loss, val_bpb, floor_loss, floor_bpb, seconds, val_ppl
//   set            step, tokens, name (of eval.sets), val_loss, val_bpb
//   experts        step, tokens, name (of the layer), load_max, load_min, max_vio, share_max, share_min, idle, entropy,
//                  entropy_nats, dropped, gate_max, balance_loss, z_loss, bias_min, bias_max, text (slots of each)
//   task           step, tokens, name (of eval.tasks), items, acc, acc_norm, acc_token, centred, perplexity; null: the
//                  task has none
//   sample, save, skip, warn, rollback   step, text (the sample, the checkpoint's path, the reason); rollback: the
//                  step of the checkpoint; lines after it are gone
// and on every line `t`, the Unix time in seconds. `step` counts finished optimizer updates: the first
// train line is step 1, and a val line of step 0 was measured before training.
#ifndef METRICS_H
#define METRICS_H
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    METRICS_START, METRICS_TRAIN, METRICS_VAL, METRICS_SAMPLE, METRICS_SAVE,
    METRICS_RESUME, METRICS_SKIP, METRICS_ROLLBACK, METRICS_WARN, METRICS_END, METRICS_SET, METRICS_TASK, METRICS_EXPERTS,
    METRICS_PACE, // run.minutes: `steps` is what the run has now, after `seconds` of it
    METRICS_EVENTS
} MetricsEvent;

// One line of the file. Fill in the fields of your event; the others are not written. After reading, a
// number that the line did not have (or had as null) is NAN, a count 0, a text NULL; an unknown floor
// is 0.
typedef struct {
    MetricsEvent event;
    int64_t step, tokens;                // tokens: trained on so far
    double loss, lr, grad_norm;          // nats per token; of this update; before clipping
    double dt_ms, tok_s, mfu;            // of the step; tokens a second; 0 to 1 of the peak
    double val_loss, val_bpb;            // nats per token; bits per byte
    double floor_loss, floor_bpb;        // the corpus' entropy, same units; 0: not known, not written
    bool floor_is_bound;                 // the floor is a proven upper bound of the entropy
    double seconds;                      // training time so far, evaluation and saving left out
    int64_t params, steps, batch_tokens; // of the whole run
    int64_t eval_tokens;                 // of run.minutes: how many are scored, where not all
    const char *name, *text;
    int64_t items;                       // of a benchmark task (tasks.h), and its figures
    double acc, acc_norm, acc_token, centred, perplexity;
    // Of a layer's experts in one step (loads.h); `text` has the slots of each.
    double load_max, load_min, max_vio, share_max, share_min, entropy, entropy_nats, dropped;
    int64_t idle;                        // experts without a slot
    double gate_max, balance_loss, z_loss, bias_min, bias_max; // not written: 0 or NAN
    double ppl, val_ppl;                 // perplexity: e to the loss in nats per token
    double samples_s;                    // sequences a second
    // Milliseconds of the step by phase (phases.h); of saves and evaluations since the line before. Not written: NAN.
    double data_ms, forward_ms, backward_ms, comm_ms, optim_ms, save_ms, eval_ms;
    double noise_scale;                  // tokens (run.noise_every); 0: not measured
    int64_t screened;                    // targets that data.max_repeat and max_broken took from the loss; unless 0
    int64_t spikes, skips;               // steps that were judged a spike, updates that were not made; so far
    int64_t mem[MEM_TAGS];               // bytes that rank 0 holds of each tag; written unless 0
} MetricsRow;

typedef struct Metrics Metrics;

// Opens the file for writing. resume_step 0: an empty file, whatever it held. resume_step n: continues after update n;
// lines that a killed run wrote after its last checkpoint (lines with step > n, a cut last line) and `end` lines are
// dropped first, atomically (temporary file, fsync, rename), so that no step appears twice. steps: of the run now; where
// it had ended, and is longer now, the end's validation stays as a `val` line.
Metrics *metrics_open(const char *path, int64_t resume_step, int64_t steps);
// Appends and flushes one line; dies when the disk is full. A number that is not finite is written as
// null with a flag: "loss":null,"loss_nan":true, and for an infinity also "loss_inf":1 or -1. The
// locale does not matter.
void metrics_write(Metrics *metrics, const MetricsRow *row);
void metrics_close(Metrics *metrics); // NULL is allowed

typedef struct {
    MetricsRow *row;
    size_t n_rows;
    size_t n_bad; // lines that are no event: 0, or 1 for a cut last line (an event unknown to us is not bad)
} MetricsLog;

// Reads a file, also while a run writes it. Dies when it cannot be read.
MetricsLog metrics_read(const char *path);
void metrics_log_free(MetricsLog *log);
const char *metrics_event_name(MetricsEvent event);

// ---- pictures

// Draws the metrics.jsonl at metrics_path into svg_path (written aside, then renamed: a viewer never
// sees half a picture): training loss raw and smoothed, validation loss, the floor, and below them the
// learning rate and the gradient norm, over tokens. title NULL: the run's name; floor in nats per
// token, 0: what the file says. The picture needs no script, no font and no network, and does not
// depend on the locale. Dies when a file cannot be read or written; a run without a train line yet
// gives an empty frame that says so.
void metrics_plot_loss(const char *metrics_path, const char *svg_path, const char *title, double floor);

// The training losses of n runs (1 to 8) in one picture, raw and smoothed, each with its last values beside it:
// name[i] for metrics_path[i]. Dies as above.
void metrics_plot_overlay(const char *const *metrics_path, const char *const *name, int n, const char *svg_path,
                          const char *title);

// ---- page.c: report.html, a run on one page: from the files of its directory, for a browser, without a network
//
// The page is report.html of this folder, style and script and all, with the run's own lines in it as JSON. It is made
// again as the run goes on, and can be made from any run's directory, old, running, killed or resumed.

// Of a long run's train lines (and val lines) the page has PAGE_GROUPS groups of successive ones: see page.c.
enum { PAGE_GROUPS = 800 };

// Writes `path` (NULL: DIR/report.html) from DIR/metrics.jsonl, config.toml and trace.json, as far as they are there;
// in one step, so a browser never loads half a page. False, with errno: it cannot be written.
bool page_write(const char *dir, const char *path);

#ifdef __cplusplus
}
#endif
#endif
