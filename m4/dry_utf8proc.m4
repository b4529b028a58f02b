# utf8proc for Unicode normalisation and categories.
AC_DEFUN([DRY_UTF8PROC], [
DRY_LIBRARY([UTF8PROC], [utf8proc], [utf8proc], [libutf8proc], [[#include <utf8proc.h>]],
  [[return utf8proc_category(32) != UTF8PROC_CATEGORY_ZS;]], [-lutf8proc], [libutf8proc-dev],
  [it normalises text for tokenizers])
])
