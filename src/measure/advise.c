/*
 * Says a finding in plain sentences, with the numbers it rests on and the options that change it.
 * Owns nothing.
 * Must not know why a finding is one: that is decided in verdict.c.
 */
#include "config.h"

#include "measure/advise.h"

#include "base/log.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum {
    TEXT = 32,
    GOAL = 5,     /* percent of the steps' time that checkpoints and validation should be at most */
    FEW_STEPS = 5 /* steady ones: fewer are no proof */
};
static const double throttled_often = 0.2; /* of a rank's samples */

/* What the sentences are made from. */
struct teller {
    const struct dry_history *h;
    const struct dry_look *l;
    const struct dry_evidence *e;
    struct dry_finding *f;
};

static void say(char *text, size_t size, const char *format, ...) DRY_PRINTF(3, 4);
static void say(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list ap;

    va_start(ap, format);
    vsnprintf(text + used, size - used, format, ap);
    va_end(ap);
}
#define FACT(t, ...) say((t)->f->fact, sizeof(t)->f->fact, __VA_ARGS__)
#define ADVICE(t, ...) say((t)->f->advice, sizeof(t)->f->advice, __VA_ARGS__)

static const char *seconds(double s, char text[TEXT])
{
    if (s >= 100)
        snprintf(text, TEXT, "%.0f s", s);
    else if (s >= 10)
        snprintf(text, TEXT, "%.1f s", s);
    else if (s >= 0.1)
        snprintf(text, TEXT, "%.2f s", s);
    else if (s >= 0.01)
        snprintf(text, TEXT, "%.0f ms", 1e3 * s);
    else
        snprintf(text, TEXT, "%.2g ms", 1e3 * s);
    return text;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static int64_t option(const struct dry_history *h, const char *name)
{
    const json_t *o = json_object_get(json_object_get(h->run, "options"), name);

    return (int64_t)json_integer_value(json_object_get(o, "value"));
}

static const char *option_text(const struct dry_history *h, const char *name)
{
    const json_t *o = json_object_get(json_object_get(h->run, "options"), name);
    const char *text = json_string_value(json_object_get(o, "value"));

    return text ? text : "";
}

static int64_t contract(const struct dry_history *h, const char *name)
{
    return (int64_t)json_integer_value(json_object_get(json_object_get(h->run, "contract"), name));
}

static const char *word(const struct dry_history *h, const char *object, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(h->run, object), key));

    return text ? text : "";
}

static int on_gpu(const struct dry_history *h)
{
    const char *backend = json_string_value(json_object_get(h->run, "backend"));

    return backend && strncmp(backend, "cpu", 3) != 0;
}

static const char *others(const struct dry_look *l, char text[TEXT])
{
    if (l->ranks == 2)
        snprintf(text, TEXT, "the other rank");
    else
        snprintf(text, TEXT, "the other %d ranks", l->ranks - 1);
    return text;
}

