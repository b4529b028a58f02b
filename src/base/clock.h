/*
 * Time: a monotonic clock in seconds and wall-clock text.  Owns nothing.
 */
#ifndef DRY_BASE_CLOCK_H
#define DRY_BASE_CLOCK_H

#include <stddef.h>

double dry_clock_now(void); /* seconds, monotonic */
/* ISO 8601 in UTC with milliseconds, such as 2026-01-31T12:00:00.000Z */
void dry_clock_iso(char *text, size_t size);
/* The same of an earlier dry_clock_now(). */
void dry_clock_iso_at(double then, char *text, size_t size);
/* "1:02:03", "2:03" or "3.4 s" */
void dry_clock_span(double seconds, char *text, size_t size);

#endif
