/*
 * Files and folders: whole reads, maps, complete-or-absent writes, also with faults; JSON files; hashes of
 * files. Owns a scratch folder, removed at the end. Must not run as several ranks.
 */
#include "config.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[] = "/tmp/drydock-file.XXXXXX";

static char *in_scratch(const char *name)
{
    return dry_path_join(scratch, name);
}

static int holds(const char *path, const char *want)
{
    char *data;
    size_t size;

    if (dry_file_read(path, &data, &size) != DRY_OK)
        return 0;
    int same = size == strlen(want) && memcmp(data, want, size) == 0 && data[size] == '\0';
    dry_free(data);
    return same;
}

static size_t entries(void)
{
    char **names;
    size_t count;

    if (dry_dir_list(scratch, &names, &count) != DRY_OK)
        return (size_t)-1;
    dry_dir_free(names, count);
    return count;
}

static void reading(void)
{
    char *path = in_scratch("a"), *data;
    size_t size;
    int64_t bytes;
    struct dry_map map;

    tap_equal(dry_file_write(path, "hello", 5), DRY_OK, "write a file");
    tap_ok(holds(path, "hello"), "read it back");
    tap_equal(dry_file_write(path, "again!", 6), DRY_OK, "write over it");
    tap_ok(holds(path, "again!"), "read the new");
    tap_ok(dry_file_size(path, &bytes) == DRY_OK && bytes == 6, "its size");
    tap_ok(dry_file_exists(path) && !dry_file_is_dir(path), "it is a file");
    tap_ok(dry_file_is_dir(scratch) && !dry_file_exists(scratch), "a folder is a folder");
    tap_ok(dry_file_map(path, &map) == DRY_OK && map.size == 6 && memcmp(map.data, "again!", 6) == 0,
           "map it");
    dry_file_unmap(&map);
    tap_ok(dry_file_write(path, "", 0) == DRY_OK && holds(path, ""), "an empty file");
    tap_ok(dry_file_map(path, &map) == DRY_OK && map.size == 0 && map.data, "map an empty file");
    dry_file_unmap(&map);
    dry_log_defer(1);
    tap_equal(dry_file_read(scratch, &data, &size), DRY_ERR_IO, "a folder is not read");
    tap_equal(dry_file_map("/nonexistent/x", &map), DRY_ERR_IO, "an absent file is not mapped");
    tap_equal(dry_file_write("/nonexistent/x", "y", 1), DRY_ERR_IO,
              "a file in an absent folder is not written");
    dry_log_discard();
    dry_log_defer(0);
    dry_free(path);
}

static void pipes(void)
{
    char *data, name[64];
    size_t size;
    int ends[2];
    static char sent[300000];

    memset(sent, 'x', sizeof sent);
    if (pipe(ends) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        for (size_t done = 0; done < sizeof sent;)
            done += (size_t)write(ends[1], sent + done, sizeof sent - done);
        _exit(0);
    }
    close(ends[1]);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    if (tap_ok(dry_file_read(name, &data, &size) == DRY_OK && size == sizeof sent,
               "a pipe is read to its end"))
        dry_free(data);
    close(ends[0]);
}

static void pieces(void)
{
    char *path = in_scratch("pieces"), *want;
    struct dry_writer *w;
    struct dry_buffer all = {0};
    enum dry_status status = dry_writer_begin(path, &w);

    for (int i = 0; i < 40000 && !status; i++) {
        char line[32];
        int length = snprintf(line, sizeof line, "%d\n", i);
        status = dry_writer_write(w, line, (size_t)length);
        (void)dry_buffer_append(&all, line, (size_t)length);
    }
    want = dry_alloc(200000, 1, "a test");
    memset(want, 'y', 199999);
    status = status ? status : dry_writer_write(w, want, 199999);
    (void)dry_buffer_append(&all, want, 199999);
    tap_ok(!status && !dry_file_exists(path), "a file in pieces is absent until committed");
    tap_equal(dry_writer_commit(w), DRY_OK, "commit");
    tap_ok(holds(path, all.data), "all pieces are there in order");
    dry_buffer_reset(&all);
    dry_free(want);
    unlink(path);
    size_t before = entries();
    char host[256] = "", *temporary;
    tap_ok(dry_writer_begin(path, &w) == DRY_OK && dry_writer_write(w, "x", 1) == DRY_OK, "begin another");
    (void)gethostname(host, sizeof host - 1);
    temporary = dry_format("%s.tmp.%s.%ld", path, host, (long)getpid());
    tap_ok(dry_file_exists(temporary), "under a name of this process of this host");
    dry_free(temporary);
    dry_writer_abandon(w);
    dry_writer_abandon(NULL);
    tap_equal((long long)entries(), (long long)before, "abandoned, it leaves nothing");
    dry_free(path);
}

