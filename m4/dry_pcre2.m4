# PCRE2, the 8-bit library, for the regular expressions of tokenizers.
AC_DEFUN([DRY_PCRE2], [
DRY_LIBRARY([PCRE2], [pcre2], [PCRE2], [libpcre2-8], [[#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>]], [[pcre2_match_data_free(pcre2_match_data_create(1, NULL));]], [-lpcre2-8], [libpcre2-dev],
  [it runs the regular expressions of tokenizers])
])
