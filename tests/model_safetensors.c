/*
 * safetensors and float formats: the corpus of headers, shards and their index, files written and read back,
 * and conversions against a search over all values.
 */
#include "config.h"

#include "model/safetensors.h"

#include "base/memory.h"
#include "corpus.h"
#include "scratch.h"
#include "tap.h"

static enum dry_status read_file(const char *path)
{
    struct dry_tensors *t = NULL;
    enum dry_status s = dry_tensors_open_file(path, &t);

    for (size_t i = 0; !s && i < dry_tensors_count(t); i++) {
        const struct dry_tensor *at = dry_tensors_at(t, i);
        volatile unsigned char sum = 0;

        for (size_t k = 0; k < at->bytes; k++)
            sum = (unsigned char)(sum + ((const unsigned char *)at->data)[k]);
        if (dry_tensors_find(t, at->name) != at)
            s = DRY_ERR_INTERNAL;
    }
    dry_tensors_close(t);
    return s;
}

/* Every cut of a good file, and every change of one bit of its header, is read or refused, never worse. */
static void damage(void)
{
    const char *path = scratch_path("damaged.safetensors");
    struct dry_tensor_out out[2] = {{.name = "a", .dtype = DRY_F32, .dims = 2, .shape = {2, 3}},
                                    {.name = "b", .dtype = DRY_BF16, .dims = 1, .shape = {3}}};
    struct dry_tensor_writer *w = NULL;
    float values[6] = {1, 2, 3, 4, 5, 6};
    char *data = NULL;
    size_t size = 0;
    int wrong = 0, cut = 0;

    tap_ok(!dry_tensor_writer_begin(path, out, 2, &w) && !dry_tensor_writer_add(w, values, 20) &&
               !dry_tensor_writer_add(w, values, 10) && !dry_tensor_writer_commit(w),
           "a file is written in pieces");
    tap_ok(!read_file(path) && !dry_file_read(path, &data, &size), "and read back");
    capture_begin();
    for (size_t n = 0; n < size; n++) {
        scratch_write(path, data, n);
        cut += read_file(path) == DRY_ERR_INPUT;
    }
    for (size_t bit = 0; bit < 8 * (size - 30); bit++) {
        enum dry_status s;

        data[bit / 8] = (char)(data[bit / 8] ^ 1 << bit % 8);
        scratch_write(path, data, size);
        s = read_file(path);
        wrong += s != DRY_OK && s != DRY_ERR_INPUT;
        data[bit / 8] = (char)(data[bit / 8] ^ 1 << bit % 8);
    }
    capture_end();
    tap_equal(cut, (long long)size, "every cut is refused");
    tap_equal(wrong, 0, "every flipped bit of the header is read or refused");
    dry_free(data);
}

static void write_and_read(void)
{
    const char *path = scratch_path("out.safetensors");
    struct dry_tensor_out out[] = {
        {.name = "z \"quoted\"", .dtype = DRY_F16, .dims = 3, .shape = {2, 1, 2}},
        {.name = "scalar", .dtype = DRY_F32, .dims = 0},
        {.name = "none", .dtype = DRY_F32, .dims = 2, .shape = {0, 4}},
        {.name = "ids", .dtype = DRY_OTHER, .dtype_text = "I64", .bytes = 16, .dims = 1, .shape = {2}}};
    unsigned char bytes[28];
    struct dry_tensor_writer *w = NULL;
    struct dry_tensors *t = NULL;
    const struct dry_tensor *at;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    tap_ok(!dry_tensor_writer_begin(path, out, 4, &w) && !dry_tensor_writer_add(w, bytes, 28) &&
               !dry_tensor_writer_commit(w) && !dry_tensors_open_file(path, &t),
           "four types of tensors are written and opened");
    if (!t)
        return;
    tap_equal((long long)dry_tensors_count(t), 4, "all are there");
    at = dry_tensors_find(t, "z \"quoted\"");
    tap_ok(at && at->dtype == DRY_F16 && at->dims == 3 && at->shape[0] == 2 && at->shape[2] == 2 &&
               at->elements == 4 && memcmp(at->data, bytes, 8) == 0,
           "name, type, shape and bytes are kept");
    at = dry_tensors_find(t, "ids");
    tap_ok(at && at->dtype == DRY_OTHER && strcmp(at->dtype_text, "I64") == 0 &&
               memcmp(at->data, bytes + 12, 16) == 0,
           "a type that is only passed on is kept");
    at = dry_tensors_find(t, "none");
    tap_ok(at && at->elements == 0 && at->bytes == 0, "a tensor of no elements is kept");
    tap_text(json_string_value(json_object_get(dry_tensors_metadata(t, 0), "format")), "pt",
             "metadata says pt");
    tap_ok(!dry_tensors_find(t, "absent"), "an absent tensor is not found");
    dry_tensors_close(t);

    capture_begin();
    tap_ok(!dry_tensor_writer_begin(path, out, 4, &w) && !dry_tensor_writer_add(w, bytes, 27) &&
               dry_tensor_writer_commit(w) == DRY_ERR_INTERNAL,
           "a byte too few is refused");
    tap_ok(!dry_tensor_writer_begin(path, out, 4, &w) &&
               dry_tensor_writer_add(w, bytes, 29) == DRY_ERR_INTERNAL,
           "a byte too many is refused");
    dry_tensor_writer_abandon(w);
    capture_end();
    tap_ok(!read_file(path), "the file before stays whole");
}

