/*
 * Foretells how long the planned run takes, from a scale's model or from the steady steps of a run.
 * Owns nothing that outlives a call.
 * Must not know how plans are made or steps measured.
 */
#include "config.h"

#include "command/plan_measured.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "compute/backend.h"
#include "data/shares.h"
#include "measure/words.h"

#include <math.h>
#include <string.h>

/* WALKED: steps of the plan from which a mean share follows; WARM: first steps of a run that are left out,
 * fewer of a short one. */
enum { WALKED = 2000, WARM = 5, MOST_RANKS = 64 };

/* Another base or adapter costs another time for the same tokens. */
static enum dry_status check_contract(const struct dry_plan_subject *s, const char *where,
                                      const json_t *object)
{
    struct dry_contract then;
    const char *what = NULL;
    enum dry_status status = dry_contract_from_json(json_object_get(object, "contract"), where, &then);

    if (status)
        return status;
    if (strcmp(then.base, s->contract->base) != 0)
        what = "base";
    else if (strcmp(then.adapter, s->contract->adapter) != 0)
        what = "adapter";
    if (!what)
        return DRY_OK;
    dry_error(
        "--measured %s: was measured with another %s than this plan's, so its times say nothing of this "
        "run; measure again with drydock scale",
        where, what);
    return DRY_ERR_INPUT;
}

static enum dry_status from_scale(const struct dry_plan_subject *s, const char *path,
                                  struct dry_plan_measured *m)
{
    json_t *all = NULL;
    enum dry_status status = dry_json_read(path, &all);

    if (!status)
        status = check_contract(s, path, all);
    if (!status)
        status = dry_scaling_from_json(json_object_get(all, "model"), path, &m->model);
    m->scale = 1;
    json_decref(all);
    return status;
}

/* Steps of the range that saved or validated, as rank 0 saw it. */
static int64_t steps_with(const struct dry_history *h, int64_t first, enum dry_stage stage)
{
    int64_t count = 0;

    for (size_t i = 0; i < h->rows; i++) {
        const struct dry_history_row *r = &h->row[i];

        count += r->start == h->starts - 1 && r->phase == DRY_PHASE_STEP && r->rank == 0 &&
                 r->step >= first && r->stage[stage] > 0;
    }
    return count;
}

/* Mean over the steps of the most padded tokens of a rank, as cost. */
static double load_by_tokens(const struct dry_history *h, const struct dry_account *a)
{
    struct dry_micro_batch micro = {.tokens = 0};
    double sum = 0;

    for (int64_t step = a->first; step <= a->last; step++) {
        int64_t most = 0;

        for (size_t i = 0; i < h->rows; i++)
            if (h->row[i].start == h->starts - 1 && h->row[i].phase == DRY_PHASE_STEP &&
                h->row[i].step == step)
                most = dry_larger(most, h->row[i].padded);
        micro.tokens = most;
        sum += (double)dry_plan_cost(&micro);
    }
    return sum / (double)a->steps;
}

static enum dry_status row_of(const struct dry_plan_subject *s, const struct dry_history *h,
                              struct dry_plan_measured *m, struct dry_scaling_row *row)
{
    const char *theirs = json_string_value(json_object_get(h->run, "plan_hash"));
    char hash[DRY_HASH_HEX];
    struct dry_account_range range = {.start = -1, .first = 1};
    struct dry_plan_share share;
    enum dry_status status = dry_account_make(h, &range, &row->account);

    if (!status) {
        range.first = row->account.first + dry_smaller(WARM, row->account.steps / 4);
        status = dry_account_make(h, &range, &row->account);
    }
    if (!status)
        status = dry_plan_hash(s->plan, hash);
    if (status)
        return status;
    m->first = row->account.first;
    m->last = row->account.last;
    m->ranks = row->ranks = row->together = row->account.ranks;
    row->checkpoints = steps_with(h, m->first, DRY_STAGE_CHECKPOINT);
    row->validations = steps_with(h, m->first, DRY_STAGE_VALIDATION);
    m->exact = theirs && strcmp(theirs, hash) == 0 && m->last <= dry_plan_steps(s->plan);
    if (!m->exact) {
        row->load = load_by_tokens(h, &row->account);
        return DRY_OK;
    }
    status = dry_plan_shares_of(s->plan, m->first, m->last, row->ranks, &share);
    row->load = share.load;
    return status;
}

static enum dry_status from_run(const struct dry_plan_subject *s, const char *folder,
                                struct dry_plan_measured *m)
{
    double bytes = (double)((size_t)s->adapter->parameters + DRY_SUMS) * sizeof(int64_t), bandwidth = 0;
    struct dry_scaling_row row = {.ranks = 0};
    struct dry_history *h = NULL;
    enum dry_status status = dry_history_open(folder, &h);

    if (!status)
        status = check_contract(s, folder, h->run);
    if (!status)
        status = row_of(s, h, m, &row);
    if (!status && row.ranks == 1)
        status = dry_scaling_bandwidth(bytes, &bandwidth);
    if (!status)
        status = dry_scaling_fit(&row, 1, bytes, bandwidth, &m->model);
    dry_history_close(h);
    return status;
}

