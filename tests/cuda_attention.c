/*
 * Attention on the GPU, by cuDNN's plans and by drydock's own kernels, against double precision and against
 * each other. Owns the table of shapes.  With the argument "time" it times the shapes of a 7B model instead.
 * Skips without a GPU.
 *
 * The rotation is switched off (cosine 1, sine 0), so that the reference is attention alone.  Padding rows
 * and the columns behind a row hold not-a-numbers: they must reach nothing.
 */
#include "config.h"

#include "tap.h"

#include "cuda/attention.h"
#include "cuda/entry.h"

#include "base/memory.h"
#include "base/random.h"
#include "model/safetensors.h"

#include <stdlib.h>

enum { MOST_RECORDS = 128, REPEATS = 3, TIMED = 20 };

/* Rounding to bfloat16, of inputs of size 1: 2^-9 for each of a few roundings. */
#define TOLERANCE 1e-2
#define TOLERANCE_LSE 1e-4

struct shape {
    const char *name;
    int64_t heads, kv_heads, dim, pad, padding;
    int64_t length[8];
    int reference; /* 0: too long for it; the own kernels are */
};

static const struct shape shapes[] = {
    {"64, three heads a key", 6, 2, 64, 64, 5, {1000, 77, 200, 1}, 1},
    {"96, every head its own", 3, 3, 96, 0, 3, {256, 129, 31}, 1},
    {"128, seven heads a key", 7, 1, 128, 64, 24, {1024, 3, 640, 65}, 1},
    {"128, one record", 4, 2, 128, 64, 0, {512}, 1},
    {"128, all of one length", 14, 2, 128, 64, 24, {384, 384, 384}, 1},
    {"80, records of a tile", 4, 2, 80, 0, 0, {64, 128, 192}, 1},
    {"256", 4, 2, 256, 0, 1, {300, 20}, 1},
    {"34, not in 16 bytes", 2, 1, 34, 0, 3, {390, 40, 1}, 1},
    {"6", 4, 2, 6, 64, 1, {3, 6, 2, 150}, 1},
    {"long, some heads at once", 32, 8, 128, 64, 56, {4200, 100, 700, 2000, 250, 30}, 0},
};

struct host {
    int64_t tokens, useful, records, qkv, o; /* widths */
    int32_t offset[MOST_RECORDS + 1];
    double *x, *d_o; /* [useful, width], as rounded */
    double *y, *dx, *lse;
};

/* Device buffers: inputs, then results. */
struct device {
    dry_bf16 *qkv, *d_o, *o, *dqkv;
    float *lse;
};

static struct dry_arch arch;
static struct dry_cuda c;
static void *scratch; /* lent to each call */
static size_t scratch_bytes;
static struct dry_cuda_layer layer;

static void must(int good, const char *what)
{
    if (!good) {
        printf("Bail out! %s\n", what);
        exit(1);
    }
}

static void *device_memory(size_t bytes, int fill)
{
    void *p = NULL;

    must(!cudaMalloc(&p, bytes + 256) && !cudaMemset(p, fill, bytes + 256), "cudaMalloc");
    return p;
}

