/*
 * The verdict on runs that are made up: each cause at several strengths and numbers of ranks, causes
 * together, ranks that compete for cores, and runs that lack something. Owns the made-up runs. Must not know
 * how a real run's lines are read.
 */
#include "config.h"

#include "measure/verdict.h"

#include "base/log.h"
#include "base/memory.h"
#include "tap.h"

#include <stdlib.h>

/* A run; seconds, a step of one rank's share being about one second times `scale`. */
struct made {
    int ranks;
    int64_t steps;
    double scale;                /* 0: 1 */
    double start, tokenise, end; /* of the phases; start 0: 2 */
    double data, copy;           /* of each rank and step */
    double reduce;
    int at;                        /* the rank with: */
    double slow, rank_data;        /*   computing so many times as long (0: 1), waiting for data */
    double jitter;                 /* each share's time is stretched by 0 to this at random */
    double checkpoint, validation; /* seconds each time */
    int64_t checkpoint_interval, validation_interval; /* 0: only at the end */
    int64_t micros, records; /* of a step over all ranks; 0: 4 per rank, 8 a micro-batch */
    double uneven;           /* micro-batches' lengths differ by +- this */
    double padding;          /* padded tokens over useful ones; 0: 1.02 */
    double per_micro;        /* seconds beside its tokens */
    double unexplained;
    int killed; /* the last step lacks a rank's line, no end */
    unsigned seed;
};

static double draw(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / 16777216.0;
}

static void close_row(struct dry_history_row *w)
{
    w->seconds = 0;
    for (int i = 0; i < DRY_STAGES; i++)
        w->seconds += w->stage[i];
}

static void add_step(const struct made *m, int64_t step, unsigned *seed, struct dry_history_row *w)
{
    double scale = m->scale > 0 ? m->scale : 1, padding = m->padding > 0 ? m->padding : 1.02, last = 0;
    int64_t micros = m->micros ? m->micros : 4 * m->ranks;
    int at_end = step == m->steps;

    for (int r = 0; r < m->ranks; r++) {
        w[r] = (struct dry_history_row){.rank = r, .phase = DRY_PHASE_STEP, .step = step};
        w[r].micros = micros / m->ranks + (r < micros % m->ranks);
        for (int64_t i = 0; i < w[r].micros; i++) {
            double tokens = 1000 * (1 + m->uneven * (2 * draw(seed) - 1));

            w[r].tokens += (int64_t)tokens;
            w[r].padded += (int64_t)(tokens * padding);
        }
        w[r].supervised = w[r].tokens / 3;
        double compute = scale * (double)w[r].padded * 0.25e-3 + m->per_micro * (double)w[r].micros;
        compute *= 1 + m->jitter * draw(seed) + 0.01 * draw(seed);
        if (m->slow > 0 && r == m->at)
            compute *= m->slow;
        w[r].stage[DRY_STAGE_FORWARD] = compute / 3;
        w[r].stage[DRY_STAGE_BACKWARD] = compute * 2 / 3;
        w[r].stage[DRY_STAGE_DATA] = w[r].micros ? m->data + (r == m->at ? m->rank_data : 0) + 1e-4 : 0;
        w[r].stage[DRY_STAGE_COPY] = m->copy + 1e-5;
        double work = compute + w[r].stage[DRY_STAGE_DATA] + w[r].stage[DRY_STAGE_COPY];
        last = work > last ? work : last;
        w[r].stage[DRY_STAGE_WAIT] = -work;
    }
    for (int r = 0; r < m->ranks; r++) {
        w[r].stage[DRY_STAGE_WAIT] += last;
        w[r].stage[DRY_STAGE_REDUCE] = m->ranks > 1 || m->reduce > 0 ? m->reduce + 0.01 * scale : 0;
        w[r].stage[DRY_STAGE_OPTIMIZER] = 0.01 * scale;
        w[r].stage[DRY_STAGE_UNEXPLAINED] = m->unexplained + 0.001 * scale;
        if (at_end || (m->checkpoint_interval && step % m->checkpoint_interval == 0))
            w[r].stage[DRY_STAGE_CHECKPOINT] = m->checkpoint + 0.05 * scale;
        if (at_end || (m->validation_interval && step % m->validation_interval == 0))
            w[r].stage[DRY_STAGE_VALIDATION] = m->validation;
        close_row(&w[r]);
    }
}

