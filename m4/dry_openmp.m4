# OpenMP for the loops of the CPU backend.
AC_DEFUN([DRY_OPENMP], [
AC_OPENMP
AS_IF([test "x$OPENMP_CFLAGS" = x && test "x$enable_openmp" != xno],
  [AC_MSG_ERROR([the compiler $CC has no OpenMP, but drydock needs it: it shares loops among the cores.
Install the Debian or Ubuntu package gcc, or give another compiler with CC=.])])
DRY_SUMMARY_ADD([OpenMP], [${OPENMP_CFLAGS:-no}])
])
