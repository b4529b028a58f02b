/*
 * Accounts of runs that are written by hand: three ranks whose sums are known.
 */
#include "config.h"

#include "capture.h"
#include "run_folder.h"
#include "tap.h"

#include "measure/account.h"

#define MANIFEST "{\"ranks\": 3, \"matrix\": [1e9, 1e9, 1000000000], \"flops_per_token\": 5800}\n"

/* rank: start 1 s; steps 1 and 2 of 2 s and 4 s; end 0.5 s. Forward differs by rank, waiting fills it up. */
static const char rows[] =
    RUN_STAGES_HEADER "0,start,0,0,0,1,0,0,0,0,0.75,0.25,0,0,0,0,0,0,0,0,0,0\n"
                      "0,start,0,1,0,1,0,0,0,0,0.75,0.25,0,0,0,0,0,0,0,0,0,0\n"
                      "0,start,0,2,0,1,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0\n"
                      "0,step,1,0,1,2,100,128,40,4,0,0,0,0,0.5,0.5,0.25,0.75,0,0,0,0\n"
                      "0,step,1,1,1,2,100,112,50,5,0,0,0,0,0.75,0.5,0.25,0.5,0,0,0,0\n"
                      "0,step,1,2,1,2,100,112,60,6,0,0,0,0,1.25,0.5,0.25,0,0,0,0,0\n"
                      "0,step,2,0,3,4,200,256,80,4,0,0,0.25,0,1,1,0.25,0.5,0.25,0.75,0,0\n"
                      "0,step,2,1,3,4,200,224,90,4,0,0,0.5,0,1,1,0.25,0.25,0.25,0.75,0,0\n"
                      "0,step,2,2,3,4,200,224,100,4,0,0,0,0,1.5,1,0.25,0,0.25,0.75,0,0.25\n"
                      "0,end,0,0,7,0.5,0,0,0,0,0,0,0,0,0,0,0,0,0,0.5,0,0\n"
                      "0,end,0,1,7,0.5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.5\n"
                      "0,end,0,2,7,0.5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0.25\n";

static int make(const char *run, struct dry_account_range range, struct dry_account *a)
{
    struct dry_history *h = NULL;
    enum dry_status status = dry_history_open(scratch_path(run), &h);

    if (!status)
        status = dry_account_make(h, &range, a);
    dry_history_close(h);
    return status == DRY_OK;
}

static void whole(void)
{
    struct dry_account a;

    run_file("run", "run.json", MANIFEST);
    run_file("run", "stages.csv", rows);
    if (!tap_ok(make("run", (struct dry_account_range){.start = -1, .whole = 1}, &a), "a whole start"))
        return;
    tap_equal(a.ranks, 3, "ranks");
    tap_ok(a.first == 1 && a.last == 2 && a.steps == 2, "steps");
    tap_near(a.wall, 7.5, 1e-12, "wall-clock");
    tap_near(a.stepping, 6, 1e-12, "of it in steps");
    tap_near(a.step_seconds, 3, 1e-12, "seconds a step");
    tap_ok(a.stage[DRY_STAGE_FORWARD].least == 1.5 && a.stage[DRY_STAGE_FORWARD].median == 1.75 &&
               a.stage[DRY_STAGE_FORWARD].most == 2.75 && a.stage[DRY_STAGE_FORWARD].mean == 2,
           "least, median, most and mean over ranks");
    tap_equal(a.stage[DRY_STAGE_FORWARD].most_rank, 2, "the rank with most forward");
    tap_equal(a.stage[DRY_STAGE_WAIT].most_rank, 0, "the rank that waits most");
    tap_ok(a.stage[DRY_STAGE_WAIT].most == 1.25 && a.stage[DRY_STAGE_WAIT].least == 0, "how long");
    tap_ok(a.stage[DRY_STAGE_STARTUP].most == 1 && a.stage[DRY_STAGE_STARTUP].most_rank == 2, "start-up");
    tap_ok(a.busy_least == 3 && a.busy_most == 4.25 && a.busy_most_rank == 2, "who computes longest");
    tap_ok(a.tokens == 900 && a.padded == 1056 && a.supervised == 420, "tokens of all ranks");
    tap_ok(a.micros == 27 && a.micros_most == 10, "micro-batches");
    /* rank 1: 0.5 unexplained; rank 2: 0.25 + 0.25, and 0.25 of its last row that no stage has */
    tap_near(a.unexplained, 0.75 / 7.5, 1e-12, "closing error of the worst rank");
    tap_near(a.tokens_per_second, 150, 1e-9, "tokens a second");
    tap_near(a.supervised_per_second, 70, 1e-9, "supervised tokens a second");
    tap_near(a.flops_per_second, 150.0 * 5800, 1e-6, "operations by the LoRA count");
    tap_near(a.matrix_per_second, 3e9, 1, "rate of products, of all ranks");
    tap_ok(isnan(a.energy) && isnan(a.step_energy), "no samples, no energy");
}