static struct dry_history *make(const struct made *m)
{
    struct dry_history *h = dry_alloc(1, sizeof *h, "a made-up run");
    size_t rows = (size_t)m->ranks * (size_t)(m->steps + 2);
    unsigned seed = m->seed + 1;
    int64_t batch = m->records ? m->records : 8 * (m->micros ? m->micros : 4 * m->ranks);

    h->folder = dry_strdup("made-up");
    h->starts = 1;
    h->ranks = m->ranks;
    h->row = dry_alloc(rows, sizeof *h->row, "lines");
    h->step = dry_alloc((size_t)m->steps + 1, sizeof *h->step, "steps");
    h->run = json_pack("{s:s, s:{s:I, s:i, s:i}, s:{s:{s:I}, s:{s:I}}}", "backend", "cpu", "contract",
                       "effective_batch", (json_int_t)batch, "micro_tokens", 4096, "micro_records", 0,
                       "options", "checkpoint_interval", "value", (json_int_t)m->checkpoint_interval,
                       "validation_interval", "value", (json_int_t)m->validation_interval);
    for (int r = 0; r < m->ranks; r++) {
        struct dry_history_row *w = &h->row[h->rows++];

        *w = (struct dry_history_row){.rank = r, .phase = DRY_PHASE_START};
        w->stage[DRY_STAGE_STARTUP] = m->start > 0 ? m->start : 2;
        w->stage[DRY_STAGE_TOKENISE] = m->tokenise;
        close_row(w);
    }
    for (int64_t s = 1; s <= m->steps; s++) {
        add_step(m, s, &seed, h->row + h->rows);
        h->rows += (size_t)m->ranks;
        h->step[h->steps++] = (struct dry_history_step){.step = s, .records = batch};
    }
    if (m->killed) {
        h->rows--;
        return h;
    }
    for (int r = 0; r < m->ranks; r++) {
        struct dry_history_row *w = &h->row[h->rows++];

        *w = (struct dry_history_row){.rank = r, .phase = DRY_PHASE_END};
        w->stage[DRY_STAGE_CHECKPOINT] = 0.1 + m->end;
        close_row(w);
    }
    return h;
}

static void drop(struct dry_history *h)
{
    json_decref(h->run);
    dry_free(h->folder);
    dry_free(h->row);
    dry_free(h->step);
    dry_free(h);
}

/* The verdict is said when it is not the wanted one. */
static int judged(const struct made *m, enum dry_cause want, double least, double most)
{
    struct dry_history *h = make(m);
    struct dry_verdict v = {0};
    enum dry_status status = dry_verdict_make(h, &v);
    int good = !status && v.findings > 0 && v.finding[0].cause == want && v.finding[0].share >= least &&
               v.finding[0].share <= most;

    if (!good) {
        printf("# ranks %d steps %lld seed %u: want %s of %.2f to %.2f\n", m->ranks, (long long)m->steps,
               m->seed, dry_cause_name(want), least, most);
        for (int i = 0; i < v.findings; i++)
            printf("# %s %.3f: %s\n", dry_cause_name(v.finding[i].cause), v.finding[i].share,
                   v.finding[i].fact);
    }
    for (int i = 0; i < v.findings; i++)
        if (!v.finding[i].fact[0] || !v.finding[i].advice[0] ||
            strlen(v.finding[i].fact) + 2 > sizeof v.finding[i].fact ||
            strlen(v.finding[i].advice) + 2 > sizeof v.finding[i].advice ||
            strstr(v.finding[i].fact, "nan") || strstr(v.finding[i].advice, "nan") ||
            strstr(v.finding[i].fact, "inf ")) {
            printf("# sentences: %s / %s\n", v.finding[i].fact, v.finding[i].advice);
            good = 0;
        }
    drop(h);
    return good;
}

