/*
 * A folder for a test's files, removed at the end, and paths under it.
 */
#ifndef DRY_TESTS_SCRATCH_H
#define DRY_TESTS_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_dir[256];

static inline int scratch_remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static inline void scratch_remove(const char *path)
{
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void scratch_end(void)
{
    scratch_remove(scratch_dir);
}

static inline void scratch_begin(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(scratch_dir, sizeof scratch_dir, "%s/drydock-test.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch_dir)) {
        printf("Bail out! no temporary folder\n");
        exit(1);
    }
    atexit(scratch_end);
}

/* The path of a file under the folder; each call has its own of 64 buffers. */
static inline const char *scratch_path(const char *name)
{
    static char path[64][512];
    static unsigned next;
    char *to = path[next++ % 64];

    snprintf(to, sizeof path[0], "%s/%s", scratch_dir, name);
    return to;
}

/* Writes a small file as it stands. */
static inline void scratch_write(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) {
        printf("Bail out! cannot write %s\n", path);
        exit(1);
    }
}

#endif
