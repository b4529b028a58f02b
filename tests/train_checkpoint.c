/*
 * Checkpoints: what comes back is what was saved; a damaged, cut or foreign file is told apart; nothing
 * half-written stays.
 */
#include "config.h"

#include "base/file.h"
#include "base/memory.h"
#include "state/checkpoint.h"
#include "tap.h"
#include "tiny.h"

#include "model/base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench {
    char folder[64];
    struct dry_base *base;
    struct dry_adapter *adapter, *other; /* other: of another rank */
    size_t n;
    float *block[6]; /* saved: values, m, v; loaded: values, m, v */
};

static int bench_open(struct bench *b)
{
    struct tiny_spec spec = {.seed = 1};
    struct dry_adapter_request request = {.rank = 2, .alpha = 4, .targets = 0x7f};
    char *dir;

    snprintf(b->folder, sizeof b->folder, "/tmp/drydock-checkpoint.XXXXXX");
    if (!mkdtemp(b->folder))
        return -1;
    dir = dry_path_join(b->folder, "base");
    if (tiny_base_write(dir, &spec) || dry_base_open(dir, &b->base) ||
        dry_adapter_create(&b->base->arch, &request, &b->adapter))
        return -1;
    request.rank = 3;
    if (dry_adapter_create(&b->base->arch, &request, &b->other))
        return -1;
    dry_free(dir);
    b->n = (size_t)b->other->parameters; /* room for either */
    for (int i = 0; i < 6; i++)
        b->block[i] = dry_alloc(b->n, sizeof(float), "values");
    for (size_t i = 0; i < b->n; i++)
        for (int k = 0; k < 3; k++)
            b->block[k][i] = (float)i * 0.25F + (float)k;
    return 0;
}

static struct dry_checkpoint state_of(struct bench *b, int64_t step)
{
    struct dry_checkpoint c = {.step = step,
                               .validated_step = step - 1,
                               .update_offset = 3,
                               .best_step = 2,
                               .best_loss = INFINITY,
                               .rate_factor = 1.5,
                               .contract = {.effective_batch = 8,
                                            .micro_records = 2,
                                            .steps_per_epoch = 4,
                                            .records = 30,
                                            .epochs = 1,
                                            .steps = 4,
                                            .learning_rate = 1e-3,
                                            .schedule = "cosine"},
                               .options = (char *)"{\"a\": 1}",
                               .manifest = (char *)"{}",
                               .values = b->block[0],
                               .m = b->block[1],
                               .v = b->block[2]};

    return c;
}

static enum dry_status save(struct bench *b, int64_t step, int64_t keep)
{
    struct dry_checkpoint c = state_of(b, step);

    return dry_checkpoint_save(b->folder, b->adapter, &c, keep);
}

static char *path_of(const struct bench *b, int step)
{
    return dry_format("%s/checkpoints/step-%06d.h5", b->folder, step);
}

/* The step that auto would resume from; 0: none; -1: refused. */
static int found(struct bench *b, const char *which, const struct dry_adapter *a)
{
    char *path = NULL;
    int step = 0;

    if (dry_checkpoint_find(b->folder, which, a, &path))
        return -1;
    if (path)
        step = atoi(strstr(path, "step-") + 5);
    dry_free(path);
    return step;
}

/* Writes over `count` bytes in the middle of a file. */
static void damage(const char *path, double where, int count)
{
    int64_t size = 0;
    int fd = open(path, O_RDWR);

    dry_file_size(path, &size);
    for (int i = 0; i < count; i++)
        if (pwrite(fd, "\xa5", 1, (off_t)(where * (double)size) + i) != 1)
            printf("# %s cannot be damaged\n", path);
    close(fd);
}

static void round_trip(struct bench *b)
{
    struct dry_checkpoint got = {.values = b->block[3], .m = b->block[4], .v = b->block[5]};
    size_t bytes = (size_t)b->adapter->parameters * sizeof(float);
    char *path = path_of(b, 7);

    tap_equal(found(b, "auto", b->adapter), 0, "nothing to resume from in a new folder");
    tap_equal(save(b, 7, 3), DRY_OK, "saved");
    tap_equal(dry_checkpoint_load(path, b->adapter, &got), DRY_OK, "loaded");
    tap_ok(!memcmp(b->block[0], b->block[3], bytes) && !memcmp(b->block[1], b->block[4], bytes) &&
               !memcmp(b->block[2], b->block[5], bytes),
           "values and moments have the same bits");
    tap_ok(got.step == 7 && got.validated_step == 6 && got.update_offset == 3 && got.best_step == 2 &&
               got.best_loss == INFINITY && got.rate_factor == 1.5,
           "step, best loss and factors come back");
    tap_ok(got.contract.effective_batch == 8 && got.contract.learning_rate == 1e-3 &&
               !strcmp(got.contract.schedule, "cosine"),
           "the contract comes back");
    tap_text(got.options, "{\"a\": 1}", "the options come back");
    dry_checkpoint_release(&got);
    tap_ok(dry_checkpoint_load(path, b->other, &got) == DRY_ERR_INPUT, "of another adapter: refused");
    tap_equal(found(b, "auto", b->other), -1,
              "auto does not pass over another adapter's checkpoint in silence");
    dry_free(path);
}

