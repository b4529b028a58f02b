/*
 * Runs' folders, written by hand, as dry_history_open reads them: whole, old, killed and damaged ones.
 */
#include "config.h"

#include "capture.h"
#include "run_folder.h"
#include "tap.h"

#include "measure/history.h"

#define MANIFEST "{\"command\": \"finetune\", \"ranks\": 2, \"exit\": 0, \"earlier_starts\": []}\n"
#define STEP_1                                                                                               \
    "{\"step\":1,\"epoch\":1,\"loss\":1.2345678901234567,\"norm\":0.5,\"learning_rate\":2e-4,\"records\":8," \
    "\"tokens\":100,\"padded_tokens\":112,\"supervised\":40,\"seconds\":0.25}\n"
#define STEP_2                                                                                             \
    "{\"step\":2,\"epoch\":1,\"loss\":1,\"norm\":0.25,\"learning_rate\":1e-4,\"records\":8,\"tokens\":90," \
    "\"padded_tokens\":96,\"supervised\":30,\"seconds\":0.5}\n"
#define VALIDATION \
    "{\"step\":2,\"validation_loss\":0.75,\"perplexity\":2.117,\"supervised\":77,\"best\":true}\n"
#define ROW_1 "0,step,1,0,2.5,1.25,60,64,20,2,0,0,0.25,0,0.5,0.25,0.125,0.0625,0.0625,0,0,0\n"
#define ROW_2 "0,step,1,1,2.5,1.25,40,48,20,1,0,0,0.25,0,0.25,0.125,0.125,0.4375,0.0625,0,0,0\n"
#define GPU_1                                                                                            \
    "2026/12/01 01:02:03.456,3,97,41,2048,512.5,1980,0x0000000000000004,61,3,5,7,9,1000.5,4.25,0,1,b,1," \
    "backward\n"
#define GPU_2 "2026/12/01 01:02:04.456,3,,,,,,,,,,,,,5.25,0,1,a,2,data wait\n"
#define PROCESS "2026/12/01 01:02:03.456,150.5,1024,2,4,4.25,0,0,a,1,wait_for_slowest_rank\n"

static struct dry_history *open_run(const char *run)
{
    struct dry_history *h = NULL;

    capture_begin();
    if (dry_history_open(scratch_path(run), &h))
        h = NULL;
    capture_end();
    return h;
}

static void whole(void)
{
    struct dry_history *h;
    const struct dry_history_sample *s;

    run_file("whole", "run.json", MANIFEST);
    run_file("whole", "metrics.jsonl", STEP_1 STEP_2 VALIDATION);
    run_file("whole", "stages.csv", RUN_STAGES_HEADER ROW_1 ROW_2);
    run_file("whole", "gpu.csv", RUN_GPU_HEADER GPU_1 GPU_2);
    run_file("whole", "process.csv", RUN_PROCESS_HEADER PROCESS);
    h = open_run("whole");
    if (!tap_ok(h != NULL, "a whole run opens")) {
        printf("# %s", capture_text);
        return;
    }
    tap_equal(h->starts, 1, "one start");
    tap_equal(h->ranks, 2, "two ranks");
    tap_equal((long long)h->steps, 2, "two steps");
    tap_ok(h->step[0].loss == 1.2345678901234567, "the loss has all its digits");
    tap_ok(h->step[1].loss == 1 && h->step[1].norm == 0.25 && h->step[1].rate == 1e-4 &&
               h->step[1].seconds == 0.5,
           "a whole number is a loss too");
    tap_ok(h->step[0].records == 8 && h->step[0].tokens == 100 && h->step[0].padded == 112 &&
               h->step[0].supervised == 40 && h->step[0].epoch == 1,
           "counts of a step");
    tap_equal((long long)h->validations, 1, "one validation");
    tap_ok(h->validation[0].step == 2 && h->validation[0].loss == 0.75 && h->validation[0].best == 1 &&
               h->validation[0].supervised == 77,
           "its numbers");
    tap_equal((long long)h->rows, 2, "two rows");
    tap_ok(h->row[1].rank == 1 && h->row[1].phase == DRY_PHASE_STEP && h->row[1].step == 1 &&
               h->row[1].began == 2.5 && h->row[1].seconds == 1.25 && h->row[1].tokens == 40 &&
               h->row[1].padded == 48 && h->row[1].supervised == 20 && h->row[1].micros == 1,
           "a row's numbers");
    tap_ok(h->row[1].stage[DRY_STAGE_DATA] == 0.25 && h->row[1].stage[DRY_STAGE_WAIT] == 0.4375 &&
               h->row[1].stage[DRY_STAGE_UNEXPLAINED] == 0,
           "a row's stages");
    tap_equal((long long)h->samples, 3, "three samples");
    s = h->sample;
    tap_ok(s->index == 3 && s->busy == 97 && s->memory_busy == 41 && s->memory == 2147483648.0 &&
               s->power == 512.5 && s->clock == 1980 && s->throttle == 4 && s->temperature == 61,
           "a GPU's sample");
    tap_ok(s->pcie_out == 3 * 1024 && s->pcie_in == 5 * 1024 && s->nvlink_out == 7 * 1024 &&
               s->nvlink_in == 9 * 1024 && s->energy == 1000.5 && isnan(s->read),
           "its traffic in bytes, and what it has not");
    tap_ok(s->at == 4.25 && s->start == 0 && s->rank == 1 && s->step == 1 && s->stage == DRY_STAGE_BACKWARD,
           "where it fell");
    tap_ok(isnan(s[1].busy) && isnan(s[1].energy) && s[1].throttle == 0 && s[1].stage == DRY_STAGE_DATA,
           "what was not offered is not a number");
    tap_ok(s[2].index == -1 && s[2].busy == 150.5 && s[2].memory == 1073741824.0 && s[2].read == 2048 &&
               s[2].written == 4096 && s[2].stage == DRY_STAGE_WAIT && isnan(s[2].power),
           "a process's sample");
    tap_ok(s[0].host == 0 && s[1].host == 1 && s[2].host == 1, "hosts are told apart");
    dry_history_close(h);
}

