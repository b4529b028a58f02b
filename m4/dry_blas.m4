# Any CBLAS for the CPU backend.  --with-blas=NAME takes a pkg-config module (openblas, blis, mkl-dynamic-lp64-seq,
# cblas), --with-blas=DIR an installation of OpenBLAS; the default is OpenBLAS.  Which calls set its threads and
# tell its version is found by linking, since every BLAS has its own.
AC_DEFUN([DRY_BLAS], [
AC_ARG_VAR([BLAS_CFLAGS], [C compiler flags for the CBLAS, overriding pkg-config])
AC_ARG_VAR([BLAS_LIBS], [linker flags for the CBLAS, overriding pkg-config])
AC_ARG_WITH([blas],
  [AS_HELP_STRING([--with-blas=NAME], [CBLAS by pkg-config module or folder (default: openblas)])],
  [], [with_blas=guess])
AS_IF([test "x$with_blas" = xno], [AC_MSG_ERROR([drydock needs a CBLAS (it multiplies matrices on the CPU); --without-blas cannot work])])
AC_MSG_CHECKING([for a CBLAS])
dry_from=
AS_IF([test -n "$BLAS_CFLAGS$BLAS_LIBS"],
  [dry_from="\$BLAS_CFLAGS and \$BLAS_LIBS"
   test -n "$BLAS_LIBS" || BLAS_LIBS=-lopenblas],
  [test -d "$with_blas"],
  [dry_from=$with_blas
   DRY_PREFIX_FLAGS([BLAS], [$with_blas], [-lopenblas])],
  [AS_CASE([$with_blas],
     [guess|yes], [dry_modules="openblas openblas-pthread"],
     [dry_modules=$with_blas])
   for dry_module in $dry_modules; do
     AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$dry_module" 2>/dev/null],
       [BLAS_CFLAGS=`$PKG_CONFIG --cflags "$dry_module"`
        BLAS_LIBS=`$PKG_CONFIG --libs "$dry_module"`
        dry_from="$dry_module `$PKG_CONFIG --modversion "$dry_module"`"
        break])
   done
   AS_IF([test -z "$dry_from"],
     [AS_CASE([$with_blas],
        [guess|yes], [dry_from="system folders"
                      BLAS_LIBS=-lopenblas],
        [dry_from="-l$with_blas"
         BLAS_LIBS="-l$with_blas"])])])
DRY_TRY_LINK([BLAS], [[#include <cblas.h>]],
  [[float x = 1; cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, x, &x, 1, &x, 1, x, &x, 1);]],
  [AC_MSG_RESULT([$dry_from])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([no CBLAS was found (tried: $dry_from), but drydock needs one: it multiplies matrices on the CPU.
Install the Debian or Ubuntu package libopenblas-dev, or say which with --with-blas=NAME or BLAS_CFLAGS and BLAS_LIBS.])])
DRY_SUMMARY_ADD([CBLAS], [$dry_from])
dry_save_LIBS=$LIBS
LIBS="$BLAS_LIBS $LIBS"
AC_CHECK_FUNCS([openblas_set_num_threads openblas_get_num_threads openblas_get_config openblas_get_corename \
  MKL_Set_Num_Threads bli_thread_set_num_threads])
LIBS=$dry_save_LIBS
])
