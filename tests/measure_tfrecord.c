/*
 * TensorBoard's record framing against known vectors.
 */
#include "config.h"

#include "measure/tfrecord.h"

#include "tests/tap.h"

#include <stdlib.h>

static void crc(void)
{
    unsigned char bytes[32];

    /* RFC 3720, appendix B.4 */
    memset(bytes, 0, sizeof bytes);
    tap_equal(dry_crc32c(bytes, 32), 0x8a9136aa, "crc32c of 32 zeros");
    memset(bytes, 0xff, sizeof bytes);
    tap_equal(dry_crc32c(bytes, 32), 0x62a8ab43, "crc32c of 32 ones");
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    tap_equal(dry_crc32c(bytes, 32), 0x46dd794e, "crc32c of 0 to 31");
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)(31 - i);
    tap_equal(dry_crc32c(bytes, 32), 0x113fdb5c, "crc32c of 31 to 0");
    tap_equal(dry_crc32c("123456789", 9), 0xe3069283, "crc32c's check value");
    tap_equal(dry_crc32c("", 0), 0, "crc32c of nothing");
    /* the head of a record of 24 bytes, as every event file of TensorFlow's begins with */
    tap_equal(dry_crc32c_masked("\x18\0\0\0\0\0\0\0", 8), 0x224b7fa3, "masked crc32c");
}

static void varints(void)
{
    unsigned char out[10];

    tap_ok(dry_varint(0, out) == 1 && out[0] == 0, "varint 0");
    tap_ok(dry_varint(127, out) == 1 && out[0] == 127, "varint 127");
    tap_ok(dry_varint(300, out) == 2 && out[0] == 0xac && out[1] == 2, "varint 300");
    tap_ok(dry_varint(UINT64_MAX, out) == 10 && out[9] == 1 && out[0] == 0xff, "varint of 64 ones");
}

static void records(void)
{
    /* Event { wall_time: 1.5  file_version: "brain.Event:2" } */
    static const unsigned char version[] = {24,  0,   0,   0,   0,   0,   0,   0,   0xa3, 0x7f, 0x4b, 0x22,
                                            9,   0,   0,   0,   0,   0,   0,   248, 63,   0x1a, 13,   'b',
                                            'r', 'a', 'i', 'n', '.', 'E', 'v', 'e', 'n',  't',  ':',  '2'};
    /* Event { wall_time: 1.5  step: 300  summary { value { tag: "a" simple_value: 0.5 } } } */
    static const unsigned char scalar[] = {9,    0,  0,    0, 0,    0, 0,   248,  63, 0x10, 0xac, 2,
                                           0x2a, 10, 0x0a, 8, 0x0a, 1, 'a', 0x15, 0,  0,    0,    63};
    struct dry_buffer b = {0};

    tap_equal(dry_tfrecord_version(&b, 1.5), 0, "a version record");
    tap_ok(b.len == sizeof version + 4 && memcmp(b.data, version, sizeof version) == 0, "its bytes");
    dry_buffer_reset(&b);
    tap_equal(dry_tfrecord_scalar(&b, 1.5, 300, "a", 0.5), 0, "a scalar record");
    tap_ok(b.len == 16 + sizeof scalar && memcmp(b.data + 12, scalar, sizeof scalar) == 0, "its bytes");
    dry_buffer_reset(&b);
}

int main(void)
{
    crc();
    varints();
    records();
    return tap_done();
}
