/*
 * What a report tells, put together once from a run's folder: curves, one time axis for all starts, marks,
 * account, verdict, lengths, warnings.  Private to measure.  Owns everything but the history and the scaling.
 * What is missing in the folder is empty here: a report never fails for it.
 */
#ifndef DRY_MEASURE_REPORT_FACTS_H
#define DRY_MEASURE_REPORT_FACTS_H

#include "measure/history.h"
#include "measure/verdict.h"

enum { DRY_REPORT_WARNINGS = 16 };

/* A step, or the time before the first or after the last, as the mean over its ranks. */
struct dry_report_moment {
    int start, ranks;
    enum dry_phase phase;
    int64_t step;
    double at, seconds; /* on the common time axis */
    double stage[DRY_STAGES];
    double slowest[DRY_STAGES]; /* of the rank with most */
    int superseded;             /* a later start did the step again */
};

/* A checkpoint or a validation. */
struct dry_report_mark {
    enum dry_stage stage;
    int64_t step;
    double at, seconds; /* when it began */
};

struct dry_report {
    const struct dry_history *h;
    const json_t *scaling; /* or NULL */
    char *name;            /* of the folder, without those above it */
    const char *outcome;   /* "finished" */
    int good;              /* 1 finished, 0 under way or stopped, -1 failed or killed */
    int64_t steps;         /* of the contract; 0: not known */
    int64_t done;          /* last step done; 0: none */

    /* curves, by rising step */
    double *step, *loss, *smooth, *rate, *norm, *speed; /* [h->steps] */
    double *validation_step, *validation;               /* [h->validations] */
    double span;                                        /* steps that the smoothing looks back over */

    /* time: the starts one after another, without the pauses between them */
    double *offset; /* [starts + 1]: where each begins; the last: where all end */
    int starts;
    struct dry_report_moment *moment; /* by rising start, phase and step */
    size_t moments;
    struct dry_report_mark *mark;
    size_t marks;
    double again; /* seconds of superseded steps */

    int ranks;                        /* of the latest start, and of *rank_stage */
    double (*rank_stage)[DRY_STAGES]; /* [ranks]: seconds of the latest start */
    int accounted, judged;
    struct dry_account account; /* of the latest start as a whole */
    struct dry_verdict verdict;

    json_t *lengths; /* by dry_report_lengths, or NULL */
    char *warning[DRY_REPORT_WARNINGS];
    int warnings;
};

/* Local. h and scaling (may be NULL) are borrowed for the life of r. MEMORY. */
enum dry_status dry_report_gather(const struct dry_history *h, const json_t *scaling, struct dry_report *r);
void dry_report_release(struct dry_report *r);

/* Local. Reading run.json: the value at "a.b.c", or NULL; its text, number or what else is given. */
const json_t *dry_report_at(const struct dry_report *r, const char *path);
const char *dry_report_text_at(const struct dry_report *r, const char *path, const char *otherwise);
double dry_report_number_at(const struct dry_report *r, const char *path);
/* Local. A JSON value of any kind as a text for people; an array's by commas. */
void dry_report_value(const json_t *value, char *text, size_t size);

/* Local. Sets r->lengths to those of a run's training data, from run.json or else from the cache that it
 * used:
 * {"records", "tokens", "supervised", "least", "mean", "p50", "p90", "p95", "p99", "most", "limit",
 * "fixed_positions", "bucket_positions", "width", "bins": [{"records", "tokens"}...]}; a bin's lengths go
 * from width i + 1 to width (i + 1). Stays NULL where there is no such cache (nothing is logged), or no
 * memory. Apart from gathering, because a large cache takes its time. */
void dry_report_lengths(struct dry_report *r);

/* Local. Seconds since 1970 of "2026-01-31T12:00:00.000Z"; NAN: no such text. */
double dry_report_time(const char *iso);

#endif
