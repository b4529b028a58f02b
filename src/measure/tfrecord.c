/*
 * Encodes TensorBoard's events and frames them as records.
 * Owns nothing that outlives a call.
 * Must not know what the scalars mean.
 */
#include "config.h"

#include "measure/tfrecord.h"

#include <string.h>

uint32_t dry_crc32c(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

uint32_t dry_crc32c_masked(const void *bytes, size_t size)
{
    uint32_t crc = dry_crc32c(bytes, size);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

size_t dry_varint(uint64_t value, unsigned char out[10])
{
    size_t n = 0;

    while (value > 127) {
        out[n++] = (unsigned char)(value | 128);
        value >>= 7;
    }
    out[n++] = (unsigned char)value;
    return n;
}

static void little(uint64_t value, size_t size, unsigned char *out)
{
    for (size_t i = 0; i < size; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

int dry_tfrecord_append(struct dry_buffer *b, const void *bytes, size_t size)
{
    unsigned char head[12], tail[4];
    size_t before = b->len;

    little(size, 8, head);
    little(dry_crc32c_masked(head, 8), 4, head + 8);
    little(dry_crc32c_masked(bytes, size), 4, tail);
    if (dry_buffer_append(b, head, sizeof head) || dry_buffer_append(b, bytes, size) ||
        dry_buffer_append(b, tail, sizeof tail)) {
        b->len = before;
        return -1;
    }
    return 0;
}

/* ---- protocol buffers: a field is its key (number << 3 | wire type) and its value */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static int put_varint(struct dry_buffer *b, uint64_t value)
{
    unsigned char bytes[10];

    return dry_buffer_append(b, bytes, dry_varint(value, bytes));
}

static int put_key(struct dry_buffer *b, unsigned field, unsigned wire)
{
    return put_varint(b, field << 3 | wire);
}

static int put_double(struct dry_buffer *b, unsigned field, double value)
{
    unsigned char bytes[8];
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    little(bits, 8, bytes);
    return put_key(b, field, WIRE_64) || dry_buffer_append(b, bytes, 8) ? -1 : 0;
}

static int put_float(struct dry_buffer *b, unsigned field, float value)
{
    unsigned char bytes[4];
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    little(bits, 4, bytes);
    return put_key(b, field, WIRE_32) || dry_buffer_append(b, bytes, 4) ? -1 : 0;
}

static int put_int(struct dry_buffer *b, unsigned field, int64_t value)
{
    return put_key(b, field, WIRE_VARINT) || put_varint(b, (uint64_t)value) ? -1 : 0;
}

static int put_bytes(struct dry_buffer *b, unsigned field, const void *bytes, size_t size)
{
    return put_key(b, field, WIRE_BYTES) || put_varint(b, size) || dry_buffer_append(b, bytes, size) ? -1 : 0;
}

/* A message made aside, as a field of another. */
static int put_message(struct dry_buffer *b, unsigned field, const struct dry_buffer *message)
{
    return put_bytes(b, field, message->data, message->len);
}

int dry_tfrecord_version(struct dry_buffer *b, double wall)
{
    static const char version[] = "brain.Event:2";
    struct dry_buffer event = {0};
    int bad = put_double(&event, 1, wall) || put_bytes(&event, 3, version, sizeof version - 1) ||
              dry_tfrecord_append(b, event.data, event.len);

    dry_buffer_reset(&event);
    return bad ? -1 : 0;
}

int dry_tfrecord_scalar(struct dry_buffer *b, double wall, int64_t step, const char *tag, double value)
{
    struct dry_buffer point = {0}, summary = {0}, event = {0};
    int bad = put_bytes(&point, 1, tag, strlen(tag)) || put_float(&point, 2, (float)value) ||
              put_message(&summary, 1, &point) || put_double(&event, 1, wall) || put_int(&event, 2, step) ||
              put_message(&event, 5, &summary) || dry_tfrecord_append(b, event.data, event.len);

    dry_buffer_reset(&event);
    dry_buffer_reset(&summary);
    dry_buffer_reset(&point);
    return bad ? -1 : 0;
}