static void write_one(const char *path, const char *name, float value)
{
    struct dry_tensor_out out = {.name = name, .dtype = DRY_F32, .dims = 1, .shape = {1}};
    struct dry_tensor_writer *w = NULL;

    if (!dry_tensor_writer_begin(path, &out, 1, &w) && !dry_tensor_writer_add(w, &value, sizeof value))
        dry_tensor_writer_commit(w);
}

static void refuses(const char *dir, const char *index, const char *wants, const char *name)
{
    struct dry_tensors *t = NULL;
    char path[600];

    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    if (index)
        scratch_write(path, index, strlen(index));
    capture_begin();
    tap_ok(dry_tensors_open_dir(dir, &t) == DRY_ERR_INPUT, "%s", name);
    capture_end();
    tap_ok(strstr(capture_text, wants) != NULL, "and the message says: %s", wants);
    dry_tensors_close(t);
}

static void shards(void)
{
    const char *dir = scratch_path("shards");
    static const char good[] =
        "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {\"a\": \"one.safetensors\", "
        "\"b\": \"two.safetensors\"}}";
    struct dry_tensors *t = NULL;
    char path[600];

    dry_dir_make(dir);
    refuses(dir, NULL, "neither model.safetensors nor", "a folder without weights is refused");
    write_one(scratch_path("shards/one.safetensors"), "a", 1);
    refuses(dir, good, "two.safetensors: missing", "a missing shard is refused");
    write_one(scratch_path("shards/two.safetensors"), "b", 2);
    tap_ok(!dry_tensors_open_dir(dir, &t), "an index and its shards are read");
    tap_ok(t && dry_tensors_count(t) == 2 && dry_tensors_files(t) == 2 &&
               strcmp(dry_tensors_file(t, dry_tensors_find(t, "b")->file) + strlen(dir),
                      "/two.safetensors") == 0,
           "each tensor knows its shard");
    dry_tensors_close(t);
    t = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    tap_ok(!dry_tensors_open_index(path, &t), "the index itself can be opened");
    dry_tensors_close(t);
    refuses(dir, "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"one.safetensors\"}}",
            "\"b\" is not in one.safetensors", "an index that names the wrong shard is refused");
    refuses(dir, "{\"weight_map\": {\"c\": \"one.safetensors\", \"b\": \"two.safetensors\"}}",
            "\"c\" is not in", "an index that names an absent tensor is refused");
    refuses(dir, "{\"weight_map\": {\"a\": \"../one.safetensors\"}}", "not a file name", "a path is refused");
    refuses(dir, "{\"weight_map\": {\"a\": 3}}", "not a file name", "a number is refused");
    refuses(dir, "{\"weight_map\": {}}", "names no tensor", "an empty index is refused");
    refuses(dir, "{}", "names no tensor", "an index without map is refused");
    refuses(dir, "[]", "names no tensor", "an index that is no object is refused");
    write_one(scratch_path("shards/two.safetensors"), "a", 2);
    refuses(dir, good, "is both in", "a tensor in two shards is refused");
}

