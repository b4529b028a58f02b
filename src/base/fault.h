/*
 * Faults and delays on purpose, for tests.  Owns the counters.  Does nothing unless an environment variable
 * is set.
 *
 * DRY_FAULT="alloc:N", "write:N", "fsync:N", "edit:N", "kill-step:N", "kill-save:N", "sigterm:N", "sigint:N",
 * "sigusr1:N" (at a step), "sigterm-validation:N", "forward:N", "evaluate:N"; on GPUs: "cuda:N",
 * "nccl:N" (a checked call), "cuda-memory:N" (an allocation there), "cublas:N", "cudnn:N" (the first call in
 * a step), "stray:N" (a kernel with a step's first micro-batch writes where nothing is).
 *
 * DRY_DELAY="data:20", "copy:MS", "compute:MS" (each micro-batch), "reduce:MS" (each step),
 * "checkpoint:500", "validation:MS", "start-up:4000" (each time): so many milliseconds more; or
 * "compute:x1.8", "data:x3"...: 1.8 times as long as the work took.
 *
 * Several of either are separated by commas; "rank:R:..." applies on rank R only (as told to the log).
 */
#ifndef DRY_BASE_FAULT_H
#define DRY_BASE_FAULT_H

/* Local. Counts one event of that kind ("alloc", "write", "fsync", "edit", ...); non-zero when this is the
 * one that must fail. */
int dry_fault(const char *kind);
/* Local. Like dry_fault, for events that carry their own number (a step): non-zero when KIND:value was asked
 * for. */
int dry_fault_at(const char *kind, long long value);

/* Local. At the end of a piece of work that began at `since` (dry_clock_now()): sleeps for the time that
 * DRY_DELAY adds to work of this kind; a sleep, so that ranks which share cores do not slow each other. */
void dry_delay(const char *kind, double since);
/* Local. Non-zero when DRY_DELAY has something for this kind on this rank: work that a device does behind the
 * host's back must then be waited for, so that the delay comes after it. */
int dry_delay_asked(const char *kind);

#endif
