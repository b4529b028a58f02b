/*
 * A tiny model, an adapter and a micro-batch on a backend: what the tests of compute/ work on.
 * Owns all of it from case_open to case_close.
 */
#ifndef DRY_TESTS_COMPUTE_CASE_H
#define DRY_TESTS_COMPUTE_CASE_H

#include "compute_reference.h"
#include "tiny.h"

enum { CASE_RECORDS = 8 };

struct case_spec {
    const char *name;
    struct tiny_spec base;
    const char *targets; /* NULL: no adapter */
    int64_t rank;
    double alpha, dropout;
    int64_t length[CASE_RECORDS], padding;
    double linear_rope; /* factor, when not 0 */
    int samples;        /* elements tried by finite differences; 0: all */
    double tolerance;   /* of values, and ten times it of gradients, relative to the largest entry */
};

struct test_case {
    const struct case_spec *spec;
    double tolerance, gradient_tolerance; /* of the case, or of bfloat16 where that is wider */
    char dir[64];
    struct dry_base *base;
    struct dry_adapter *adapter;
    struct dry_batch batch;
    int32_t *id, *position, *offset, *row, *label;
    int64_t record[CASE_RECORDS];
    const struct dry_backend_ops *ops;
    struct dry_backend *backend;
    struct dry_limits limits;
    char *arena;   /* of the backend */
    void *scratch; /* in it: what attention and loss are lent */
    size_t arena_bytes, arena_used;
    float *values; /* the adapter's, host */
    struct reference reference;
    struct reference_cache cache;
};

/* A reproducible number around zero, of about unit size. */
double case_number(uint64_t stream, uint64_t index);
/* Writes the base, opens everything, loads the backend, sets adapter and batch. 0, or -1 with a line on
 * standard error. */
int case_open(struct test_case *c, const struct case_spec *spec, const char *backend);
void case_close(struct test_case *c);
/* A buffer for [T, columns] activations of the backend, from the arena. */
void *case_buffer(struct test_case *c, int64_t columns);
/* A test input as the backend can hold it: rounded to its type of activations. */
double case_rounded(const struct test_case *c, double x);
/* The same as case_buffer, filled from host values: rows of useful tokens from x, padding rows with huge
 * values. */
void *case_upload(struct test_case *c, const double *x, int64_t columns);
/* All T rows back. The caller frees. */
float *case_download(struct test_case *c, const void *from, int64_t columns);

#endif
