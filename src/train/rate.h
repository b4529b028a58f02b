/*
 * Rates: what a run computes, in floating-point operations, and what its device reaches in products of the
 * run's own shapes.  Owns nothing.
 */
#ifndef DRY_TRAIN_RATE_H
#define DRY_TRAIN_RATE_H

#include "train/engine.h"

/* Operations of records' forward and backward by the LoRA count: 4N a token (forward and the gradient of the
 * activations; frozen weights get none), 6 for each adapter value, and causal attention: 2 layers Q squared
 * length forward, twice that backward. square: sum of squared record lengths. */
double dry_rate_flops(const struct dry_arch *a, const struct dry_adapter *adapter, double tokens,
                      double square);

/* Local. Operations a second that the backend reaches in linear_forward of the largest group of linears, with
 * random inputs and as many rows as the largest micro-batch has, or as fit into a fraction of a second.
 * Before training: uses the arena and the batch, touches neither weights nor sums. *rate 0: the run is too
 * small to measure. *beside: what such a product costs beside its rows, as so many rows more: with T rows it
 * reaches T / (T + beside) of the rate of long ones; at most three times the rows that were tried; 0
 * on CPUs, where it is not measured. */
enum dry_status dry_rate_matrix(struct dry_engine *e, const struct dry_base *base,
                                const struct dry_adapter *adapter, const struct dry_limits *limits,
                                double *rate, double *beside);

#endif
