/*
 * Comma-separated tables that this program wrote: columns by name, lines one by one.  Private to measure.
 * Owns the file's text.  Must not know what a column means.
 */
#ifndef DRY_MEASURE_CSV_H
#define DRY_MEASURE_CSV_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct dry_csv {
    char *path, *text;
    size_t size, at; /* of the next line */
    long line;       /* number of the present one, from 1 */
    int columns;
    char **name, **field; /* [columns]; field: of the present line */
};

/* Local. Reads the file and its first line. *csv is NULL when there is no such file, or nothing whole in it.
 * IO, MEMORY. */
enum dry_status dry_csv_open(const char *path, struct dry_csv **csv);
void dry_csv_close(struct dry_csv *csv); /* NULL allowed */
/* Local. The column of that name; -1: there is none. */
int dry_csv_column(const struct dry_csv *csv, const char *name);
/* Local. The same where the table is nothing without it. INPUT. */
enum dry_status dry_csv_need(const struct dry_csv *csv, const char *name, int *column);
/* Local. The next line; *more 0 at the end. A last line without its newline was being written when the run
 * was killed: it is left out. INPUT for a line of another number of fields. */
enum dry_status dry_csv_next(struct dry_csv *csv, int *more);
/* Local. A field of the present line. Column -1, and an empty real, are NAN and an empty int is `least`;
 * anything else that is no number, or out of least..most, is INPUT. */
enum dry_status dry_csv_real(const struct dry_csv *csv, int column, double *value);
enum dry_status dry_csv_int(const struct dry_csv *csv, int column, int64_t least, int64_t most,
                            int64_t *value);
/* Local. Hexadecimal, with or without 0x; empty and column -1 are 0. INPUT. */
enum dry_status dry_csv_bits(const struct dry_csv *csv, int column, uint64_t *value);

#endif
