/*
 * A run as pages: report.html (one self-contained file), report.txt, TensorBoard event files, JSON.
 * Owns nothing that outlives a call.  Must not know how a run trains.
 */
#ifndef DRY_MEASURE_REPORT_H
#define DRY_MEASURE_REPORT_H

#include "measure/history.h"

/* Local. Writes RUN/report.html. scaling: the scaling.json of a `scale` output (borrowed) whose curve is
 * shown too, or NULL. IO, MEMORY. */
enum dry_status dry_report_html(const struct dry_history *h, const json_t *scaling, const char *path);
/* Local. report.txt: contract, account, verdict, loss, versions; plain text of 100 columns. */
enum dry_status dry_report_text(const struct dry_history *h, const char *path);
/* Local. One events.out.tfevents file in the folder (made if absent), replacing an earlier one of ours. */
enum dry_status dry_report_tensorboard(const struct dry_history *h, const char *folder);
/* Local. Everything that the page shows, as numbers; caller decrefs. NULL: no memory. */
json_t *dry_report_json(const struct dry_history *h, const json_t *scaling);

#endif