/* Each fault leaves the old file whole and nothing else. */
static void faults(void)
{
    static const char *const kinds[] = {"write:1", "none:1,fsync:1"};
    char *path = in_scratch("kept");

    tap_equal(dry_file_write(path, "old", 3), DRY_OK, "a file that must survive");
    size_t before = entries();
    dry_log_defer(1);
    for (size_t i = 0; i < 2; i++) {
        setenv("DRY_FAULT", kinds[i], 1);
        enum dry_status status = dry_file_write(path, "new", 3);
        unsetenv("DRY_FAULT");
        tap_ok(status == DRY_ERR_IO && holds(path, "old") && entries() == before,
               "%s: old file whole, no other", kinds[i]);
    }
    dry_log_discard();
    dry_log_defer(0);
    char *temporary = in_scratch("kept.new");
    FILE *f = fopen(temporary, "w");
    if (f) {
        fputs("published", f);
        fclose(f);
    }
    tap_ok(dry_file_publish(temporary, path) == DRY_OK && holds(path, "published") &&
               !dry_file_exists(temporary),
           "publish renames");
    dry_free(temporary);
    dry_free(path);
}

static void folders(void)
{
    char *deep = in_scratch("x/y//z"), *clash = in_scratch("a/b"), **names;
    size_t count;

    tap_ok(dry_dir_make(deep) == DRY_OK && dry_file_is_dir(deep), "a folder with its parents");
    tap_equal(dry_dir_make(deep), DRY_OK, "made again");
    dry_log_defer(1);
    tap_equal(dry_dir_make(clash), DRY_ERR_IO, "a file in the way");
    tap_equal(dry_dir_make(""), DRY_ERR_IO, "no name");
    tap_equal(dry_dir_list("/nonexistent", &names, &count), DRY_ERR_IO, "no such folder");
    dry_log_discard();
    dry_log_defer(0);
    tap_ok(dry_dir_list(scratch, &names, &count) == DRY_OK && count == 3 && strcmp(names[0], "a") == 0 &&
               strcmp(names[1], "kept") == 0 && strcmp(names[2], "x") == 0,
           "a folder's names in order");
    dry_dir_free(names, count);
    dry_free(deep);
    dry_free(clash);
    char *joined = dry_path_join("a/", "b"), *absolute = dry_path_join("a", "/b"),
         *bare = dry_path_join("", "b");
    tap_text(joined, "a/b", "join");
    tap_text(absolute, "/b", "join an absolute path");
    tap_text(bare, "b", "join to nothing");
    tap_text(dry_path_base("a/b/c"), "c", "the last part");
    dry_free(joined);
    dry_free(absolute);
    dry_free(bare);
}

static enum dry_status read_json(const char *text, json_t **root)
{
    char *path = in_scratch("j.json");
    enum dry_status status = dry_file_write(path, text, strlen(text));

    status = status ? status : dry_json_read(path, root);
    unlink(path);
    dry_free(path);
    return status;
}

