/*
 * Communicators: what ranks say to each other.  MPI is the reference; NCCL reduces device buffers (cuda/).
 * Owns its MPI communicator.  Must not know what is sent.
 */
#ifndef DRY_PARALLEL_COMM_H
#define DRY_PARALLEL_COMM_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct dry_comm;

/* Collective. MPI_Init (once) and the world. Also sets the log's rank. An MPI call that fails, here or later,
 * is logged with its name and ends all ranks; so does exit() of a rank before dry_comm_finish. *argc and
 * *argv as MPI leaves them. COMM. */
enum dry_status dry_comm_start(int *argc, char ***argv, struct dry_comm **world);
/* Collective. MPI_Finalize; NULL allowed. A rank that leaves alone, without an agreement, calls
 * dry_comm_abort instead: here it would wait for the others and they for it. */
void dry_comm_finish(struct dry_comm *world);
/* Collective. Ranks with the same color, ordered by rank; color < 0 gives *part = NULL. */
enum dry_status dry_comm_split(struct dry_comm *c, int color, struct dry_comm **part);
void dry_comm_destroy(struct dry_comm *part);

/* Local. "Open MPI v4.1.4". */
void dry_comm_library(char *text, size_t size);

int dry_comm_rank(const struct dry_comm *c);
int dry_comm_size(const struct dry_comm *c);
int dry_comm_local_rank(const struct dry_comm *c); /* among the ranks of this host */
int dry_comm_local_size(const struct dry_comm *c);
/* Among the ranks of this host in the world, whatever part of it c is: what a rank's device follows from. */
int dry_comm_seat(const struct dry_comm *c);

/* Collective. Threads that this rank can keep busy: the processors that it may use, each parted among the
 * ranks of this host that may use it too; 1 at least. MEMORY. */
enum dry_status dry_comm_processors(struct dry_comm *c, int *threads);

/* Collective. The worst status of all ranks, the same on all; the lowest rank that has it prints its kept
 * errors (log.h), naming itself unless it is rank 0. Call after every phase. */
enum dry_status dry_comm_agree(struct dry_comm *c, enum dry_status mine);
/* Collective. Text must be equal on all ranks (configuration, versions, plan hash); else USAGE, rank 0 naming
 * `what`, the ranks that differ and the first differing line. USAGE, MEMORY. */
enum dry_status dry_comm_same(struct dry_comm *c, const char *what, const char *text);

/* Collective. In place, host memory: sums and maxima over ranks, root's bytes. COMM. */
enum dry_status dry_comm_sum_i64(struct dry_comm *c, int64_t *values, size_t count);
enum dry_status dry_comm_max_i64(struct dry_comm *c, int64_t *values, size_t count);
enum dry_status dry_comm_bcast(struct dry_comm *c, void *bytes, size_t size, int root);
enum dry_status dry_comm_barrier(struct dry_comm *c);
/* Collective. A barrier that sleeps instead of polling: for ranks that have nothing to do while others work.
 */
enum dry_status dry_comm_rest(struct dry_comm *c);
/* Collective. Every rank's bytes, any sizes (also over 2 GiB in pieces), one after another in rank order on
 * root: *all (dry_free) and sizes[size of c] there, NULL elsewhere. MEMORY, COMM. */
enum dry_status dry_comm_gather(struct dry_comm *c, const void *bytes, size_t size, int root, void **all,
                                size_t *sizes);

/* Local. Ends all ranks at once with exit status 1; for errors inside the training loop, when others wait in
 * a collective. The caller has logged the cause. Does not return. */
void dry_comm_abort(struct dry_comm *c) __attribute__((noreturn));

#endif
