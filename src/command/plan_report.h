/*
 * The report of `drydock plan`: numbers gathered once, shown as a table or as JSON.
 * Owns the numbers.
 */
#ifndef DRY_COMMAND_PLAN_REPORT_H
#define DRY_COMMAND_PLAN_REPORT_H

#include "base/json.h"
#include "config/contract.h"
#include "data/cache.h"
#include "data/plan.h"
#include "model/adapter.h"
#include "model/base.h"

#include <stdio.h>

/* What is reported on; borrowed for the report's life. */
struct dry_plan_subject {
    const struct dry_config *config;
    const struct dry_contract *contract;
    const struct dry_cache_view *cache, *validation; /* the latter NULL: none */
    struct dry_plan *plan, *validation_plan;         /* the latter NULL: none */
    const struct dry_base *base;
    const struct dry_adapter *adapter;
    int ranks;
};

struct dry_plan_report;
/* Local. USAGE (backend), MEMORY. */
enum dry_status dry_plan_report_create(const struct dry_plan_subject *s, struct dry_plan_report **r);
void dry_plan_report_destroy(struct dry_plan_report *r);
/* Local. MEMORY. */
enum dry_status dry_plan_report_print(FILE *out, const struct dry_plan_report *r);
/* A larger micro-batch that memory would take. */
struct dry_plan_larger {
    int64_t micro_records, micro_tokens; /* one of them 0 */
    double micros, micros_now;           /* micro-batches a step, mean */
    double balance;                      /* of the subject's ranks */
    size_t memory, room;                 /* bytes of a rank; left for it */
    int room_is_shared;                  /* by `together` ranks of a host */
};
/* Local. 1 and the largest of the tried cuts that fits, when that is larger than the contract's, keeps every
 * rank busy and shares work no worse by more than a hundredth; `together` ranks share the memory of a host.
 * 0: none, or not known. */
int dry_plan_report_larger(const struct dry_plan_report *r, int together, struct dry_plan_larger *l);
/* Local. Caller decrefs; NULL: no memory. */
json_t *dry_plan_report_json(const struct dry_plan_report *r);

#endif
