/*
 * Writes report.txt: a run on a page of 100 columns.
 * Owns the text until it is written.
 * Must not know where the numbers come from.
 */
#include "config.h"

#include "measure/report.h"

#include "measure/chart.h"
#include "measure/report_parts.h"
#include "measure/words.h"

#include "base/file.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 100, NAME = 26, LOSSES = 20 };

/* Words of text from column `indent` on, no line beyond the last column; a longer word stands alone. */
static void wrap(FILE *out, const char *text, int indent, int at)
{
    int first = 1;

    while (*text) {
        int space = (int)strspn(text, " \t\n"), word = (int)strcspn(text + space, " \t\n");

        if (word == 0)
            break;
        if (!first && at + 1 + word > COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            first = 1;
        }
        at += fprintf(out, "%s%.*s", first ? "" : " ", word, text + space);
        first = 0;
        text += space + word;
    }
    fprintf(out, "\n");
}

static void put_facts(FILE *out, const struct dry_report_fact *fact, int count)
{
    for (int i = 0; i < count; i++) {
        fprintf(out, "  %-*s ", NAME, fact[i].name);
        wrap(out, fact[i].text, NAME + 3, NAME + 3);
    }
}

static void put_head(FILE *out, const struct dry_report *r)
{
    fprintf(out, "drydock run %s: %s", r->name, r->outcome);
    if (r->steps > 0)
        fprintf(out, ", %lld of %lld steps", (long long)r->done, (long long)r->steps);
    fprintf(out, "\n");
    fprintf(out, "started %s, ended %s\n", dry_report_text_at(r, "started", "unknown"),
            dry_report_text_at(r, "finished", "not"));
    for (int i = 0; i < r->warnings; i++) {
        fprintf(out, "note: ");
        wrap(out, r->warning[i], 6, 6);
    }
}

/* Steps at even distances, first and last among them. */
static void put_loss(FILE *out, const struct dry_report *r)
{
    const struct dry_history *h = r->h;
    size_t lines = h->steps < LOSSES ? h->steps : LOSSES;

    if (h->steps == 0)
        return;
    fprintf(out, "\nLoss\n  %10s %10s %10s %14s %10s %12s\n", "step", "loss", "smoothed", "learning rate",
            "norm", "tokens/s");
    for (size_t i = 0; i < lines; i++) {
        size_t at = lines > 1 ? i * (h->steps - 1) / (lines - 1) : 0;

        fprintf(out, "  %10lld %10.4f %10.4f %14.3e %10.4f %12s\n", (long long)h->step[at].step, r->loss[at],
                r->smooth[at], r->rate[at], r->norm[at],
                isfinite(r->speed[at]) ? dry_words_count(r->speed[at]).text : "");
    }
}

static void put_validation(FILE *out, const struct dry_report *r)
{
    const struct dry_history *h = r->h;
    size_t lines = h->validations < LOSSES ? h->validations : LOSSES;
    double least = INFINITY, most = -INFINITY;

    if (h->validations == 0)
        return;
    dry_chart_range(r->validation, h->validations, &least, &most);
    fprintf(out, "\nValidation\n  %10s %10s %12s\n", "step", "loss", "perplexity");
    for (size_t i = 0; i < lines; i++) {
        size_t at = lines > 1 ? i * (h->validations - 1) / (lines - 1) : 0;

        fprintf(out, "  %10lld %10.4f %12.3f%s\n", (long long)h->validation[at].step, h->validation[at].loss,
                h->validation[at].perplexity, h->validation[at].loss <= least ? "  lowest" : "");
    }
}

static void put_all(FILE *out, const struct dry_report *r)
{
    struct dry_report_fact fact[DRY_REPORT_FACTS];
    int count = dry_report_contract(r, fact);

    put_head(out, r);
    if (count) {
        fprintf(out, "\nContract\n");
        put_facts(out, fact, count);
    }
    if (r->accounted) {
        fprintf(out, "\nAccount\n");
        dry_account_print(out, &r->account);
    }
    if (r->judged) {
        fprintf(out, "\nVerdict\n");
        dry_verdict_print(out, &r->verdict);
    }
    put_loss(out, r);
    put_validation(out, r);
    count = dry_report_versions(r, fact);
    fprintf(out, "\nVersions and machine\n");
    put_facts(out, fact, count);
}

enum dry_status dry_report_text(const struct dry_history *h, const char *path)
{
    struct dry_report r;
    char *text = NULL;
    size_t size = 0;
    FILE *out;
    enum dry_status status = dry_report_gather(h, NULL, &r);

    if (status)
        return status;
    if (!(out = open_memstream(&text, &size))) {
        dry_error("%s: no memory for the text", path);
        dry_report_release(&r);
        return DRY_ERR_MEMORY;
    }
    put_all(out, &r);
    if (ferror(out) | fclose(out)) {
        dry_error("%s: no memory for the text", path);
        status = DRY_ERR_MEMORY;
    }
    if (!status)
        status = dry_file_write(path, text, size);
    free(text);
    dry_report_release(&r);
    return status;
}
