/*
 * A finding's sentences: what was seen, and what to change.  Private to measure.  Owns nothing.
 */
#ifndef DRY_MEASURE_ADVISE_H
#define DRY_MEASURE_ADVISE_H

#include "measure/look.h"
#include "measure/verdict.h"

/* What the judge has worked out beside the look. */
struct dry_evidence {
    double records; /* of a rank in a step, mean */
    int few;        /* too few of them to fill micro-batches and to even out shares */
    double
        shape_loss; /* share of computing that products of larger micro-batches would save; 0: none known */
    double small_compute, small_idle, small_fixed; /* seconds: the parts of DRY_CAUSE_SMALL */
};

/* Local. Writes fact and advice. */
void dry_advise(const struct dry_history *h, const struct dry_look *l, const struct dry_evidence *e,
                struct dry_finding *f);
/* Local. From the rates in run.json: 1 - rate of products as long as the mean micro-batch / rate of long
 * ones. */
double dry_advise_shape_loss(const struct dry_history *h, const struct dry_look *l);

#endif