/* What a run has that was made by an older program, or was killed. */
static void lacking(void)
{
    struct dry_history *h;

    run_file("old", "run.json",
             "{\"ranks\": 3, \"exit\": null, \"earlier_starts\": [{\"ranks\": 1}, {\"ranks\": 2}]}\n");
    h = open_run("old");
    tap_ok(h && h->steps == 0 && h->rows == 0 && h->samples == 0 && h->validations == 0,
           "a folder with nothing but run.json opens");
    tap_ok(h && h->starts == 3 && h->ranks == 3, "starts and ranks by the manifest");
    dry_history_close(h);

    run_file("killed", "run.json", MANIFEST);
    run_file("killed", "metrics.jsonl", STEP_1 "{\"step\":2,\"lo");
    run_file("killed", "stages.csv", RUN_STAGES_HEADER ROW_1 "0,step,1,1,2.5,1.2");
    run_file("killed", "gpu.csv", "timestamp,ind");
    run_file("killed", "process.csv", "");
    h = open_run("killed");
    tap_ok(h && h->steps == 1 && h->rows == 1 && h->samples == 0,
           "last lines that were cut off are left out");
    dry_history_close(h);

    run_file("later", "run.json", MANIFEST);
    run_file("later", "stages.csv",
             RUN_STAGES_HEADER ROW_1 "1,start,0,2,0,1,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0\n");
    h = open_run("later");
    tap_ok(h && h->starts == 2 && h->ranks == 3 && h->row[1].phase == DRY_PHASE_START,
           "the rows know of a later start than the manifest");
    dry_history_close(h);
}

/* A run with this file must be refused with this text. */
static void refused(const char *name, const char *text, const char *what)
{
    struct dry_history *h = NULL;
    enum dry_status status;
    char run[32];
    static int number;

    snprintf(run, sizeof run, "bad-%d", number++);
    run_file(run, "run.json", MANIFEST);
    run_file(run, name, text);
    capture_begin();
    status = dry_history_open(scratch_path(run), &h);
    capture_end();
    tap_ok(status == DRY_ERR_INPUT && !h && strstr(capture_text, what), "%s: %s", name, what);
    if (!strstr(capture_text, what))
        printf("# %s", capture_text);
    dry_history_close(h);
}

