/*
 * Numbers as people read them: "12,345", "3.42 s", "1.2 GiB", "97.3 %".  Owns nothing: each is a value of its
 * own.  Must not know what is counted.  What is not finite reads "unknown".
 */
#ifndef DRY_MEASURE_WORDS_H
#define DRY_MEASURE_WORDS_H

struct dry_words {
    char text[48];
};

struct dry_words dry_words_count(double n); /* whole: "12,345" */
struct dry_words dry_words_real(double x);  /* about four digits: "0.0123", "12.35", "12,345", "2e-05" */
struct dry_words dry_words_fixed(double x, int n);  /* n digits after the point, thousands apart */
struct dry_words dry_words_seconds(double seconds); /* "812 ms", "3.42 s", "2 min 05 s", "1 h 02 min" */
struct dry_words dry_words_bytes(double bytes);     /* "1.2 GiB" */
struct dry_words dry_words_share(double share);     /* of 1: "97.3 %" */
struct dry_words dry_words_unit(double x, const char *unit); /* "1.23 Tunit" with k, M, G, T, P */

#endif