static const int rank_counts[] = {1, 2, 3, 4, 8};

/* A cause that costs `share` of a step of `took` seconds else: how many seconds that is. */
static double part(double share, double took)
{
    return took * share / (1 - share);
}

static void strengths(void)
{
    static const double share[] = {0.15, 0.3, 0.5, 0.9};
    static const double scale[] = {0.005, 1, 20};

    for (size_t i = 0; i < sizeof share / sizeof *share; i++) {
        int data = 1, copy = 1, reduce = 1, checkpoint = 1, validation = 1, unexplained = 1, slow = 1,
            rank = 1;

        for (size_t k = 0; k < sizeof rank_counts / sizeof *rank_counts; k++)
            for (size_t j = 0; j < sizeof scale / sizeof *scale; j++) {
                double c = scale[j], lost = part(share[i], 1.05 * c), low = share[i] * 0.85,
                       high = share[i] * 1.1 + 0.02;
                struct made m = {.ranks = rank_counts[k], .steps = 60, .start = 0.3 + c, .scale = c};

                m.data = lost;
                data = judged(&m, DRY_CAUSE_DATA, low, high) && data;
                m.data = 0;
                m.copy = lost;
                copy = judged(&m, DRY_CAUSE_COPY, low, high) && copy;
                m.copy = 0;
                m.reduce = lost;
                reduce = judged(&m, DRY_CAUSE_REDUCE, low, high) && reduce;
                m.reduce = 0;
                m.checkpoint = lost * 10;
                m.checkpoint_interval = 10;
                checkpoint = judged(&m, DRY_CAUSE_CHECKPOINT, low, high) && checkpoint;
                m.checkpoint = 0;
                m.validation = lost * 10;
                m.validation_interval = 10;
                validation = judged(&m, DRY_CAUSE_VALIDATION, low, high) && validation;
                m.validation = 0;
                m.unexplained = lost;
                unexplained = judged(&m, DRY_CAUSE_UNEXPLAINED, low, high) && unexplained;
                m.unexplained = 0;
                if (m.ranks == 1)
                    continue;
                m.at = m.ranks / 2;
                m.rank_data = lost;
                rank = judged(&m, DRY_CAUSE_DATA, low, high) && rank;
                m.rank_data = 0;
                m.slow = 1 / (1 - share[i]);
                slow = judged(&m, DRY_CAUSE_SLOW_RANK, low, high) && slow;
            }
        tap_ok(data, "data wait of %.0f %%", 100 * share[i]);
        tap_ok(rank, "data wait of one rank, %.0f %%", 100 * share[i]);
        tap_ok(copy, "copying of %.0f %%", 100 * share[i]);
        tap_ok(reduce, "reducing of %.0f %%", 100 * share[i]);
        tap_ok(slow, "a slow rank of %.0f %%", 100 * share[i]);
        tap_ok(checkpoint, "checkpoints of %.0f %%", 100 * share[i]);
        tap_ok(validation, "validation of %.0f %%", 100 * share[i]);
        tap_ok(unexplained, "unexplained time of %.0f %%", 100 * share[i]);
    }
}