static void *on_device(const void *from, size_t bytes)
{
    void *p = device_memory(bytes, 0);

    must(!cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return p;
}

static double number(uint64_t stream, uint64_t index)
{
    uint32_t w[4];

    dry_random_words(11, DRY_RANDOM_SUBSET, stream, index, w);
    return ((double)w[0] + (double)w[1] + (double)w[2] + (double)w[3]) / 4294967296.0 * 1.7 - 3.4;
}

/* [rows, width] random numbers of size 1 to a buffer with not-a-numbers everywhere else; the rounded ones to
 * `kept`. */
static dry_bf16 *random_rows(const struct host *h, uint64_t stream, int64_t width, double *kept)
{
    int64_t pitch = width + c.pad;
    size_t bytes = (size_t)(h->tokens * pitch) * sizeof(dry_bf16);
    dry_bf16 *all = malloc(bytes), *to;

    must(all != NULL, "memory");
    memset(all, 0xff, bytes);
    for (int64_t t = 0; t < h->useful; t++)
        for (int64_t i = 0; i < width; i++) {
            float x = (float)number(stream, (uint64_t)(t * width + i));
            dry_from_f32(DRY_BF16, &x, 1, all + t * pitch + i);
            if (kept) {
                dry_to_f32(DRY_BF16, all + t * pitch + i, 1, &x);
                kept[t * width + i] = (double)x;
            }
        }
    to = on_device(all, bytes);
    free(all);
    return to;
}

static float *rows_back(const struct host *h, const dry_bf16 *from, int64_t width)
{
    int64_t pitch = width + c.pad;
    size_t bytes = (size_t)(h->tokens * pitch) * sizeof *from;
    dry_bf16 *all = malloc(bytes);
    float *rows = malloc((size_t)(h->tokens * width) * sizeof *rows);

    must(all && rows && !cudaMemcpy(all, from, bytes, cudaMemcpyDeviceToHost), "copying back");
    for (int64_t t = 0; t < h->tokens; t++)
        dry_to_f32(DRY_BF16, all + t * pitch, width, rows + t * width);
    free(all);
    return rows;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * x[i];
}

/* Forward and backward of one head of a record. */
static void head_reference(struct host *h, int64_t first, int64_t length, int64_t head, double *p)
{
    int64_t dim = arch.head_dim, key = arch.heads + head / (arch.heads / arch.kv_heads),
            value = key + arch.kv_heads;
    double scale = 1 / sqrt((double)dim);

    for (int64_t i = 0; i < length; i++) {
        double *q = h->x + (first + i) * h->qkv + head * dim, *y = h->y + (first + i) * h->o + head * dim,
               sum = 0;
        double *dq = h->dx + (first + i) * h->qkv + head * dim, most = -INFINITY, delta = 0;
        const double *d_o = h->d_o + (first + i) * h->o + head * dim;
        for (int64_t j = 0; j <= i; j++) {
            p[j] = scale * dot(q, h->x + (first + j) * h->qkv + key * dim, dim);
            most = fmax(most, p[j]);
        }
        for (int64_t j = 0; j <= i; j++)
            sum += p[j] = exp(p[j] - most);
        for (int64_t j = 0; j <= i; j++)
            add(y, p[j] /= sum, h->x + (first + j) * h->qkv + value * dim, dim);
        h->lse[(first + i) * arch.heads + head] = most + log(sum);
        delta = dot(y, d_o, dim);
        for (int64_t j = 0; j <= i; j++) {
            int64_t at = (first + j) * h->qkv;
            double ds = p[j] * (dot(d_o, h->x + at + value * dim, dim) - delta) * scale;
            add(dq, ds, h->x + at + key * dim, dim);
            add(h->dx + at + key * dim, ds, q, dim);
            add(h->dx + at + value * dim, p[j], d_o, dim);
        }
    }
}

static void reference(struct host *h)
{
    int64_t sharing = arch.heads / arch.kv_heads;

#pragma omp parallel for schedule(dynamic) collapse(2)
    for (int64_t r = 0; r < h->records; r++)
        for (int64_t k = 0; k < arch.kv_heads; k++) {
            int64_t length = h->offset[r + 1] - h->offset[r];
            double *p = malloc((size_t)length * sizeof *p);
            must(p != NULL, "memory");
            for (int64_t i = k * sharing; i < (k + 1) * sharing; i++)
                head_reference(h, h->offset[r], length, i, p);
            free(p);
        }
}

/* Largest difference relative to the largest value wanted, infinite for not-a-numbers and padding that is not
 * zero. */
static double difference(const struct host *h, const float *got, const double *want, int64_t width)
{
    double worst = 0, most = 1e-30;

    for (int64_t i = 0; i < h->useful * width; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!isfinite(d))
            return INFINITY;
        worst = fmax(worst, d);
        most = fmax(most, fabs(want[i]));
    }
    for (int64_t i = h->useful * width; i < h->tokens * width; i++)
        if (got[i] != 0)
            return INFINITY;
    return worst / most;
}

