/*
 * The head, tiles, boxes and tables of report.html.
 * Owns nothing.
 * Must not know where the numbers come from.
 */
#include "config.h"

#include "measure/report_parts.h"

#include "measure/report_draw.h"
#include "measure/words.h"

#include "base/file.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- head */

/* "2026-01-31T12:00:00.000Z" as "2026-01-31 12:00:00 UTC". */
static void put_time(struct dry_page *p, const char *iso)
{
    char text[32];

    if (strlen(iso) >= 19 && iso[10] == 'T') {
        snprintf(text, sizeof text, "%.10s %.8s UTC", iso, iso + 11);
        iso = text;
    }
    dry_page_text(p, iso);
}

void dry_report_head(struct dry_page *p, const struct dry_report *r)
{
    const char *started = dry_report_text_at(r, "started", NULL),
               *finished = dry_report_text_at(r, "finished", NULL);
    double ranks = dry_report_number_at(r, "ranks");

    dry_page_put(p, "<header>\n<p class=\"kicker\">drydock, LoRA fine-tuning</p>\n<h1>");
    dry_page_text(p, r->name);
    dry_page_put(p, " <span class=\"badge %s\">%s</span></h1>\n<p class=\"sub\">",
                 r->good > 0   ? "good"
                 : r->good < 0 ? "bad"
                               : "open",
                 r->outcome);
    dry_page_text(
        p, dry_report_text_at(r, "options.base.value", dry_report_text_at(r, "base", "base not known")));
    if (ranks >= 1)
        dry_page_put(p, ", %.0f rank%s", ranks, ranks == 1 ? "" : "s");
    if (dry_report_at(r, "backend")) {
        dry_page_put(p, ", ");
        dry_page_text(p, dry_report_text_at(r, "backend", ""));
    }
    if (started) {
        dry_page_put(p, "<br/>started ");
        put_time(p, started);
    }
    if (finished) {
        dry_page_put(p, ", ended ");
        put_time(p, finished);
    }
    dry_page_put(p, "</p>\n</header>\n");
}

