/*
 * The contract's fields as a table, for comparing and for JSON.  Not for use outside config/.
 */
#ifndef DRY_CONFIG_CONTRACT_FIELDS_H
#define DRY_CONFIG_CONTRACT_FIELDS_H

#include "config/contract.h"

enum dry_field_type { DRY_FIELD_INT, DRY_FIELD_REAL, DRY_FIELD_TEXT };

struct dry_contract_field {
    const char *name; /* NULL ends the table */
    enum dry_field_type type;
    size_t offset, size;
    const char *remedy;    /* a flag that sets it, or a sentence; NULL for the batch and its cut */
    const char *otherwise; /* TEXT: what a contract that lacks it had; NULL: none lacks it */
};

const struct dry_contract_field *dry_contract_fields(void);

/* Local. "2e-04", "3.46e-04": three digits at most. */
void dry_rate_text(double rate, char text[32]);

#endif
