/*
 * Writes down where each rank's time went and what its sampler saw.
 * Owns a rank's lines from one gathering to the next, and on rank 0 the files.
 * Must not know what a stage does, nor what is concluded from the lines.
 */
#include "config.h"

#include "measure/ledger.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum file { FILE_STAGES, FILE_GPU, FILE_PROCESS, FILES };

static const char *const names[] = {
    [FILE_STAGES] = "stages.csv", [FILE_GPU] = "gpu.csv", [FILE_PROCESS] = "process.csv"};
_Static_assert(sizeof names / sizeof *names == FILES, "each file has a name");

static const char stages_columns[] =
    "start,phase,step,rank,began,seconds,tokens,padded_tokens,supervised,micro_batches,squared_lengths";
static const char gpu_columns[] =
    "timestamp,index,utilization.gpu,utilization.memory,memory.used,power.draw,clocks.sm,"
    "clocks_event_reasons.active,temperature.gpu,pcie.tx,pcie.rx,nvlink.tx,nvlink.rx,energy,"
    "at,start,rank,host,step,stage";
static const char process_columns[] = "timestamp,cpu,memory.used,read,written,at,start,rank,host,step,stage";

static const char *const phases[] = {
    [DRY_PHASE_START] = "start", [DRY_PHASE_STEP] = "step", [DRY_PHASE_END] = "end"};

struct dry_ledger {
    struct dry_ledger_input in;
    int rank, ranks;
    int start;                 /* number of this start of the run */
    double since;              /* when the last line's time ended */
    double before[DRY_STAGES]; /* the account then */
    char host[256];
    struct dry_buffer text[FILES]; /* this rank's lines that are not gathered yet */
    struct dry_buffer packed;
    struct dry_sample sample[DRY_SAMPLES];
    /* rank 0 */
    size_t *sizes; /* [ranks] */
    int fd[FILES]; /* -1: not open */
    int failed;    /* said once; nothing is written any more */
};

/* ---- lines ---- */

/* A name without blanks. */
static void squeeze(const char *name, char text[40])
{
    size_t i;

    for (i = 0; name[i] && i < 39; i++)
        text[i] = name[i] == ' ' ? '_' : name[i];
    text[i] = 0;
}

static char *stages_header(void)
{
    struct dry_buffer b = {0};
    int bad = dry_buffer_printf(&b, "%s", stages_columns);
    char *text;

    for (int i = 0; i < DRY_STAGES && !bad; i++) {
        char name[40];

        squeeze(dry_stage_name((enum dry_stage)i), name);
        bad = dry_buffer_printf(&b, ",%s", name);
    }
    text = bad ? NULL : dry_strdup(b.data);
    dry_buffer_reset(&b);
    return text;
}

static char *header_of(enum file f)
{
    if (f == FILE_STAGES)
        return stages_header();
    return dry_strdup(f == FILE_GPU ? gpu_columns : process_columns);
}

/* ",1.25", or "," for what is not known; a zero takes no place. */
static int put_number(struct dry_buffer *b, double value, int digits)
{
    if (!isfinite(value))
        return dry_buffer_append(b, ",", 1);
    return value == 0 ? dry_buffer_append(b, ",0", 2) : dry_buffer_printf(b, ",%.*f", digits, value);
}

static int put_row(struct dry_ledger *l, enum dry_phase phase, int64_t step, const struct dry_share *share)
{
    const struct dry_stages *s = l->in.stages;
    struct dry_buffer *b = &l->text[FILE_STAGES];
    int bad = dry_buffer_printf(b, "%d,%s,%lld,%d", l->start, phases[phase], (long long)step, l->rank);

    bad = bad || put_number(b, l->since - l->in.started, 6);
    bad = bad || put_number(b, s->since - l->since, 6);
    bad = bad || dry_buffer_printf(b, ",%lld,%lld,%lld,%lld,%lld", (long long)share->tokens,
                                   (long long)share->padded, (long long)share->supervised,
                                   (long long)share->micros, (long long)share->square);
    for (int i = 0; i < DRY_STAGES; i++)
        bad = bad || put_number(b, s->seconds[i] - l->before[i], 6);
    l->since = s->since;
    memcpy(l->before, s->seconds, sizeof l->before);
    return bad || dry_buffer_append(b, "\n", 1);
}

