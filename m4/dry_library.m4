# DRY_LIBRARY(VAR, OPTION, NAME, PKG-CONFIG MODULES, HEADER, STATEMENT, LINK FLAGS, DEBIAN PACKAGE, PURPOSE)
#
# Finds a library that drydock cannot do without and sets VAR_CFLAGS and VAR_LIBS.  In this order: the two variables
# as the user gave them; --with-OPTION=DIR; the first pkg-config module that is there; plain LINK FLAGS.  What was
# chosen must compile and link STATEMENT, else configure stops with the package to install.
AC_DEFUN([DRY_LIBRARY], [
AC_REQUIRE([PKG_PROG_PKG_CONFIG])
AC_ARG_VAR([$1_CFLAGS], [C compiler flags for $3, overriding pkg-config])
AC_ARG_VAR([$1_LIBS], [linker flags for $3, overriding pkg-config])
AC_ARG_WITH([$2],
  [AS_HELP_STRING([--with-$2=DIR], [$3 installed under DIR (default: pkg-config, then the system folders)])],
  [], [with_$2=guess])
AS_IF([test "x$with_$2" = xno], [AC_MSG_ERROR([drydock needs $3 ($9); --without-$2 cannot work])])
AC_MSG_CHECKING([for $3])
dry_from=
AS_IF([test -n "$$1_CFLAGS$$1_LIBS"],
  [dry_from="\$$1_CFLAGS and \$$1_LIBS"
   test -n "$$1_LIBS" || $1_LIBS="$7"],
  [test "x$with_$2" != xguess && test "x$with_$2" != xyes],
  [test -d "$with_$2" || AC_MSG_ERROR([--with-$2=$with_$2: no such folder])
   dry_from="$with_$2"
   DRY_PREFIX_FLAGS([$1], [$with_$2], [$7])],
  [for dry_module in $4; do
     AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$dry_module" 2>/dev/null],
       [$1_CFLAGS=`$PKG_CONFIG --cflags "$dry_module"`
        $1_LIBS=`$PKG_CONFIG --libs "$dry_module"`
        dry_from="$dry_module `$PKG_CONFIG --modversion "$dry_module"`"
        break])
   done
   AS_IF([test -z "$dry_from"],
     [dry_from="system folders"
      $1_LIBS="$7"])])
DRY_TRY_LINK([$1], [$5], [$6],
  [AC_MSG_RESULT([$dry_from])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([$3 was not found (tried: $dry_from), but drydock needs it: $9.
Install the Debian or Ubuntu package $8, or say where it is with --with-$2=DIR or $1_CFLAGS and $1_LIBS.])])
DRY_SUMMARY_ADD([$3], [$dry_from])
])

# DRY_PREFIX_FLAGS(VAR, DIR, LINK FLAGS): VAR_CFLAGS and VAR_LIBS for an installation under DIR
AC_DEFUN([DRY_PREFIX_FLAGS], [
$1_CFLAGS="-I$2/include"
dry_libdir="$2/lib"
test -d "$dry_libdir" || dry_libdir="$2/lib64"
$1_LIBS="-L$dry_libdir -Wl,-rpath,$dry_libdir $3"
])

# DRY_TRY_LINK(VAR, HEADER, STATEMENT, IF-FOUND, IF-NOT): a program with VAR_CFLAGS and VAR_LIBS
AC_DEFUN([DRY_TRY_LINK], [
dry_save_CPPFLAGS=$CPPFLAGS
dry_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $$1_CFLAGS"
LIBS="$$1_LIBS $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([$2], [$3])], [dry_links=yes], [dry_links=no])
CPPFLAGS=$dry_save_CPPFLAGS
LIBS=$dry_save_LIBS
AS_IF([test $dry_links = yes], [$4], [$5])
])
