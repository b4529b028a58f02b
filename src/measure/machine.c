/*
 * Asks the system where files lie and how much of them is in memory.
 * Owns nothing.
 * Must not know what the files are for.
 */
#include "config.h"

#include "measure/machine.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* f_type of statfs(2) and of the file systems that clusters have. */
static const struct {
    uint32_t number;
    const char *name;
} kinds[] = {
    {0xef53, "ext4"},         {0x58465342, "xfs"},      {0x9123683e, "btrfs"},     {0x2fc12fc1, "zfs"},
    {0x01021994, "tmpfs"},    {0x794c7630, "overlay"},  {0x6969, "nfs"},           {0x0bd00bd0, "lustre"},
    {0x47504653, "gpfs"},     {0x19830326, "beegfs"},   {0x00c36400, "ceph"},      {0x65735546, "fuse"},
    {0xff534d42, "cifs"},     {0xfe534d42, "smb2"},     {0x01021997, "9p"},        {0x6a656a63, "virtiofs"},
    {0x73717368, "squashfs"}, {0xf2f52010, "f2fs"},     {0x2011bab0, "exfat"},     {0xaad7aaea, "panfs"},
    {0x61756673, "aufs"},     {0x858458f6, "ramfs"},    {0x7461636f, "ocfs2"},     {0x01161970, "gfs2"},
    {0x0bd00bd1, "lustre"},   {0x20030528, "orangefs"}, {0x47504c53, "glusterfs"},
};

void dry_machine_storage(const char *path, char *text, size_t size)
{
    struct statfs s;
    char folder[4096];

    snprintf(folder, sizeof folder, "%s", path);
    while (statfs(folder, &s)) {
        char *slash = strrchr(folder, '/');

        if (strcmp(folder, "/") == 0 || strcmp(folder, ".") == 0) {
            snprintf(text, size, "unknown");
            return;
        }
        if (!slash)
            strcpy(folder, ".");
        else
            slash[slash == folder] = 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].number == (uint32_t)s.f_type) {
            snprintf(text, size, "%s", kinds[i].name);
            return;
        }
    snprintf(text, size, "0x%x", (unsigned)(uint32_t)s.f_type);
}

enum { PAGES = 1 << 16 }; /* asked for in one call */

/* Adds a mapped file's pages; -1 when the system does not tell. */
static int count_pages(const struct dry_map *map, unsigned char *seen, double *all, double *resident)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t at = 0; at < map->size; at += PAGES * page) {
        size_t bytes = map->size - at < PAGES * page ? map->size - at : PAGES * page;
        size_t pages = (bytes + page - 1) / page;

        if (mincore((void *)(uintptr_t)(map->data + at), bytes, seen))
            return -1;
        for (size_t i = 0; i < pages; i++)
            *resident += seen[i] & 1;
        *all += (double)pages;
    }
    return 0;
}

static int ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);

    return n >= e && strcmp(name + n - e, ending) == 0;
}

double dry_machine_resident(const char *folder)
{
    unsigned char *seen;
    double all = 0, resident = 0;
    char **names = NULL;
    size_t count = 0;
    int bad;

    dry_log_defer(1);
    seen = dry_alloc(PAGES, 1, "a map of pages in memory");
    bad = !seen || dry_dir_list(folder, &names, &count);
    for (size_t i = 0; i < count && !bad; i++) {
        struct dry_map map;
        char *path;

        if (!ends_with(names[i], ".safetensors"))
            continue;
        path = dry_path_join(folder, names[i]);
        bad = !path || dry_file_map(path, &map);
        if (!bad) {
            bad = count_pages(&map, seen, &all, &resident);
            dry_file_unmap(&map);
        }
        dry_free(path);
    }
    dry_log_discard(); /* that a file cannot be read is told by who needs it */
    dry_log_defer(0);
    dry_dir_free(names, count);
    dry_free(seen);
    return bad || all == 0 ? NAN : resident / all;
}