__attribute__((format(printf, 3, 4))) static void tile(struct dry_page *p, const char *name,
                                                       const char *format, ...)
{
    char text[96];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    dry_page_put(p, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", text, name);
}

static void loss_tiles(struct dry_page *p, const struct dry_report *r)
{
    size_t n = r->h->steps, best = r->h->validations;
    char name[96];

    if (n) {
        snprintf(name, sizeof name, "loss, smoothed; %s at the first step",
                 dry_words_fixed(r->loss[0], 3).text);
        tile(p, name, "%s", dry_words_fixed(r->smooth[n - 1], 4).text);
    }
    for (size_t i = 0; i < r->h->validations; i++)
        if (isfinite(r->validation[i]) &&
            (best == r->h->validations || r->validation[i] < r->validation[best]))
            best = i;
    if (best < r->h->validations) {
        snprintf(name, sizeof name, "lowest validation loss, at step %.0f; perplexity %s",
                 r->validation_step[best], dry_words_real(r->h->validation[best].perplexity).text);
        tile(p, name, "%s", dry_words_fixed(r->validation[best], 4).text);
    }
}

static void account_tiles(struct dry_page *p, const struct dry_report *r)
{
    const struct dry_account *a = &r->account;
    double computing = a->stage[DRY_STAGE_FORWARD].mean + a->stage[DRY_STAGE_BACKWARD].mean +
                       a->stage[DRY_STAGE_OPTIMIZER].mean,
           all = 0;

    for (int s = 0; s < DRY_STAGES; s++)
        all += a->stage[s].mean;
    if (a->steps > 0) {
        tile(p, "tokens a second, without padding", "%s", dry_words_real(a->tokens_per_second).text);
        tile(p, "a step, with what follows it", "%s", dry_words_seconds(a->step_seconds).text);
    }
    if (all > 0)
        tile(p, "of the time computes: forward, backward, optimizer", "%s",
             dry_words_share(computing / all).text);
    if (a->flops_per_second > 0 && a->matrix_per_second > 0)
        tile(p, "of the rate that products of these shapes reach", "%s",
             dry_words_share(a->flops_per_second / a->matrix_per_second).text);
    else if (a->flops_per_second > 0)
        tile(p, "by the LoRA count", "%s", dry_words_unit(a->flops_per_second, "FLOP/s").text);
    if (isfinite(a->step_energy) && a->tokens > 0)
        tile(p, "per million tokens, of the GPUs", "%s",
             dry_words_unit(a->step_energy / a->tokens * 1e6, "J").text);
}

void dry_report_tiles(struct dry_page *p, const struct dry_report *r)
{
    double length = r->offset[r->starts];

    dry_page_put(p, "<div class=\"tiles\">\n");
    if (r->steps > 0)
        tile(p, "steps done", "%s of %s", dry_words_count((double)r->done).text,
             dry_words_count((double)r->steps).text);
    else
        tile(p, "steps done", "%s", dry_words_count((double)r->done).text);
    loss_tiles(p, r);
    if (length > 0)
        tile(p, r->starts > 1 ? "in all starts together" : "from start to end", "%s",
             dry_words_seconds(length).text);
    if (r->accounted)
        account_tiles(p, r);
    dry_page_put(p, "</div>\n");
}

/* ---- boxes */

void dry_report_warnings(struct dry_page *p, const struct dry_report *r)
{
    if (r->warnings == 0)
        return;
    dry_page_put(p, "<div class=\"box warn\"><h3>To know</h3><ul>\n");
    for (int i = 0; i < r->warnings; i++)
        dry_page_element(p, "li", NULL, r->warning[i]);
    dry_page_put(p, "</ul></div>\n");
}

void dry_report_verdict(struct dry_page *p, const struct dry_report *r)
{
    if (!r->judged)
        return;
    dry_page_put(p, "<section id=\"verdict\">\n<h2>Verdict</h2>\n");
    for (int i = 0; i < r->verdict.findings; i++) {
        const struct dry_finding *f = &r->verdict.finding[i];
        const char *name = dry_finding_name(f);

        dry_page_put(p, "<div class=\"box%s\"><h3>",
                     f->cause == DRY_CAUSE_HEALTHY && f->share > 0 ? " well" : "");
        dry_page_put(p, "%c", toupper((unsigned char)*name));
        dry_page_text(p, name + 1);
        if (f->cause != DRY_CAUSE_HEALTHY)
            dry_page_put(p, ", up to %s of the time", dry_words_share(f->share).text);
        dry_page_put(p, "</h3>\n");
        dry_page_element(p, "p", NULL, f->fact);
        if (f->advice[0])
            dry_page_element(p, "p", NULL, f->advice);
        dry_page_put(p, "</div>\n");
    }
    dry_page_put(p, "</section>\n");
}

/* ---- the account */

static void account_row(struct dry_page *p, const struct dry_account *a, enum dry_stage stage, double all)
{
    const struct dry_spread *s = &a->stage[stage];

    if (!(s->most > 0) && stage != DRY_STAGE_UNEXPLAINED)
        return;
    dry_page_put(p, "<tr><td><i style=\"background:%s\"></i>%s</td><td class=\"n\">%s</td>",
                 dry_draw_colour(stage), dry_stage_name(stage), dry_words_share(s->mean / all).text);
    if (a->ranks > 1)
        dry_page_put(p, "<td class=\"n\">%s</td><td class=\"n\">%s</td>", dry_words_seconds(s->least).text,
                     dry_words_seconds(s->median).text);
    dry_page_put(p, "<td class=\"n\">%s</td>", dry_words_seconds(s->most).text);
    if (a->ranks > 1) {
        if (s->most > s->least)
            dry_page_put(p, "<td class=\"n\">rank %d</td>", s->most_rank);
        else
            dry_page_put(p, "<td class=\"n\"></td>");
    }
    dry_page_put(p, "</tr>\n");
}

static void account_sentences(struct dry_page *p, const struct dry_account *a)
{
    dry_page_put(p, "<p class=\"note\">");
    if (a->ranks > 1 && a->busy_least > 0)
        dry_page_put(p, "Rank %d computes longest, %.2f times as long as the rank that computes least. ",
                     a->busy_most_rank, a->busy_most / a->busy_least);
    if (a->padded > 0)
        dry_page_put(p, "%s tokens, %s of them supervised; %s computed, %s of that padding. ",
                     dry_words_count(a->tokens).text, dry_words_count(a->supervised).text,
                     dry_words_count(a->padded).text, dry_words_share(1 - a->tokens / a->padded).text);
    if (a->flops_per_second > 0)
        dry_page_put(p, "%s by the LoRA count%s%s. ", dry_words_unit(a->flops_per_second, "FLOP/s").text,
                     a->matrix_per_second > 0 ? "; products of these shapes reach " : "",
                     a->matrix_per_second > 0 ? dry_words_unit(a->matrix_per_second, "FLOP/s").text : "");
    if (isfinite(a->step_energy) && a->steps > 0)
        dry_page_put(p, "%s a step, %s in all. ", dry_words_unit(a->step_energy / (double)a->steps, "J").text,
                     dry_words_unit(a->energy, "J").text);
    dry_page_put(p, "At most %s of any rank's wall-clock is unexplained.</p>\n",
                 dry_words_share(a->unexplained).text);
}

void dry_report_account(struct dry_page *p, const struct dry_report *r)
{
    const struct dry_account *a = &r->account;
    double all = 0;

    if (!r->accounted)
        return;
    for (int s = 0; s < DRY_STAGES; s++)
        all += a->stage[s].mean;
    if (!(all > 0))
        return;
    dry_page_put(p,
                 "<div class=\"wide-table\"><table><thead><tr><th>stage</th><th "
                 "class=\"n\">share</th>%s</tr></thead><tbody>\n",
                 a->ranks > 1 ? "<th class=\"n\">least</th><th class=\"n\">median</th><th "
                                "class=\"n\">most</th><th class=\"n\">most at</th>"
                              : "<th class=\"n\">time</th>");
    for (int i = 0; i < DRY_STAGES; i++)
        account_row(p, a, dry_draw_order(i), all);
    dry_page_put(p,
                 "<tr class=\"sum\"><td>wall-clock%s</td><td class=\"n\">100.0 %%</td><td "
                 "class=\"n\"%s>%s</td></tr>\n",
                 a->ranks > 1 ? ", mean" : "", a->ranks > 1 ? " colspan=\"2\"" : "",
                 dry_words_seconds(all).text);
    dry_page_put(p, "</tbody></table></div>\n");
    account_sentences(p, a);
}

/* ---- scaling */

static double member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

void dry_report_scaling(struct dry_page *p, const struct dry_report *r)
{
    const json_t *rows = json_object_get(r->scaling, "rows"),
                 *sentences = json_object_get(r->scaling, "sentences"),
                 *left = json_object_get(r->scaling, "left_out"), *item;
    size_t i;

    dry_page_put(p,
                 "<div class=\"wide-table\"><table><thead><tr><th class=\"n\">ranks</th><th class=\"n\">a "
                 "step</th><th class=\"n\">tokens/s"
                 "</th><th class=\"n\">speed-up</th><th class=\"n\">efficiency</th></tr></thead><tbody>\n");
    json_array_foreach(rows, i, item)
    {
        dry_page_put(p,
                     "<tr><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
                     "class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                     dry_words_count(member(item, "ranks")).text,
                     dry_words_seconds(member(item, "step_seconds")).text,
                     dry_words_real(member(item, "tokens_per_second")).text,
                     dry_words_fixed(member(item, "speedup"), 2).text,
                     dry_words_share(member(item, "efficiency")).text);
    }
    dry_page_put(p, "</tbody></table></div>\n");
    json_array_foreach(left, i, item)
    {
        char ranks[32], why[256];

        dry_report_value(json_object_get(item, "ranks"), ranks, sizeof ranks);
        dry_report_value(json_object_get(item, "differs"), why, sizeof why);
        if (!*why)
            dry_report_value(json_object_get(item, "status"), why, sizeof why);
        dry_page_put(p, "<p class=\"note\">Left out: ");
        dry_page_text(p, ranks);
        dry_page_put(p, " ranks (");
        dry_page_text(p, why);
        dry_page_put(p, ").</p>\n");
    }
    json_array_foreach(sentences, i, item) if (json_is_string(item))
        dry_page_element(p, "p", NULL, json_string_value(item));
}

/* ---- starts and facts */

static void start_row(struct dry_page *p, const struct dry_report *r, const json_t *start, int number)
{
    static const char *const columns[] = {"ranks", "resumed_from", "outcome", "exit"};
    const char *started = json_string_value(json_object_get(start, "started"));
    char text[128];

    dry_page_put(p, "<tr><td class=\"n\">%d</td><td>", number);
    put_time(p, started ? started : "");
    dry_page_put(p, "</td>");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        dry_report_value(json_object_get(start, columns[i]), text, sizeof text);
        if (strcmp(columns[i], "outcome") == 0 && strcmp(text, "running") == 0)
            snprintf(text, sizeof text, "%s", start == r->h->run ? r->outcome : "killed");
        dry_page_element(p, "td", strcmp(columns[i], "outcome") ? "n" : NULL, text);
    }
    dry_page_put(p, "</tr>\n");
}

