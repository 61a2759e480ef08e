// plot: loss.svg, the run in one picture, and the losses of several runs in another.
#ifndef PLOT_H
#define PLOT_H
#ifdef __cplusplus
extern "C" {
#endif

// Draws the metrics.jsonl at metrics_path into svg_path (written aside, then renamed: a viewer never
// sees half a picture): training loss raw and smoothed, validation loss, the floor, and below them the
// learning rate and the gradient norm, over tokens. title NULL: the run's name; floor in nats per
// token, 0: what the file says. The picture needs no script, no font and no network, and does not
// depend on the locale. Dies when a file cannot be read or written; a run without a train line yet
// gives an empty frame that says so.
void plot_loss_svg(const char *metrics_path, const char *svg_path, const char *title, double floor);

// The training losses of n runs (1 to 8) in one picture, raw and smoothed, each with its last values beside it:
// name[i] for metrics_path[i]. Dies as above.
void plot_overlay_svg(const char *const *metrics_path, const char *const *name, int n, const char *svg_path,
                      const char *title);

#ifdef __cplusplus
}
#endif
#endif
