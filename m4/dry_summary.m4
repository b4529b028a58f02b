# The summary: each check adds its own line; the text is printed at the end of configure and compiled into the program.

# DRY_SUMMARY_ADD(TOPIC, TEXT)
AC_DEFUN([DRY_SUMMARY_ADD], [
dry_summary_words=`printf '%s' "$2" | tr -s ' ' | sed 's/^ //; s/ $//'`
dry_summary_line=`printf '%-18s %s' "$1" "$dry_summary_words"`
AS_IF([test -z "$dry_summary"],
  [dry_summary=$dry_summary_line],
  [dry_summary="$dry_summary
$dry_summary_line"])
])

# DRY_SUMMARY: the text as a C string in config.h
AC_DEFUN([DRY_SUMMARY], [
dry_summary_c=`printf '%s' "$dry_summary" | sed 's/[[\\\\"]]/\\\\&/g' | awk 'NR > 1 { printf "\\\\n" } { printf "%s", $[]0 }'`
AC_DEFINE_UNQUOTED([DRY_BUILD_SUMMARY], ["$dry_summary_c"], [What configure decided, a line each])
])

AC_DEFUN([DRY_SUMMARY_PRINT], [
cat <<DRY_EOF

drydock $PACKAGE_VERSION is configured:

DRY_EOF
printf '%s\n' "$dry_summary" | sed 's/^/  /'
cat <<DRY_EOF
  tests              $MPIEXEC $MPIEXEC_FLAGS
  prefix             $prefix

next: make && make check && make install
DRY_EOF
])