static void damaged(void)
{
    struct dry_history *h = NULL;

    refused("run.json", "[1]", "run.json: is no manifest");
    refused("run.json", "{", "run.json");
    refused("run.json", "{\"ranks\": -1}", "key \"ranks\"");
    refused("metrics.jsonl", STEP_1 "{\"step\":2,\"lo\n" STEP_2, "metrics.jsonl:2: the line is damaged");
    refused("metrics.jsonl", STEP_1 "7\n", "metrics.jsonl:2");
    refused("metrics.jsonl", "{\"step\":1}\n", "metrics.jsonl:1: key \"loss\"");
    refused("metrics.jsonl", STEP_2 STEP_1, "metrics.jsonl:2: step 1 stands behind step 2");
    refused("stages.csv", RUN_STAGES_HEADER ROW_1 "0,step,1\n" ROW_2, "stages.csv:3: the line is damaged");
    refused("stages.csv", "start,phase\n", "stages.csv:1: the table has no column \"step\"");
    refused("stages.csv", RUN_STAGES_HEADER "0,stop" ROW_1, "stages.csv:2");
    refused("stages.csv",
            RUN_STAGES_HEADER "0,step,1,-1,2.5,1.25,60,64,20,2,0,0,0.25,0,0.5,0.25,0.125,0.0625,0,0,0,0\n",
            "stages.csv:2: the line is damaged: rank is \"-1\"");
    refused("stages.csv",
            RUN_STAGES_HEADER "0,step,1,0,2.5,nan,60,64,20,2,0,0,0.25,0,0.5,0.25,0.125,0.0625,0,0,0,0\n",
            "seconds is \"nan\"");
    refused("stages.csv",
            RUN_STAGES_HEADER "0,step,1,0,2.5,,60,64,20,2,0,0,0.25,0,0.5,0.25,0.125,0.0625,0,0,0,0\n",
            "stages.csv:2: the line is damaged: seconds is empty");
    refused("gpu.csv", RUN_GPU_HEADER GPU_1 "x,3,,,,,,,,,,,,,5.25,0,1,a,2,sleeping\n",
            "gpu.csv:3: the line is damaged: \"sleeping\" is no stage");
    refused("process.csv", "timestamp,cpu\n", "process.csv:1: the table has no column \"at\"");
    capture_begin();
    tap_equal(dry_history_open(scratch_path("nowhere"), &h), DRY_ERR_INPUT, "no folder");
    tap_ok(strstr(capture_end(), "there is no such folder") != NULL, "and it says so");
    mkdir(scratch_path("empty"), 0777);
    capture_begin();
    tap_equal(dry_history_open(scratch_path("empty"), &h), DRY_ERR_INPUT, "a folder that is no run");
    tap_ok(strstr(capture_end(), "no run.json") != NULL, "and it says so");
}

/* More lines than the first room holds. */
static void many(void)
{
    enum { LINES = 3000 };
    char *text = malloc((size_t)LINES * 128), *at = text;
    struct dry_history *h;
    int good = 1;

    for (int i = 1; i <= LINES; i++)
        at += sprintf(at, "{\"step\":%d,\"loss\":%d.5}\n", i, i);
    run_file("many", "run.json", MANIFEST);
    run_file("many", "metrics.jsonl", text);
    free(text);
    h = open_run("many");
    for (int i = 0; h && i < LINES && i < (int)h->steps; i++)
        good = good && h->step[i].step == i + 1 && h->step[i].loss == i + 1.5 && isnan(h->step[i].norm);
    tap_ok(h && h->steps == LINES && good, "many lines");
    dry_history_close(h);
}

/* Any byte of any file may be another, and any file may end anywhere: that is told, or does not matter. */
static void mutated(void)
{
    static const struct {
        const char *name, *text;
    } file[] = {
        {"run.json", MANIFEST},
        {"metrics.jsonl", STEP_1 STEP_2 VALIDATION},
        {"stages.csv", RUN_STAGES_HEADER ROW_1 ROW_2},
        {"gpu.csv", RUN_GPU_HEADER GPU_1 GPU_2},
        {"process.csv", RUN_PROCESS_HEADER PROCESS},
    };
    static const char bytes[] = "\0\n,\"-e9{}x\xff";
    uint32_t random = 1;
    int bad = 0;

    for (int i = 0; i < 400; i++) {
        size_t n = (size_t)i % (sizeof file / sizeof *file), size = strlen(file[n].text), at;
        struct dry_history *h = NULL;
        enum dry_status status;
        char text[4096];

        for (size_t k = 0; k < sizeof file / sizeof *file; k++)
            run_file("mutated", file[k].name, file[k].text);
        memcpy(text, file[n].text, size);
        for (int k = 0; k < 1 + i % 3; k++) {
            random = random * 1664525 + 1013904223;
            at = (random >> 8) % size;
            text[at] = bytes[(random >> 4) % (sizeof bytes - 1)];
        }
        if (i % 7 == 0)
            size = at;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", scratch_path("mutated"), file[n].name);
        scratch_write(path, text, size);
        capture_begin();
        status = dry_history_open(scratch_path("mutated"), &h);
        capture_end();
        bad += (status != DRY_OK && status != DRY_ERR_INPUT) || (status == DRY_OK) != (h != NULL) ||
               (status != DRY_OK && !strstr(capture_text, file[n].name));
        dry_history_close(h);
    }
    tap_equal(bad, 0, "files with other bytes: read or refused with the file's name");
}

int main(void)
{
    scratch_begin();
    whole();
    lacking();
    damaged();
    many();
    mutated();
    return tap_done();
}
