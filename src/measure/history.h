/*
 * A finished (or running) run's folder read back: run.json, metrics.jsonl, stages.csv, gpu.csv, process.csv.
 * What compare, scale, sweep, reproduce, report and the end of finetune know of a run, they know from here.
 * Owns everything it points to.  Must not know what is shown or concluded.
 *
 * stages.csv has a line per rank for the time before the first step ("start"), for each step with what
 * follows it (validation, checkpoint), and for the time after the last ("end"):
 *
 *   start,phase,step,rank,began,seconds,tokens,padded_tokens,supervised,micro_batches,squared_lengths,start-up,tokenise,...
 *
 * start: number of the start of the run, from 0; began: seconds since that start's process began; seconds:
 * wall-clock; then counts of this rank's share and one column for each stage (dry_stage_name, blanks as _),
 * which add up to seconds. Lines are never dropped: seconds that a killed start spent on steps done again
 * stay.
 */
#ifndef DRY_MEASURE_HISTORY_H
#define DRY_MEASURE_HISTORY_H

#include "base/json.h"
#include "base/status.h"
#include "train/stages.h"

#include <stdint.h>

enum dry_phase { DRY_PHASE_START, DRY_PHASE_STEP, DRY_PHASE_END };

struct dry_history_row {
    int start, rank;
    enum dry_phase phase;
    int64_t step; /* of phase step; else 0 */
    double began, seconds;
    int64_t tokens, padded, supervised,
        micros;     /* of this rank: useful, with padding, labels, micro-batches */
    int64_t square; /* sum of its records' squared lengths; 0 in older runs, which did not keep it */
    double stage[DRY_STAGES];
};

struct dry_history_step { /* a line of metrics.jsonl */
    int64_t step, epoch, records, tokens, padded, supervised;
    double loss, norm, rate, seconds;
};

struct dry_history_validation {
    int64_t step, supervised;
    double loss, perplexity;
    int best;
};

/* A line of gpu.csv (index >= 0) or process.csv (index -1); what was not offered is NAN. */
struct dry_history_sample {
    double at; /* seconds since the start's process began, on the rank's own clock */
    int start, rank, index;
    int host; /* number of the host, in the order in which the files name them */
    int64_t step;
    enum dry_stage stage;
    double busy; /* utilization.gpu, or the process's share of one core; percent */
    double memory_busy, memory, power, clock, temperature; /* percent, bytes, W, MHz, degrees C */
    uint64_t throttle;                                     /* reasons, NVML's bits; 0 none */
    double pcie_in, pcie_out, nvlink_in, nvlink_out;       /* bytes a second */
    double read, written;                                  /* process: bytes a second from and to storage */
    double energy; /* joules that the GPU has used since its driver was loaded */
};

struct dry_history {
    char *folder;
    json_t *run; /* run.json */
    int starts;  /* made so far */
    int ranks;   /* of the latest start */
    struct dry_history_row *row;
    size_t rows;
    struct dry_history_step *step;
    size_t steps;
    struct dry_history_validation *validation;
    size_t validations;
    struct dry_history_sample *sample;
    size_t samples;
};

/* Local. Reads a run's folder. What an older or killed run lacks (a file, a last line cut off) is left out; a
 * folder that is no run, or a damaged line inside, is INPUT with file and line. MEMORY, IO. */
enum dry_status dry_history_open(const char *folder, struct dry_history **h);
void dry_history_close(struct dry_history *h); /* NULL allowed */

/* A host whose ranks compute with more threads than it has cores. */
struct dry_crowd {
    const char *host; /* borrowed from run.json */
    int ranks, threads, cores;
};
/* Local. Looks at the host that run.json describes, the first rank's, where ranks compute on CPUs. Non-zero:
 * it is crowded. */
int dry_history_crowded(const json_t *run, struct dry_crowd *c);

#endif
