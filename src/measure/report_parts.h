/*
 * The parts of report.html that are no drawings.  Private to measure.  Owns nothing.
 */
#ifndef DRY_MEASURE_REPORT_PARTS_H
#define DRY_MEASURE_REPORT_PARTS_H

#include "measure/page.h"
#include "measure/report_facts.h"

/* report_style.c: constant texts, free of what XML forbids. */
const char *dry_report_style(void);
const char *dry_report_script(void);

/* A row of names and texts, for tables of facts. */
struct dry_report_fact {
    char name[64];
    char text[512];
};
enum { DRY_REPORT_FACTS = 48 };
/* Local. Names and texts of the contract, and of versions, host, devices, storage and hashes. Return how
 * many of fact[DRY_REPORT_FACTS]. report_words.c */
int dry_report_contract(const struct dry_report *r, struct dry_report_fact *fact);
int dry_report_versions(const struct dry_report *r, struct dry_report_fact *fact);

/* report_tables.c */
void dry_report_head(struct dry_page *p, const struct dry_report *r);
void dry_report_tiles(struct dry_page *p, const struct dry_report *r);
void dry_report_warnings(struct dry_page *p, const struct dry_report *r);
void dry_report_verdict(struct dry_page *p, const struct dry_report *r);
void dry_report_account(struct dry_page *p, const struct dry_report *r);
void dry_report_scaling(struct dry_page *p, const struct dry_report *r);
void dry_report_starts(struct dry_page *p, const struct dry_report *r);
void dry_report_facts(struct dry_page *p, const struct dry_report_fact *fact, int count, int columns);

#endif
