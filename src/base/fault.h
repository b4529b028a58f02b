/*
 * Faults on purpose, for tests: DRY_FAULT="alloc:N", "write:N", "fsync:N", "edit:N", "kill-step:N",
 * "kill-save:N", "sigterm:N", "sigint:N", "sigusr1:N" (at a step), "sigterm-validation:N", "forward:N",
 * "rank:R:..." . Owns the counters.  Does nothing unless the environment variable is set.
 */
#ifndef DRY_BASE_FAULT_H
#define DRY_BASE_FAULT_H

/* Local. Counts one event of that kind ("alloc", "write", "fsync", "edit", ...); non-zero when this is the
 * one that must fail. Several faults are separated by commas; "rank:R:KIND:N" applies on rank R only (rank as
 * told to the log). */
int dry_fault(const char *kind);
/* Local. Like dry_fault, for events that carry their own number (a step): non-zero when KIND:value was asked
 * for. */
int dry_fault_at(const char *kind, long long value);

#endif
