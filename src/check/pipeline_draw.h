// pipeline_draw: a pipeline's timeline as a grid of text, as a picture, and as a trace for Perfetto.
//
// Only timelines are drawn, so a real run is drawn by the same code as a schedule on paper.
#ifndef PIPELINE_DRAW_H
#define PIPELINE_DRAW_H
#include "parallel/pipeline_time.h"

#include <stddef.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// One row a stage, time to the right: F3 is the forward of micro-batch 3, F3b that of its second chunk;
// dashes continue to the action's end; blanks are idle time. Exact where all times are whole multiples of one unit,
// else rounded.
void pipeline_draw_text(const PipelineTimeline *line, FILE *out);
// The width of that grid; approximate where times are rounded.
size_t pipeline_draw_columns(const PipelineTimeline *line);

typedef struct {
    const char *title, *note; // note: after the title, or NULL
    const PipelineTimeline *line;
} PipelineDrawing;

// An SVG file with n timelines below each other, on one axis of time called `unit`. F, B and W have a colour
// each, later chunks a lighter one. Dies when it cannot be written.
void pipeline_draw_svg(const PipelineDrawing *drawing, int n, const char *unit, const char *path);

// A file in Chrome's trace format, which ui.perfetto.dev opens: one thread a stage, one event an action;
// `us`: microseconds of one unit of the timeline. Dies when it cannot be written.
void pipeline_draw_trace(const PipelineTimeline *line, double us, const char *path);

#ifdef __cplusplus
}
#endif
#endif
