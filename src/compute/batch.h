/*
 * A micro-batch as the backends take it: host arrays, borrowed.
 */
#ifndef DRY_COMPUTE_BATCH_H
#define DRY_COMPUTE_BATCH_H

#include <stdint.h>

/* Rows useful..tokens-1 are padding: id 0, position 0, in no record. They must never change any other row's
 * result. */
struct dry_batch {
    int64_t step;           /* key of dropout */
    int64_t tokens, useful; /* T, and the rows that belong to records */
    int64_t records, longest;
    int64_t rows;            /* supervised: rows that have a label */
    const int32_t *id;       /* [T] */
    const int32_t *position; /* [T], from 0 in each record */
    const int32_t
        *offset; /* [records + 1], rows of record i are offset[i]..offset[i+1]-1; offset[records] = useful */
    const int32_t *row;    /* [rows], ascending: token row t is to predict ... */
    const int32_t *label;  /* [rows]: ... this id (the token at t + 1) */
    const int64_t *record; /* [records], index in the cache: key of dropout */
};

#endif
