/*
 * Writes files that are complete or absent: temporary name, write, fsync, rename, fsync of the folder.
 * Owns the temporary file until it is committed or abandoned.
 * Must not know what it writes.
 */
#include "config.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 1 << 16 };

struct dry_writer {
    char *path, *temporary;
    int fd;
    size_t held; /* bytes in room not yet given to the system */
    char room[ROOM];
};

static enum dry_status refused(const char *path, int failed)
{
    dry_error("cannot write %s: %s", path, strerror(failed));
    return DRY_ERR_IO;
}

static enum dry_status sync_file(int fd, const char *path)
{
    if (dry_fault("fsync"))
        return refused(path, EIO);
    while (fsync(fd) != 0)
        if (errno != EINTR)
            return refused(path, errno);
    return DRY_OK;
}

/* The rename itself must be on the disk. File systems without fsync of folders say EINVAL and need none. */
static enum dry_status sync_folder(const char *path)
{
    const char *base = dry_path_base(path);
    char *folder = base == path ? dry_strdup(".") : dry_strndup(path, (size_t)(base - path));
    enum dry_status status = DRY_OK;

    if (!folder)
        return DRY_ERR_MEMORY;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != EINTR))
        status = refused(folder, errno);
    if (fd >= 0)
        close(fd);
    dry_free(folder);
    return status;
}

enum dry_status dry_file_publish(const char *temporary, const char *path)
{
    int fd = open(temporary, O_RDONLY | O_CLOEXEC);
    enum dry_status status;

    if (fd < 0)
        return refused(temporary, errno);
    status = sync_file(fd, path);
    close(fd);
    if (!status && rename(temporary, path) != 0)
        status = refused(path, errno);
    if (status) {
        unlink(temporary);
        return status;
    }
    return sync_folder(path);
}

/* Processes of two hosts that share the folder may have the same number. */
static char *temporary_name(const char *path)
{
    char host[256] = "";

    if (gethostname(host, sizeof host - 1))
        host[0] = '\0';
    return dry_format("%s.tmp.%s.%ld", path, host, (long)getpid());
}

enum dry_status dry_writer_begin(const char *path, struct dry_writer **w)
{
    struct dry_writer *fresh = dry_alloc(1, sizeof *fresh, "a file to write");

    if (!fresh)
        return DRY_ERR_MEMORY;
    fresh->fd = -1;
    fresh->path = dry_strdup(path);
    char *temporary = temporary_name(path);
    if (!fresh->path || !temporary) {
        dry_free(temporary);
        dry_writer_abandon(fresh);
        return DRY_ERR_MEMORY;
    }
    fresh->fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fresh->fd < 0) {
        enum dry_status status = refused(path, errno);
        dry_free(temporary);
        dry_writer_abandon(fresh);
        return status;
    }
    fresh->temporary = temporary;
    *w = fresh;
    return DRY_OK;
}

static enum dry_status put(struct dry_writer *w, const char *data, size_t size)
{
    if (size && dry_fault("write"))
        return refused(w->path, ENOSPC);
    while (size) {
        ssize_t done = write(w->fd, data, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return refused(w->path, errno);
        data += done;
        size -= (size_t)done;
    }
    return DRY_OK;
}

static enum dry_status flush(struct dry_writer *w)
{
    enum dry_status status = put(w, w->room, w->held);

    w->held = 0;
    return status;
}

enum dry_status dry_writer_write(struct dry_writer *w, const void *data, size_t size)
{
    if (size > ROOM - w->held) {
        enum dry_status status = flush(w);
        if (status)
            return status;
        if (size >= ROOM)
            return put(w, data, size);
    }
    if (size)
        memcpy(w->room + w->held, data, size);
    w->held += size;
    return DRY_OK;
}

enum dry_status dry_writer_commit(struct dry_writer *w)
{
    enum dry_status status = flush(w);

    if (!status)
        status = sync_file(w->fd, w->path);
    if (!status) {
        int closed = close(w->fd);
        w->fd = -1;
        if (closed != 0)
            status = refused(w->path, errno);
    }
    if (!status && rename(w->temporary, w->path) != 0)
        status = refused(w->path, errno);
    if (!status) {
        dry_free(w->temporary);
        w->temporary = NULL;
        status = sync_folder(w->path);
    }
    dry_writer_abandon(w);
    return status;
}

void dry_writer_abandon(struct dry_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary)
        unlink(w->temporary);
    dry_free(w->temporary);
    dry_free(w->path);
    dry_free(w);
}

enum dry_status dry_file_write(const char *path, const void *data, size_t size)
{
    struct dry_writer *w;
    enum dry_status status = dry_writer_begin(path, &w);

    if (status)
        return status;
    status = dry_writer_write(w, data, size);
    if (status) {
        dry_writer_abandon(w);
        return status;
    }
    return dry_writer_commit(w);
}
