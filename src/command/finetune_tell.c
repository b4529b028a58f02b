/*
 * What finetune tells: the machine that it found, what is about to happen, and in the end where the time
 * went. Owns nothing; what it opens is struct dry_finetune's. Must not know how a step is computed.
 */
#include "config.h"

#include "command/finetune.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "measure/report.h"
#include "measure/verdict.h"
#include "train/rate.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the machine ---- */

/* Local. The device's probe, which the sampler takes; the GPU of several ranks is looked at by the first of
 * them. Says once where there is none, and that is all that follows. */
static void attach_probe(struct dry_finetune *f, int device, int first, json_t *mine)
{
    const struct dry_probe_ops *ops = dry_probe_of(f->backend->ops->name);
    const char *why = "this build has nothing to ask GPUs with";
    struct dry_probe *probe = NULL;
    int bad;

    if (!f->backend->ops->devices)
        return;
    if (!ops || ops->open(device, &probe, &why)) {
        dry_info("gpu.csv: no samples of the GPU: %s", why);
        return;
    }
    bad = json_object_set_new(mine, "device", json_string(ops->name(probe)));
    bad = json_object_set_new(mine, "driver", json_string(ops->driver(probe))) || bad;
    bad = json_object_set_new(mine, "index", json_integer(ops->number(probe))) || bad;
    if (bad)
        dry_debug("a GPU's name is no UTF-8");
    if (f->sampler && first)
        dry_sampler_attach(f->sampler, ops, probe);
    else
        ops->close(probe);
}

/* Local. What this rank computes on; NULL: no memory. */
static json_t *describe_rank(struct dry_finetune *f, int device, int first, double rate, double beside)
{
    char host[256] = "";
    json_t *mine;

    if (gethostname(host, sizeof host - 1))
        snprintf(host, sizeof host, "unknown");
    mine = json_pack("{s:i, s:s, s:s, s:n, s:i, s:f, s:f}", "rank", f->rank, "host", host, "device",
                     f->backend->ops->describe(f->backend), "driver", "threads", omp_get_max_threads(),
                     "matrix", rate, "matrix_beside", beside);
    if (mine)
        attach_probe(f, device, first, mine);
    return mine;
}