static void check(const struct shape *s, const char *by, const char *what, double error, double tolerance)
{
    if (!tap_ok(error <= tolerance, "%s, %s: %s", s->name, by, what))
        printf("# error %.3g, tolerance %.3g\n", error, tolerance);
}

static void host_make(struct host *h, const struct shape *s, const int64_t *length, int64_t records)
{
    memset(h, 0, sizeof *h);
    for (; h->records < records && length[h->records]; h->records++)
        h->offset[h->records + 1] = (int32_t)(h->useful += length[h->records]);
    h->tokens = h->useful + s->padding;
    h->qkv = (s->heads + 2 * s->kv_heads) * s->dim;
    h->o = s->heads * s->dim;
    h->x = calloc((size_t)(h->useful * h->qkv), sizeof *h->x);
    h->dx = calloc((size_t)(h->useful * h->qkv), sizeof *h->dx);
    h->d_o = calloc((size_t)(h->useful * h->o), sizeof *h->d_o);
    h->y = calloc((size_t)(h->useful * h->o), sizeof *h->y);
    h->lse = calloc((size_t)(h->useful * s->heads), sizeof *h->lse);
    must(h->x && h->dx && h->d_o && h->y && h->lse, "memory");
}

static void host_free(struct host *h)
{
    free(h->x);
    free(h->dx);
    free(h->d_o);
    free(h->y);
    free(h->lse);
}

/* A backend that has nothing but what attention needs. */
static void backend_open(const struct shape *s, const struct host *h)
{
    struct dry_batch batch = {
        .tokens = h->tokens, .useful = h->useful, .records = h->records, .offset = h->offset};
    float *one;
    int32_t *words;

    arch = (struct dry_arch){.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->dim, .layers = 1};
    memset(&layer, 0, sizeof layer);
    c = (struct dry_cuda){.arch = &arch, .pad = (int)s->pad, .layer = &layer};
    for (int64_t r = 0; r < h->records; r++)
        if (h->offset[r + 1] - h->offset[r] > batch.longest)
            batch.longest = h->offset[r + 1] - h->offset[r];
    c.limits = (struct dry_limits){
        .tokens = h->tokens, .records = h->records, .rows = 1, .longest = batch.longest, .training = 1};
    must(!cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking), "a stream");
    must(!cudaDeviceGetAttribute(&c.sms, cudaDevAttrMultiProcessorCount, 0), "the device");
    one = malloc((size_t)(batch.longest * s->dim) * sizeof *one);
    must(one != NULL, "memory");
    for (int64_t i = 0; i < batch.longest * s->dim; i++)
        one[i] = 1;
    c.cosine = on_device(one, (size_t)(batch.longest * s->dim) * sizeof *one);
    c.sine = device_memory((size_t)(batch.longest * s->dim) * sizeof *one, 0);
    free(one);
    c.position = device_memory((size_t)h->tokens * sizeof *c.position, 0);
    c.offset = on_device(h->offset, sizeof h->offset);
    scratch_bytes = dry_cuda_attention_bytes(&c);
    scratch = device_memory(scratch_bytes, 0xff);
    must(!dry_cuda_attention_create(&c), "attention");
    words = calloc((size_t)dry_cuda_attention_words(&c) + 1, sizeof *words);
    must(words && !dry_cuda_attention_batch(&c, &batch, words), "the groups");
    c.sequences = on_device(words, (size_t)dry_cuda_attention_words(&c) * sizeof *words);
    free(words);
    c.batch = batch;
    c.batch.offset = c.offset;
}