static enum dry_status foretell(const struct dry_plan_subject *s, struct dry_plan_measured *m, int ranks)
{
    const struct dry_config *c = s->config;
    const struct dry_contract *k = s->contract;
    int64_t walked = dry_smaller(dry_smaller(k->steps_per_epoch, k->steps), WALKED);
    int64_t saves = c->checkpoint_interval ? dry_pieces(k->steps, c->checkpoint_interval) : 1;
    int64_t validates = !s->validation           ? 0
                        : c->validation_interval ? dry_pieces(k->steps, c->validation_interval)
                                                 : 1;
    struct dry_plan_time *t = &m->time[m->times];
    struct dry_plan_share share;
    enum dry_status status = dry_plan_shares_of(s->plan, 1, walked, ranks, &share);

    if (status)
        return status;
    t->ranks = ranks;
    t->step =
        dry_scaling_seconds(&m->model, ranks, share.load) +
        (m->model.checkpoint * (double)saves + m->model.validation * (double)validates) / (double)k->steps;
    t->hours = t->step * (double)k->steps / 3600;
    t->epoch_hours = t->step * (double)k->steps_per_epoch / 3600;
    if (m->smallest < 0 && t->hours <= m->target)
        m->smallest = m->times;
    m->times++;
    return DRY_OK;
}

enum dry_status dry_plan_measured_make(const struct dry_plan_subject *s, struct dry_plan_measured *out)
{
    const char *folder = s->config->measured;
    struct dry_plan_measured m = {.smallest = -1, .target = s->config->target_hours};
    char *scale = dry_path_join(folder, "scaling.json"), *run = dry_path_join(folder, "run.json");
    enum dry_status status = scale && run ? DRY_OK : DRY_ERR_MEMORY;

    if (!status && dry_file_exists(scale)) {
        status = from_scale(s, scale, &m);
    } else if (!status && dry_file_exists(run)) {
        status = from_run(s, folder, &m);
    } else if (!status) {
        dry_error("--measured %s: holds neither scaling.json (of drydock scale) nor run.json (of drydock "
                  "finetune)",
                  folder);
        status = DRY_ERR_INPUT;
    }
    for (int n = 1; n <= MOST_RANKS && !status; n *= 2) {
        if (s->ranks < n && (m.times == 0 || m.time[m.times - 1].ranks < s->ranks))
            status = foretell(s, &m, s->ranks);
        if (!status)
            status = foretell(s, &m, n);
    }
    if (s->ranks > MOST_RANKS && !status)
        status = foretell(s, &m, s->ranks);
    m.validation = s->validation && !(m.model.validation > 0);
    dry_free(scale);
    dry_free(run);
    if (!status)
        *out = m;
    return status;
}

/* ---- shown ---- */

static void print_origin(FILE *out, const struct dry_plan_subject *s, const struct dry_plan_measured *m)
{
    fprintf(out, "time, from what was measured in %s\n", s->config->measured);
    if (m->scale && m->model.left_out)
        fprintf(out, "  the model of that scale missed the %d ranks that it was not fitted to by %+.1f %%\n",
                m->model.left_out, 100 * m->model.left_out_error);
    if (!m->scale)
        fprintf(out, "  steps %lld to %lld of one run on %d rank%s%s\n", (long long)m->first,
                (long long)m->last, m->ranks, dry_plural(m->ranks),
                m->exact ? "" : "; it had another plan than this, so its work is counted by tokens");
    if (m->model.predicted)
        fprintf(out,
                "  one rank was measured: what more ranks take is predicted from this host's memory, %s/s\n",
                dry_words_bytes(m->model.bandwidth).text);
    else
        fprintf(out, "  more ranks are taken to sit on further hosts, at most %d on each as measured\n",
                m->model.together);
    if (m->validation)
        fprintf(out, "  validation was not measured and is not in these times\n");
}

void dry_plan_measured_print(FILE *out, const struct dry_plan_subject *s, const struct dry_plan_measured *m)
{
    print_origin(out, s, m);
    fprintf(out, "  %-7s %14s %14s %14s\n", "ranks", "s/step", "an epoch", "in all");
    for (int i = 0; i < m->times; i++) {
        const struct dry_plan_time *t = &m->time[i];

        fprintf(out, "%c %-7d %14s %14s %14s\n", t->ranks == s->ranks ? '*' : ' ', t->ranks,
                dry_words_real(t->step).text, dry_words_seconds(t->epoch_hours * 3600).text,
                dry_words_seconds(t->hours * 3600).text);
    }
    if (m->smallest >= 0)
        fprintf(out, "  * this call; the fewest of these that end within %.9g hours: %d rank%s\n", m->target,
                m->time[m->smallest].ranks, dry_plural(m->time[m->smallest].ranks));
    else
        fprintf(out, "  * this call; none of these ends within %.9g hours\n", m->target);
}

json_t *dry_plan_measured_json(const struct dry_plan_measured *m)
{
    json_t *rows = json_array();
    int bad = !rows;

    for (int i = 0; i < m->times && !bad; i++)
        bad = json_array_append_new(rows, json_pack("{s:i, s:f, s:f, s:f}", "ranks", m->time[i].ranks,
                                                    "step_seconds", m->time[i].step, "epoch_hours",
                                                    m->time[i].epoch_hours, "hours", m->time[i].hours));
    if (bad) {
        json_decref(rows);
        return NULL;
    }
    return json_pack("{s:o, s:b, s:f, s:o, s:o}", "model", dry_scaling_json(&m->model), "exact",
                     m->scale || m->exact, "target_hours", m->target, "smallest_ranks",
                     m->smallest >= 0 ? json_integer(m->time[m->smallest].ranks) : json_null(), "forecasts",
                     rows);
}
