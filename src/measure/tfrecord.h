/*
 * TensorBoard's file format: records framed with masked CRC32C, each an Event of protocol buffers.  Private
 * to measure.  Owns nothing; the caller's buffer grows.  Must not know what the scalars mean.
 *
 * A record is its length (8 bytes), that length's masked CRC, the bytes, their masked CRC, all little-endian
 * (tensorflow/core/lib/io/record_writer.h). Of Event (tensorflow/core/util/event.proto) wall_time 1 double,
 * step 2 int64, file_version 3 string, summary 5 are written; of Summary value 1, of its Value tag 1 string
 * and simple_value 2 float (tensorflow/core/framework/summary.proto).
 */
#ifndef DRY_MEASURE_TFRECORD_H
#define DRY_MEASURE_TFRECORD_H

#include "base/memory.h"

#include <stdint.h>

/* Local. CRC-32C (Castagnoli, reflected 0x82F63B78) of bytes. */
uint32_t dry_crc32c(const void *bytes, size_t size);
/* Local. Rotated right by 15 and offset, so that a CRC of data that holds CRCs is no trivial one. */
uint32_t dry_crc32c_masked(const void *bytes, size_t size);
/* Local. Seven bits a byte, least first; returns how many of out. */
size_t dry_varint(uint64_t value, unsigned char out[10]);

/* Local. Each appends one framed record; 0, or -1 for lack of memory (logged). wall: seconds since 1970. */
int dry_tfrecord_append(struct dry_buffer *b, const void *bytes, size_t size);
/* The file's first record. */
int dry_tfrecord_version(struct dry_buffer *b, double wall);
int dry_tfrecord_scalar(struct dry_buffer *b, double wall, int64_t step, const char *tag, double value);

#endif
