/*
 * Attention by cuDNN: which plans a run needs, building them in the background, and which records go to which
 * plan. Owns the plans, the two handles, the thread that builds and the list of groups.  Must not know of
 * layers or rotation.
 *
 * A plan is for a number of places and a length; places may stay empty.  So that few plans are needed (each
 * takes some half a second to build), lengths come in tiers: powers of two, and the longest record of the
 * run.  Backward's workspace grows with places x heads x length^2: it bounds the places of a tier, and where
 * even one record is too much, a call takes some of the key heads with their query heads.  The records of a
 * micro-batch are sorted by length and dealt out to groups, the longest first, each group as many as its tier
 * has places.
 */
#include "config.h"

#include "cuda/attention.h"
#include "cuda/cudnn_graph.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TIERS = 24,
    LENGTH_MULTIPLE = 128, /* rows of a tile of cuDNN's kernels */
    LEAST_LENGTH = 256,    /* of the lowest tier: shorter records cost little there */
    ALIGNED_WORDS = 4,     /* tables begin at 16 bytes */
    SLACK_BYTES = 1 << 20, /* what plans need beside what grows */
    ALIGNMENT = 256,
    LEAST_VERSION = 90600, /* keys shared by heads with ragged offsets */
    WRONG_FROM = 91000,    /* backward is wrong from here ... */
    WRONG_BEFORE = 91002,  /* ... to here (cuDNN's own front end refuses these) */
    MOST_DIM = 128 /* elements of a head; at 256 the backward of 9.14 gave values that are not finite */
};
#define WORKSPACE_BYTES (INT64_C(1) << 30)     /* of a group of records */
#define WORKSPACE_BYTES_ONE (INT64_C(1) << 32) /* of one record and key head, where that is more */

enum plan_state { PENDING, READY, FAILED };
/* For any lengths, or for places that are all full: some percent faster. */
enum plan_kind { RAGGED, DENSE, KINDS };

struct pair {
    enum plan_state state;
    struct dry_cudnn_plan *forward, *backward;
};

/* Plans for records of up to `longest` rows. */
struct tier {
    int64_t longest, places;
    int64_t kv_heads, calls; /* key heads of a call, and calls for all of them; 0: for the own kernels */
    int64_t bytes;           /* workspace of backward */
    struct pair pair[KINDS];
};

struct record {
    int64_t length, index;
};

struct dry_cuda_attention {
    struct dry_cuda *c;
    char name[32];
    cudnnHandle_t handle; /* runs; the builder has its own */
    struct tier tier[MOST_TIERS];
    int tiers;

    struct dry_cuda_attention_group *group; /* [limits.records] */
    struct record *record;                  /* [limits.records] */
    int64_t groups;

    pthread_t builder;
    int building; /* the thread is there to be joined */
    pthread_mutex_t lock;
    pthread_cond_t change;
    /* under the lock while the builder runs, as are states of tiers */
    int stop, opened;
    char why[700]; /* the first failure */
    int warned;
};

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* Whether shape and sizes are such that cuDNN may do it: tables are int32. */
static int possible(const struct dry_cuda *c)
{
    const struct dry_arch *a = c->arch;
    int64_t widest = dry_cuda_pitch(c, (a->heads + 2 * a->kv_heads) * a->head_dim);

    return a->head_dim % 8 == 0 && c->pad % 8 == 0 && a->head_dim <= MOST_DIM && c->limits.longest > 1 &&
           c->limits.tokens <= INT32_MAX / widest;
}

/* Bytes of workspace of one place in a call with some key heads: products rounded to bfloat16, dK and dV of
 * each query head, row sums. */
static double place_bytes(const struct dry_cuda *c, int64_t longest, int64_t kv_heads)
{
    const struct dry_arch *a = c->arch;
    int64_t sharing = a->heads / a->kv_heads, each = 2 * longest + 64;

    if (!c->limits.training)
        return 64;
    if (sharing > 1)
        each += 4 * a->head_dim;
    return (double)(kv_heads * sharing) * (double)longest * (double)(each + (int64_t)sizeof(float));
}

