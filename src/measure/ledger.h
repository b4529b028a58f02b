/*
 * The ledger: every rank's account and samples as lines of OUTPUT/stages.csv, gpu.csv and process.csv, whose
 * columns measure/history.h names.  Owns the open files, and a rank's lines until all ranks gather.
 */
#ifndef DRY_MEASURE_LEDGER_H
#define DRY_MEASURE_LEDGER_H

#include "measure/history.h"
#include "measure/sampler.h"
#include "parallel/comm.h"
#include "train/loop.h"

/* What opens one; all borrowed until close. */
struct dry_ledger_input {
    struct dry_comm *comm;
    const char *output;          /* needed on rank 0 only */
    int resumed;                 /* goes on with the files that are there, as the next start */
    double started;              /* dry_clock_now() of this process's start */
    struct dry_stages *stages;   /* opened then */
    struct dry_sampler *sampler; /* NULL: no samples */
};

struct dry_ledger;
/* Collective. A fresh run's files begin anew; a resumed one's lose a last line that was cut off. IO, MEMORY.
 */
enum dry_status dry_ledger_open(const struct dry_ledger_input *in, struct dry_ledger **l);
/* Local. A line for the time since the last one: enters `unexplained`. With gather non-zero, which all ranks
 * then give: Collective, and rank 0 writes what all have. A file that cannot be written (a full disk) is
 * told of once and is not the run's end: it keeps whole lines and gets no more; so is a line
 * that there is no memory for. The same status on all ranks. MEMORY, COMM. */
enum dry_status dry_ledger_put(struct dry_ledger *l, enum dry_phase phase, int64_t step,
                               const struct dry_share *share, int gather);
void dry_ledger_close(struct dry_ledger *l); /* NULL allowed */

#endif
