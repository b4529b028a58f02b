/*
 * What a machine says of a run's files.  Private to nobody: finetune asks before it reads.  Owns nothing.
 */
#ifndef DRY_MEASURE_MACHINE_H
#define DRY_MEASURE_MACHINE_H

#include <stddef.h>

/* Local. The kind of file system that a path, or the nearest folder above it that is there, lies on: "ext4",
 * "nfs", "lustre" ...; what is not known by name, by its number: "0x6969". */
void dry_machine_storage(const char *path, char *text, size_t size);
/* Local. The share 0..1 of the bytes of a folder's *.safetensors that the system holds in memory; NAN when it
 * does not tell. */
double dry_machine_resident(const char *folder);

#endif