static void tier_size(const struct dry_cuda *c, struct tier *t)
{
    int64_t all = c->arch->kv_heads, groups;

    for (int64_t some = all; some >= 1; some--) {
        double bytes = place_bytes(c, t->longest, some);
        if (all % some || bytes > (double)(some == 1 ? WORKSPACE_BYTES_ONE : WORKSPACE_BYTES))
            continue;
        t->kv_heads = some;
        t->calls = all / some;
        t->places = dry_smaller((int64_t)((double)WORKSPACE_BYTES / bytes), c->limits.records);
        t->places = t->places > 1 ? t->places : 1;
        /* Groups of about one size, should all records be of this tier. */
        groups = (c->limits.records + t->places - 1) / t->places;
        t->places = (c->limits.records + groups - 1) / groups;
        t->bytes = (int64_t)bytes * t->places + SLACK_BYTES;
        return;
    }
    t->calls = 0;
    t->places = c->limits.records;
}

/* Tiers under the limits, shortest first; returns how many. */
static int tiers_make(const struct dry_cuda *c, struct tier tier[MOST_TIERS])
{
    int64_t top = round_up(c->limits.longest, LENGTH_MULTIPLE);
    int n = 0;

    for (int64_t longest = LEAST_LENGTH; longest < top - top / 4 && n + 1 < MOST_TIERS; longest *= 2)
        tier[n++] = (struct tier){.longest = longest};
    tier[n++] = (struct tier){.longest = top};
    for (int i = 0; i < n; i++)
        tier_size(c, &tier[i]);
    return n;
}

size_t dry_cuda_fused_bytes(const struct dry_cuda *c)
{
    struct tier tier[MOST_TIERS];
    int n = possible(c) ? tiers_make(c, tier) : 0;
    int64_t most = 0;

    for (int i = 0; i < n; i++)
        most = tier[i].calls && tier[i].bytes > most ? tier[i].bytes : most;
    return (size_t)most;
}

/* Words of a group's tables: length, and first elements in q k v, in o and in lse. */
static int64_t table_words(int64_t places)
{
    return round_up(places, ALIGNED_WORDS) + 3 * round_up(places + 1, ALIGNED_WORDS);
}

/* All groups but the last are full: at most the words of a full group of one place for each record, and one
 * group more. */
int64_t dry_cuda_fused_words(const struct dry_cuda *c)
{
    return possible(c) ? table_words(1) * c->limits.records + table_words(c->limits.records) : 0;
}

static enum dry_status check_cudnn(const struct dry_cuda *c, cudnnStatus_t e, const char *call)
{
    char words[512] = "";

    if (c->faults && dry_fault_at("cudnn", c->batch.step))
        e = CUDNN_STATUS_EXECUTION_FAILED;
    if (!e)
        return DRY_OK;
    cudnnGetLastErrorString(words, sizeof words);
    dry_error("GPU %d: %s failed: %s: %s; CUDA itself says: %s", c->device, call, cudnnGetErrorString(e),
              words, dry_cuda_pending(c));
    return e == CUDNN_STATUS_ALLOC_FAILED ? DRY_ERR_MEMORY : DRY_ERR_DEVICE;
}

/* Whether records of all the same length are to be expected: where some are cut to it. */
static int wants(const struct dry_cuda_attention *a, int tier, enum plan_kind kind)
{
    return a->tier[tier].calls > 0 && (kind == RAGGED || a->tier[tier].longest == a->c->limits.longest);
}

/* In the builder's thread: one plan; nothing is said there. */
static struct dry_cudnn_plan *build(struct dry_cuda_attention *a, cudnnHandle_t handle, const struct tier *t,
                                    enum plan_kind kind, int backward, char *why, size_t why_bytes)
{
    const struct dry_arch *m = a->c->arch;
    struct dry_cudnn_shape shape = {
        .places = t->places,
        .longest = t->longest,
        .dense = kind == DENSE,
        .heads = t->kv_heads * (m->heads / m->kv_heads),
        .kv_heads = t->kv_heads,
        .dim = m->head_dim,
        .pitch = dry_cuda_pitch(a->c, (m->heads + 2 * m->kv_heads) * m->head_dim),
        .pitch_o = dry_cuda_pitch(a->c, m->heads * m->head_dim),
        .pitch_lse = m->heads,
    };
    int64_t delta = t->places * shape.heads * t->longest * (int64_t)sizeof(float);
    struct dry_cudnn_plan *plan;

