# MPI: flags, and the launcher of the tests.  CC stays the plain compiler; what an MPI program needs beyond it comes
# from MPI_CFLAGS and MPI_LIBS, or the wrapper MPICC (Open MPI: --showme, MPICH: -show), or pkg-config.
AC_DEFUN([DRY_MPI], [
AC_ARG_VAR([MPICC], [MPI compiler wrapper, asked for flags only])
AC_ARG_VAR([MPI_CFLAGS], [C compiler flags for MPI, overriding the wrapper])
AC_ARG_VAR([MPI_LIBS], [linker flags for MPI, overriding the wrapper])
AC_ARG_VAR([MPIEXEC], [program that starts MPI ranks in the tests])
AC_ARG_VAR([MPIEXEC_FLAGS], [its flags, put before -n])
AC_ARG_WITH([mpi],
  [AS_HELP_STRING([--with-mpi=DIR], [MPI installed under DIR (default: mpicc in PATH, then pkg-config)])],
  [], [with_mpi=guess])
AS_IF([test "x$with_mpi" = xno], [AC_MSG_ERROR([drydock needs MPI (ranks talk through it); --without-mpi cannot work])])
dry_mpi_path=$PATH
AS_IF([test "x$with_mpi" != xguess && test "x$with_mpi" != xyes],
  [dry_mpi_path=$with_mpi/bin
   AS_IF([test -z "$MPICC" && test ! -x "$with_mpi/bin/mpicc"], [AC_MSG_ERROR([--with-mpi: no $with_mpi/bin/mpicc])])])
AC_PATH_PROGS([MPICC], [mpicc], [], [$dry_mpi_path])
AC_MSG_CHECKING([for MPI])
dry_from=
AS_IF([test -n "$MPI_CFLAGS$MPI_LIBS"],
  [dry_from="\$MPI_CFLAGS and \$MPI_LIBS"
   test -n "$MPI_LIBS" || MPI_LIBS=-lmpi],
  [test -n "$MPICC" && $MPICC --showme:compile >/dev/null 2>&1],
  [MPI_CFLAGS=`$MPICC --showme:compile`
   MPI_LIBS=`$MPICC --showme:link`
   dry_from="$MPICC, `$MPICC --showme:version 2>&1 | sed 's| *(Lang.*||; s|^.*: ||; 1q'`"],
  [test -n "$MPICC" && $MPICC -show >/dev/null 2>&1],
  [for dry_word in `$MPICC -show`; do
     AS_CASE([$dry_word],
       [-I*|-D*], [MPI_CFLAGS="$MPI_CFLAGS $dry_word"],
       [-L*|-l*|-Wl,*], [MPI_LIBS="$MPI_LIBS $dry_word"])
   done
   dry_from="$MPICC"],
  [for dry_module in ompi-c ompi mpich; do
     AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$dry_module" 2>/dev/null],
       [MPI_CFLAGS=`$PKG_CONFIG --cflags "$dry_module"`
        MPI_LIBS=`$PKG_CONFIG --libs "$dry_module"`
        dry_from="$dry_module `$PKG_CONFIG --modversion "$dry_module"`"
        break])
   done
   AS_IF([test -z "$dry_from"],
     [dry_from="system folders"
      MPI_LIBS=-lmpi])])
DRY_TRY_LINK([MPI], [[#include <mpi.h>]], [[return MPI_Init(NULL, NULL);]],
  [AC_MSG_RESULT([$dry_from])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([MPI was not found (tried: $dry_from), but drydock needs it: ranks talk through it.
Install the Debian or Ubuntu package libopenmpi-dev, or say where it is with --with-mpi=DIR, MPICC or MPI_CFLAGS and MPI_LIBS.])])
DRY_SUMMARY_ADD([MPI], [$dry_from])

AC_PATH_PROGS([MPIEXEC], [mpirun mpiexec srun], [], [$dry_mpi_path])
AS_IF([test -z "$MPIEXEC"],
  [AC_MSG_ERROR([no program that starts MPI ranks was found (mpirun, mpiexec, srun).
Install the Debian or Ubuntu package openmpi-bin, or name one with MPIEXEC=.])])
# Tests start more ranks than a small machine has cores and run in containers, where Open MPI may neither read another
# process's memory nor (without being told) start as root.
AC_MSG_CHECKING([for the flags of $MPIEXEC])
AS_IF([test -z "${MPIEXEC_FLAGS+set}"],
  [MPIEXEC_FLAGS=
   AS_IF([$MPIEXEC --version 2>&1 | grep -E 'Open MPI|OpenRTE|PRRTE' >/dev/null],
     [MPIEXEC_FLAGS="--oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none"
      AS_IF([test "`id -u`" = 0], [MPIEXEC_FLAGS="--allow-run-as-root $MPIEXEC_FLAGS"])])])
AC_MSG_RESULT([${MPIEXEC_FLAGS:-none}])
])