static void parts(void)
{
    struct dry_account a;
    struct dry_history *h = NULL;

    tap_ok(make("run", (struct dry_account_range){.start = 0, .first = 2, .last = 2}, &a) && a.steps == 1 &&
               a.wall == 4 && a.stage[DRY_STAGE_STARTUP].most == 0 && a.tokens == 600,
           "one step of three ranks");
    tap_ok(make("run", (struct dry_account_range){.start = 0, .first = 2}, &a) && a.steps == 1, "to the end");
    capture_begin();
    tap_ok(!make("run", (struct dry_account_range){.start = 0, .first = 3, .last = 5}, &a), "no such step");
    tap_ok(strstr(capture_end(), "no line of steps 3 to 5") != NULL, "and it says so");
    run_file("none", "run.json", MANIFEST);
    capture_begin();
    tap_ok(!make("none", (struct dry_account_range){.start = -1, .whole = 1}, &a),
           "a run without stages.csv");
    tap_ok(strstr(capture_end(), "no stages.csv") != NULL, "and it says so");

    run_file("twice", "run.json", "{\"ranks\": 1}\n");
    run_file("twice", "stages.csv",
             RUN_STAGES_HEADER "0,step,1,0,1,2,10,16,4,1,0,0,0,0,1,1,0,0,0,0,0,0\n"
                               "0,step,2,0,3,2,10,16,4,1,0,0,0,0,1,1,0,0,0,0,0,0\n"
                               "1,step,2,0,1,3,10,16,4,1,0,0,0,0,2,1,0,0,0,0,0,0\n");
    tap_ok(make("twice", (struct dry_account_range){.start = -1}, &a) && a.steps == 1 && a.wall == 3 &&
               a.flops_per_second == 0 && a.matrix_per_second == 0,
           "the latest start; no rates where the manifest has no sizes");
    tap_ok(make("twice", (struct dry_account_range){.start = -2}, &a) && a.steps == 3 && a.wall == 7,
           "all starts: a step done again counts twice");
    tap_equal(dry_history_open(scratch_path("run"), &h), DRY_OK, "opens");
    dry_history_close(h);
}

/* Two GPUs at 100 W and 300 W by their counters, sampled from 0.5 s to 6.5 s; rank 2 shares rank 1's. */
static void energies(void)
{
    char text[16384], *at = text;
    struct dry_account a;

    at += sprintf(at, "%s", RUN_GPU_HEADER);
    for (int i = 0; i <= 6; i++)
        for (int r = 0; r < 3; r++)
            at += sprintf(at, "t,%d,,,,,,,,,,,,%g,%g,0,%d,a,0,forward\n", r > 0,
                          (r ? 300.0 : 100.0) * (i + 0.5), i + 0.5, r);
    run_file("run", "gpu.csv", text);
    tap_ok(make("run", (struct dry_account_range){.start = -1, .whole = 1}, &a), "with samples");
    tap_near(a.energy, 7.5 * 400, 1e-9, "energy of all; a shared GPU counts once");
    tap_near(a.step_energy, 6 * 400, 1e-9, "energy of the steps");
    tap_ok(make("run", (struct dry_account_range){.start = -1, .first = 2}, &a), "one step");
    tap_near(a.energy, 4 * 400, 1e-9, "energy between samples");

    at = text + sprintf(text, "%s", RUN_GPU_HEADER);
    for (int i = 0; i <= 6; i++)
        for (int r = 0; r < 2; r++)
            at += sprintf(at, "t,%d,,,,%d,,,,,,,,,%g,0,%d,a,0,forward\n", r, 50, i + 0.5, r);
    run_file("run", "gpu.csv", text);
    tap_ok(make("run", (struct dry_account_range){.start = -1, .first = 2}, &a), "without counters");
    tap_ok(isnan(a.energy), "a rank whose GPU was not sampled: not known");
    at += sprintf(at, "t,0,,,,50,,,,,,,,,3,0,2,b,0,forward\nt,0,,,,50,,,,,,,,,7,0,2,b,0,forward\n");
    run_file("run", "gpu.csv", text);
    tap_ok(make("run", (struct dry_account_range){.start = -1, .first = 2}, &a), "another host");
    tap_near(a.energy, 4 * 150, 1e-9, "by power where there is no counter");
}

static void shown(void)
{
    struct dry_account a;
    char text[8192];
    FILE *f = fmemopen(text, sizeof text, "w");
    json_t *j;

    make("run", (struct dry_account_range){.start = -1, .whole = 1}, &a);
    dry_account_print(f, &a);
    fclose(f);
    printf("# %s", text);
    tap_ok(strstr(text, "account of steps 1 to 2 on 3 ranks: 7.50 s of wall-clock, 3.00 s a step\n") != NULL,
           "title");
    tap_ok(
        strstr(text, "  forward                  27.0 %        1.500        1.750        2.750  rank 2\n") !=
            NULL,
        "a stage");
    tap_ok(strstr(text, "\n  unexplained ") != NULL && strstr(text, "copy in") == NULL,
           "what is not explained is always shown, what takes no time is not");
    tap_ok(strstr(text, "closing error: 10.0 %") != NULL, "closing error");
    j = dry_account_json(&a);
    tap_ok(j && json_integer_value(json_object_get(j, "steps")) == 2 &&
               json_real_value(json_object_get(j, "wall_seconds")) == 7.5 &&
               json_integer_value(json_object_get(json_object_get(json_object_get(j, "stages"), "forward"),
                                                  "slowest_rank")) == 2 &&
               json_is_number(json_object_get(j, "energy_joules")),
           "as JSON");
    json_decref(j);
}

int main(void)
{
    scratch_begin();
    whole();
    parts();
    energies();
    shown();
    return tap_done();
}
