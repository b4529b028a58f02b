/*
 * The account of stages: its timeline, and how a device's marks take the place of the host's seconds.
 */
#include "config.h"

#include "base/clock.h"
#include "tap.h"
#include "train/stages.h"

#include <time.h>

/* A device that tells what the test wants. */
static struct {
    struct dry_backend backend;
    int kind[16], marked; /* what it was given */
    struct dry_mark tell[8];
    int told;
    enum dry_status status;
} device;

static void fake_mark(struct dry_backend *b, int kind)
{
    (void)b;
    device.kind[device.marked++ % 16] = kind;
}

static enum dry_status fake_marks(struct dry_backend *b, struct dry_mark *mark, int room, int *count)
{
    (void)b;
    if (device.status)
        return device.status;
    for (*count = 0; *count < device.told && *count < room; ++*count)
        mark[*count] = device.tell[*count];
    return DRY_OK;
}

static const struct dry_backend_ops marking = {.name = "fake", .mark = fake_mark, .marks = fake_marks};
static const struct dry_backend_ops silent = {.name = "silent"};

static void pause_for(double seconds)
{
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};

    nanosleep(&t, NULL);
}

static double total(const struct dry_stages *s)
{
    double sum = 0;

    for (int i = 0; i < DRY_STAGES; i++)
        sum += s->seconds[i];
    return sum;
}

/* A window of three stages in which the host sleeps for 20 ms. */
static enum dry_status window(struct dry_stages *s)
{
    dry_stages_open(s, DRY_STAGE_DATA, &device.backend);
    dry_stages_enter(s, DRY_STAGE_FORWARD);
    dry_stages_enter(s, DRY_STAGE_BACKWARD);
    pause_for(0.02);
    return dry_stages_close(s);
}

static void timeline(void)
{
    static struct dry_stages s;
    double begin = dry_clock_now() - 1, forward;

    dry_stages_start(&s, begin, DRY_STAGE_STARTUP);
    dry_stages_enter(&s, DRY_STAGE_FORWARD);
    forward = s.since;
    dry_stages_enter(&s, DRY_STAGE_BACKWARD);
    tap_equal(dry_stages_at(&s, begin - 1), DRY_STAGE_STARTUP, "before the start it is start-up");
    tap_equal(dry_stages_at(&s, begin + 0.5), DRY_STAGE_STARTUP, "in it too");
    tap_equal(dry_stages_at(&s, forward), DRY_STAGE_FORWARD, "a stage begins with its turn");
    tap_equal(dry_stages_at(&s, s.since + 1e9), DRY_STAGE_BACKWARD, "the last one lasts");
    for (int i = 0; i < 3 * DRY_STAGE_TURNS; i++)
        dry_stages_enter(&s, i % 2 ? DRY_STAGE_DATA : DRY_STAGE_COPY);
    tap_equal(dry_stages_at(&s, s.since), DRY_STAGE_DATA, "after more turns than are remembered: the last");
    tap_ok(dry_stages_at(&s, begin) != DRY_STAGE_STARTUP, "what is too old is the oldest that is known");
    tap_near(total(&s), s.since - begin, 1e-9, "and the account is whole");
}

static void replaced(void)
{
    static struct dry_stages s;
    double begin = dry_clock_now(), whole, from;

    device.backend.ops = &marking;
    device.marked = 0;
    device.told = 3;
    device.tell[0] = (struct dry_mark){DRY_STAGE_DATA, 0.002};
    device.tell[1] = (struct dry_mark){DRY_STAGE_FORWARD, 0.006};
    device.tell[2] = (struct dry_mark){DRY_STAGE_BACKWARD, 0.010};
    dry_stages_start(&s, begin, DRY_STAGE_STARTUP);
    tap_equal(window(&s), DRY_OK, "a window of a device");
    from = begin + s.seconds[DRY_STAGE_STARTUP];
    whole = s.since - from;
    tap_ok(device.marked == 3 && device.kind[0] == DRY_STAGE_DATA && device.kind[1] == DRY_STAGE_FORWARD &&
               device.kind[2] == DRY_STAGE_BACKWARD,
           "is marked stage by stage");
    tap_near(s.seconds[DRY_STAGE_FORWARD], 0.006, 1e-12, "forward is the device's");
    tap_near(s.seconds[DRY_STAGE_BACKWARD], 0.010, 1e-12, "backward too, whatever the host did");
    tap_near(s.seconds[DRY_STAGE_UNEXPLAINED], whole - 0.018, 1e-9,
             "what the device does not know is unexplained");
    tap_near(total(&s), s.since - begin, 1e-9, "the account is whole");
    tap_equal(dry_stages_at(&s, from + 0.001), DRY_STAGE_DATA, "the timeline is the device's: data wait");
    tap_equal(dry_stages_at(&s, from + 0.005), DRY_STAGE_FORWARD, "then forward");
    tap_equal(dry_stages_at(&s, from + 0.012), DRY_STAGE_BACKWARD, "then backward");
    tap_equal(dry_stages_at(&s, from + 0.0185), DRY_STAGE_UNEXPLAINED, "then what nobody knows");
    tap_equal(dry_stages_at(&s, begin - 1), DRY_STAGE_STARTUP, "and before it what was before");
    dry_stages_enter(&s, DRY_STAGE_WAIT);
    tap_equal(device.marked, 3, "after the window nothing is marked");
}

static void stretched(void)
{
    static struct dry_stages s;
    double begin = dry_clock_now(), whole;

    device.tell[2].seconds = 60;
    dry_stages_start(&s, begin, DRY_STAGE_STARTUP);
    window(&s);
    whole = s.since - begin - s.seconds[DRY_STAGE_STARTUP];
    tap_near(s.seconds[DRY_STAGE_DATA] + s.seconds[DRY_STAGE_FORWARD] + s.seconds[DRY_STAGE_BACKWARD], whole,
             1e-9, "marks that are over the window are stretched to it");
    tap_near(s.seconds[DRY_STAGE_UNEXPLAINED], 0, 1e-12, "with nothing unexplained");
    tap_near(total(&s), s.since - begin, 1e-9, "the account is whole");
    device.tell[2].seconds = 0.010;
}

static void host_alone(void)
{
    static struct dry_stages s;
    double begin = dry_clock_now();

    dry_stages_start(&s, begin, DRY_STAGE_STARTUP);
    device.status = DRY_ERR_DEVICE;
    tap_equal(window(&s), DRY_ERR_DEVICE, "marks that fail are told of");
    device.status = DRY_OK;
    tap_ok(s.seconds[DRY_STAGE_BACKWARD] >= 0.02, "the host's seconds stay");
    device.marked = 0;
    dry_stages_open(&s, DRY_STAGE_DATA, &device.backend);
    dry_stages_drop(&s);
    dry_stages_enter(&s, DRY_STAGE_WAIT);
    tap_equal(device.marked, 1, "a window that is dropped marks no more");
    device.backend.ops = &silent;
    tap_equal(window(&s), DRY_OK, "a backend without marks");
    dry_stages_enter(&s, DRY_STAGE_WAIT);
    tap_ok(s.seconds[DRY_STAGE_BACKWARD] >= 0.04, "has the host's seconds");
    tap_near(total(&s), s.since - begin, 1e-9, "the account is whole");
}

int main(void)
{
    timeline();
    replaced();
    stretched();
    host_alone();
    return tap_done();
}