/* The nearest value of a 16-bit format to x, ties to the even pattern: by search over all of them. */
static uint16_t nearest(enum dry_dtype type, const float *all, float x)
{
    double best = INFINITY, limit = type == DRY_F16 ? 65520.0 : ldexp(2 - ldexp(1, -8), 127);
    uint16_t found = 0, infinite = type == DRY_F16 ? 0x7c00 : 0x7f80;

    if (fabs((double)x) >= limit)
        return (uint16_t)(infinite | (x < 0 ? 0x8000 : 0));
    for (uint32_t i = 0; i < infinite; i++) {
        double d = fabs(fabs((double)x) - (double)all[i]);

        if (d < best || (d == best && !(i & 1))) {
            best = d;
            found = (uint16_t)i;
        }
    }
    return (uint16_t)(found | (signbit(x) ? 0x8000 : 0));
}

static double f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 0x3ff;
    double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(1024 + fraction, exponent - 25);

    return h & 0x8000 ? -magnitude : magnitude;
}

static int same(float a, double b)
{
    return isnan(a) ? isnan(b) : (double)a == b && !signbit(a) == !signbit(b);
}

static void conversions(enum dry_dtype type)
{
    static float all[65536];
    static uint16_t patterns[65536], back[65536];
    const char *name = dry_dtype_name(type);
    int wrong = 0;
    uint64_t state = 1;

    for (uint32_t i = 0; i < 65536; i++)
        patterns[i] = (uint16_t)i;
    dry_to_f32(type, patterns, 65536, all);
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t bits = i << 16;
        float bf16;

        memcpy(&bf16, &bits, sizeof bf16);
        wrong += !same(all[i], type == DRY_F16 ? f16_value((uint16_t)i) : (double)bf16);
    }
    tap_equal(wrong, 0,
              type == DRY_F16 ? "every F16 pattern has its value" : "every BF16 pattern has its value");
    dry_from_f32(type, all, 65536, back);
    wrong = 0;
    for (uint32_t i = 0; i < 65536; i++) {
        float again;

        dry_to_f32(type, &back[i], 1, &again);
        wrong += isnan(all[i]) ? !isnan(again) : back[i] != patterns[i];
    }
    tap_ok(wrong == 0, "every %s value comes back", name);
    wrong = 0;
    for (int i = 0; i < 400; i++) {
        uint32_t bits, low;
        uint16_t got;
        float x;

        state = state * 6364136223846793005u + 1442695040888963407u;
        bits = (uint32_t)(state >> 32);
        /* Half of them are at or beside the middle between two values, where rounding is decided. */
        low = type == DRY_F16 ? 0x1fff : 0xffff;
        if (i % 2)
            bits = (bits & ~low) | ((low >> 1) + 1 - (uint32_t)(i / 2 % 3) + (uint32_t)(i / 6 % 2));
        if (type == DRY_F16 && i % 4 < 3) /* exponents that the format has, subnormals among them */
            bits = (bits & 0x807fffffu) | (100 + bits % 45) << 23;
        memcpy(&x, &bits, sizeof x);
        if (isnan(x))
            continue;
        dry_from_f32(type, &x, 1, &got);
        if (got != nearest(type, all, x)) {
            wrong++;
            printf("# %s of %a: %04x, want %04x\n", name, (double)x, got, nearest(type, all, x));
        }
    }
    tap_ok(wrong == 0, "%s rounds to nearest, ties to even", name);
}

int main(void)
{
    float x = 3.5f, y = 0;
    unsigned char odd[5];

    scratch_begin();
    tap_ok(corpus_replay(".safetensors", read_file, NULL) > 40, "the corpus was replayed");
    write_and_read();
    damage();
    shards();
    conversions(DRY_F16);
    conversions(DRY_BF16);
    memcpy(odd + 1, &x, sizeof x);
    dry_to_f32(DRY_F32, odd + 1, 1, &y);
    tap_ok(x == y, "unaligned float32 is read");
    return tap_done();
}
