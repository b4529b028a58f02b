/*
 * Malformed tokenizer.json and JSON lines: the corpus of tests/data/text, each file with the message that it
 * must give, and then, from a fixed seed, damaged copies of good files, which may be read or refused but
 * nothing else.
 *
 * text_fuzz.t FILE... replays single files, for a fuzzer that found something.
 */
#include "config.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "tests/capture.h"
#include "tests/tap.h"
#include "text/record.h"

#include <stdlib.h>
#include <unistd.h>

static char scratch[] = "/tmp/drydock-fuzz.XXXXXX";
static char *scratch_json, *scratch_lines;

/* Without the fsync of base/file.h: there are hundreds. */
static enum dry_status put(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    int failed = !file || fwrite(data, 1, size, file) != size;

    if (file && fclose(file))
        failed = 1;
    return failed ? DRY_ERR_IO : DRY_OK;
}

/* A tokenizer that was read must encode anything, also what the expression gives up on. */
static void use(struct dry_tokenizer *t)
{
    static const char *const texts[] = {"", "ab ab  abc <|end|>x", "\n\n é ḋ\xe0\xbc\x81 \xf0\x9f\x91\x8d 12",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaac"};
    struct dry_ids ids = {0};
    int64_t count;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (unsigned how = 0; how < 4; how++) {
            ids.count = 0;
            dry_tokenizer_encode(t, texts[i], strlen(texts[i]), how, &ids);
            for (size_t k = 0; k < ids.count; k++)
                if (!dry_tokenizer_piece(t, ids.id[k]))
                    printf("Bail out! an id that is no token: %d\n", ids.id[k]);
            dry_tokenizer_special_count(t, texts[i], strlen(texts[i]), &count, NULL);
        }
    dry_ids_reset(&ids);
}

static enum dry_status read_tokenizer(const void *data, size_t size)
{
    struct dry_tokenizer *t = NULL;
    enum dry_status status = put(scratch_json, data, size);

    if (!status)
        status = dry_tokenizer_create(scratch, &t);
    if (!status)
        use(t);
    dry_tokenizer_destroy(t);
    return status;
}

static enum dry_status read_lines(struct dry_tokenizer *t, const void *data, size_t size)
{
    static const struct dry_record_rule rule = {"plain", "prompt", "completion", "\n", "parse", 64, 1};
    struct dry_lines *l = NULL;
    struct dry_record r = {0};
    enum dry_status status = put(scratch_lines, data, size);

    if (!status)
        status = dry_lines_open(scratch_lines, &l);
    for (int64_t i = 0; !status && i < dry_lines_count(l); i++) {
        const char *text;
        size_t n;
        int64_t line;
        dry_lines_get(l, i, &text, &n, &line);
        status = dry_record_encode(t, &rule, text, n, line, &r);
        if (!status && (r.outcome < 0 || r.outcome >= DRY_RECORD_OUTCOMES ||
                        (r.outcome != DRY_RECORD_GOOD && !r.why[0])))
            status = DRY_ERR_INTERNAL;
    }
    dry_record_reset(&r);
    dry_lines_close(l);
    return status;
}

static int is_lines(const char *name)
{
    size_t n = strlen(name);

    return n > 6 && strcmp(name + n - 6, ".jsonl") == 0;
}

static enum dry_status replay(struct dry_tokenizer *t, const char *path)
{
    char *data;
    size_t size;
    enum dry_status status = dry_file_read(path, &data, &size);

    if (status)
        return status;
    status = is_lines(path) ? read_lines(t, data, size) : read_tokenizer(data, size);
    dry_free(data);
    return status;
}

static void check_corpus(struct dry_tokenizer *t, const char *corpus)
{
    char *path = dry_path_join(corpus, "expect.txt"), *expect, *end;
    size_t size;

    if (dry_file_read(path, &expect, &size)) {
        tap_ok(0, "the corpus");
        dry_free(path);
        return;
    }
    for (char *line = expect; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        char *message = strchr(line, '\t');
        *message++ = '\0';
        char *file = dry_path_join(corpus, line);
        capture_begin();
        enum dry_status status = replay(t, file);
        const char *said = capture_end();
        int good = *message ? status == DRY_ERR_INPUT && strstr(said, message) : status == DRY_OK;
        if (!tap_ok(good, "%s: %s", line, *message ? message : "is read"))
            printf("# %s: %s", dry_status_name(status), said);
        dry_free(file);
    }
    dry_free(expect);
    dry_free(path);
}

/* Copies with bytes changed, cut out, or copied from elsewhere. */
static size_t damage(const char *good, size_t size, uint64_t turn, char *out)
{
    uint32_t word[4];

    memcpy(out, good, size);
    for (uint64_t i = 0; i <= turn % 3; i++) {
        dry_random_words(1, DRY_RANDOM_SUBSET, turn, i, word);
        size_t at = word[0] % size, from = word[1] % size, n = word[2] % 24;
        if (n > size - at)
            n = size - at;
        if (n > size - from)
            n = size - from;
        if (word[3] % 3 == 0) {
            out[at] = (char)(word[3] >> 8);
        } else if (word[3] % 3 == 1) {
            memmove(out + at, good + from, n);
        } else if (size > n + 1) {
            memmove(out + at, out + at + n, size - at - n);
            size -= n;
        }
    }
    return size;
}

static void check_damaged(struct dry_tokenizer *t, const char *corpus, const char *name, int turns)
{
    char *path = dry_path_join(corpus, name), *data, *copy;
    size_t size;
    int read = 0, refused = 0, other = 0;

    if (dry_file_read(path, &data, &size) == DRY_OK) {
        copy = dry_alloc(size, 1, "test");
        capture_begin();
        for (int i = 0; i < turns; i++) {
            size_t n = damage(data, size, (uint64_t)i, copy);
            enum dry_status status = is_lines(name) ? read_lines(t, copy, n) : read_tokenizer(copy, n);
            read += status == DRY_OK;
            refused += status == DRY_ERR_INPUT;
            other += status != DRY_OK && status != DRY_ERR_INPUT;
        }
        capture_end();
        dry_free(copy);
        dry_free(data);
    }
    tap_ok(other == 0 && read + refused == turns, "%s, damaged %d times: %d read, %d refused", name, turns,
           read, refused);
    dry_free(path);
}

int main(int argc, char **argv)
{
    const char *top = getenv("top_srcdir");
    char *corpus = dry_path_join(top ? top : ".", "tests/data/text/corpus"),
         *good = dry_path_join(corpus, "good.json"), *data;
    size_t size;
    struct dry_tokenizer *t = NULL;

    if (!mkdtemp(scratch) || dry_file_read(good, &data, &size))
        return 1;
    scratch_json = dry_path_join(scratch, "tokenizer.json");
    scratch_lines = dry_path_join(scratch, "data.jsonl");
    if (put(scratch_json, data, size) == DRY_OK && dry_tokenizer_create(scratch, &t) == DRY_OK) {
        for (int i = 1; i < argc; i++)
            tap_ok(replay(t, argv[i]) <= DRY_ERR_INPUT, "%s", argv[i]);
        if (argc == 1) {
            check_corpus(t, corpus);
            check_damaged(t, corpus, "good.json", 300);
            check_damaged(t, corpus, "lines.jsonl", 100);
        }
    }
    dry_tokenizer_destroy(t);
    unlink(scratch_json);
    unlink(scratch_lines);
    rmdir(scratch);
    dry_free(scratch_json);
    dry_free(scratch_lines);
    dry_free(data);
    dry_free(good);
    dry_free(corpus);
    return tap_done();
}