static void keeping(struct bench *b)
{
    for (int step = 8; step <= 11; step++)
        save(b, step, 3);
    char *old = path_of(b, 8), *newer = path_of(b, 9),
         *left = dry_format("%s/checkpoints/step-000099.h5.tmp.1", b->folder);
    int64_t newest = 0;

    tap_ok(!dry_file_exists(old) && dry_file_exists(newer), "the newest three are kept");
    dry_file_write(left, "half", 4);
    tap_equal(found(b, "auto", b->adapter), 11, "auto takes the newest, and no half-written file");
    save(b, 12, 3);
    tap_ok(!dry_file_exists(left), "what a killed save left is removed by the next");
    save(b, 5, 2);
    tap_equal(found(b, "5", b->adapter), 5, "the one just written stays, also when it is not the newest");
    tap_equal(found(b, "auto", b->adapter), 12, "and the newest of the others");
    tap_ok(dry_checkpoint_newest(b->folder, &newest) == DRY_OK && newest == 12, "newest by name");
    tap_equal(found(b, "never", b->adapter), 0, "never");
    tap_equal(found(b, "6", b->adapter), -1, "a step that is not there");
    tap_equal(found(b, "/no/such/file.h5", b->adapter), -1, "a file that is not there");
    dry_free(old);
    dry_free(newer);
    dry_free(left);
}

static void damaged(struct bench *b)
{
    struct dry_checkpoint got = {.values = b->block[3], .m = b->block[4], .v = b->block[5]};
    char *path;
    int64_t size = 0;

    for (int step = 20; step <= 24; step++)
        save(b, step, 0);
    path = path_of(b, 24);
    dry_file_size(path, &size);
    if (truncate(path, size / 2))
        printf("# %s cannot be cut\n", path);
    tap_equal(found(b, "auto", b->adapter), 23, "a cut file is passed over");
    tap_ok(dry_checkpoint_load(path, b->adapter, &got) == DRY_ERR_INPUT, "and refused when it is named");
    dry_free(path);
    path = path_of(b, 23);
    damage(path, 0.5, 2000);
    tap_equal(found(b, "auto", b->adapter), 22, "damaged values are passed over");
    dry_free(path);
    path = path_of(b, 22);
    damage(path, 0, 64);
    tap_equal(found(b, "auto", b->adapter), 21, "a damaged beginning is passed over");
    dry_free(path);
    path = path_of(b, 21);
    dry_file_write(path, "", 0);
    tap_equal(found(b, "auto", b->adapter), 20, "an empty file is passed over");
    dry_free(path);
    tap_ok(dry_checkpoint_set_aside(b->folder, 24) == DRY_OK, "set aside");
    path = dry_format("%s/checkpoints/before-change-1/step-000020.h5", b->folder);
    tap_ok(dry_file_exists(path), "the others are in before-change-1");
    tap_equal(found(b, "auto", b->adapter), -1, "all damaged: refused, not begun anew");
    dry_free(path);
}

/* Each write and the fsync failing in turn leaves the older checkpoint and nothing else. */
static void faults(struct bench *b)
{
    struct dry_checkpoint got = {.values = b->block[3], .m = b->block[4], .v = b->block[5]};
    char *path = path_of(b, 31), *old = path_of(b, 30), **names,
         *folder = dry_path_join(b->folder, "checkpoints");
    size_t count = 0, leftover = 0;

    save(b, 30, 1);
    setenv("DRY_FAULT", "write:1", 1);
    tap_equal(save(b, 31, 1), DRY_ERR_IO, "a write that fails");
    setenv("DRY_FAULT", "write:0,fsync:1", 1); /* a second place has a counter of its own */
    tap_equal(save(b, 31, 1), DRY_ERR_IO, "an fsync that fails");
    unsetenv("DRY_FAULT");
    dry_dir_list(folder, &names, &count);
    for (size_t i = 0; i < count; i++)
        leftover += strstr(names[i], ".tmp.") != NULL;
    dry_dir_free(names, count);
    tap_ok(!dry_file_exists(path) && leftover == 0, "no half-written file stays");
    tap_equal(dry_checkpoint_load(old, b->adapter, &got), DRY_OK, "the older one is whole");
    dry_checkpoint_release(&got);
    dry_free(path);
    dry_free(old);
    dry_free(folder);
}

int main(void)
{
    struct bench b = {0};
    char command[128];

    if (bench_open(&b))
        return tap_skip_all("no temporary folder or base");
    round_trip(&b);
    keeping(&b);
    damaged(&b);
    faults(&b);
    for (int i = 0; i < 6; i++)
        dry_free(b.block[i]);
    dry_adapter_destroy(b.adapter);
    dry_adapter_destroy(b.other);
    dry_base_close(b.base);
    snprintf(command, sizeof command, "rm -rf %s", b.folder);
    if (system(command))
        printf("# %s is left\n", b.folder);
    return tap_done();
}
