/*
 * Puts report.html together: one file that needs nothing else.
 * Owns the page until it is written.
 * Must not know how its parts are drawn.
 */
#include "config.h"

#include "measure/report.h"

#include "measure/report_draw.h"
#include "measure/report_parts.h"

#include "base/build.h"
#include "base/file.h"
#include "base/log.h"

static void begin(struct dry_page *p, const struct dry_report *r)
{
    dry_page_put(p, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
    dry_page_text(p, r->name);
    dry_page_put(p, ": drydock report</title>\n<style>\n");
    dry_page_put(p, "%s", dry_report_style());
    dry_page_put(p, "</style>\n</head>\n<body>\n<main>\n");
}

static void end(struct dry_page *p)
{
    const char *revision = dry_build_revision();

    dry_page_put(p,
                 "<footer>Made by drydock %s%s%s%s from the run's own files: run.json, metrics.jsonl, "
                 "stages.csv, gpu.csv, "
                 "process.csv.</footer>\n</main>\n<div id=\"tip\"></div>\n<script>\n",
                 dry_build_version(), *revision ? " (" : "", revision, *revision ? ")" : "");
    dry_page_put(p, "%s", dry_report_script());
    dry_page_put(p, "</script>\n</body>\n</html>\n");
}

static void learning(struct dry_page *p, const struct dry_report *r)
{
    if (r->h->steps == 0 && r->h->validations == 0)
        return;
    dry_page_put(p, "<section id=\"learning\">\n<h2>Learning</h2>\n<div class=\"grid\">\n");
    dry_draw_loss(p, r);
    dry_draw_rate(p, r);
    dry_draw_norm(p, r);
    dry_page_put(p, "</div>\n</section>\n");
}

static void time_spent(struct dry_page *p, const struct dry_report *r)
{
    if (r->moments == 0 && r->h->samples == 0)
        return;
    dry_page_put(p, "<section id=\"time\">\n<h2>Where the time went</h2>\n");
    dry_report_account(p, r);
    dry_draw_ranks(p, r);
    dry_draw_steps(p, r);
    dry_draw_timeline(p, r);
    dry_page_put(p, "</section>\n");
}

static void data(struct dry_page *p, const struct dry_report *r)
{
    if (!r->lengths)
        return;
    dry_page_put(p, "<section id=\"data\">\n<h2>Data</h2>\n<div class=\"grid\">\n");
    dry_draw_lengths(p, r);
    dry_draw_padding(p, r);
    dry_page_put(p, "</div>\n</section>\n");
}

static void scaling(struct dry_page *p, const struct dry_report *r)
{
    if (!r->scaling)
        return;
    dry_page_put(p, "<section id=\"ranks\">\n<h2>More ranks</h2>\n<div class=\"grid\">\n");
    dry_draw_scaling(p, r);
    dry_draw_scaling_steps(p, r);
    dry_page_put(p, "</div>\n");
    dry_report_scaling(p, r);
    dry_page_put(p, "</section>\n");
}

static void facts(struct dry_page *p, const struct dry_report *r)
{
    struct dry_report_fact fact[DRY_REPORT_FACTS];
    int count = dry_report_contract(r, fact);

    if (count) {
        dry_page_put(
            p, "<section id=\"contract\">\n<h2>Contract</h2>\n<p class=\"note\">What the run keeps on any "
               "number of ranks.</p>\n");
        dry_report_facts(p, fact, count, 2);
        dry_page_put(p, "</section>\n");
    }
    count = dry_report_versions(r, fact);
    dry_page_put(p, "<section id=\"versions\">\n<h2>Where it ran, and with what</h2>\n");
    dry_report_facts(p, fact, count, 1);
    dry_page_put(p, "</section>\n");
}

enum dry_status dry_report_html(const struct dry_history *h, const json_t *scaling_json, const char *path)
{
    struct dry_report r;
    struct dry_page p = {0};
    enum dry_status status = dry_report_gather(h, scaling_json, &r);

    if (status)
        return status;
    dry_report_lengths(&r);
    begin(&p, &r);
    dry_report_head(&p, &r);
    dry_report_tiles(&p, &r);
    dry_report_warnings(&p, &r);
    dry_report_verdict(&p, &r);
    learning(&p, &r);
    time_spent(&p, &r);
    data(&p, &r);
    scaling(&p, &r);
    dry_report_starts(&p, &r);
    facts(&p, &r);
    end(&p);
    status = p.failed ? DRY_ERR_MEMORY : dry_file_write(path, p.text.data, p.text.len);
    dry_buffer_reset(&p.text);
    dry_report_release(&r);
    return status;
}