/* As nvidia-smi writes it. */
static int put_time(struct dry_buffer *b, const struct timespec *wall)
{
    struct tm local;
    char text[32];

    localtime_r(&wall->tv_sec, &local);
    strftime(text, sizeof text, "%Y/%m/%d %H:%M:%S", &local);
    return dry_buffer_printf(b, "%s.%03ld", text, wall->tv_nsec / 1000000);
}

static int put_place(struct dry_ledger *l, struct dry_buffer *b, double at, int64_t step)
{
    char stage[40];

    squeeze(dry_stage_name(dry_stages_at(l->in.stages, at)), stage);
    return put_number(b, at - l->in.started, 3) ||
           dry_buffer_printf(b, ",%d,%d,%s,%lld,%s\n", l->start, l->rank, l->host, (long long)step, stage);
}

static int put_process(struct dry_ledger *l, const struct dry_sample *s, int64_t step)
{
    struct dry_buffer *b = &l->text[FILE_PROCESS];

    return put_time(b, &s->wall) || put_number(b, s->cpu, 1) || put_number(b, s->memory / 1048576, 1) ||
           put_number(b, s->read / 1024, 1) || put_number(b, s->written / 1024, 1) ||
           put_place(l, b, s->at, step);
}

static int put_device(struct dry_ledger *l, const struct dry_sample *s, int64_t step)
{
    const struct dry_probe_sample *p = &s->probe;
    struct dry_buffer *b = &l->text[FILE_GPU];
    int bad = put_time(b, &s->wall) || dry_buffer_printf(b, ",%d", s->device);

    bad = bad || put_number(b, p->busy, 0) || put_number(b, p->memory_busy, 0);
    bad = bad || put_number(b, p->memory / 1048576, 0) || put_number(b, p->power, 2);
    bad = bad || put_number(b, p->clock, 0);
    bad = bad || dry_buffer_printf(b, ",0x%016llx", (unsigned long long)p->throttle);
    bad = bad || put_number(b, p->temperature, 0);
    /* a device's tx goes to the host */
    bad = bad || put_number(b, p->pcie_out / 1024, 0) || put_number(b, p->pcie_in / 1024, 0);
    bad = bad || put_number(b, p->nvlink_out / 1024, 0) || put_number(b, p->nvlink_in / 1024, 0);
    bad = bad || put_number(b, p->energy, 3);
    return bad || put_place(l, b, s->at, step);
}

static int put_samples(struct dry_ledger *l, int64_t step)
{
    size_t count = l->in.sampler ? dry_sampler_take(l->in.sampler, l->sample) : 0;
    int bad = 0;

    for (size_t i = 0; i < count && !bad; i++) {
        bad = put_process(l, &l->sample[i], step);
        if (!bad && l->sample[i].device >= 0)
            bad = put_device(l, &l->sample[i], step);
    }
    return bad;
}

/* ---- files; rank 0 ---- */

static void say_lost(struct dry_ledger *l, enum file f, const char *what)
{
    dry_warn("%s/%s: cannot be %s: %s; where time goes is no longer written down, training goes on",
             l->in.output, names[f], what, strerror(errno));
    l->failed = 1;
}

