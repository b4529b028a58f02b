/*
 * The sampler with a device that the test makes up, and the ledger's files read back as a run's history.
 */
#include "config.h"

#include "base/clock.h"
#include "base/memory.h"
#include "measure/ledger.h"
#include "scratch.h"
#include "tap.h"

#include <signal.h>
#include <stdatomic.h>
#include <time.h>

/* A device that counts how often it was asked, and answers slowly when told to. */
struct dry_probe {
    atomic_int asked, closed, slow;
};
static struct dry_probe device;

static void pause_for(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&t, NULL);
}

static void fake_close(struct dry_probe *p)
{
    atomic_fetch_add(&p->closed, 1);
}

static int fake_number(const struct dry_probe *p)
{
    (void)p;
    return 5;
}

static void fake_sample(struct dry_probe *p, struct dry_probe_sample *s)
{
    atomic_fetch_add(&p->asked, 1);
    if (atomic_load(&p->slow))
        pause_for(0.2);
    *s = (struct dry_probe_sample){.busy = 97,
                                   .memory_busy = 41,
                                   .memory = 3.0 * 1048576,
                                   .power = 512.25,
                                   .energy = 1234.5,
                                   .clock = 1980,
                                   .temperature = NAN,
                                   .throttle = 0x4,
                                   .pcie_in = 2048,
                                   .pcie_out = 1024,
                                   .nvlink_in = NAN,
                                   .nvlink_out = NAN};
}

static const struct dry_probe_ops fake = {
    .backend = "fake", .close = fake_close, .number = fake_number, .sample = fake_sample};

static void sampler(void)
{
    static struct dry_sample got[DRY_SAMPLES];
    struct dry_sampler *s = NULL;
    double began = dry_clock_now(), asked;
    sigset_t before, after;
    size_t n;
    int rising = 1;

    sigprocmask(SIG_SETMASK, NULL, &before);
    tap_equal(dry_sampler_start(0.0002, &s), DRY_OK, "a sampler");
    sigprocmask(SIG_SETMASK, NULL, &after);
    tap_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM),
              "leaves the caller's signals alone");
    while (dry_clock_now() - began < 0.6)
        pause_for(0.05);
    n = dry_sampler_take(s, got);
    tap_ok(n > 100 && n <= DRY_SAMPLES, "%zu samples of more than there is room for", n);
    for (size_t i = 1; i < n; i++)
        rising = rising && got[i].at > got[i - 1].at;
    tap_ok(rising, "in order");
    tap_ok(n > 0 && got[0].at - began < 0.1 && got[n - 1].at - began > 0.5, "of the whole time");
    tap_ok(n > 0 && got[0].device == -1 && got[n - 1].memory > 1048576, "of the process alone");
    atomic_store(&device.slow, 1);
    dry_sampler_attach(s, &fake, &device);
    pause_for(0.1);
    asked = dry_clock_now();
    (void)dry_sampler_take(s, got);
    tap_ok(dry_clock_now() - asked < 0.1, "nobody waits for a slow device");
    pause_for(0.3);
    n = dry_sampler_take(s, got);
    tap_ok(n > 0 && got[n - 1].device == 5 && got[n - 1].probe.power > 512, "samples of the device");
    dry_sampler_stop(s);
    tap_equal(atomic_load(&device.closed), 1, "stopping closes the probe");
    dry_sampler_stop(NULL);
    atomic_store(&device.slow, 0);
}

/* A start of a run of one step, with samples of process and device. */
static enum dry_status write_start(struct dry_comm *comm, int resumed)
{
    static struct dry_stages stages;
    struct dry_sampler *s = NULL;
    struct dry_ledger *l = NULL;
    struct dry_ledger_input in = {.comm = comm,
                                  .output = scratch_dir,
                                  .resumed = resumed,
                                  .started = dry_clock_now(),
                                  .stages = &stages};
    enum dry_status status = dry_sampler_start(0.005, &s);