static void work(void)
{
    int few = 1, idle = 1, uneven = 1, padded = 1, micro = 1;

    for (size_t k = 0; k < sizeof rank_counts / sizeof *rank_counts; k++) {
        int n = rank_counts[k];

        for (double p = 1.5; p < 7; p *= 2)
            padded = judged(&(struct made){.ranks = n, .steps = 40, .padding = p}, DRY_CAUSE_PADDING,
                            0.85 * (1 - 1 / p), 1.05 * (1 - 1 / p)) &&
                     padded;
        /* beside its tokens a micro-batch of 0.15 to 0.35 s costs as much again */
        micro = judged(&(struct made){.ranks = n, .steps = 60, .uneven = 0.4, .per_micro = 0.25},
                       DRY_CAUSE_SMALL, 0.3, 0.6) &&
                micro;
        if (n == 1)
            continue;
        few = judged(&(struct made){.ranks = n,
                                    .steps = 60,
                                    .micros = n,
                                    .records = n,
                                    .scale = 0.1,
                                    .uneven = 0.5,
                                    .reduce = 0.01},
                     DRY_CAUSE_SMALL, 0.3, 0.8) &&
              few;
        few = judged(&(struct made){.ranks = n,
                                    .steps = 60,
                                    .micros = 4 * n,
                                    .records = 4 * n,
                                    .scale = 0.1,
                                    .uneven = 0.5,
                                    .reduce = 0.03},
                     DRY_CAUSE_SMALL, 0.2, 0.8) &&
              few;
        idle = judged(&(struct made){.ranks = n, .steps = 60, .micros = n / 2, .records = 16},
                      DRY_CAUSE_SMALL, 0.25, 0.75) &&
               idle;
        uneven =
            judged(&(struct made){.ranks = n, .steps = 60, .micros = n + 1}, DRY_CAUSE_IMBALANCE, 0.2, 0.6) &&
            uneven;
    }
    tap_ok(padded, "padding of a third to five sixths");
    tap_ok(micro, "micro-batches that cost beside their tokens");
    tap_ok(few, "one or four records a rank and step, each a micro-batch");
    tap_ok(idle, "fewer micro-batches than ranks");
    tap_ok(uneven, "one micro-batch more than ranks");
}

static void healthy(void)
{
    int still = 1, jitter = 1, slow = 1, hidden = 1;

    for (size_t k = 0; k < sizeof rank_counts / sizeof *rank_counts; k++) {
        int n = rank_counts[k];

        for (double scale = 0.003; scale < 100; scale *= 10)
            still = judged(&(struct made){.ranks = n,
                                          .steps = 100,
                                          .scale = scale,
                                          .start = fmax(0.5, 10 * scale),
                                          .uneven = 0.1,
                                          .data = 0.02 * scale,
                                          .reduce = 0.05 * scale,
                                          .checkpoint = 0.3 * scale,
                                          .checkpoint_interval = 10},
                           DRY_CAUSE_HEALTHY, 0.5, 1) &&
                    still;
        for (unsigned seed = 0; seed < 20; seed++) {
            struct made m = {.ranks = n,
                             .steps = 20 + 10 * (int)(seed % 5),
                             .scale = 0.03,
                             .start = 0.3,
                             .jitter = 1,
                             .seed = seed};

            jitter = judged(&m, DRY_CAUSE_HEALTHY, 0.3, 1) && jitter;
            m.at = n - 1;
            m.slow = 2.2;
            if (n > 1)
                slow = judged(&m, DRY_CAUSE_SLOW_RANK, 0.2, 0.6) && slow;
            m.slow = 0;
            m.data = 0.03;
            hidden = judged(&m, DRY_CAUSE_DATA, 0.25, 0.6) && hidden;
        }
    }
    tap_ok(still, "a good run is not accused, from steps of 3 ms to 30 s");
    tap_ok(jitter, "nor one whose ranks compete for cores");
    tap_ok(slow, "among such ranks a slow one is found");
    tap_ok(hidden, "and waiting for data");
}

static void starts(void)
{
    tap_ok(judged(&(struct made){.ranks = 3, .steps = 20, .start = 40}, DRY_CAUSE_STARTUP, 0.6, 0.7),
           "a start that is long against the run");
    tap_ok(judged(&(struct made){.ranks = 3, .steps = 20, .start = 2, .tokenise = 30}, DRY_CAUSE_STARTUP, 0.5,
                  0.7),
           "tokenising that is long against the run");
    tap_ok(judged(&(struct made){.ranks = 3, .steps = 20, .start = 0.6, .scale = 0.01}, DRY_CAUSE_HEALTHY,
                  0.5, 1),
           "a start of half a second is nobody's trouble");
    tap_ok(
        judged(&(struct made){.ranks = 2, .steps = 20, .start = 20, .data = 0.4}, DRY_CAUSE_DATA, 0.2, 0.35),
        "what steps lose comes before a start that a longer run dilutes");
    tap_ok(judged(&(struct made){.ranks = 2, .steps = 20, .start = 200, .data = 0.4}, DRY_CAUSE_STARTUP, 0.8,
                  0.95),
           "but not before a start that is nearly all");
    tap_ok(judged(&(struct made){.ranks = 2, .steps = 20, .checkpoint = 20}, DRY_CAUSE_CHECKPOINT, 0.4, 0.6),
           "the checkpoint behind the last step, when it is long");
    tap_ok(judged(&(struct made){.ranks = 2, .steps = 20, .checkpoint = 3}, DRY_CAUSE_HEALTHY, 0.5, 1),
           "and not when it is short");
}

