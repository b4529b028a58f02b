/*
 * One golden case: its folder, its numbers, and its records as tokens.
 */
#ifndef DRY_TESTS_GOLDEN_CASE_H
#define DRY_TESTS_GOLDEN_CASE_H

#include "base/json.h"
#include "compute/batch.h"
#include "model/adapter.h"
#include "text/record.h"

struct golden_case {
    char name[64], dir[512];
    json_t *golden; /* golden.json */
};

/* Names of the folders under tests/golden/models; dry_dir_free. */
enum dry_status golden_list(char ***names, size_t *count);
enum dry_status golden_open(const char *name, struct golden_case *c);
void golden_close(struct golden_case *c);
/* DIR/NAME of the case in a buffer of the caller; returns it. */
const char *golden_path(const struct golden_case *c, const char *name, char path[600]);

/* All records of a JSON lines file. */
struct golden_records {
    struct dry_record *record;
    int64_t count;
};
enum dry_status golden_records_read(const struct golden_case *c, const char *file, struct golden_records *r);
void golden_records_free(struct golden_records *r);

/* Records chosen[0..count) as one flat micro-batch in new memory, padded to `multiple` rows. */
enum dry_status golden_batch(const struct golden_records *r, const int64_t *chosen, int64_t count,
                             int64_t multiple, struct dry_batch *b);
void golden_batch_free(struct dry_batch *b);

/* Values of a safetensors file with PEFT's names in the adapter's order; every tensor must be there, and no
 * other. */
enum dry_status golden_adapter_read(const char *path, const struct dry_adapter *a, float *values);

#endif
