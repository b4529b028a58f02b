/*
 * An account for people, and as JSON.
 * Owns nothing.
 * Must not know where the numbers come from.
 */
#include "config.h"

#include "measure/account.h"

#include "measure/words.h"

#include "base/log.h"

#include <math.h>
#include <string.h>

static double mean_wall(const struct dry_account *a)
{
    double sum = 0;

    for (int k = 0; k < DRY_STAGES; k++)
        sum += a->stage[k].mean;
    return sum;
}

static void print_title(FILE *out, const struct dry_account *a)
{
    if (a->steps == 0)
        fprintf(out, "account of a start without a step");
    else if (a->first == a->last)
        fprintf(out, "account of step %lld", (long long)a->first);
    else
        fprintf(out, "account of steps %lld to %lld", (long long)a->first, (long long)a->last);
    fprintf(out, " on %d rank%s: %s of wall-clock", a->ranks, dry_plural(a->ranks),
            dry_words_seconds(a->wall).text);
    if (a->steps > 0)
        fprintf(out, ", %s a step", dry_words_seconds(a->step_seconds).text);
    fprintf(out, "\n");
}

/* A stage that takes no time anywhere is left out; what is not explained never is. */
static void print_stages(FILE *out, const struct dry_account *a)
{
    double whole = mean_wall(a), sum = 0;

    if (a->ranks == 1)
        fprintf(out, "  %-22s %8s %12s\n", "stage", "share", "seconds");
    else
        fprintf(out, "  %-22s %8s %12s %12s %12s  %s\n", "stage", "share", "least s", "median s", "most s",
                "slowest");
    for (int k = 0; k < DRY_STAGES; k++) {
        const struct dry_spread *s = &a->stage[k];
        const char *name = dry_stage_name((enum dry_stage)k);
        double share = whole > 0 ? 100 * s->mean / whole : 0;

        sum += share;
        if (!(s->most > 0) && k != DRY_STAGE_UNEXPLAINED)
            continue;
        if (a->ranks == 1)
            fprintf(out, "  %-22s %6.1f %% %12.3f\n", name, share, s->most);
        else if (s->most > s->least)
            fprintf(out, "  %-22s %6.1f %% %12.3f %12.3f %12.3f  rank %d\n", name, share, s->least, s->median,
                    s->most, s->most_rank);
        else
            fprintf(out, "  %-22s %6.1f %% %12.3f %12.3f %12.3f\n", name, share, s->least, s->median,
                    s->most);
    }
    fprintf(out, "  %-22s %6.1f %% %12.3f\n", a->ranks == 1 ? "wall-clock" : "wall-clock (mean)", sum, whole);
}

static void print_rates(FILE *out, const struct dry_account *a)
{
    if (a->ranks > 1 && a->busy_least > 0)
        fprintf(out, "  rank %d computes longest, %.2f times as long as the rank that computes least\n",
                a->busy_most_rank, a->busy_most / a->busy_least);
    if (a->padded > 0)
        fprintf(out, "  tokens: %s useful, %s supervised; %s computed with padding (%s padding)\n",
                dry_words_count(a->tokens).text, dry_words_count(a->supervised).text,
                dry_words_count(a->padded).text, dry_words_share(1 - a->tokens / a->padded).text);
    if (a->steps == 0)
        return;
    fprintf(out, "  rate: %s useful tokens/s, %s supervised", dry_words_real(a->tokens_per_second).text,
            dry_words_real(a->supervised_per_second).text);
    if (a->flops_per_second > 0)
        fprintf(out, "; %s by the LoRA count", dry_words_unit(a->flops_per_second, "FLOP/s").text);
    fprintf(out, "\n");
    if (a->flops_per_second > 0 && a->matrix_per_second > 0)
        fprintf(out, "  that is %s of the %s that products of this run's shapes reach\n",
                dry_words_share(a->flops_per_second / a->matrix_per_second).text,
                dry_words_unit(a->matrix_per_second, "FLOP/s").text);
    if (isfinite(a->step_energy))
        fprintf(out, "  energy: %s a step, %s per million useful tokens; %s in all\n",
                dry_words_unit(a->step_energy / (double)a->steps, "J").text,
                dry_words_unit(a->step_energy / a->tokens * 1e6, "J").text,
                dry_words_unit(a->energy, "J").text);
}

void dry_account_print(FILE *out, const struct dry_account *a)
{
    print_title(out, a);
    print_stages(out, a);
    print_rates(out, a);
    fprintf(out, "  closing error: %s of wall-clock at most on any rank\n",
            dry_words_share(a->unexplained).text);
}

/* ---- JSON ---- */

/* Null for what is not known. */
static json_t *real(double x, int known)
{
    return known && isfinite(x) ? json_real(x) : json_null();
}

static json_t *stages_json(const struct dry_account *a)
{
    json_t *all = json_object();

    for (int k = 0; all && k < DRY_STAGES; k++) {
        const struct dry_spread *s = &a->stage[k];
        json_t *one = json_pack("{s:f, s:f, s:f, s:f, s:i}", "least", s->least, "median", s->median, "most",
                                s->most, "mean", s->mean, "slowest_rank", s->most_rank);

        if (json_object_set_new(all, dry_stage_name((enum dry_stage)k), one)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

json_t *dry_account_json(const struct dry_account *a)
{
    double share = a->matrix_per_second > 0 ? a->flops_per_second / a->matrix_per_second : 0;
    int steps = a->steps > 0;
    json_t *stages = stages_json(a);

    if (!stages)
        return NULL;
    return json_pack(
        "{s:i, s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:f, s:f, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o}",
        "ranks", a->ranks, "first_step", (json_int_t)a->first, "last_step", (json_int_t)a->last, "steps",
        (json_int_t)a->steps, "wall_seconds", a->wall, "stepping_seconds", a->stepping, "step_seconds",
        real(a->step_seconds, steps), "stages", stages, "busy_least_seconds", a->busy_least,
        "busy_most_seconds", a->busy_most, "busy_most_rank", a->busy_most_rank, "tokens",
        (json_int_t)a->tokens, "padded_tokens", (json_int_t)a->padded, "supervised",
        (json_int_t)a->supervised, "micro_batches", (json_int_t)a->micros, "micro_batches_most",
        (json_int_t)a->micros_most, "closing_error", a->unexplained, "tokens_per_second",
        real(a->tokens_per_second, steps), "supervised_per_second", real(a->supervised_per_second, steps),
        "flops_per_second", real(a->flops_per_second, a->flops_per_second > 0), "matrix_flops_per_second",
        real(a->matrix_per_second, a->matrix_per_second > 0), "matrix_share", real(share, share > 0),
        "energy_joules", real(a->energy, 1), "energy_joules_per_step",
        real(a->step_energy / (double)a->steps, steps), "energy_joules_per_million_tokens",
        real(a->step_energy / a->tokens * 1e6, a->tokens > 0));
}