static void backend_close(void)
{
    dry_cuda_attention_destroy(&c);
    cudaFree(c.cosine);
    cudaFree(c.sine);
    cudaFree(c.position);
    cudaFree(c.offset);
    cudaFree(c.sequences);
    cudaFree(scratch);
    cudaStreamDestroy(c.stream);
}

static void device_make(struct device *d, struct host *h, int keep)
{
    d->qkv = random_rows(h, 1, h->qkv, keep ? h->x : NULL);
    d->d_o = random_rows(h, 2, h->o, keep ? h->d_o : NULL);
    d->o = device_memory((size_t)(h->tokens * (h->o + c.pad)) * sizeof *d->o, 0xff);
    d->dqkv = device_memory((size_t)(h->tokens * (h->qkv + c.pad)) * sizeof *d->dqkv, 0xff);
    d->lse = device_memory((size_t)(h->tokens * arch.heads) * sizeof *d->lse, 0xff);
}

static void device_free(struct device *d)
{
    cudaFree(d->qkv);
    cudaFree(d->d_o);
    cudaFree(d->o);
    cudaFree(d->dqkv);
    cudaFree(d->lse);
}

static int run(struct device *d)
{
    return dry_cuda_attention_forward(&c.backend, 0, d->qkv, NULL, d->o, d->lse, scratch) ||
           dry_cuda_attention_backward(&c.backend, 0, d->qkv, NULL, d->o, d->lse, d->d_o, d->dqkv, scratch) ||
           dry_cuda_check(&c, cudaStreamSynchronize(c.stream), "attention");
}

/* By one kind; against h's y, dx and lse. */
static void compare(const struct shape *s, struct host *h, struct device *d, const char *by)
{
    size_t bytes = (size_t)(h->tokens * h->qkv) * sizeof(float);
    float *o, *dqkv = NULL, *lse = malloc((size_t)(h->tokens * arch.heads) * sizeof *lse);
    double worst = 0;
    int same = 1;

    for (int i = 0; i < REPEATS; i++) {
        cudaMemset(d->dqkv, 0xff, (size_t)(h->tokens * (h->qkv + c.pad)) * sizeof *d->dqkv);
        cudaMemset(scratch, 0xff, scratch_bytes);
        cudaDeviceSynchronize();
        if (!tap_ok(!run(d), "%s, %s: runs", s->name, by))
            exit(tap_done());
        float *again = rows_back(h, d->dqkv, h->qkv);
        same = same && (!dqkv || memcmp(again, dqkv, bytes) == 0);
        free(dqkv);
        dqkv = again;
    }
    o = rows_back(h, d->o, h->o);
    must(lse &&
             !cudaMemcpy(lse, d->lse, (size_t)(h->useful * arch.heads) * sizeof *lse, cudaMemcpyDeviceToHost),
         "lse");
    for (int64_t i = 0; i < h->useful * arch.heads; i++) {
        double e = fabs((double)lse[i] - h->lse[i]);
        worst = e <= worst ? worst : e;
    }
    check(s, by, "bits are equal over runs", same ? 0 : 1, 0);
    check(s, by, "output", difference(h, o, h->y, h->o), TOLERANCE);
    check(s, by, "log-sum-exp", worst, TOLERANCE_LSE);
    check(s, by, "gradient", difference(h, dqkv, h->dx, h->qkv), 2 * TOLERANCE);
    free(lse);
    free(dqkv);
    free(o);
}

/* The own kernels' results as reference. */
static void adopt(struct host *h, struct device *d)
{
    float *o, *dqkv, *lse = malloc((size_t)(h->tokens * arch.heads) * sizeof *lse);

    must(!run(d), "the own kernels");
    o = rows_back(h, d->o, h->o);
    dqkv = rows_back(h, d->dqkv, h->qkv);
    must(lse &&
             !cudaMemcpy(lse, d->lse, (size_t)(h->useful * arch.heads) * sizeof *lse, cudaMemcpyDeviceToHost),
         "lse");
    for (int64_t i = 0; i < h->useful * h->o; i++)
        h->y[i] = (double)o[i];
    for (int64_t i = 0; i < h->useful * h->qkv; i++)
        h->dx[i] = (double)dqkv[i];
    for (int64_t i = 0; i < h->useful * arch.heads; i++)
        h->lse[i] = (double)lse[i];
    free(lse);
    free(dqkv);
    free(o);
}