/* Rank 0. The texts of all ranks as an array; NULL: no memory. */
static json_t *array_of(const char *all, const size_t *sizes, int ranks)
{
    json_t *array = json_array();

    for (int r = 0; array && r < ranks; all += sizes[r++])
        if (json_array_append_new(array, json_loadb(all, sizes[r], 0, NULL))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

enum dry_status dry_finetune_machine(struct dry_finetune *f, const struct dry_limits *limits)
{
    size_t *sizes = dry_alloc((size_t)f->ranks, sizeof *sizes, "sizes of the ranks' devices");
    int device = -1, first = 1;
    double rate = 0, beside = 0;
    json_t *mine = NULL;
    char *text = NULL;
    void *all = NULL;
    enum dry_status status = dry_setup_device(f->call, f->backend->ops, &device, &first);

    dry_log_defer(1);
    if (!status) /* all at once, as they will compute */
        status = dry_rate_matrix(f->engine, f->base, f->adapter, limits, &rate, &beside);
    if (!status && (!sizes || !(mine = describe_rank(f, device, first, rate, beside)) ||
                    !(text = json_dumps(mine, JSON_COMPACT | JSON_REAL_PRECISION(6)))))
        status = DRY_ERR_MEMORY;
    status = dry_comm_agree(f->comm, status);
    if (!status)
        status = dry_comm_gather(f->comm, text, strlen(text), 0, &all, sizes);
    if (!status && f->rank == 0 && !(f->devices = array_of(all, sizes, f->ranks)))
        status = DRY_ERR_MEMORY;
    status = dry_comm_agree(f->comm, status);
    dry_log_defer(0);
    free(text);
    json_decref(mine);
    dry_free(all);
    dry_free(sizes);
    return status;
}

/* Local. Operations by the LoRA count, attention too, of a useful token of this data. */
static double flops_per_token(const struct dry_finetune *f)
{
    const struct dry_cache_view *v = dry_cache_view(f->cache);
    double square = 0;

    for (int64_t r = 0; r < v->records; r++) {
        double length = (double)(v->offset[r + 1] - v->offset[r]);

        square += length * length;
    }
    return dry_rate_flops(&f->base->arch, f->adapter, (double)v->tokens, square) / (double)v->tokens;
}

/* ---- the start ---- */

/* Local, rank 0. "step 3 has 4 micro-batches, accumulation 1 to 2": how a step's micro-batches fall to the
 * ranks. */
static enum dry_status share_text(struct dry_finetune *f, int64_t step, int *owner, int64_t *share,
                                  char text[128])
{
    struct dry_plan_step s;
    int64_t least, most;
    size_t n;
    enum dry_status status = dry_plan_step(f->plan, step, &s);

    if (status)
        return status;
    memset(share, 0, (size_t)f->ranks * sizeof *share);
    dry_plan_deal(&s, f->ranks, owner);
    for (int64_t m = 0; m < s.micros; m++)
        share[owner[m]]++;
    least = most = share[0];
    for (int r = 1; r < f->ranks; r++) {
        least = share[r] < least ? share[r] : least;
        most = dry_larger(most, share[r]);
    }
    n = (size_t)snprintf(text, 128, "step %lld has %lld micro-batch%s, accumulation ", (long long)step,
                         (long long)s.micros, s.micros == 1 ? "" : "es");
    if (least == most)
        snprintf(text + n, 128 - n, "%lld", (long long)most);
    else
        snprintf(text + n, 128 - n, "%lld to %lld", (long long)least, (long long)most);
    return DRY_OK;
}

/* Local. The first of the steps that have the most micro-batches. */
static enum dry_status largest_step(const struct dry_finetune *f, int64_t micros, int64_t *step)
{
    struct dry_plan_step s = {0};
    enum dry_status status = DRY_OK;

    for (*step = 0; !status && s.micros < micros;)
        status = dry_plan_step(f->plan, ++*step, &s);
    return status;
}

/* Local, rank 0. How the micro-batches of the next step and of the largest one fall to the ranks. */
static enum dry_status say_shares(struct dry_finetune *f)
{
    struct dry_plan_bounds b;
    int64_t first = f->resumed ? f->state.step + 1 : 1, largest = 0, *share = NULL;
    int *owner = NULL;
    char next[128], most[128];
    enum dry_status status = dry_plan_bounds(f->plan, &b);

    if (!status)
        status = largest_step(f, b.micros, &largest);
    if (!status) {
        owner = dry_alloc((size_t)b.micros, sizeof *owner, "the dealing of micro-batches");
        share = dry_alloc((size_t)f->ranks, sizeof *share, "the shares of ranks");
        status = owner && share ? DRY_OK : DRY_ERR_MEMORY;
    }
    if (first > f->contract.steps) /* only the end of the run is left to be done */
        first = f->contract.steps;
    if (!status)
        status = share_text(f, first, owner, share, next);
    if (!status)
        status = share_text(f, largest, owner, share, most);
    if (!status)
        dry_info("ranks %d: %s%s%s", f->ranks, next,
                 largest == first ? "" : "; the largest: ", largest == first ? "" : most);
    if (!status && b.micros < f->ranks)
        dry_warn("ranks without work in any step: %lld of %d; no step has more than %lld micro-batch%s, "
                 "smaller ones (--micro-batch-tokens) would keep more ranks busy",
                 (long long)(f->ranks - b.micros), f->ranks, (long long)b.micros, b.micros == 1 ? "" : "es");
    dry_free(owner);
    dry_free(share);
    return status;
}

static void count_text(int64_t count, char text[32])
{
    if (count < 1000000)
        snprintf(text, 32, "%lld", (long long)count);
    else
        snprintf(text, 32, "%.1f million", (double)count / 1e6);
}

enum dry_status dry_finetune_say_start(struct dry_finetune *f)
{
    const struct dry_contract *k = &f->contract;
    const struct dry_arch *a = &f->base->arch;
    const struct dry_cache_view *v = dry_cache_view(f->cache);
    int64_t cut = k->micro_records ? k->micro_records : k->micro_tokens;
    char total[16], arena[16], size[32], trained[32];

    dry_bytes_text((double)f->layout.total, total);
    dry_bytes_text((double)f->layout.arena, arena);
    count_text(dry_arch_parameters(a), size);
    count_text(f->adapter->parameters, trained);
    dry_info("base %s: %s, %lld layers, %s parameters", f->call->config->base, a->family,
             (long long)a->layers, size);
    dry_info("adapter: rank %lld, %lld matrices, %s parameters%s", (long long)f->adapter->max_rank,
             (long long)(2 * f->adapter->parts), trained, f->adapter->dropout > 0 ? ", dropout" : "");
    dry_info("records %lld: %lld tokens, %lld supervised", (long long)v->records, (long long)v->tokens,
             (long long)v->supervised);
    dry_info(
        "contract: effective batch %lld record%s, micro-batches of %lld %s%s, %lld step%s (%lld per epoch), "
        "warm-up %lld, "
        "%s schedule, learning rate %.3g, seed %lld",
        (long long)k->effective_batch, dry_plural(k->effective_batch), (long long)cut,
        k->micro_records ? "record" : "token", dry_plural(cut), (long long)k->steps, dry_plural(k->steps),
        (long long)k->steps_per_epoch, (long long)k->warmup_steps, k->schedule,
        k->learning_rate * f->state.rate_factor, (long long)k->seed);
    if (dry_contract_record_tokens(k))
        dry_info("padding: each record takes %lld tokens of computing (--padding fixed)",
                 (long long)dry_contract_record_tokens(k));
    dry_info("memory: %s per rank, of it %s activations; backend %s", total, arena,
             f->backend->ops->describe(f->backend));
    if (k->warmup_steps >= k->steps)
        dry_warn("the learning rate does not reach %.3g: warm-up takes %lld of %lld step%s, and begins at 0; "
                 "--warmup-steps says how long it is",
                 k->learning_rate * f->state.rate_factor, (long long)k->warmup_steps, (long long)k->steps,
                 dry_plural(k->steps));
    if (f->resumed)
        dry_info("resumed from step %lld of %lld", (long long)f->state.step, (long long)k->steps);
    return say_shares(f);
}

enum dry_status dry_finetune_open_run(struct dry_finetune *f)
{
    const struct dry_cache_view *v = dry_cache_view(f->cache),
                                *held_out = f->validation_cache ? dry_cache_view(f->validation_cache) : NULL;
    char hash[DRY_HASH_HEX], *libraries = NULL, mpi[64];
    struct dry_manifest m = {.command = "finetune",
                             .argc = f->call->argc,
                             .argv = f->call->argv,
                             .options = f->options,
                             .contract = &f->contract,
                             .plan_hash = hash,
                             .base = f->dir,
                             .backend = f->backend->ops->describe(f->backend),
                             .ranks = f->ranks,
                             .resumed_from = f->resumed ? f->state.step : 0,
                             .resumed_validated = f->resumed ? f->state.validated_step : 0,
                             .change = f->change,
                             .began = f->call->started,
                             .output = f->call->config->output,
                             .data = v->data_path,
                             .data_hash = v->data_hash,
                             .tokenizer_hash = v->tokenizer_hash,
                             .validation = held_out ? held_out->data_path : NULL,
                             .validation_hash = held_out ? held_out->data_hash : NULL,
                             .resident = f->resident,
                             .devices = f->devices,
                             .flops_per_token = flops_per_token(f),
                             .flops_per_squared_length = dry_rate_flops(&f->base->arch, f->adapter, 0, 1)};
    enum dry_status status = dry_plan_hash(f->plan, hash);
    char *text;

    dry_comm_library(mpi, sizeof mpi);
    if (!status &&
        !(libraries = dry_format("{\"hdf5\": \"%s\", \"mpi\": \"%s\"}", dry_checkpoint_library(), mpi)))
        status = DRY_ERR_MEMORY;
    m.libraries = libraries;
    if (!status)
        status = dry_run_start(f->call->config->output, &m, &f->run);
    dry_free(libraries);
    if (status)
        return status;
    text = json_dumps(f->options, JSON_COMPACT);
    f->options_text = text ? dry_strdup(text) : NULL;
    free(text);
    f->manifest_text = dry_run_manifest_text(f->run);
    if (!f->options_text || !f->manifest_text)
        return DRY_ERR_MEMORY;
    return dry_progress_create(f->contract.steps, f->resumed ? f->state.step + 1 : 1,
                               f->call->config->log_interval, &f->progress);
}

/* ---- the end ---- */

/* What the end is told from. */
struct end {
    struct dry_history *history;
    struct dry_account account;
    struct dry_verdict verdict;
    int known; /* account and verdict are */
};

/* The run's own folder read back. */
static enum dry_status look_back(const struct dry_finetune *f, struct end *e)
{
    static const struct dry_account_range whole = {.start = -1, .whole = 1};
    const char *output = f->call->config->output;
    enum dry_status status = dry_history_open(output, &e->history);

    if (status)
        return status;
    if (e->history->rows == 0) {
        dry_warn("%s: where time went is not known: stages.csv has no line", output);
        return DRY_OK;
    }
    status = dry_account_make(e->history, &whole, &e->account);
    if (!status)
        status = dry_verdict_make(e->history, &e->verdict);
    e->known = !status;
    return status;
}

/* The most memory that was seen in use on rank 0's device, or by its process, beside what was laid out. */
static void say_memory(const struct dry_finetune *f, const struct dry_history *h)
{
    char planned[16], used[16];
    double most = 0;
    int device = 0;

    for (size_t i = 0; i < h->samples; i++) {
        const struct dry_history_sample *s = &h->sample[i];

        if (s->rank != 0 || s->start != h->row[h->rows - 1].start || (device && s->index < 0) ||
            !(s->memory > 0))
            continue;
        if (s->index >= 0 && !device)
            most = 0;
        device |= s->index >= 0;
        most = s->memory > most ? s->memory : most;
    }
    if (!(most > 0))
        return;
    dry_bytes_text((double)f->layout.total, planned);
    dry_bytes_text(most, used);
    fprintf(stderr, "  memory: %s laid out for a rank; at most %s in use %s\n", planned, used,
            device ? "on rank 0's GPU" : "by rank 0's process, its libraries and maps of files included");
}

/* For people, on standard error. */
static void show(const struct dry_finetune *f, const struct end *e)
{
    if (dry_log_level_now() < DRY_LOG_INFO ||
        dry_log_prefix_now()) /* several at once: each has its report.txt */
        return;
    fprintf(stderr, "\n");
    dry_account_print(stderr, &e->account);
    say_memory(f, e->history);
    fprintf(stderr, "\n");
    dry_verdict_print(stderr, &e->verdict);
}

/* report.txt and report.html from what run.json now says. */
static enum dry_status write_reports(const struct dry_finetune *f, struct dry_history *h)
{
    const char *output = f->call->config->output;
    char *run = dry_path_join(output, "run.json"), *text = dry_path_join(output, "report.txt"),
         *page = dry_path_join(output, "report.html");
    enum dry_status status = run && text && page ? DRY_OK : DRY_ERR_MEMORY;

    json_decref(h->run);
    h->run = NULL;
    if (!status)
        status = dry_json_read(run, &h->run);
    if (!status)
        status = dry_report_text(h, text);
    if (!status)
        status = dry_report_html(h, NULL, page);
    if (!status)
        dry_info("report: %s, %s", text, page);
    dry_free(run);
    dry_free(text);
    dry_free(page);
    return status;
}

/* The algorithms of matrix products; NULL: the backend has no choice of them. */
static json_t *algorithms(const struct dry_finetune *f)
{
    char *text = f->backend && f->backend->ops->algorithms ? f->backend->ops->algorithms(f->backend) : NULL;
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;

    dry_free(text);
    return list;
}

enum dry_status dry_finetune_finish(struct dry_finetune *f, const struct dry_loop *l, enum dry_status outcome)
{
    struct end e = {.known = 0};
    struct dry_run_end end = {.results = dry_finetune_results(f, l), .algorithms = algorithms(f)};
    enum dry_status told = look_back(f, &e), written;

    if (e.known) {
        end.account = dry_account_json(&e.account);
        end.verdict = dry_verdict_json(&e.verdict);
    }
    written = dry_run_finish(f->run, outcome, &f->stages, &end);
    f->run = NULL;
    if (e.known && (!outcome || outcome == DRY_STOPPED))
        show(f, &e);
    if (!told && !written)
        told = write_reports(f, e.history);
    if (told) /* the finder has said what is wrong: what was trained is there, and can be reported on later */
        dry_warn("%s: no report of this run was written; drydock report writes one", f->call->config->output);
    dry_history_close(e.history);
    return written;
}
