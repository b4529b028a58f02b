/*
 * The operations of compute/backend.h in double precision, written as the formulas stand: what every backend
 * is compared with.  Owns the weights in double.
 */
#ifndef DRY_TESTS_COMPUTE_REFERENCE_H
#define DRY_TESTS_COMPUTE_REFERENCE_H

#include "compute/backend.h"

enum { REFERENCE_TENSORS = 64 };

/* Tensors in double, converted at first use. */
struct reference_cache {
    struct {
        const struct dry_tensor *tensor;
        double *values;
    } entry[REFERENCE_TENSORS];
    int count;
};

struct reference {
    const struct dry_base *base;
    const struct dry_arch *arch;
    const struct dry_adapter *adapter; /* or NULL */
    const struct dry_batch *batch;
    double *values; /* [parameters] of the adapter */
    uint64_t seed;
    int dropout;
    struct reference_cache *cache;
};

/* One tensor in double, borrowed until the cache is cleared. */
const double *reference_tensor(const struct reference *r, const struct dry_tensor *t);
void reference_clear(struct reference_cache *cache);

/* y [useful, H] */
void reference_embed(const struct reference *r, double *y);
/* y [useful, n] = RMSNorm */
void reference_norm(const double *x, const double *weight, int64_t rows, int64_t n, double eps, double *y);
/* y [useful, out]; residual may be NULL */
void reference_linear(const struct reference *r, int64_t layer, enum dry_group g, const double *x,
                      const double *residual, double *y);
/* o [useful, Q] from the linear's output qkv [useful, Q + 2K]; rotated, when not NULL, gets q k v after norm
 * and rotary; lse, when not NULL, [useful, Hq] */
void reference_attention(const struct reference *r, int64_t layer, const double *qkv, double *rotated,
                         double *o, double *lse);
void reference_swiglu(const struct reference *r, const double *gate_up, double *y);
/* The sum of -log p. */
double reference_loss(const struct reference *r, const double *x);

#endif