    in.sampler = s;
    dry_stages_start(&stages, in.started, DRY_STAGE_STARTUP);
    if (!status)
        status = dry_ledger_open(&in, &l);
    if (status)
        return status;
    dry_sampler_attach(s, &fake, &device);
    status = dry_ledger_put(l, DRY_PHASE_START, 0, &(struct dry_share){0}, 1);
    dry_stages_enter(&stages, DRY_STAGE_FORWARD);
    pause_for(0.05);
    dry_stages_enter(&stages, DRY_STAGE_BACKWARD);
    if (!status)
        status = dry_ledger_put(l, DRY_PHASE_STEP, 1, &(struct dry_share){100, 112, 60, 2, 5200}, 0);
    if (!status)
        status = dry_ledger_put(l, DRY_PHASE_END, 0, &(struct dry_share){0}, 1);
    dry_ledger_close(l);
    dry_sampler_stop(s);
    return status;
}

/* The n-th sample of the device in forward; NULL: none. */
static const struct dry_history_sample *in_forward(const struct dry_history *h, int start)
{
    for (size_t i = 0; i < h->samples; i++)
        if (h->sample[i].index == 5 && h->sample[i].start == start && h->sample[i].stage == DRY_STAGE_FORWARD)
            return &h->sample[i];
    return NULL;
}

static void read_back(const struct dry_history *h)
{
    const struct dry_history_row *r = h->row;
    const struct dry_history_sample *s = in_forward(h, 0);

    if (!tap_equal((long long)h->rows, 6, "three rows of each start"))
        return;
    tap_ok(r[0].phase == DRY_PHASE_START && r[1].phase == DRY_PHASE_STEP && r[2].phase == DRY_PHASE_END,
           "start, step and end");
    tap_ok(r[1].step == 1 && r[1].tokens == 100 && r[1].padded == 112 && r[1].supervised == 60 &&
               r[1].micros == 2,
           "with a step's counts");
    tap_ok(r[1].stage[DRY_STAGE_FORWARD] >= 0.05 && r[1].stage[DRY_STAGE_FORWARD] <= r[1].seconds,
           "and seconds");
    tap_ok(r[3].start == 1 && r[5].start == 1, "the resumed start has the next number");
    if (!tap_ok(s != NULL, "a sample of the device fell into forward"))
        return;
    tap_equal(s->step, 1, "of step 1");
    tap_near(s->memory, 3.0 * 1048576, 1, "memory in bytes");
    tap_near(s->power, 512.25, 1e-9, "power");
    tap_near(s->energy, 1234.5, 1e-9, "energy");
    tap_near(s->clock, 1980, 1e-9, "clock");
    tap_equal((long long)s->throttle, 4, "throttle reasons");
    tap_ok(isnan(s->temperature) && isnan(s->nvlink_in), "what is not offered is not known");
    tap_near(s->pcie_in, 2048, 1e-9, "bytes a second from the host");
    tap_near(s->pcie_out, 1024, 1e-9, "and to it");
    tap_ok(in_forward(h, 1) != NULL, "samples of the second start too");
}

int main(int argc, char **argv)
{
    struct dry_history *h = NULL;
    struct dry_comm *comm = NULL;

    scratch_begin();
    if (dry_comm_start(&argc, &argv, &comm))
        return 1;
    sampler();
    scratch_write(scratch_path("run.json"), "{\"ranks\": 1}\n", 13);
    scratch_write(scratch_path("stages.csv"), "something else\n", 15);
    tap_equal(write_start(comm, 0), DRY_OK, "a fresh run's lines");
    tap_equal(write_start(comm, 1), DRY_OK, "a resumed run's");
    tap_equal(dry_history_open(scratch_dir, &h), DRY_OK, "are read back");
    if (h)
        read_back(h);
    dry_history_close(h);
    scratch_write(scratch_path("stages.csv"), "of,another,program\n1,2,3\n", 25);
    tap_equal(write_start(comm, 1), DRY_OK, "a file of other columns is not written into");
    tap_equal(access(scratch_path("stages.csv.other"), F_OK), 0, "but put aside");
    dry_comm_finish(comm);
    return tap_done();
}