void dry_report_starts(struct dry_page *p, const struct dry_report *r)
{
    const json_t *earlier = dry_report_at(r, "earlier_starts"), *start;
    size_t i;

    if (json_array_size(earlier) == 0)
        return;
    dry_page_put(p,
                 "<section id=\"starts\">\n<h2>Starts</h2>\n<div class=\"wide-table\"><table><thead><tr><th "
                 "class=\"n\">start</th><th>began</th><th class=\"n\">ranks</th>"
                 "<th class=\"n\">resumed from step</th><th>outcome</th><th class=\"n\">exit "
                 "status</th></tr></thead><tbody>\n");
    json_array_foreach(earlier, i, start) start_row(p, r, start, (int)i + 1);
    start_row(p, r, r->h->run, (int)i + 1);
    dry_page_put(p, "</tbody></table></div>\n</section>\n");
}

void dry_report_facts(struct dry_page *p, const struct dry_report_fact *fact, int count, int columns)
{
    dry_page_put(p, "<dl class=\"%s\">\n", columns > 1 ? "two" : "one");
    for (int i = 0; i < count; i++) {
        dry_page_put(p, "<div>");
        dry_page_element(p, "dt", NULL, fact[i].name);
        dry_page_element(p, "dd", NULL, fact[i].text);
        dry_page_put(p, "</div>\n");
    }
    dry_page_put(p, "</dl>\n");
}