    if (dry_cudnn_plan_create(handle, NULL, &shape, backward, &plan, why, why_bytes))
        return NULL;
    if (round_up(backward ? delta : 0, ALIGNMENT) + (int64_t)dry_cudnn_plan_bytes(plan) > t->bytes) {
        snprintf(why, why_bytes, "a plan wants %zu bytes of workspace, %lld were planned",
                 dry_cudnn_plan_bytes(plan), (long long)t->bytes);
        dry_cudnn_plan_destroy(plan);
        return NULL;
    }
    return plan;
}

static int stopped(struct dry_cuda_attention *a)
{
    int stop;

    pthread_mutex_lock(&a->lock);
    stop = a->stop;
    pthread_mutex_unlock(&a->lock);
    return stop;
}

static void build_pair(struct dry_cuda_attention *a, cudnnHandle_t handle, struct tier *t,
                       enum plan_kind kind, char *why, size_t why_bytes)
{
    struct pair *p = &t->pair[kind];
    int training = a->c->limits.training;

    if (handle && !stopped(a))
        p->forward = build(a, handle, t, kind, 0, why, why_bytes);
    if (p->forward && training && !stopped(a))
        p->backward = build(a, handle, t, kind, 1, why, why_bytes);
    pthread_mutex_lock(&a->lock);
    p->state = p->forward && (!training || p->backward) ? READY : FAILED;
    if (p->state == FAILED && !a->why[0])
        snprintf(a->why, sizeof a->why, "%s", why);
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
}

/* The thread: all tiers, longest first. */
static void *build_all(void *argument)
{
    struct dry_cuda_attention *a = argument;
    cudnnHandle_t handle = NULL;
    char why[sizeof a->why] = "its thread was stopped";

    if (cudaSetDevice(a->c->device))
        snprintf(why, sizeof why, "cudaSetDevice failed");
    else if (cudnnCreate(&handle))
        snprintf(why, sizeof why, "cudnnCreate failed");
    for (int i = a->tiers - 1; i >= 0; i--)
        for (int kind = KINDS - 1; kind >= 0; kind--)
            if (wants(a, i, (enum plan_kind)kind))
                build_pair(a, handle, &a->tier[i], (enum plan_kind)kind, why, sizeof why);
    if (handle)
        (void)cudnnDestroy(handle);
    return NULL;
}

/* Whether the plans are there; waits for the builder. */
static int ready(struct dry_cuda_attention *a, int tier, enum plan_kind kind)
{
    struct pair *p = &a->tier[tier].pair[kind];
    enum plan_state state;
    int say;

    if (!wants(a, tier, kind))
        return 0;
    pthread_mutex_lock(&a->lock);
    while (p->state == PENDING)
        pthread_cond_wait(&a->change, &a->lock);
    state = p->state;
    say = state == FAILED && kind == RAGGED && !a->warned;
    a->warned |= say;
    pthread_mutex_unlock(&a->lock);
    if (say)
        dry_warn(
            "GPU %d: %s has no plan for records of up to %lld tokens (%s); drydock's own kernels do them, "
            "more slowly",
            a->c->device, a->name, (long long)a->tier[tier].longest, a->why);
    return state == READY;
}

/* Whether the device and the library at run time are ones that this works with. */
static int supported(const struct dry_cuda *c, size_t version)
{
    int major = 0;

    if (version < LEAST_VERSION || (version >= WRONG_FROM && version < WRONG_BEFORE))
        return 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, c->device))
        return 0;
    return (major == 9 || major == 10) && c->arch->head_dim <= MOST_DIM;
}

enum dry_status dry_cuda_fused_create(struct dry_cuda *c, struct dry_cuda_attention **attention)
{
    size_t version = cudnnGetVersion();
    struct dry_cuda_attention *a;
    enum dry_status status;

    *attention = NULL;
    if (!possible(c) || !supported(c, version))
        return DRY_OK;
    a = dry_alloc(1, sizeof *a, "attention's plans");
    if (!a)
        return DRY_ERR_MEMORY;
    a->c = c;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, NULL);
    snprintf(a->name, sizeof a->name, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    a->tiers = tiers_make(c, a->tier);
    a->group = dry_alloc((size_t)c->limits.records, sizeof *a->group, "attention's groups");
    a->record = dry_alloc((size_t)c->limits.records, sizeof *a->record, "attention's records");
    status = a->group && a->record ? DRY_OK : DRY_ERR_MEMORY;
    if (!status && pthread_create(&a->builder, NULL, build_all, a)) {
        dry_error("GPU %d: no thread to build attention's plans; raise the limit of processes (ulimit -u)",
                  c->device);
        status = DRY_ERR_DEVICE;
    }
    if (status) {
        dry_cuda_fused_destroy(a);
        return status;
    }
    a->building = 1;
    *attention = a;
    return DRY_OK;
}