static void together(void)
{
    struct dry_history *h = make(&(struct made){.ranks = 4,
                                                .steps = 50,
                                                .at = 2,
                                                .slow = 1.8,
                                                .data = 0.3,
                                                .checkpoint = 4,
                                                .checkpoint_interval = 10});
    struct dry_verdict v;
    json_t *list;

    if (!tap_ok(!dry_verdict_make(h, &v) && v.findings == 3 && v.finding[0].cause == DRY_CAUSE_SLOW_RANK &&
                    v.finding[1].share <= v.finding[0].share && v.finding[2].share <= v.finding[1].share,
                "three causes together, the largest first"))
        for (int i = 0; i < v.findings; i++)
            printf("# %s %.3f\n", dry_cause_name(v.finding[i].cause), v.finding[i].share);
    tap_ok(strstr(v.finding[0].fact, "Rank 2 computes 1.8 times as long as the others for the same work") !=
               NULL,
           "the slow rank is named, with its factor");
    list = dry_verdict_json(&v);
    tap_ok(json_array_size(list) == 3 &&
               strcmp(json_string_value(json_object_get(json_array_get(list, 0), "cause")), "slow rank") == 0,
           "the same as JSON");
    json_decref(list);
    drop(h);
}

static void edges(void)
{
    struct dry_verdict v;
    struct dry_history empty = {.folder = (char *)"nothing", .starts = 1, .ranks = 1}, *h;

    tap_ok(judged(&(struct made){.ranks = 1, .steps = 1}, DRY_CAUSE_STARTUP, 0.3, 0.9) &&
               judged(&(struct made){.ranks = 3, .steps = 1, .start = 0.2}, DRY_CAUSE_HEALTHY, 0.5, 1),
           "a run of one step");
    tap_ok(judged(&(struct made){.ranks = 3, .steps = 2, .start = 0.2, .data = 1}, DRY_CAUSE_DATA, 0.4, 0.6),
           "a run of two steps");
    tap_ok(judged(&(struct made){.ranks = 3, .steps = 30, .killed = 1, .data = 1}, DRY_CAUSE_DATA, 0.4, 0.6),
           "a run that was killed in a step");
    tap_ok(judged(&(struct made){.ranks = 2, .steps = 0, .start = 5}, DRY_CAUSE_STARTUP, 0.9, 1),
           "a run without a step");
    dry_log_defer(1);
    tap_ok(dry_verdict_make(&empty, &v) == DRY_ERR_INPUT, "a run without an account is refused");
    dry_log_discard();
    dry_log_defer(0);
    h = make(&(struct made){.ranks = 2, .steps = 20, .data = 1});
    json_decref(h->run);
    h->run = NULL;
    h->steps = 0;
    tap_ok(!dry_verdict_make(h, &v) && v.finding[0].cause == DRY_CAUSE_DATA,
           "without a manifest and metrics the stages are enough");
    drop(h);
    /* an earlier start with slow data; the latest is judged */
    h = make(&(struct made){.ranks = 2, .steps = 20, .data = 1});
    h->starts = 2;
    tap_ok(!dry_verdict_make(h, &v) && v.finding[0].cause == DRY_CAUSE_HEALTHY,
           "an earlier start is not judged");
    drop(h);
}

int main(void)
{
    strengths();
    work();
    healthy();
    starts();
    together();
    edges();
    return tap_done();
}
