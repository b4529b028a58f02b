/*
 * What tests want of a real GPU: hold its memory, mark its stream, read its sensors.
 * Owns what it takes until its standard input ends.
 *
 * cuda_helper hold MIB    leaves so many MiB to others, says "held N MiB", and waits for the end of its input
 * cuda_helper marks       TAP: marks tell the time of what lies between them, and what one costs the host
 * cuda_helper probe       TAP: samples while the GPU copies
 */
#include "config.h"

#include "tap.h"

#include "cuda/cuda.h"
#include "cuda/entry.h"

#include "base/clock.h"

#include <stdlib.h>
#include <unistd.h>

enum { MIB = 1 << 20, COPY = 1 << 30 };

static int must(cudaError_t e, const char *call)
{
    if (e)
        fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(e));
    return e == cudaSuccess;
}

static int hold(size_t left)
{
    size_t free_bytes = 0, all = 0, held = 0, piece;
    char end;
    void *p;

    if (!must(cudaSetDevice(0), "cudaSetDevice"))
        return 1;
    for (piece = (size_t)1 << 30; piece >= 2 * MIB; piece /= 2)
        while (must(cudaMemGetInfo(&free_bytes, &all), "cudaMemGetInfo") &&
               free_bytes >= left * MIB + piece && cudaMalloc(&p, piece) == cudaSuccess)
            held += piece;
    printf("held %zu MiB\n", held / MIB);
    fflush(stdout);
    while (read(STDIN_FILENO, &end, 1) > 0)
        continue;
    return 0;
}

struct work {
    struct dry_cuda c;
    char *from, *to;
};

static int work_create(struct work *w)
{
    memset(w, 0, sizeof *w);
    return must(cudaSetDevice(0), "cudaSetDevice") &&
           must(cudaStreamCreateWithFlags(&w->c.stream, cudaStreamNonBlocking), "cudaStreamCreate") &&
           must(cudaMalloc((void **)&w->from, COPY), "cudaMalloc") &&
           must(cudaMalloc((void **)&w->to, COPY), "cudaMalloc") &&
           must(cudaMemsetAsync(w->from, 1, COPY, w->c.stream), "cudaMemsetAsync");
}

static int copy(struct work *w, int times)
{
    for (int i = 0; i < times; i++)
        if (!must(cudaMemcpyAsync(w->to, w->from, COPY, cudaMemcpyDeviceToDevice, w->c.stream),
                  "cudaMemcpyAsync"))
            return 0;
    return 1;
}

static double sync_now(struct work *w)
{
    (void)dry_cuda_marks_end(&w->c);
    (void)cudaStreamSynchronize(w->c.stream);
    return dry_clock_now();
}

static int marks(void)
{
    enum { MANY = 20000 };
    struct work w;
    struct dry_mark m[1024];
    int n = 0;
    double began, asked, whole, cost;

    if (!tap_ok(work_create(&w) && !dry_cuda_marks_create(&w.c), "a stream and its marks"))
        return tap_done();
    (void)copy(&w, 2);
    began = sync_now(&w);
    for (int i = 0; i < 3; i++) {
        dry_cuda_mark(&w.c.backend, 1);
        (void)copy(&w, 40);
        dry_cuda_mark(&w.c.backend, 2);
        (void)copy(&w, 80);
    }
    asked = dry_clock_now() - began;
    whole = sync_now(&w) - began;
    tap_equal(dry_cuda_marks_read(&w.c.backend, m, 1024, &n), DRY_OK, "read");
    tap_equal(n, 6, "six spans");
    double one = 0, two = 0;
    for (int i = 0; i < n; i++)
        *(m[i].kind == 1 ? &one : &two) += m[i].seconds;
    printf("# asked in %.2f ms, done in %.2f ms; by marks %.2f + %.2f ms\n", asked * 1e3, whole * 1e3,
           one * 1e3, two * 1e3);
    tap_ok(asked < whole / 2, "the host did not wait");
    tap_near((one + two) / whole, 1, 0.02, "the spans are the whole time");
    tap_near(two / one, 2, 0.05, "twice the work, twice the time");

    (void)sync_now(&w);
    began = dry_clock_now();
    for (int i = 0; i < MANY; i++)
        dry_cuda_mark(&w.c.backend, i % 4);
    cost = (dry_clock_now() - began) / MANY;
    (void)sync_now(&w);
    tap_equal(dry_cuda_marks_read(&w.c.backend, m, 1024, &n), DRY_OK, "20,000 marks");
    tap_ok(cost < 6e-6, "a mark costs the host %.2f us, the reading of an older one included", cost * 1e6);
    began = dry_clock_now();
    for (int i = 0; i < 200; i++)
        dry_cuda_mark(&w.c.backend, i % 4);
    cost = (dry_clock_now() - began) / 200;
    (void)sync_now(&w);
    tap_equal(dry_cuda_marks_read(&w.c.backend, m, 1024, &n), DRY_OK, "200 marks");
    tap_ok(cost < 3e-6, "a mark alone costs the host %.2f us", cost * 1e6);
    dry_cuda_marks_destroy(&w.c);
    return tap_done();
}

