/*
 * Reads and maps whole files, lists and makes folders, joins paths.
 * Owns the maps that it gives out until unmapped.
 * Must not know what is in a file; writing is in writer.c.
 */
#include "config.h"

#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Open for reading; a folder is refused here, where the message can say so. -1: logged. */
static int open_file(const char *path, struct stat *info)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, info) != 0) {
        dry_error("cannot open %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (S_ISDIR(info->st_mode)) {
        dry_error("cannot read %s: it is a folder, want a file", path);
        close(fd);
        return -1;
    }
    return fd;
}

enum dry_status dry_file_read(const char *path, char **data, size_t *size)
{
    struct dry_buffer b = {0};
    struct stat info;
    enum dry_status status = DRY_ERR_MEMORY;
    int fd = open_file(path, &info);

    if (fd < 0)
        return DRY_ERR_IO;
    /* Room for the end of a regular file to be seen without growing, and the NUL; pipes tell no size. */
    size_t more = S_ISREG(info.st_mode) ? (size_t)info.st_size + 2 : 1 << 16;
    for (;;) {
        if (b.len + 1 >= b.capacity) {
            char *grown = dry_realloc(b.data, b.len, b.capacity + more, 1, path);
            if (!grown)
                goto out;
            b.data = grown;
            b.capacity += more;
            more = b.capacity;
        }
        ssize_t got = read(fd, b.data + b.len, b.capacity - b.len - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            dry_error("cannot read %s: %s", path, strerror(errno));
            status = DRY_ERR_IO;
            goto out;
        }
        if (got == 0)
            break;
        b.len += (size_t)got;
    }
    b.data[b.len] = '\0';
    *data = b.data;
    *size = b.len;
    b.data = NULL;
    status = DRY_OK;
out:
    dry_free(b.data);
    close(fd);
    return status;
}

enum dry_status dry_file_map(const char *path, struct dry_map *map)
{
    static const unsigned char empty[1];
    struct stat info;
    int fd = open_file(path, &info);

    if (fd < 0)
        return DRY_ERR_IO;
    if (!S_ISREG(info.st_mode)) {
        dry_error("cannot map %s: want a regular file, not a pipe or a device", path);
        close(fd);
        return DRY_ERR_IO;
    }
    void *data = (void *)empty;
    if (info.st_size > 0)
        data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    int failed = errno;
    close(fd);
    if (data == MAP_FAILED) {
        dry_error("cannot map %s: %s", path, strerror(failed));
        return failed == ENOMEM ? DRY_ERR_MEMORY : DRY_ERR_IO;
    }
    map->data = data;
    map->size = (size_t)info.st_size;
    return DRY_OK;
}

void dry_file_unmap(struct dry_map *map)
{
    if (map->size)
        munmap((void *)map->data, map->size);
    *map = (struct dry_map){0};
}

int dry_file_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

int dry_file_is_dir(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum dry_status dry_file_size(const char *path, int64_t *bytes)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        dry_error("cannot open %s: %s", path, strerror(errno));
        return DRY_ERR_IO;
    }
    *bytes = info.st_size;
    return DRY_OK;
}

enum dry_status dry_dir_make(const char *path)
{
    char *part = dry_strdup(path);

    if (!part)
        return DRY_ERR_MEMORY;
    for (char *slash = part + 1; *part; slash++) {
        slash += strcspn(slash, "/");
        char ended = *slash;
        *slash = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            int failed = errno;
            if (!dry_file_is_dir(
                    part)) { /* a read-only file system says so before it says that the folder is there */
                dry_error("cannot make folder %s: %s", part, strerror(failed));
                dry_free(part);
                return DRY_ERR_IO;
            }
        }
        *slash = ended;
        if (!ended)
            break;
    }
    dry_free(part);
    if (!dry_file_is_dir(path)) {
        dry_error("cannot make folder %s: %s", path,
                  *path ? "a file of that name is in the way" : "the name is empty");
        return DRY_ERR_IO;
    }
    return DRY_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum dry_status dry_dir_list(const char *path, char ***names, size_t *count)
{
    char **list = NULL;
    size_t used = 0, room = 0;
    enum dry_status status = DRY_ERR_MEMORY;
    struct dirent *entry;
    DIR *dir = opendir(path);

    if (!dir) {
        dry_error("cannot open folder %s: %s", path, strerror(errno));
        return DRY_ERR_IO;
    }
    list = dry_alloc(1, sizeof *list, "names of files");
    if (!list)
        goto out;
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (used == room) {
            size_t more = room ? 2 * room : 16;
            char **grown = dry_realloc(list, room, more, sizeof *list, "names of files");
            if (!grown)
                goto out;
            list = grown;
            room = more;
        }
        list[used] = dry_strdup(entry->d_name);
        if (!list[used])
            goto out;
        used++;
    }
    if (errno) {
        dry_error("cannot read folder %s: %s", path, strerror(errno));
        status = DRY_ERR_IO;
        goto out;
    }
    qsort(list, used, sizeof *list, by_bytes);
    *names = list;
    *count = used;
    list = NULL;
    status = DRY_OK;
out:
    if (list)
        dry_dir_free(list, used);
    closedir(dir);
    return status;
}

void dry_dir_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dry_free(names[i]);
    dry_free(names);
}

char *dry_path_join(const char *a, const char *b)
{
    size_t length = strlen(a);

    if (b[0] == '/' || length == 0)
        return dry_strdup(b);
    return dry_format("%s%s%s", a, a[length - 1] == '/' ? "" : "/", b);
}

const char *dry_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}
