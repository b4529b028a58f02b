/*
 * scale's state, shared by its parts: what is trained, the subset, the measured rows, the verdict.
 * Owns everything of it, released by dry_command_scale.
 */
#ifndef DRY_COMMAND_SCALE_H
#define DRY_COMMAND_SCALE_H

#include "command/setup.h"
#include "measure/scaling.h"

/* A rank count and what became of it; rank 0 but for ranks and status. */
struct dry_scale_run {
    int ranks;
    enum dry_status status;
    char *folder;
    json_t *run;         /* its run.json */
    const char *adapter; /* sha256; borrowed from run */
    const char *differs; /* why it cannot be compared; NULL: it can */
    double step;         /* seconds a step, checkpoints spread over the user's own interval */
    double checkpoint;   /* of it */
    double tokens;       /* useful, a step */
    double speedup;      /* over the smallest count, which counts as that many times one rank */
    double efficiency;
};

/* Rank counts for which the whole training is foretold. */
struct dry_scale_forecast {
    int ranks, measured;
    double load; /* of the most loaded rank, by the plan of all data */
    double step, hours, epoch_hours;
};

enum { DRY_SCALE_FORECASTS = 80, DRY_SCALE_SENTENCES = 24 };

struct dry_scale {
    const struct dry_call *call;
    struct dry_comm *world;
    int rank, ranks;
    int64_t first;    /* counted step */
    int64_t interval; /* of the measured runs' checkpoints */
    /* what is trained */
    char *dir;
    struct dry_tokenizer *tokenizer;
    struct dry_base *base;
    struct dry_adapter *adapter;
    float *values;
    struct dry_cache *whole, *part; /* the data; the subset */
    char *part_path;
    struct dry_contract contract, part_contract;
    struct dry_plan *plan, *part_plan;
    json_t *manifest; /* subset.json; rank 0 */
    /* what was measured */
    struct dry_scale_run run[DRY_SCALING_ROWS];
    int runs;
    struct dry_scaling_row row[DRY_SCALING_ROWS]; /* of the runs that can be compared, in their order */
    int of[DRY_SCALING_ROWS];                     /* run of a row */
    int rows;
    double bytes, bandwidth; /* of the reduced block; of host memory, when no row has a second rank */
    struct dry_scaling_model model;
    /* what follows */
    struct dry_scale_forecast forecast[DRY_SCALE_FORECASTS];
    int forecasts;
    int smallest; /* index of the forecast that meets the hours; -1 */
    char *sentence[DRY_SCALE_SENTENCES];
    int sentences;
};

/* scale_subset.c. Collective: tokenises the data, resolves the contract for the whole allocation, writes
 * subset.jsonl and subset.json, and tokenises the subset. */
enum dry_status dry_scale_subset(struct dry_scale *s);
/* Local, rank 0. Adds what the first row's run.json tells of devices, versions and storage to subset.json. */
enum dry_status dry_scale_manifest(struct dry_scale *s);

/* scale_run.c. Collective: run i on the first ranks of the allocation; the others rest. A failure of the run
 * is its status, not that of the call. STOPPED: by a signal. */
enum dry_status dry_scale_run(struct dry_scale *s, int i);
/* Local, rank 0. Reads the folders of the runs back into rows and fits the model. INPUT: no row is left. */
enum dry_status dry_scale_rows(struct dry_scale *s);
/* Local. Checkpoints of the whole training: at its own interval, and after the last step. */
int64_t dry_scale_saves(const struct dry_scale *s);

/* scale_verdict.c. Local, rank 0: forecasts for the whole data, and the sentences. MEMORY. */
enum dry_status dry_scale_verdict(struct dry_scale *s);

/* scale_table.c. Local, rank 0. */
void dry_scale_print(FILE *out, const struct dry_scale *s);
json_t *dry_scale_json(const struct dry_scale *s); /* scaling.json; NULL: no memory */

#endif