/* Mean of a rank's samples while it computed (busy_of, clock_of), or of all other ranks'; NAN: none. */
static double sampled(const struct teller *t, int rank, int other, int process,
                      double (*value)(const struct dry_history_sample *s))
{
    double sum = 0, n = 0;

    for (size_t i = 0; i < t->h->samples; i++) {
        const struct dry_history_sample *s = &t->h->sample[i];
        int works = s->stage == DRY_STAGE_FORWARD || s->stage == DRY_STAGE_BACKWARD;

        if (s->start != t->h->starts - 1 || (s->index < 0) != process || (s->rank == rank) == other ||
            !works || isnan(value(s)))
            continue;
        sum += value(s);
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

static double busy_of(const struct dry_history_sample *s)
{
    return s->busy;
}

static double clock_of(const struct dry_history_sample *s)
{
    return s->clock;
}

/* Power cap, slowdowns and brakes for heat or power; not "idle" and not clocks that somebody has set. */
static double throttled_of(const struct dry_history_sample *s)
{
    return (s->throttle & (0x04 | 0x08 | 0x20 | 0x40 | 0x80)) != 0;
}

/* ---- the causes ---- */

/* Ranks that take cores from each other. */
static void crowded(struct teller *t, const struct dry_crowd *c)
{
    ADVICE(t,
           "The %d ranks on host %s compute with %d threads on its %d core%s and take them from each other: "
           "start fewer there, or give each rank fewer threads (OMP_NUM_THREADS).",
           c->ranks, c->host, c->threads, c->cores, dry_plural(c->cores));
}

static void healthy(struct teller *t)
{
    const struct dry_look *l = t->l;
    double inside = fmax(0, percent(l->mean[DRY_STAGE_REDUCE] - l->reduce, l->wall));
    double wait = percent(l->mean[DRY_STAGE_WAIT], l->wall) + inside;
    struct dry_crowd crowd;
    char step[TEXT];

    if (l->steps == 0) {
        FACT(t, "No step was finished in this start, so nothing can be said of steps.");
        return;
    }
    FACT(t, "Computing takes %.0f %% of the steps' time (forward %.0f %%, backward %.0f %% of %s a step)",
         100 * t->f->share, percent(l->mean[DRY_STAGE_FORWARD], l->wall),
         percent(l->mean[DRY_STAGE_BACKWARD], l->wall), seconds(l->step, step));
    if (l->ranks > 1)
        FACT(t, ", waiting for the slowest rank %.0f %%, reducing %.0f %%",
             percent(l->mean[DRY_STAGE_WAIT], l->wall), percent(l->mean[DRY_STAGE_REDUCE], l->wall));
    FACT(t, "; no single thing is worth a change.");
    if (wait >= 10)
        FACT(t, " Ranks wait %.0f %% of it for each other, now for one and now for another", wait);
    if (wait >= 10 && inside >= 1)
        FACT(t, ", %.0f %% inside the reduction", inside);
    if (wait >= 10)
        FACT(t, ".");
    if (dry_history_crowded(t->h->run, &crowd) && l->ranks > 1) {
        crowded(t, &crowd);
        return;
    }
    ADVICE(t, wait >= 10
                  ? "Such waiting comes from other processes on the machines, from ranks that do not get a "
                    "core each, or from work that is unequal by chance."
                  : "What is left is computing: drydock scale measures what more ranks would bring.");
}

/* "reading at no cost would make steps take 0.71 of their time" */
static void gain(struct teller *t, const char *without)
{
    ADVICE(t, " %s, steps would take %.2f of their time.", without, 1 - t->f->share);
}

static void data(struct teller *t)
{
    const struct dry_look *l = t->l;
    int r = l->most_rank[DRY_STAGE_DATA];
    double steps = (double)l->steps, most = l->most[DRY_STAGE_DATA] / steps;
    double rest = l->ranks > 1 ? (l->mean[DRY_STAGE_DATA] * l->ranks / steps - most) / (l->ranks - 1) : most;
    const char *where = word(t->h, "storage", "data");
    char a[TEXT], b[TEXT], c[TEXT];

    if (rest < most / 2)
        FACT(t, "Rank %d waits %s of each step's %s for its records, the others %s: they wait for that rank.",
             r, seconds(most, a), seconds(l->step, b), seconds(rest, c));
    else
        FACT(t, "Waiting for records takes %s of each step's %s.",
             seconds(l->mean[DRY_STAGE_DATA] / steps, a), seconds(l->step, b));
    if (*where)
        FACT(t, " The data are on %s.", where);
    ADVICE(t,
           "Put the cache on storage near the ranks: --cache DIR on a local disk or in memory, filled by "
           "drydock prepare%s.",
           rest < most / 2 ? "; look at that machine's disk and network" : "");
    gain(t, "Without this waiting");
}

static void copy(struct teller *t)
{
    const struct dry_look *l = t->l;
    int r = l->most_rank[DRY_STAGE_COPY];
    char a[TEXT], b[TEXT];

    FACT(t, "Moving micro-batches to the device takes up to %s of each step's %s (rank %d).",
         seconds(l->most[DRY_STAGE_COPY] / (double)l->steps, a), seconds(l->step, b), r);
    ADVICE(t, "A few kilobytes should not take that long: look at the link of that device (gpu.csv: pcie.rx; "
              "nvidia-smi topo -m) and at what else uses it.");
    gain(t, "Without it");
}

/* Fewer micro-batches than ranks. */
static void idle(struct teller *t)
{
    const struct dry_look *l = t->l;
    double micros = l->micros / (double)l->steps;
    int enough = (int)ceil(micros - 0.25); /* a step in four may have one more */
    int64_t tokens = contract(t->h, "micro_tokens");

    FACT(t, "A step has %.3g micro-batch%s for %d ranks: %.3g of them ha%s nothing to do.", micros,
         micros > 1 ? "es" : "", l->ranks, l->idle, l->idle > 1 ? "ve" : "s");
    ADVICE(t, "Start %d rank%s, which take%s as long", enough, dry_plural(enough), enough == 1 ? "s" : "");
    if (tokens > 0)
        ADVICE(t, ", or cut the step into smaller micro-batches (--micro-batch-tokens %lld in a new run)",
               (long long)fmax(16, floor((double)tokens * micros / l->ranks)));
    ADVICE(t, ", or take a larger --effective-batch.");
    gain(t, "With work for all");
}

/* One or two records a rank. */
static void few(struct teller *t)
{
    const struct dry_look *l = t->l;
    double steps = (double)l->steps, busy = l->mean[DRY_STAGE_FORWARD] + l->mean[DRY_STAGE_BACKWARD];
    int64_t batch = contract(t->h, "effective_batch");
    char a[TEXT], b[TEXT], c[TEXT];

    FACT(t,
         "A rank has %.3g record%s a step in micro-batches of %.0f tokens, computed in %s; %s of each step's "
         "%s "
         "would not grow with more of them",
         t->e->records, t->e->records > 1 ? "s" : "", l->tokens / l->micros, seconds(busy / steps, a),
         seconds((t->e->small_compute + t->e->small_fixed + t->e->small_idle) / steps, b),
         seconds(l->step, c));
    if (l->ranks > 1)
        FACT(t, ": reducing, updating, waiting for each other.");
    else
        FACT(t, ": updating, and the cost of a micro-batch beside its tokens.");
    if (contract(t->h, "micro_records") > 0)
        ADVICE(t,
               "In a new run, fill micro-batches (--micro-batch-tokens in place of --per-device-batch-size "
               "%lld)",
               (long long)contract(t->h, "micro_records"));
    else
        ADVICE(t, "In a new run, make micro-batches larger (--micro-batch-tokens, now %lld)",
               (long long)contract(t->h, "micro_tokens"));
    if (l->ranks > 1)
        ADVICE(t,
               " and give each rank several: --effective-batch %lld or more; or fewer ranks for the same "
               "batch of %lld.",
               (long long)batch * 8, (long long)batch);
    else
        ADVICE(t, ", with --effective-batch %lld or more.", (long long)batch * 8);
    ADVICE(t, " Records would pass up to %.1f times as fast.", 1 / fmax(0.1, 1 - t->f->share));
}

static void small(struct teller *t)
{
    const struct dry_look *l = t->l;
    const struct dry_evidence *e = t->e;
    double micros = l->micros, steps = (double)l->steps;
    char a[TEXT], b[TEXT];

    if (e->small_idle >= e->small_compute + e->small_fixed) {
        idle(t);
    } else if (e->few) {
        few(t);
    } else {
        FACT(t, "Micro-batches of %.0f tokens are small for this device", l->tokens / micros);
        if (e->shape_loss > 0)
            FACT(t, ": products of that length reach %.0f %% of the rate of long ones.",
                 100 * (1 - e->shape_loss));
        else
            FACT(t, ": beside its tokens each costs %s, in all %s a step.", seconds(l->per_micro, a),
                 seconds(l->per_micro * l->micros_most, b));
        ADVICE(t,
               "Make them larger where memory allows (drydock plan says what a size needs): "
               "--micro-batch-tokens %.0f in a new run, from %.3g micro-batches a rank and step now.",
               16 * ceil(4 * l->tokens / micros / 16), micros / steps / l->ranks);
        gain(t, "At best");
    }
}

static void reduce(struct teller *t)
{
    const struct dry_look *l = t->l;
    double each = l->reduce / (double)l->steps;
    double parameters =
        json_number_value(json_object_get(json_object_get(t->h->run, "results"), "parameters"));
    char a[TEXT], b[TEXT];

    FACT(t, "Adding up gradients over %d rank%s takes %s of each step's %s", l->ranks, dry_plural(l->ranks),
         seconds(each, a), seconds(l->step, b));
    if (parameters > 0 && each > 0)
        FACT(t, " (%.3g MB at %.3g GB/s)", parameters * 8 / 1e6, parameters * 8 / each / 1e9);
    FACT(t, ", while nothing else goes on.");
    if (on_gpu(t->h) && strcmp(option_text(t->h, "communicator"), "mpi") == 0)
        ADVICE(t, "--communicator nccl adds up between the GPUs. ");
    ADVICE(t,
           "Fewer ranks, a faster link between them, or more records a step (--effective-batch, in a new "
           "run: now "
           "%lld) for the same sums; a smaller --rank makes them shorter.",
           (long long)contract(t->h, "effective_batch"));
    gain(t, "Without it");
}

static void imbalance(struct teller *t)
{
    const struct dry_look *l = t->l;
    double micros = l->micros / (double)l->steps;
    int64_t tokens = contract(t->h, "micro_tokens"), batch = contract(t->h, "effective_batch");

    FACT(t,
         "A step's %.3g micro-batches do not divide evenly among %d ranks: the most loaded has %.2f times "
         "the mean "
         "share, the others wait for it by plan.",
         micros, l->ranks, l->load);
    if (tokens > 0)
        ADVICE(t, "Smaller micro-batches divide more evenly: --micro-batch-tokens %lld in a new run",
               (long long)fmax(16, floor((double)tokens / 2)));
    else
        ADVICE(t,
               "More micro-batches a step divide more evenly: --effective-batch %lld in a new run, or "
               "--micro-batch-tokens in place of --per-device-batch-size",
               (long long)batch * 2);
    if (l->micros_most >= 2)
        ADVICE(t, "; or a number of ranks that divides them: with %d the most loaded has as many.",
               (int)fmax(1, ceil(micros / l->micros_most - 1e-9)));
    else
        ADVICE(t, ".");
    gain(t, "With equal shares");
}

/* Where it can be seen why. */
static void why_slow(struct teller *t)
{
    int r = t->l->slow;
    double throttled = sampled(t, r, 0, 0, throttled_of), mine, rest;
    struct dry_crowd crowd;

    if (throttled >= throttled_often)
        FACT(t, " Its GPU is held back by heat or power in %.0f %% of its samples.", 100 * throttled);
    mine = sampled(t, r, 0, 0, clock_of);
    rest = sampled(t, r, 1, 0, clock_of);
    if (mine < 0.95 * rest)
        FACT(t, " Its SM clock is %.0f MHz, that of the others %.0f.", mine, rest);
    mine = sampled(t, r, 0, 1, busy_of);
    rest = sampled(t, r, 1, 1, busy_of);
    if (!on_gpu(t->h) && mine < 0.8 * rest)
        FACT(t, " Its process gets %.0f %% of a core, the others %.0f %%.", mine, rest);
    if (dry_history_crowded(t->h->run, &crowd))
        FACT(t, " %d ranks share the %d core%s of host %s.", crowd.ranks, crowd.cores,
             dry_plural(crowd.cores), crowd.host);
}

static void slow_rank(struct teller *t)
{
    const struct dry_look *l = t->l;
    double per = (l->per_token * l->weight + l->per_micro * l->micros) / (double)l->steps / l->ranks;
    char a[TEXT], b[TEXT], c[TEXT];

    FACT(t, "Rank %d computes %.2g times as long as the others for the same work (%s against %s a step)",
         l->slow, l->factor[l->slow], seconds(per * l->factor[l->slow], a), seconds(per, b));
    if (l->slows > 1)
        FACT(t, "; %d ranks are slow", l->slows);
    FACT(t, ": %.0f %% of each step %s wait%s for it.", 100 * t->f->share, others(l, c),
         l->ranks == 2 ? "s" : "");
    why_slow(t);
    ADVICE(t, "Look at that machine first (clock, temperature, other processes: gpu.csv, process.csv).");
    gain(t, "Were it like the others");
}

/* Checkpoints and validations at intervals. */
static void recurring(struct teller *t, const char *what, const char *name, enum dry_stage stage,
                      int64_t times, double last)
{
    const struct dry_look *l = t->l;
    int64_t interval = option(t->h, name), wanted;
    double all = l->most[stage], share = fmin(t->f->share, 0.99);
    char flag[TEXT], a[TEXT], b[TEXT];

    snprintf(flag, sizeof flag, "%s", name);
    for (char *c = flag; *c; c++)
        *c = *c == '_' ? '-' : *c;
    FACT(t, "%s takes %s each time, %lld time%s in %lld steps: %s on each step of %s.", what,
         seconds(all / (double)(times > 0 ? times : 1), a), (long long)times, dry_plural(times),
         (long long)l->steps, seconds(all / (double)l->steps, b), seconds(l->step, (char[TEXT]){0}));
    wanted = (int64_t)ceil((double)interval * share / (1 - share) * (100 - GOAL) / GOAL);
    if (interval > 0 && times > 1)
        ADVICE(t, "--%s %lld in place of %lld makes it %d %% of the time.", flag, (long long)wanted,
               (long long)interval, GOAL);
    else if (last > 0)
        ADVICE(t, "It is done once, behind the last step, and a longer run dilutes it.");
}

static void checkpoint(struct teller *t)
{
    const char *where = word(t->h, "storage", "output");

    recurring(t, "Writing a checkpoint", "checkpoint_interval", DRY_STAGE_CHECKPOINT, t->l->checkpoints,
              t->l->last_checkpoint);
    if (*where)
        FACT(t, " The output is on %s.", where);
    ADVICE(t, " Or take faster storage for --output.");
    gain(t, "Without it");
}

static void validation(struct teller *t)
{
    recurring(t, "Validation", "validation_interval", DRY_STAGE_VALIDATION, t->l->validations,
              t->l->last_validation);
    ADVICE(t, " Or take fewer held-out records.");
    gain(t, "Without it");
}

static void padding(struct teller *t)
{
    const struct dry_look *l = t->l;

    FACT(t,
         "Of %.0f tokens computed in a step %.0f are padding (%.0f %%): %.2f times the records' own tokens.",
         l->padded / (double)l->steps, (l->padded - l->tokens) / (double)l->steps,
         percent(l->padded - l->tokens, l->padded), l->padded / fmax(1, l->tokens));
    ADVICE(t, "--padding flat (the default) computes no padding but a few rows a micro-batch; with fixed "
              "padding, a "
              "--max-seq-length near the longest record (drydock lengths) cuts it.");
    gain(t, "Without padding");
}

static void startup(struct teller *t)
{
    const struct dry_look *l = t->l;
    const json_t *resident = json_object_get(json_object_get(t->h->run, "page_cache"), "base");
    char a[TEXT], b[TEXT], c[TEXT];

    FACT(t, "Before the first step pass %s of this run's %s", seconds(l->startup + l->tokenise, a),
         seconds(l->whole, b));
    if (l->tokenise >= 0.1 * (l->startup + l->tokenise))
        FACT(t, ", %s of them tokenising", seconds(l->tokenise, c));
    FACT(t, "; a step takes %s.", l->steps > 0 ? seconds(l->step, c) : "more than was left");
    if (json_is_number(resident) && json_number_value(resident) < 0.5)
        FACT(t, " The base was read from storage, %.0f %% of it was in memory.",
             100 * json_number_value(resident));
    ADVICE(t, "It is paid once, and a longer run dilutes it: one run over all data in place of several short "
              "ones.");
    if (l->tokenise >= l->startup)
        ADVICE(t, " Tokenise once: drydock prepare with --cache DIR, and the same --cache in each run.");
    else
        ADVICE(t, " A base on local storage, or read just before, loads faster.");
}

static void unexplained(struct teller *t)
{
    const struct dry_look *l = t->l;

    FACT(t, "%.0f %% of the steps' time on rank %d belongs to no stage.", 100 * t->f->share,
         l->most_rank[DRY_STAGE_UNEXPLAINED]);
    ADVICE(t, "Look at that machine for other processes (process.csv); if there are none, it is a fault of "
              "drydock's "
              "account: please report it with this folder's stages.csv and run.json.");
}

void dry_advise(const struct dry_history *h, const struct dry_look *l, const struct dry_evidence *e,
                struct dry_finding *f)
{
    static void (*const tell[])(struct teller *) = {
        [DRY_CAUSE_HEALTHY] = healthy,
        [DRY_CAUSE_DATA] = data,
        [DRY_CAUSE_COPY] = copy,
        [DRY_CAUSE_SMALL] = small,
        [DRY_CAUSE_REDUCE] = reduce,
        [DRY_CAUSE_IMBALANCE] = imbalance,
        [DRY_CAUSE_SLOW_RANK] = slow_rank,
        [DRY_CAUSE_CHECKPOINT] = checkpoint,
        [DRY_CAUSE_VALIDATION] = validation,
        [DRY_CAUSE_PADDING] = padding,
        [DRY_CAUSE_STARTUP] = startup,
        [DRY_CAUSE_UNEXPLAINED] = unexplained,
    };
    struct teller t = {h, l, e, f};

    _Static_assert(sizeof tell / sizeof *tell == DRY_CAUSES, "each cause has its sentences");
    tell[f->cause](&t);
    if (f->cause != DRY_CAUSE_HEALTHY && f->cause != DRY_CAUSE_STARTUP && l->steps < FEW_STEPS)
        ADVICE(&t, " This rests on %lld step%s only: a longer run tells it more surely.", (long long)l->steps,
               dry_plural(l->steps));
}

double dry_advise_shape_loss(const struct dry_history *h, const struct dry_look *l)
{
    const json_t *devices = json_object_get(h->run, "devices");
    double rows = l->micros > 0 ? l->padded / l->micros : 0, least = 1;

    if (!(rows > 0) || json_array_size(devices) == 0)
        return 0;
    for (size_t i = 0; i < json_array_size(devices); i++) {
        double beside = json_number_value(json_object_get(json_array_get(devices, i), "matrix_beside"));

        least = fmin(least, beside / (beside + rows));
    }
    return least;
}
