# The compiler: our own flags (AM_CFLAGS, after which the user's CFLAGS come) and the developer builds.

# DRY_ENABLE_DEBUG: --enable-debug; changes the default of CFLAGS only
AC_DEFUN([DRY_ENABLE_DEBUG], [
AC_ARG_ENABLE([debug],
  [AS_HELP_STRING([--enable-debug], [no optimisation unless CFLAGS say so; freed memory is overwritten])],
  [], [enable_debug=no])
AS_IF([test "x$enable_debug" = xyes && test -z "${CFLAGS+set}"], [CFLAGS="-O0 -g3"])
])

AC_DEFUN([DRY_COMPILER], [
AC_ARG_ENABLE([werror],
  [AS_HELP_STRING([--enable-werror], [a warning is an error (default: in a git checkout, unless with sanitizers)])],
  [], [enable_werror=guess])
AC_ARG_ENABLE([sanitizer],
  [AS_HELP_STRING([--enable-sanitizer=LIST], [build with sanitizers, such as address,undefined])],
  [], [enable_sanitizer=no])
AC_ARG_ENABLE([coverage],
  [AS_HELP_STRING([--enable-coverage], [count executed lines for gcov])],
  [], [enable_coverage=no])
# Sanitizers make gcc see paths that there are not.
AS_IF([test "x$enable_werror" = xguess],
  [AS_IF([test -e "$srcdir/.git" && test "x$enable_sanitizer" = xno], [enable_werror=yes], [enable_werror=no])])
dry_debug=0
AS_IF([test "x$enable_debug" = xyes], [dry_debug=1])
AC_DEFINE_UNQUOTED([DRY_DEBUG], [$dry_debug], [1: overwrite freed memory])
AS_IF([test "x$enable_sanitizer" = xyes], [enable_sanitizer=address,undefined])

# No contraction to fused multiply-add: the same source gives the same bits in every file and every build.
# No errno from sqrtf and its kind: nobody reads it, and it keeps loops scalar.
# No floating-point traps: nobody sets them, and without this a conditional product keeps a loop scalar. Values stay.
WARN_CFLAGS=
DRY_CFLAGS="-std=c11"
dry_save_CFLAGS=$CFLAGS
for dry_flag in -ffp-contract=off -fno-math-errno -fno-trapping-math; do
  DRY_FLAG([$dry_flag], [DRY_CFLAGS])
done
for dry_flag in -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings \
    -Wformat-security -Wundef; do
  DRY_FLAG([$dry_flag], [WARN_CFLAGS])
done
AS_IF([test "x$enable_werror" = xyes], [DRY_FLAG([-Werror], [WARN_CFLAGS])])
DRY_LDFLAGS=
AS_IF([test "x$enable_sanitizer" != xno],
  [DRY_FLAG([-fsanitize=$enable_sanitizer], [DRY_LDFLAGS],
     [AC_MSG_ERROR([--enable-sanitizer: the compiler does not know -fsanitize=$enable_sanitizer])])
   DRY_CFLAGS="$DRY_CFLAGS $DRY_LDFLAGS -fno-omit-frame-pointer -fno-sanitize-recover=all"])
AS_IF([test "x$enable_coverage" = xyes],
  [DRY_CFLAGS="$DRY_CFLAGS --coverage"
   DRY_LDFLAGS="$DRY_LDFLAGS --coverage"])
CFLAGS=$dry_save_CFLAGS
AC_SUBST([DRY_CFLAGS])
AC_SUBST([DRY_LDFLAGS])
AC_SUBST([WARN_CFLAGS])
AM_CONDITIONAL([SANITIZER], [test "x$enable_sanitizer" != xno])
dry_cc_version=`$CC --version 2>/dev/null | sed 1q`
DRY_SUMMARY_ADD([compiler], [$CC ($dry_cc_version)])
DRY_SUMMARY_ADD([flags], [$CPPFLAGS $DRY_CFLAGS $CFLAGS])
AS_IF([test "x$enable_debug" = xyes], [DRY_SUMMARY_ADD([debug], [yes])])
AS_IF([test "x$enable_sanitizer" != xno], [DRY_SUMMARY_ADD([sanitizer], [$enable_sanitizer])])
])

# DRY_FLAG(FLAG, VAR, IF-NOT): adds FLAG to VAR when a program links with it
AC_DEFUN([DRY_FLAG], [
AC_MSG_CHECKING([whether $CC takes $1])
CFLAGS="$dry_save_CFLAGS $1"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[]], [[]])],
  [AC_MSG_RESULT([yes])
   $2="$$2 $1"],
  [AC_MSG_RESULT([no])
   $3])
CFLAGS=$dry_save_CFLAGS
])
