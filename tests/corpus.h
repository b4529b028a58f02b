/*
 * Files of tests/data/model/corpus: "good-*" are read, "bad-*" are refused with one line that names the file.
 */
#ifndef DRY_TESTS_CORPUS_H
#define DRY_TESTS_CORPUS_H

#include "base/file.h"
#include "capture.h"
#include "tap.h"

/* One error line, with the file's name in it. */
static inline int corpus_one_line(const char *said, const char *name)
{
    const char *line = strchr(said, '\n');

    return strncmp(said, "drydock: error: ", 16) == 0 && line && !line[1] && strstr(said, name);
}

/* Replays each file that ends so by `reads`, which returns the status of reading it; `named` is to stand in
 * the error. */
static inline int corpus_replay(const char *end, enum dry_status (*reads)(const char *path),
                                const char *named)
{
    const char *top = getenv("top_srcdir");
    char dir[512], path[800], **names = NULL;
    size_t count = 0;
    int replayed = 0;

    snprintf(dir, sizeof dir, "%s/tests/data/model/corpus", top ? top : ".");
    if (dry_dir_list(dir, &names, &count))
        return 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(names[i]), k = strlen(end);
        enum dry_status s;

        if (n <= k || strcmp(names[i] + n - k, end) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        capture_begin();
        s = reads(path);
        capture_end();
        replayed++;
        if (strncmp(names[i], "good-", 5) == 0)
            tap_ok(s == DRY_OK && !*capture_text, "%s is read", names[i]);
        else
            tap_ok(s == DRY_ERR_INPUT && corpus_one_line(capture_text, named ? named : names[i]),
                   "%s is refused", names[i]);
        if (s != (strncmp(names[i], "good-", 5) == 0 ? DRY_OK : DRY_ERR_INPUT) || getenv("CORPUS_SHOW"))
            printf("# %s\n", capture_text);
    }
    dry_dir_free(names, count);
    return replayed;
}

#endif
