/*
 * The drawings of a report, each an inline SVG with its caption.  Private to measure.  Owns nothing.  Each
 * draws nothing where the run has nothing to show, and then returns 0.
 */
#ifndef DRY_MEASURE_REPORT_DRAW_H
#define DRY_MEASURE_REPORT_DRAW_H

#include "measure/page.h"
#include "measure/report_facts.h"

/* report_curves.c */
int dry_draw_loss(struct dry_page *p, const struct dry_report *r);
int dry_draw_rate(struct dry_page *p, const struct dry_report *r);
int dry_draw_norm(struct dry_page *p, const struct dry_report *r);
int dry_draw_lengths(struct dry_page *p, const struct dry_report *r);
int dry_draw_padding(struct dry_page *p, const struct dry_report *r);
int dry_draw_scaling(struct dry_page *p, const struct dry_report *r);

/* report_stages.c */
int dry_draw_steps(struct dry_page *p, const struct dry_report *r);
int dry_draw_ranks(struct dry_page *p, const struct dry_report *r);
/* Of each measured rank count a step, by stage. */
int dry_draw_scaling_steps(struct dry_page *p, const struct dry_report *r);
/* The colours' names: of the stages that took any time. */
void dry_draw_legend(struct dry_page *p, const struct dry_report *r);
const char *dry_draw_colour(enum dry_stage stage);
/* The i-th stage from the bottom of a stack. */
enum dry_stage dry_draw_order(int i);

/* report_timeline.c: stages and samples above each other on one time axis. */
int dry_draw_timeline(struct dry_page *p, const struct dry_report *r);

/* Local. A figure's caption; then dry_draw_end. */
void dry_draw_begin(struct dry_page *p, const char *class, const char *title);
void dry_draw_end(struct dry_page *p);

/* Blue, vermilion, green ...: Okabe and Ito's, told apart with any colour vision; dry_ink[n % DRY_INKS]. */
enum { DRY_INKS = 7 };
extern const char *const dry_ink[DRY_INKS];

#endif
