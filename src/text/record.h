/*
 * Records: a user's JSON lines, one training example each, and the rule that turns one into supervised
 * tokens. Owns the mapped data file and the last record read.  Must not know where the tokens go.
 */
#ifndef DRY_TEXT_RECORD_H
#define DRY_TEXT_RECORD_H

#include "text/tokenizer.h"

#include <stdint.h>

/* The defined outcome of a line. Order is the order of the preflight's table. */
enum dry_outcome {
    DRY_RECORD_GOOD,
    DRY_RECORD_BROKEN_JSON, /* also: not an object */
    DRY_RECORD_INVALID_UTF8,
    DRY_RECORD_MISSING_FIELD,
    DRY_RECORD_WRONG_TYPE, /* a field that is not a string */
    DRY_RECORD_EMPTY_COMPLETION,
    DRY_RECORD_SPECIAL_TEXT, /* --special-text error and a special token written in the text */
    DRY_RECORD_TOO_LONG,     /* over the limit and --long-records error or drop */
    DRY_RECORD_UNSUPERVISED, /* nothing supervised is left (truncated away, or a single token) */
    DRY_RECORD_OUTCOMES
};
const char *dry_outcome_name(enum dry_outcome outcome); /* "broken JSON", "empty completion" ... */

/* Template plain: the ids before the text of the post-processor ++ tokens(prompt + separator) ++
 * tokens(completion) ++ eos, the two texts tokenised apart; supervised: completion and eos. Over the limit
 * the end is cut off. */
struct dry_record_rule {
    const char *template_name; /* "plain" */
    const char *prompt_field, *completion_field, *separator;
    const char *special_text; /* parse | plain | error */
    int64_t limit;            /* tokens per record */
    int truncate;             /* over the limit: cut to it instead of TOO_LONG */
};

/* Token range [begin, end) of a record whose tokens are supervised (are labels). */
struct dry_span {
    int32_t begin, end;
};

/* What a line became; reused from line to line. */
struct dry_record {
    int64_t line; /* 1-based */
    enum dry_outcome outcome;
    char why[160]; /* detail for the message, "" when good: 'field "answer" is a number' */
    struct dry_ids ids;
    struct dry_span *span;
    size_t spans, span_capacity;
    int32_t supervised;   /* tokens that are labels; a record's first token never is */
    int32_t full_length;  /* before truncation */
    int32_t special_text; /* special tokens written in the text */
};
void dry_record_reset(struct dry_record *r);

/* The data file as lines. Blank lines (only white space) are no records and are skipped; a byte order mark at
 * the beginning and a carriage return at a line's end belong to no record. */
struct dry_lines;
/* Local. Maps the file. An array instead of lines ('[' first), an empty file, UTF-16, compressed and Parquet
 * files are INPUT with the remedy. */
enum dry_status dry_lines_open(const char *path, struct dry_lines **l);
void dry_lines_close(struct dry_lines *l);
int64_t dry_lines_count(const struct dry_lines *l); /* records: lines that are not blank */
/* Local. The n-th record's text (not NUL-terminated, without the newline) and 1-based line. 0 <= n < count.
 */
void dry_lines_get(const struct dry_lines *l, int64_t n, const char **text, size_t *size, int64_t *line);

/* Local. Encodes one line by the rule; a bad record is an outcome, not a failure: ids and spans are then
 * empty, while full_length and special_text say what was found. An object with a key twice is broken JSON;
 * "\u0000" is text. MEMORY, INPUT (a regular expression of the tokenizer gave up). */
enum dry_status dry_record_encode(struct dry_tokenizer *t, const struct dry_record_rule *rule,
                                  const char *text, size_t size, int64_t line, struct dry_record *r);
/* Local. Adds every field of the rule to a cache key. */
void dry_record_rule_hash(const struct dry_record_rule *rule, struct dry_hash *h);
/* Local. Checks template, fields and base: a template that is not known, a tokenizer without eos. USAGE,
 * INPUT. */
enum dry_status dry_record_rule_check(const struct dry_record_rule *rule, const struct dry_tokenizer *t);

#endif
