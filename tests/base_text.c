/*
 * UTF-8, Unicode, regular expressions and random numbers against published answers.
 * Owns nothing.
 * Must not know of tokenizers.
 */
#include "config.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/regex.h"
#include "base/utf8.h"
#include "tap.h"

#include <stdlib.h>

static void validity(void)
{
    static const struct {
        const char *text;
        size_t size, want;
        const char *name;
    } cases[] = {
        {"plain", 5, 5, "ASCII"},
        {"0123456789abcdef\xc3\xa9", 18, 18, "two bytes after a long run"},
        {"\xe2\x82\xac\xf0\x9f\x98\x80", 7, 7, "three and four bytes"},
        {"a\xc0\x80", 3, 1, "overlong NUL"},
        {"a\xe0\x9f\xbf", 4, 1, "overlong three bytes"},
        {"a\xf0\x8f\xbf\xbf", 5, 1, "overlong four bytes"},
        {"\xed\xa0\x80", 3, 0, "a surrogate"},
        {"\xed\x9f\xbf", 3, 3, "the last before the surrogates"},
        {"\xf4\x8f\xbf\xbf", 4, 4, "the last code point"},
        {"\xf4\x90\x80\x80", 4, 0, "beyond the last code point"},
        {"\xf5\x80\x80\x80", 4, 0, "no such lead byte"},
        {"ab\xe2\x82", 4, 2, "cut short"},
        {"\x80", 1, 0, "a lone continuation"},
        {"", 0, 0, "nothing"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_equal((long long)dry_utf8_invalid(cases[i].text, cases[i].size), (long long)cases[i].want,
                  cases[i].name);
    int same = 1;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char bytes[4];
        uint32_t back;
        if (code >= 0xd800 && code <= 0xdfff)
            continue;
        size_t length = dry_utf8_encode(code, bytes);
        same = same && dry_utf8_invalid(bytes, length) == length &&
               dry_utf8_decode(bytes, length, &back) == length && back == code;
    }
    tap_ok(same, "every code point survives encoding and decoding");
}

static void normal(enum dry_utf8_form form, const char *text, const char *want, const char *name)
{
    struct dry_buffer out = {0};

    tap_ok(dry_utf8_normalize(form, text, strlen(text), &out) == 0, "%s: normalised", name);
    tap_text(out.data, want, name);
    dry_buffer_reset(&out);
}

static void unicode(void)
{
    int spaces = 0;

    normal(DRY_UTF8_NFC, "e\xcc\x81 \xea\xb0\x80", "\xc3\xa9 \xea\xb0\x80", "NFC");
    normal(DRY_UTF8_NFD, "\xc3\xa9", "e\xcc\x81", "NFD");
    normal(DRY_UTF8_NFKC, "\xef\xac\x81\xc2\xb2", "fi2", "NFKC");
    normal(DRY_UTF8_NFKD, "\xe2\x84\xab", "A\xcc\x8a", "NFKD");
    normal(DRY_UTF8_NFC, "", "", "NFC of nothing");
    for (uint32_t code = 0; code <= 0x10ffff; code++)
        spaces += dry_utf8_is_space(code);
    tap_equal(spaces, 25, "White_Space has 25 code points");
    tap_ok(!dry_utf8_is_space(0x180e) && !dry_utf8_is_space(0x200b) && dry_utf8_is_space(0x85),
           "White_Space at its edges");
    tap_ok(dry_utf8_is_numeric('7') && dry_utf8_is_numeric(0x2168) && dry_utf8_is_numeric(0xbd) &&
               !dry_utf8_is_numeric('x'),
           "Nd, Nl, No");
    tap_ok(dry_utf8_is_letter(0x4e2d) && dry_utf8_is_letter(0x2b0) && !dry_utf8_is_letter('1'), "L*");
    tap_ok(dry_utf8_is_mark(0x301) && dry_utf8_is_mark(0x20dd) && !dry_utf8_is_mark('a'), "M*");
    tap_ok(dry_utf8_is_punctuation('!') && dry_utf8_is_punctuation('_') && !dry_utf8_is_punctuation('+') &&
               !dry_utf8_is_punctuation('a'),
           "P*");
    tap_ok(dry_utf8_lower('A') == 'a' && dry_utf8_lower(0xc9) == 0xe9 && dry_utf8_lower('1') == '1',
           "lower case");
    tap_ok(!dry_utf8_is_letter(0x110000) && dry_utf8_lower(0x110000) == 0x110000,
           "beyond Unicode there is nothing");
}

/* All matches of a pattern, joined by '|'. */
static void matches(const char *pattern, const char *text, const char *want)
{
    struct dry_regex *re;
    struct dry_buffer got = {0};
    size_t at = 0, begin, end;

    if (!tap_ok(dry_regex_create(pattern, "a test", &re) == DRY_OK, "compile %s", pattern))
        return;
    (void)dry_buffer_append(&got, "", 0);
    while (at <= strlen(text) && dry_regex_find(re, text, strlen(text), at, &begin, &end) == 1) {
        (void)dry_buffer_printf(&got, "%.*s|", (int)(end - begin), text + begin);
        at = end > begin ? end : end + 1;
    }
    tap_text(got.data, want, "its matches");
    dry_buffer_reset(&got);
    dry_regex_destroy(re);
}

static void expressions(void)
{
    static const char gpt2[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    static const char *const refused[] = {"a(", "[b", "a{2,1}", "\\p{Nonsense}"};
    struct dry_regex *re = NULL;

    matches(gpt2, "it's  12 caf\xc3\xa9!\n", "it|'s| | 12| caf\xc3\xa9|!|\n|");
    matches("(?i:'s|'t)|\\p{N}{1,3}", "'S12345", "'S|123|45|");
    matches("^b$", "a\nb\nc", "b|");
    matches("[]a]+|\\[", "]a[", "]a|[|");
    matches("[[:digit:]]+", "a12", "12|");
    matches("(?<=a)b", "ab", "b|");
    dry_log_defer(1);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        tap_equal(dry_regex_create(refused[i], "a test", &re), DRY_ERR_INPUT, refused[i]);
    dry_log_discard();
    size_t size = 4 << 20, begin, end;
    char *spaces = malloc(size);
    if (spaces && dry_regex_create(gpt2, "a test", &re) == DRY_OK) {
        memset(spaces, ' ', size);
        tap_ok(dry_regex_find(re, spaces, size, 0, &begin, &end) == 1 && end == size,
               "4 MiB of spaces are one match");
        dry_regex_destroy(re);
    }
    free(spaces);
    static const char runaway[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    if (dry_regex_create("(a|a)*[cd]", "a test", &re) == DRY_OK) {
        tap_equal(dry_regex_find(re, runaway, sizeof runaway - 1, 0, &begin, &end), -1,
                  "a runaway pattern gives up");
        dry_regex_destroy(re);
    }
    dry_log_discard();
    dry_log_defer(0);
}

/* Known answers of Random123 (kat_vectors); the key is reached by choosing the seed. */
static void philox(void)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < 3; i++) {
        uint64_t key = (uint64_t)cases[i].key[1] << 32 | cases[i].key[0];
        uint64_t a = (uint64_t)cases[i].counter[1] << 32 | cases[i].counter[0];
        uint64_t b = (uint64_t)cases[i].counter[3] << 32 | cases[i].counter[2];
        uint32_t got[4];
        dry_random_words(key - DRY_RANDOM_PERMUTATION * 0x9E3779B97F4A7C15ull, DRY_RANDOM_PERMUTATION, a, b,
                         got);
        if (!tap_ok(memcmp(got, cases[i].want, sizeof got) == 0, "Philox4x32-10, known answer %zu", i + 1))
            printf("# got %08x %08x %08x %08x\n", got[0], got[1], got[2], got[3]);
    }
    uint32_t one[4], two[4];
    dry_random_words(1, DRY_RANDOM_DROPOUT, 2, 3, one);
    dry_random_words(1, DRY_RANDOM_ADAPTER, 2, 3, two);
    tap_ok(memcmp(one, two, sizeof one) != 0, "purposes differ");
    tap_ok(dry_random_unit(0) == 0 && dry_random_unit(UINT32_MAX) < 1 && dry_random_unit(0x80000000) == 0.5f,
           "a unit is in [0, 1)");
}

static void permutations(void)
{
    enum { N = 1000, SMALL = 4, DRAWS = 24000 };
    static int64_t order[N], again[N];
    static int seen[N], counts[SMALL * SMALL];
    int good = 1;

    dry_random_permutation(42, DRY_RANDOM_PERMUTATION, 0, N, order);
    for (int i = 0; i < N; i++)
        good = good && order[i] >= 0 && order[i] < N && !seen[order[i]]++;
    tap_ok(good, "each number once");
    dry_random_permutation(42, DRY_RANDOM_PERMUTATION, 0, N, again);
    tap_ok(memcmp(order, again, sizeof order) == 0, "the same again");
    dry_random_permutation(42, DRY_RANDOM_PERMUTATION, 1, N, again);
    tap_ok(memcmp(order, again, sizeof order) != 0, "another epoch, another order");
    for (int draw = 0; draw < DRAWS; draw++) {
        dry_random_permutation(7, DRY_RANDOM_SUBSET, (uint64_t)draw, SMALL, order);
        for (int i = 0; i < SMALL; i++)
            counts[i * SMALL + order[i]]++;
    }
    double chi = 0, want = (double)DRAWS / SMALL;
    for (int i = 0; i < SMALL * SMALL; i++)
        chi += (counts[i] - want) * (counts[i] - want) / want;
    tap_ok(chi <= 30, "places are equally likely (chi square %.1f of 9 degrees of freedom)", chi);
    dry_random_permutation(1, DRY_RANDOM_SUBSET, 0, 1, order);
    tap_equal(order[0], 0, "a permutation of one");
    dry_random_permutation(1, DRY_RANDOM_SUBSET, 0, 0, order);
}

int main(void)
{
    validity();
    unicode();
    expressions();
    philox();
    permutations();
    return tap_done();
}