static void show(const char *when, const struct dry_probe_sample *s, double seconds)
{
    printf("# %s: busy %.0f %%, memory busy %.0f %%, %.0f MiB, %.1f W, %.1f J, SM %.0f MHz, %.0f C, throttle "
           "%llx, "
           "PCIe in %.1f out %.1f MB/s, NVLink in %.1f out %.1f MB/s; taken in %.2f ms\n",
           when, s->busy, s->memory_busy, s->memory / MIB, s->power, s->energy, s->clock, s->temperature,
           (unsigned long long)s->throttle, s->pcie_in / 1e6, s->pcie_out / 1e6, s->nvlink_in / 1e6,
           s->nvlink_out / 1e6, seconds * 1e3);
}

static int probe(void)
{
    struct work w;
    struct dry_probe *p = NULL;
    struct dry_probe_sample idle, s;
    const char *why = NULL;
    void *host = NULL;
    double began;
    size_t sent = 0;

    if (!tap_ok(work_create(&w) && must(cudaMallocHost(&host, COPY), "cudaMallocHost"),
                "memory and a stream"))
        return tap_done();
    if (!tap_ok(!dry_nvml_ops.open(0, &p, &why), "the probe of GPU 0")) {
        printf("# %s\n", why ? why : "");
        return tap_done();
    }
    printf("# number %d, %s, driver %s\n", dry_nvml_ops.number(p), dry_nvml_ops.name(p),
           dry_nvml_ops.driver(p));
    tap_ok(dry_nvml_ops.name(p)[0] && dry_nvml_ops.driver(p)[0], "its name and driver");
    began = dry_clock_now();
    dry_nvml_ops.sample(p, &idle);
    show("at first", &idle, dry_clock_now() - began);
    for (double until = dry_clock_now() + 0.7; dry_clock_now() < until;) {
        (void)copy(&w, 20);
        (void)cudaStreamSynchronize(w.c.stream);
    }
    began = dry_clock_now();
    dry_nvml_ops.sample(p, &s);
    show("while it copies", &s, dry_clock_now() - began);
    tap_ok(s.busy > 30 && s.busy <= 100, "it is busy");
    tap_ok(s.memory >= 2.0 * COPY, "what was taken is in use");
    tap_ok(s.power > 20 && s.power < 2000, "power");
    tap_ok(s.energy - idle.energy > 5 && s.energy - idle.energy < 2000, "energy grew: %.1f J",
           s.energy - idle.energy);
    tap_ok(s.clock > 200 && s.clock < 5000 && s.temperature > 5 && s.temperature < 120,
           "clock and temperature");
    began = dry_clock_now();
    while (dry_clock_now() < began + 0.5) {
        (void)cudaMemcpyAsync(w.to, host, COPY, cudaMemcpyHostToDevice, w.c.stream);
        (void)cudaStreamSynchronize(w.c.stream);
        sent += COPY;
    }
    double rate = (double)sent / (dry_clock_now() - began);
    double asked = dry_clock_now();
    dry_nvml_ops.sample(p, &s);
    show("while the host sends", &s, dry_clock_now() - asked);
    printf("# sent at %.1f MB/s\n", rate / 1e6);
    if (dry_clock_now() - asked <
        0.02) /* counters: the mean since the sample before; else what was just then */
        tap_ok(s.pcie_in > 0.7 * rate && s.pcie_in < 1.3 * rate, "what the host sends is seen");
    dry_nvml_ops.close(p);
    return tap_done();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "hold") == 0)
        return hold((size_t)strtoul(argv[2], NULL, 10));
    if (argc == 2 && strcmp(argv[1], "marks") == 0)
        return marks();
    if (argc == 2 && strcmp(argv[1], "probe") == 0)
        return probe();
    fprintf(stderr, "usage: cuda_helper hold MIB | marks | probe\n");
    return 2;
}
