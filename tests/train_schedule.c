/*
 * The schedule against values of Transformers' get_scheduler, and the account of stages.
 */
#include "config.h"

#include "base/clock.h"
#include "tap.h"
#include "train/schedule.h"
#include "train/stages.h"

#include <string.h>

/* peak 1e-3, 3 warm-up steps of 10: what the optimizer's learning rate was at each step with
 * get_scheduler(name, optimizer, num_warmup_steps=3, num_training_steps=10). */
static const struct {
    enum dry_schedule schedule;
    double rate[10];
} golden[] = {
    {DRY_SCHEDULE_COSINE,
     {0.0, 0.0003333333333333333, 0.0006666666666666666, 0.001, 0.0009504844339512095, 0.0008117449009293668,
      0.0006112604669781572, 0.0003887395330218429, 0.00018825509907063326, 4.9515566048790485e-05}},
    {DRY_SCHEDULE_LINEAR,
     {0.0, 0.0003333333333333333, 0.0006666666666666666, 0.001, 0.0008571428571428571, 0.0007142857142857143,
      0.0005714285714285714, 0.00042857142857142855, 0.0002857142857142857, 0.00014285714285714285}},
    {DRY_SCHEDULE_CONSTANT,
     {0.0, 0.0003333333333333333, 0.0006666666666666666, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001}},
};

static void schedules(void)
{
    char name[64];

    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
        for (int step = 1; step <= 10; step++) {
            snprintf(name, sizeof name, "schedule %zu, step %d", i, step);
            tap_near(dry_schedule_rate(golden[i].schedule, 1e-3, 3, 10, step), golden[i].rate[step - 1],
                     1e-12, name);
        }
    tap_near(dry_schedule_rate(DRY_SCHEDULE_COSINE, 2.0, 0, 4, 1), 2.0, 0,
             "no warm-up: the first step has the peak");
    tap_near(dry_schedule_rate(DRY_SCHEDULE_LINEAR, 1.0, 5, 5, 5), 0.8, 1e-15, "warm-up as long as the run");
    tap_near(dry_schedule_rate(DRY_SCHEDULE_LINEAR, 1.0, 10, 4, 4), 0.3, 1e-15,
             "warm-up longer than the run");
    tap_near(dry_schedule_rate(DRY_SCHEDULE_COSINE, 1.0, 0, 1, 1), 1.0, 0, "a run of one step");
}

static void names(void)
{
    enum dry_schedule s = DRY_SCHEDULE_CONSTANT;

    tap_ok(dry_schedule_parse("cosine", &s) == 0 && s == DRY_SCHEDULE_COSINE, "cosine is known");
    tap_ok(dry_schedule_parse("linear", &s) == 0 && s == DRY_SCHEDULE_LINEAR, "linear is known");
    tap_ok(dry_schedule_parse("cos", &s) == -1 && s == DRY_SCHEDULE_LINEAR,
           "another name is refused and nothing is written");
}

static void stages(void)
{
    struct dry_stages s;
    double begin = dry_clock_now() - 1, sum = 0, end;

    dry_stages_start(&s, begin, DRY_STAGE_STARTUP);
    tap_equal(dry_stages_enter(&s, DRY_STAGE_FORWARD), DRY_STAGE_STARTUP, "enter tells the stage before");
    tap_equal(dry_stages_enter(&s, DRY_STAGE_BACKWARD), DRY_STAGE_FORWARD, "and the next");
    dry_stages_enter(&s, DRY_STAGE_UNEXPLAINED);
    end = s.since;
    for (int i = 0; i < DRY_STAGES; i++)
        sum += s.seconds[i];
    tap_ok(s.seconds[DRY_STAGE_STARTUP] >= 1, "start-up counts from the start that is told");
    tap_near(sum, end - begin, 1e-9, "the stages add up to the time passed");
    tap_text(dry_stage_name(DRY_STAGE_WAIT), "wait for slowest rank", "a stage's name");
}

int main(void)
{
    schedules();
    names();
    stages();
    return tap_done();
}
