/*
 * Marks in a stream, on a GPU that is played: events carry the time at which the device comes to them.
 * Owns the stand-in; the linker gives it the calls that the code under test makes.
 */
#include "config.h"

#include "tap.h"

#include "cuda/cuda.h"

#include <stdlib.h>

static double now; /* of the device's work: what is asked for next ends here */
static int made, waited, lazy, broken;

struct event {
    double at;
    int seen; /* somebody waited for it, or it is long done */
};

cudaError_t __wrap_cudaEventCreate(cudaEvent_t *e);
cudaError_t __wrap_cudaEventCreate(cudaEvent_t *e)
{
    *e = calloc(1, sizeof(struct event));
    made++;
    return *e ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t __wrap_cudaEventDestroy(cudaEvent_t e);
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    made--;
    return cudaSuccess;
}

cudaError_t __wrap_cudaEventRecord(cudaEvent_t e, cudaStream_t stream);
cudaError_t __wrap_cudaEventRecord(cudaEvent_t e, cudaStream_t stream)
{
    struct event *v = (struct event *)e;

    (void)stream;
    v->at = now;
    v->seen = !lazy;
    return broken ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t e);
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t e)
{
    ((struct event *)e)->seen = 1;
    waited++;
    return cudaSuccess;
}

cudaError_t dry_wrap_elapsed(float *ms, cudaEvent_t from,
                             cudaEvent_t to) __asm__("__wrap_cudaEventElapsedTime");
cudaError_t dry_wrap_elapsed(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    const struct event *a = (const struct event *)from, *b = (const struct event *)to;

    if (!b->seen)
        return cudaErrorNotReady;
    *ms = (float)((b->at - a->at) * 1e3);
    return cudaSuccess;
}
cudaError_t dry_wrap_elapsed_v2(float *ms, cudaEvent_t from,
                                cudaEvent_t to) __asm__("__wrap_cudaEventElapsedTime_v2");
cudaError_t dry_wrap_elapsed_v2(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    return dry_wrap_elapsed(ms, from, to);
}

static struct dry_cuda c;

static void mark(int kind, double seconds)
{
    dry_cuda_mark(&c.backend, kind);
    now += seconds;
}

static int read_all(struct dry_mark *m, int room)
{
    int n = -1;

    return dry_cuda_marks_read(&c.backend, m, room, &n) ? -1 : n;
}

static void few(void)
{
    struct dry_mark m[8];

    tap_equal(read_all(m, 8), 0, "no marks, no spans");
    mark(3, 0.25);
    mark(5, 0.5);
    mark(3, 0.125);
    tap_equal(dry_cuda_marks_end(&c), DRY_OK, "the end");
    now += 4; /* after the sync */
    tap_equal(read_all(m, 8), 3, "three spans");
    tap_ok(m[0].kind == 3 && m[1].kind == 5 && m[2].kind == 3, "in order");
    tap_near(m[0].seconds, 0.25, 1e-6, "the first");
    tap_near(m[1].seconds, 0.5, 1e-6, "the second");
    tap_near(m[2].seconds, 0.125, 1e-6, "the last one ends at the sync");
    tap_equal(read_all(m, 8), 0, "read once");

    mark(1, 0.5);
    (void)dry_cuda_marks_end(&c);
    mark(2, 0.75);
    tap_equal(read_all(m, 8), 2, "a mark after the sync counts");
    tap_near(m[0].seconds, 0.5, 1e-6, "the one before it ends there");
    tap_near(m[1].seconds, 0.75, 1e-6, "and it ends at the reading");

    mark(1, 0.5);
    mark(1, 0.25);
    mark(2, 0.125);
    tap_equal(read_all(m, 8), 2, "marks of one kind in a row are one span");
    tap_near(m[0].seconds, 0.75, 1e-6, "of their sum");
}

static void check_many(int lazily, int room)
{
    enum { MANY = 5000 };
    struct dry_mark *m = calloc((size_t)room, sizeof *m);
    double want[4] = {0}, got[4] = {0};
    int n;

    lazy = lazily;
    waited = 0;
    for (int i = 0; i < MANY; i++) {
        double seconds = (1 + i % 7) / 1024.0;
        want[i % 4] += seconds;
        mark(i % 4, seconds);
    }
    (void)dry_cuda_marks_end(&c);
    n = read_all(m, room);
    for (int i = 0; i < n; i++)
        got[m[i].kind] += m[i].seconds;
    tap_ok(n == (room < 1024 ? room : 1024), "5000 marks, room for %d: %d spans", room, n);
    for (int k = 0; k < 4; k++)
        if (room >= 4)
            tap_near(got[k], want[k], 1e-3, "the sum of a kind");
    tap_near(got[0] + got[1] + got[2] + got[3], want[0] + want[1] + want[2] + want[3], 1e-3, "the sum");
    if (lazily)
        tap_ok(waited > 0, "waited only where the device was not there yet");
    else
        tap_equal(waited, 0, "waited for nothing");
    lazy = 0;
    free(m);
}

static void broken_device(void)
{
    struct dry_mark m[4];
    int n = 7;

    mark(1, 1);
    broken = 1;
    mark(2, 1);
    mark(2, 1);
    broken = 0;
    tap_equal(dry_cuda_marks_read(&c.backend, m, 4, &n), DRY_ERR_DEVICE,
              "an event that fails is told when read");
    tap_equal(n, 7, "and nothing else");
    mark(1, 0.5);
    tap_equal(read_all(m, 4), 1, "after that it goes on");
}

int main(void)
{
    if (!tap_equal(dry_cuda_marks_create(&c), DRY_OK, "made"))
        return tap_done();
    few();
    check_many(0, 1024);
    check_many(0, 2000);
    check_many(0, 16);
    check_many(0, 1);
    check_many(1, 1024);
    broken_device();
    dry_cuda_marks_destroy(&c);
    tap_equal(made, 0, "events are given back");
    return tap_done();
}
