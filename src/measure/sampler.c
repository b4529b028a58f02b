/*
 * Looks at the process through its clock and /proc, and at the device through its probe, at fixed times.
 * Owns the thread and what it opened.
 * Must not know of ranks, steps or stages, nor where samples go.
 */
#include "config.h"

#include "measure/sampler.h"

#include "base/clock.h"
#include "base/memory.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What only grows. */
struct counters {
    double at, cpu, read, written;
};

struct dry_sampler {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    double interval;
    int ending;
    /* under the lock */
    const struct dry_probe_ops *ops;
    struct dry_probe *probe;
    struct dry_sample sample[DRY_SAMPLES];
    size_t samples;
    /* the thread's */
    int io, statm; /* open files of /proc/self; -1: not to be had */
    double page;
    struct counters before;
};

/* A small file of /proc from its beginning; "" when it cannot be read. */
static void look(int file, char *text, size_t size)
{
    ssize_t n = file < 0 ? -1 : pread(file, text, size - 1, 0);

    text[n < 0 ? 0 : n] = 0;
}

/* The number after a key of /proc/self/io. */
static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static void count(const struct dry_sampler *s, struct counters *c)
{
    struct timespec cpu;
    char text[512];

    c->at = dry_clock_now();
    c->cpu =
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) ? NAN : (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec;
    look(s->io, text, sizeof text);
    c->read = number_after(text, "\nread_bytes: ");
    c->written = number_after(text, "\nwrite_bytes: ");
}

static void look_at_process(struct dry_sampler *s, struct dry_sample *now)
{
    struct counters c;
    char text[128], *resident;
    double passed;

    count(s, &c);
    passed = c.at - s->before.at;
    now->at = c.at;
    clock_gettime(CLOCK_REALTIME, &now->wall);
    now->cpu = passed > 0 ? 100 * (c.cpu - s->before.cpu) / passed : NAN;
    now->read = passed > 0 ? (c.read - s->before.read) / passed : NAN;
    now->written = passed > 0 ? (c.written - s->before.written) / passed : NAN;
    s->before = c;
    look(s->statm, text, sizeof text);
    resident = strchr(text, ' ');
    now->memory = resident ? strtod(resident, NULL) * s->page : NAN;
    now->device = -1;
}

/* Every second sample goes, so that a long time without a taker is still told of in whole. */
static void thin(struct dry_sampler *s)
{
    for (size_t i = 0; i < s->samples / 2; i++)
        s->sample[i] = s->sample[2 * i + 1];
    s->samples /= 2;
}

/* Sleeps until `due`; non-zero when the end is asked for. Under the lock. */
static int asleep(struct dry_sampler *s, double due)
{
    struct timespec t = {.tv_sec = (time_t)due, .tv_nsec = (long)((due - floor(due)) * 1e9)};
    int woken = 0;

    while (!s->ending && !woken)
        woken = pthread_cond_timedwait(&s->wake, &s->lock, &t) != 0;
    return s->ending;
}

static void *sample_on(void *argument)
{
    struct dry_sampler *s = argument;
    double due = dry_clock_now() + s->interval;

    pthread_mutex_lock(&s->lock);
    while (!asleep(s, due)) {
        struct dry_probe *probe = s->probe;
        struct dry_sample now;
        double late;

        /* a device may take its time to answer: whoever takes samples does not wait for it */
        pthread_mutex_unlock(&s->lock);
        look_at_process(s, &now);
        if (probe) {
            now.device = s->ops->number(probe);
            s->ops->sample(probe, &now.probe);
        }
        late = dry_clock_now() - due;
        due += s->interval * (1 + floor(late / s->interval)); /* a time that was missed is left out */
        pthread_mutex_lock(&s->lock);
        if (s->samples == DRY_SAMPLES)
            thin(s);
        s->sample[s->samples++] = now;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* A thread that no signal is handled in: the run's handlers belong to its main thread. */
static int start_thread(struct dry_sampler *s)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    failed = pthread_create(&s->thread, NULL, sample_on, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void release(struct dry_sampler *s)
{
    if (s->probe)
        s->ops->close(s->probe);
    if (s->io >= 0)
        close(s->io);
    if (s->statm >= 0)
        close(s->statm);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    dry_free(s);
}

enum dry_status dry_sampler_start(double interval, struct dry_sampler **sampler)
{
    struct dry_sampler *s = dry_alloc(1, sizeof *s, "the sampler");
    pthread_condattr_t clock;

    if (!s)
        return DRY_ERR_MEMORY;
    s->interval = interval;
    s->page = (double)sysconf(_SC_PAGESIZE);
    s->io = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
    s->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* dry_clock_now()'s */
    pthread_cond_init(&s->wake, &clock);
    pthread_condattr_destroy(&clock);
    count(s, &s->before);
    if (start_thread(s)) {
        release(s);
        return DRY_ERR_DEVICE;
    }
    *sampler = s;
    return DRY_OK;
}

void dry_sampler_attach(struct dry_sampler *s, const struct dry_probe_ops *ops, struct dry_probe *probe)
{
    pthread_mutex_lock(&s->lock);
    s->ops = ops;
    s->probe = probe;
    pthread_mutex_unlock(&s->lock);
}

size_t dry_sampler_take(struct dry_sampler *s, struct dry_sample sample[DRY_SAMPLES])
{
    size_t n;

    pthread_mutex_lock(&s->lock);
    n = s->samples;
    memcpy(sample, s->sample, n * sizeof *sample);
    s->samples = 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void dry_sampler_stop(struct dry_sampler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    release(s);
}
