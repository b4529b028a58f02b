/*
 * Option files: every kind of value, includes, and the malformed files of tests/data/config/bad, each of
 * which says in its first line which line must be blamed for what.
 */
#include "config.h"

#include "capture.h"
#include "tap.h"

#include "base/file.h"
#include "base/memory.h"
#include "config/options.h"

#include <stdlib.h>
#include <string.h>

static char *path_of(const char *name)
{
    const char *top = getenv("top_srcdir");

    return dry_format("%s/tests/data/config/%s", top ? top : ".", name);
}

static enum dry_status read_file(struct dry_config **c, const char *path)
{
    enum dry_status status;

    dry_config_create(c);
    capture_begin();
    status = dry_config_file(*c, path);
    capture_end();
    return status;
}

/* "# [in FILE ]line N: WORDS" becomes "PATH:N: WORDS"; NULL when the file says nothing. New memory. */
static char *expected(const char *path, const char *text)
{
    char part[64] = "", words[256] = "";
    int line = 0;

    if (sscanf(text, "# line %d: %255[^\n]", &line, words) == 2)
        return dry_format("%s:%d: %s", path, line, words);
    if (sscanf(text, "# in %63s line %d: %255[^\n]", part, &line, words) == 3)
        return dry_format("%.*s/%s:%d: %s", (int)(strrchr(path, '/') - path), path, part, line, words);
    return NULL;
}

static void bad_files(void)
{
    char *folder = path_of("bad"), **names = NULL;
    size_t count = 0;

    tap_equal(dry_dir_list(folder, &names, &count), DRY_OK, "the folder of malformed files");
    tap_ok(count > 30, "%zu malformed files", count);
    for (size_t i = 0; i < count; i++) {
        char *path = dry_path_join(folder, names[i]), *text, *want;
        struct dry_config *c;
        size_t size;
        enum dry_status status;
        if (dry_file_is_dir(path)) {
            dry_free(path);
            continue;
        }
        dry_file_read(path, &text, &size);
        want = expected(path, text);
        status = read_file(&c, path);
        if (!tap_ok(status == DRY_ERR_USAGE && strstr(capture_text, want ? want : names[i]), "%s", names[i]))
            printf("# status %s, said: %s# wanted: %s\n", dry_status_name(status), capture_text,
                   want ? want : "");
        dry_config_destroy(c);
        dry_free(want);
        dry_free(text);
        dry_free(path);
    }
    dry_dir_free(names, count);
    dry_free(folder);
}

static void all_kinds(void)
{
    char *path = path_of("good/all-kinds.cfg"), *place;
    struct dry_config *c;

    if (!tap_equal(read_file(&c, path), DRY_OK, "a file with every kind of value"))
        printf("# %s\n", capture_text);
    tap_ok(c->rank == 8 && c->alpha == 32 && c->learning_rate == 1e-4 && c->rslora == 1 && c->epochs == 3 &&
               c->warmup_ratio == .5 && c->seed == 4294967296,
           "numbers, also whole ones for real options, hexadecimal and long ones");
    tap_text(c->data, "train.jsonl", "text in two parts, from an included file");
    tap_text(c->targets, "q_proj,v_proj", "a list of texts");
    tap_text(c->devices, "0,1,2", "a list of numbers");
    tap_text(c->rank_pattern, "q_proj=4,down_proj=2", "a group");
    tap_text(c->alpha_pattern, "layers\\.(0|1)\\..*q_proj=8.5,v_proj=4",
             "a list for keys that no group can have");
    tap_text(c->separator, "\n#\"99999999999\n", "escapes are libconfig's");
    tap_equal(dry_config_origin(c, "data"), DRY_ORIGIN_FILE, "origin");
    place = dry_format("%s:3: rank", path);
    tap_text(dry_config_place(c, "rank"), place, "place");
    dry_free(place);
    dry_free(path);
    dry_config_destroy(c);
}

static void plain_files(void)
{
    char *windows = path_of("good/windows.cfg"), *empty = path_of("good/empty.cfg"),
         *folder = path_of("good");
    struct dry_config *c;

    tap_ok(read_file(&c, windows) == DRY_OK && c->rank == 8 && c->alpha == 16,
           "lines that end as on Windows");
    dry_config_destroy(c);
    tap_equal(read_file(&c, empty), DRY_OK, "an empty file");
    dry_config_destroy(c);
    tap_ok(read_file(&c, folder) == DRY_ERR_IO && strstr(capture_text, "good: cannot be read: "), "a folder");
    dry_config_destroy(c);
    tap_ok(read_file(&c, "/nowhere/x.cfg") == DRY_ERR_IO && strstr(capture_text, "No such file"), "no file");
    dry_config_destroy(c);
    dry_free(windows);
    dry_free(empty);
    dry_free(folder);
}

/* The command line wins, whichever is read first; the file is checked all the same. */
static void precedence(void)
{
    char *argv[] = {(char *)"--rank=4"}, *path = path_of("good/windows.cfg"),
         *bad = path_of("bad/bounds.cfg");
    const char *positional[1];
    struct dry_config *c;
    int positionals;

    dry_config_create(&c);
    dry_config_arguments(c, DRY_CMD_FINETUNE, 1, argv, positional, &positionals);
    dry_config_file(c, path);
    tap_ok(c->rank == 4 && c->alpha == 16, "command line before file");
    dry_config_destroy(c);
    dry_config_create(&c);
    dry_config_file(c, path);
    dry_config_arguments(c, DRY_CMD_FINETUNE, 1, argv, positional, &positionals);
    tap_ok(c->rank == 4 && c->alpha == 16, "file before command line");
    dry_config_destroy(c);
    dry_config_create(&c);
    dry_config_set(c, "lora-dropout", "0.5", DRY_ORIGIN_ARGUMENT);
    capture_begin();
    tap_equal(dry_config_file(c, bad), DRY_ERR_USAGE,
              "a wrong value in the file is refused though it is overridden");
    capture_end();
    tap_ok(c->lora_dropout == 0.5, "and the value stays");
    dry_config_destroy(c);
    dry_free(path);
    dry_free(bad);
}

int main(void)
{
    all_kinds();
    plain_files();
    precedence();
    bad_files();
    return tap_done();
}