static void json(void)
{
    json_t *root = NULL;
    int64_t i = 0;
    double d = 0;
    int b = 0;
    const char *text = NULL;

    tap_equal(read_json("{\"i\": 7, \"f\": 8.0, \"r\": 1.5, \"b\": true, \"t\": \"x\", \"n\": null, \"z\": "
                        "\"a\\u0000b\"}",
                        &root),
              DRY_OK, "read JSON");
    tap_ok(dry_json_int(root, "i", 1, 0, "j", &i) == DRY_OK && i == 7, "an integer");
    tap_ok(dry_json_int(root, "f", 1, 0, "j", &i) == DRY_OK && i == 8, "an integer written as 8.0");
    tap_ok(dry_json_int(root, "n", 0, 9, "j", &i) == DRY_OK && i == 9, "null is absent");
    tap_ok(dry_json_real(root, "i", 1, 0, "j", &d) == DRY_OK && d == 7, "a number without a point");
    tap_ok(dry_json_bool(root, "b", 1, 0, "j", &b) == DRY_OK && b == 1, "true");
    tap_ok(dry_json_text(root, "t", 1, NULL, "j", &text) == DRY_OK && strcmp(text, "x") == 0, "a text");
    tap_ok(dry_json_text(root, "absent", 0, NULL, "j", &text) == DRY_OK && !text, "an absent text");
    dry_log_defer(1);
    tap_equal(dry_json_int(root, "r", 1, 0, "j", &i), DRY_ERR_INPUT, "1.5 is no integer");
    tap_equal(dry_json_real(root, "t", 1, 0, "j", &d), DRY_ERR_INPUT, "a text is no number");
    tap_equal(dry_json_bool(root, "i", 1, 0, "j", &b), DRY_ERR_INPUT, "7 is no truth");
    tap_equal(dry_json_text(root, "i", 1, NULL, "j", &text), DRY_ERR_INPUT, "7 is no text");
    tap_equal(dry_json_text(root, "z", 1, NULL, "j", &text), DRY_ERR_INPUT, "a text with NUL is refused");
    tap_equal(dry_json_int(root, "absent", 1, 0, "j", &i), DRY_ERR_INPUT, "a required key");
    json_t *broken = NULL;
    tap_equal(read_json("{\"a\": 1, \"a\": 2}", &broken), DRY_ERR_INPUT, "a key twice is refused");
    tap_equal(read_json("[1, 2", &broken), DRY_ERR_INPUT, "JSON cut short is refused");
    tap_equal(read_json("[1] 2", &broken), DRY_ERR_INPUT, "text after the value is refused");
    tap_equal(read_json("", &broken), DRY_ERR_INPUT, "an empty file is refused");
    dry_log_discard();
    dry_log_defer(0);
    char *path = in_scratch("out.json");
    json_t *again = NULL;
    tap_ok(dry_json_write(path, root) == DRY_OK && dry_json_read(path, &again) == DRY_OK &&
               json_equal(root, again),
           "write and read again");
    json_decref(again);
    json_decref(root);
    unlink(path);
    dry_free(path);
}

static void hashes(void)
{
    char hex[DRY_HASH_HEX], other[DRY_HASH_HEX], *path = in_scratch("h");
    struct dry_hash *h;

    tap_equal(dry_hash_bytes("abc", 3, hex), DRY_OK, "hash three bytes");
    tap_text(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "FIPS 180-4: abc");
    tap_equal(dry_hash_bytes("", 0, hex), DRY_OK, "hash nothing");
    tap_text(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "of nothing");
    tap_ok(dry_file_write(path, "", 0) == DRY_OK && dry_hash_file(path, other) == DRY_OK &&
               strcmp(hex, other) == 0,
           "of an empty file");
    if (dry_hash_create(&h) == DRY_OK) {
        dry_hash_field(h, "ab", "c", 1);
        dry_hash_finish(h, hex);
    }
    if (dry_hash_create(&h) == DRY_OK) {
        dry_hash_field(h, "a", "bc", 2);
        dry_hash_finish(h, other);
    }
    tap_ok(strcmp(hex, other) != 0, "fields do not run together");
    if (dry_hash_create(&h) == DRY_OK) {
        dry_hash_text(h, "a", NULL);
        dry_hash_finish(h, hex);
    }
    if (dry_hash_create(&h) == DRY_OK) {
        dry_hash_text(h, "a", "");
        dry_hash_finish(h, other);
    }
    tap_ok(strcmp(hex, other) != 0, "an absent text is not an empty one");
    dry_hash_destroy(NULL);
    unlink(path);
    dry_free(path);
}

int main(void)
{
    char command[128];

    if (!mkdtemp(scratch))
        return tap_skip_all("no scratch folder");
    reading();
    pipes();
    pieces();
    faults();
    folders();
    json();
    hashes();
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    tap_ok(system(command) == 0, "clean up");
    return tap_done();
}