void dry_cuda_fused_destroy(struct dry_cuda_attention *a)
{
    if (!a)
        return;
    if (a->building) {
        pthread_mutex_lock(&a->lock);
        a->stop = 1;
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->builder, NULL);
    }
    for (int i = 0; i < a->tiers; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            dry_cudnn_plan_destroy(a->tier[i].pair[kind].forward);
            dry_cudnn_plan_destroy(a->tier[i].pair[kind].backward);
        }
    if (a->handle)
        (void)cudnnDestroy(a->handle);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    dry_free(a->record);
    dry_free(a->group);
    dry_free(a);
}

const char *dry_cuda_fused_name(const struct dry_cuda_attention *a)
{
    return a ? a->name : NULL;
}

/* Longest first; equal ones in their order, so that the groups depend on the micro-batch alone. */
static int by_length(const void *x, const void *y)
{
    const struct record *a = x, *b = y;

    if (a->length != b->length)
        return a->length < b->length ? 1 : -1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void fused_tables(const struct dry_cuda_attention *a, const struct dry_batch *b,
                         const struct dry_cuda_attention_group *g, const struct record *record,
                         int32_t *words)
{
    const struct dry_arch *m = a->c->arch;
    const int64_t pitch[3] = {dry_cuda_pitch(a->c, (m->heads + 2 * m->kv_heads) * m->head_dim),
                              dry_cuda_pitch(a->c, m->heads * m->head_dim), m->heads};
    int64_t places = a->tier[g->tier].places;
    int32_t *at = words + round_up(places, ALIGNED_WORDS);

    memset(words, 0, (size_t)table_words(places) * sizeof *words);
    for (int64_t i = 0; i < g->records; i++)
        words[i] = (int32_t)record[i].length;
    for (int k = 0; k < 3; k++, at += round_up(places + 1, ALIGNED_WORDS)) {
        for (int64_t i = 0; i < g->records; i++)
            at[i] = (int32_t)(b->offset[record[i].index] * pitch[k]);
        for (int64_t i = g->records; i <= places; i++)
            at[i] = (int32_t)(b->useful * pitch[k]);
    }
}

/* For the own kernels: first and last rows. */
static void plain_tables(const struct dry_batch *b, const struct dry_cuda_attention_group *g,
                         const struct record *record, int32_t *words)
{
    for (int64_t i = 0; i < g->records; i++) {
        words[i] = b->offset[record[i].index];
        words[g->records + i] = b->offset[record[i].index + 1];
    }
}

/* The sorted records of a group fill all places of its tier, and no row lies between them. */
static int is_dense(const struct dry_batch *b, const struct tier *t, const struct record *record,
                    int64_t records)
{
    const struct record *last = record + records - 1;

    return records == t->places && last->length == t->longest &&
           b->offset[last->index] - b->offset[record->index] == (records - 1) * t->longest;
}

static enum dry_status handle_make(struct dry_cuda *c, struct dry_cuda_attention *a)
{
    enum dry_status status;

    if (a->handle)
        return DRY_OK;
    status = check_cudnn(c, cudnnCreate(&a->handle), "cudnnCreate");
    return status ? status : check_cudnn(c, cudnnSetStream(a->handle, c->stream), "cudnnSetStream");
}

enum dry_status dry_cuda_fused_batch(struct dry_cuda *c, const struct dry_batch *batch, int32_t *words)
{
    struct dry_cuda_attention *a = c->attention;
    enum dry_status status = handle_make(c, a);
    int64_t used = 0;

    if (status)
        return status;
    for (int64_t i = 0; i < batch->records; i++)
        a->record[i] = (struct record){batch->offset[i + 1] - batch->offset[i], i};
    qsort(a->record, (size_t)batch->records, sizeof *a->record, by_length);
    a->groups = 0;
    for (int64_t at = 0; at < batch->records;) {
        struct dry_cuda_attention_group *g = &a->group[a->groups++];
        const struct record *record = a->record + at;
        int tier = 0;
        while (record->length > a->tier[tier].longest)
            tier++;
        *g = (struct dry_cuda_attention_group){.tier = tier, .longest = record->length, .words = used};
        g->records = dry_smaller(a->tier[tier].places, batch->records - at);
        g->first = batch->offset[record->index];
        g->dense = is_dense(batch, &a->tier[tier], record, g->records) && ready(a, tier, DENSE);
        g->fused = g->dense || ready(a, tier, RAGGED);
        if (g->fused && !g->dense) {
            fused_tables(a, batch, g, record, words + used);
            used += table_words(a->tier[tier].places);
        } else if (!g->fused) {
            plain_tables(batch, g, record, words + used);
            used += round_up(2 * g->records, ALIGNED_WORDS);
        }
        at += g->records;
    }
    return DRY_OK;
}

int64_t dry_cuda_fused_groups(const struct dry_cuda *c, const struct dry_cuda_attention_group **group)
{
    *group = c->attention->group;
    return c->attention->groups;
}

static enum dry_status run(struct dry_cuda *c, const struct dry_cuda_attention_group *g,
                           const struct dry_cuda_attention_call *k, int backward)
{
    struct dry_cuda_attention *a = c->attention;
    const struct tier *t = &a->tier[g->tier];
    float scale = k->scale, nothing = -INFINITY, one = 1;
    enum dry_status status = DRY_OK;
    int64_t heads = t->kv_heads * (k->heads / k->kv_heads), step = round_up(t->places + 1, ALIGNED_WORDS);
    int32_t *length = c->sequences + g->words, *at = length + round_up(t->places, ALIGNED_WORDS);
    const struct pair *pair = &t->pair[g->dense ? DENSE : RAGGED];
    int64_t row = g->dense ? g->first : 0;
    char *workspace = c->attention_workspace;
    void *scratch = workspace + round_up(t->places * heads * t->longest * (int64_t)sizeof(float), ALIGNMENT);

    for (int64_t i = 0; i < t->calls && !status; i++) {
        int64_t q = row * k->pitch + i * heads * k->dim, o = row * k->pitch_o + i * heads * k->dim;
        int64_t kv = row * k->pitch + (k->heads + i * t->kv_heads) * k->dim, v = kv + k->kv_heads * k->dim;
        void *tensor[DRY_CUDNN_BACKWARD] = {
            [DRY_CUDNN_Q] = (void *)(k->qkv + q),
            [DRY_CUDNN_K] = (void *)(k->qkv + kv),
            [DRY_CUDNN_V] = (void *)(k->qkv + v),
            [DRY_CUDNN_O] = k->o + o,
            [DRY_CUDNN_LSE] = k->lse + row * k->heads + i * heads,
            [DRY_CUDNN_LENGTH] = length,
            [DRY_CUDNN_AT] = at,
            [DRY_CUDNN_AT_O] = at + step,
            [DRY_CUDNN_AT_LSE] = at + 2 * step,
            [DRY_CUDNN_SCALE] = &scale,
            [DRY_CUDNN_NOTHING] = &nothing,
        };
        cudnnStatus_t e;
        if (backward) {
            tensor[DRY_CUDNN_D_O] = (void *)(k->d_o + o);
            tensor[DRY_CUDNN_DQ] = k->dqkv + q;
            tensor[DRY_CUDNN_DK] = k->dqkv + kv;
            tensor[DRY_CUDNN_DV] = k->dqkv + v;
            tensor[DRY_CUDNN_DELTA] = workspace;
            tensor[DRY_CUDNN_ONE] = &one;
        }
        e = dry_cudnn_plan_run(a->handle, backward ? pair->backward : pair->forward, tensor,
                               backward ? scratch : workspace);
        status = check_cudnn(c, e, backward ? "cuDNN attention, backward," : "cuDNN attention, forward,");
    }
    return status;
}

enum dry_status dry_cuda_fused_forward(struct dry_cuda *c, const struct dry_cuda_attention_group *g,
                                       const struct dry_cuda_attention_call *k)
{
    return run(c, g, k, 0);
}

enum dry_status dry_cuda_fused_backward(struct dry_cuda *c, const struct dry_cuda_attention_group *g,
                                        const struct dry_cuda_attention_call *k)
{
    return run(c, g, k, 1);
}