static void test(const struct shape *s)
{
    struct dry_cuda_attention *fused;
    struct device d;
    struct host h;

    host_make(&h, s, s->length, 8);
    backend_open(s, &h);
    device_make(&d, &h, 1);
    fused = c.attention;
    c.attention = NULL;
    if (s->reference)
        reference(&h);
    else
        adopt(&h, &d);
    if (s->reference)
        compare(s, &h, &d, "own kernels");
    c.attention = fused;
    if (fused)
        compare(s, &h, &d, dry_cuda_fused_name(fused));
    else
        printf("# %s: no plans\n", s->name);
    device_free(&d);
    backend_close();
    host_free(&h);
}

static double milliseconds(struct device *d, int backward)
{
    cudaEvent_t from, to;
    float ms = NAN;

    cudaEventCreate(&from);
    cudaEventCreate(&to);
    for (int i = -3; i < TIMED; i++) {
        if (i == 0)
            cudaEventRecord(from, c.stream);
        if (backward)
            dry_cuda_attention_backward(&c.backend, 0, d->qkv, NULL, d->o, d->lse, d->d_o, d->dqkv, scratch);
        else
            dry_cuda_attention_forward(&c.backend, 0, d->qkv, NULL, d->o, d->lse, scratch);
    }
    cudaEventRecord(to, c.stream);
    cudaEventSynchronize(to);
    cudaEventElapsedTime(&ms, from, to);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return (double)ms / TIMED;
}

static void time_one(const char *name, const struct shape *s, const int64_t *length, int64_t records)
{
    struct dry_cuda_attention *fused;
    double by[2][2] = {{0}};
    struct device d;
    struct host h;

    host_make(&h, s, length, records);
    backend_open(s, &h);
    device_make(&d, &h, 0);
    fused = c.attention;
    for (int own = 0; own < 2; own++) {
        c.attention = own ? NULL : fused;
        for (int backward = 0; backward < 2; backward++)
            by[own][backward] = milliseconds(&d, backward);
    }
    c.attention = fused;
    printf("# %-28s %-14s forward %.3f ms, backward %.3f ms; own kernels %.3f, %.3f; workspace %.0f MiB\n",
           name, fused ? dry_cuda_fused_name(fused) : "own kernels", by[0][0], by[0][1], by[1][0], by[1][1],
           (double)scratch_bytes / 1048576);
    device_free(&d);
    backend_close();
    host_free(&h);
}

static void time_all(void)
{
    const struct shape s = {"7B", 28, 4, 128, 64, 0, {0}, 0}, small = {"135M", 9, 3, 64, 64, 0, {0}, 0};
    const int64_t same[8] = {1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024}, two[2] = {4096, 4096};
    int64_t many[48];

    for (int64_t i = 0; i < 48; i++)
        many[i] = 110 + i * 37 % 290;
    time_one("6 x 1024", &s, same, 6);
    time_one("1 x 1024", &s, same, 1);
    time_one("2 x 4096", &s, two, 2);
    time_one("32 of 110 to 400", &s, many, 32);
    time_one("48 of 110 to 400", &s, many, 48);
    time_one("9 heads of 64, 8 x 1024", &small, same, 8);
}

int main(int argc, char **argv)
{
    if (!dry_cuda_usable())
        return tap_skip_all("no GPU");
    if (argc > 1 && strcmp(argv[1], "time") == 0) {
        time_all();
        return 0;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        test(&shapes[i]);
    return tap_done();
}