/* All, or nothing: what a full disk cut off goes away again. */
static int append(int fd, const char *text, size_t size)
{
    off_t end = lseek(fd, 0, SEEK_END);
    int error;

    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, text + done, size - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            error = errno;
            if (end < 0 || ftruncate(fd, end))
                dry_debug("a line that is cut off stays: %s", strerror(errno));
            errno = error;
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

static char *path_of(const struct dry_ledger *l, enum file f)
{
    return dry_path_join(l->in.output, names[f]);
}

/* Opens a file to append to; a new one gets its header. A disk that has no room for it is like a full one
 * later. */
static enum dry_status open_file(struct dry_ledger *l, enum file f)
{
    char *path = path_of(l, f), *columns = header_of(f), *line = columns ? dry_format("%s\n", columns) : NULL;
    enum dry_status status = path && line ? DRY_OK : DRY_ERR_MEMORY;
    struct stat s;

    if (!status && (l->fd[f] = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) < 0)
        say_lost(l, f, "opened");
    else if (!status && (fstat(l->fd[f], &s) || (s.st_size == 0 && append(l->fd[f], line, strlen(line)))))
        say_lost(l, f, "written");
    dry_free(path);
    dry_free(columns);
    dry_free(line);
    return status;
}

static void write_text(struct dry_ledger *l, enum file f, const char *text, size_t size)
{
    if (size == 0 || l->failed || (l->fd[f] < 0 && open_file(l, f)) || l->failed)
        return;
    if (append(l->fd[f], text, size))
        say_lost(l, f, "written");
}

/* The number of the start after the one of the last line. */
static int next_start(const char *text, size_t size)
{
    size_t at = size - 1;
    int start = -1;

    while (at > 0 && text[at - 1] != '\n')
        at--;
    return at > 0 && sscanf(text + at, "%d,", &start) == 1 ? start + 1 : 0;
}

/* Cuts off a last line that is not whole; a file of other columns is put aside. */
static enum dry_status mend(const struct dry_ledger *l, enum file f, int *start)
{
    char *path = path_of(l, f), *columns = header_of(f), *text = NULL, *aside = NULL;
    enum dry_status status = path && columns ? DRY_OK : DRY_ERR_MEMORY;
    size_t size = 0, length = columns ? strlen(columns) : 0, whole;

    if (!status && dry_file_exists(path))
        status = dry_file_read(path, &text, &size);
    if (status || size == 0)
        goto out;
    for (whole = size; whole > 0 && text[whole - 1] != '\n';)
        whole--;
    if (whole > 0 && (whole <= length || memcmp(text, columns, length) || text[length] != '\n')) {
        if (!(aside = dry_format("%s.other", path)))
            status = DRY_ERR_MEMORY;
        else if (rename(path, aside)) {
            dry_error("%s: has other columns than this program writes and cannot be renamed to %s: %s", path,
                      aside, strerror(errno));
            status = DRY_ERR_IO;
        } else
            dry_warn("%s: has other columns than this program writes; it is now %s, and a new one begins",
                     path, aside);
        goto out;
    }
    if (whole < size && (whole > 0 ? truncate(path, (off_t)whole) : unlink(path))) {
        dry_error("%s: cannot be cut to its whole lines: %s", path, strerror(errno));
        status = DRY_ERR_IO;
    }
    if (start && whole > 0)
        *start = next_start(text, whole);
out:
    dry_free(path);
    dry_free(columns);
    dry_free(text);
    dry_free(aside);
    return status;
}

static enum dry_status remove_file(const struct dry_ledger *l, enum file f)
{
    char *path = path_of(l, f);
    enum dry_status status = path ? DRY_OK : DRY_ERR_MEMORY;

    if (!status && unlink(path) && errno != ENOENT) {
        dry_error("%s: cannot be removed: %s", path, strerror(errno));
        status = DRY_ERR_IO;
    }
    dry_free(path);
    return status;
}

static enum dry_status prepare_files(struct dry_ledger *l)
{
    enum dry_status status = DRY_OK;

    for (int f = 0; f < FILES && !status; f++)
        status = l->in.resumed ? mend(l, (enum file)f, f == FILE_STAGES ? &l->start : NULL)
                               : remove_file(l, (enum file)f);
    return status ? status : open_file(l, FILE_STAGES);
}

/* ---- gathering ---- */

/* This rank's lines with their lengths before them; nothing where there is no memory for it. */
static void pack(struct dry_ledger *l)
{
    uint64_t length[FILES];
    int bad;

    for (int f = 0; f < FILES; f++)
        length[f] = l->text[f].len;
    l->packed.len = 0;
    bad = dry_buffer_append(&l->packed, length, sizeof length);
    for (int f = 0; f < FILES && !bad; f++)
        bad = dry_buffer_append(&l->packed, l->text[f].data, l->text[f].len);
    for (int f = 0; f < FILES; f++)
        l->text[f].len = 0;
    if (bad) {
        l->packed.len = 0;
        dry_warn("stages.csv lacks this rank's lines of the last second; training goes on");
    }
}

/* The file's lines of all ranks, one after another. */
static void collect(struct dry_ledger *l, const char *all, enum file f)
{
    int bad = 0;

    l->packed.len = 0;
    for (int r = 0; r < l->ranks && !bad; all += l->sizes[r++]) {
        const char *text = all + FILES * sizeof(uint64_t);
        uint64_t length[FILES];

        if (l->sizes[r] == 0)
            continue;
        memcpy(length, all, sizeof length);
        for (int before = 0; before < (int)f; before++)
            text += length[before];
        bad = dry_buffer_append(&l->packed, text, length[f]);
    }
    if (!bad)
        write_text(l, f, l->packed.data, l->packed.len);
}

static enum dry_status gather(struct dry_ledger *l)
{
    void *all = NULL;
    enum dry_status status;

    pack(l);
    status = dry_comm_gather(l->in.comm, l->packed.data, l->packed.len, 0, &all, l->sizes);
    for (int f = 0; f < FILES && !status && l->rank == 0; f++)
        collect(l, all, (enum file)f);
    dry_free(all);
    return status;
}

enum dry_status dry_ledger_put(struct dry_ledger *l, enum dry_phase phase, int64_t step,
                               const struct dry_share *share, int gathering)
{
    enum dry_stage before = dry_stages_enter(l->in.stages, DRY_STAGE_UNEXPLAINED);
    size_t kept[FILES];
    enum dry_status status = DRY_OK;

    for (int f = 0; f < FILES; f++)
        kept[f] = l->text[f].len;
    if (put_row(l, phase, step, share) || put_samples(l, step)) { /* half a line is none */
        for (int f = 0; f < FILES; f++)
            l->text[f].len = kept[f];
        dry_warn("stages.csv lacks this rank's line of step %lld; training goes on", (long long)step);
    }
    if (gathering) {
        dry_stages_enter(l->in.stages, DRY_STAGE_WAIT); /* others may come later */
        status = gather(l);
    }
    dry_stages_enter(l->in.stages, before);
    return status;
}

enum dry_status dry_ledger_open(const struct dry_ledger_input *in, struct dry_ledger **ledger)
{
    struct dry_ledger *l = dry_alloc(1, sizeof *l, "the account's lines");
    enum dry_status status = DRY_OK;

    if (l) {
        l->in = *in;
        l->rank = dry_comm_rank(in->comm);
        l->ranks = dry_comm_size(in->comm);
        l->since = in->started;
        for (int f = 0; f < FILES; f++)
            l->fd[f] = -1;
        if (gethostname(l->host, sizeof l->host - 1))
            snprintf(l->host, sizeof l->host, "unknown");
        l->sizes = dry_alloc((size_t)l->ranks, sizeof *l->sizes, "sizes of the ranks' lines");
    }
    if (!l || !l->sizes)
        status = DRY_ERR_MEMORY;
    else if (l->rank == 0)
        status = prepare_files(l);
    status = dry_comm_agree(in->comm, status);
    if (!status)
        status = dry_comm_bcast(in->comm, &l->start, sizeof l->start, 0);
    if (status)
        dry_ledger_close(l);
    else
        *ledger = l;
    return status;
}

void dry_ledger_close(struct dry_ledger *l)
{
    if (!l)
        return;
    for (int f = 0; f < FILES; f++) {
        if (l->fd[f] >= 0)
            close(l->fd[f]);
        dry_buffer_reset(&l->text[f]);
    }
    dry_buffer_reset(&l->packed);
    dry_free(l->sizes);
    dry_free(l);
}
