/*
 * What compare knows of its runs, and how it shows that.  Owns the histories.
 */
#ifndef DRY_COMMAND_COMPARE_H
#define DRY_COMMAND_COMPARE_H

#include "command/differ.h"
#include "measure/account.h"
#include "measure/history.h"
#include "measure/verdict.h"

enum { DRY_COMPARE_POINTS = 4 };

struct dry_compare_run {
    const char *folder;
    struct dry_history *h;
    int accounted;              /* it has a stages.csv: */
    struct dry_account steady;  /*   its steady steps */
    struct dry_account whole;   /*   its latest start */
    struct dry_verdict verdict; /*   and what that says */
    double memory;              /* most that a rank held, bytes; NAN: not known */
    int on_gpu;                 /* of a GPU, else of the process */
    int64_t steps, last;        /* of the contract; done */
    double examples;            /* records seen; NAN: lines of metrics.jsonl are missing */
};

/* A place at which losses of all runs are put side by side: the mean over the supervised tokens of the last
 * `window` steps, or of the steps of the last `window` records. */
struct dry_compare_point {
    double at, window;
    double *loss; /* [runs]; NAN: the run has no such steps */
};

struct dry_compare {
    int runs;
    struct dry_compare_run *run;
    struct dry_differences differences; /* of the kinds that can be refused: here all are accepted */
    struct dry_differences others;      /* versions and devices, which are not refused */
    struct dry_compare_point step[DRY_COMPARE_POINTS], examples[DRY_COMPARE_POINTS];
    int steps_points, examples_points;
    int64_t validated;  /* last step at which all runs have a validation; 0: none */
    double *validation; /* [runs] its losses */
};

/* compare_facts.c. Local. Everything but the differences, of c->runs runs whose folder is set. INPUT, MEMORY,
 * IO. */
enum dry_status dry_compare_gather(struct dry_compare *c);
void dry_compare_release(struct dry_compare *c);

/* compare_print.c. Local. The table; as JSON (caller decrefs; NULL: no memory). */
void dry_compare_print(FILE *out, const struct dry_compare *c);
json_t *dry_compare_json(const struct dry_compare *c);

#endif
