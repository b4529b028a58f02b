# libconfig for configuration files.
AC_DEFUN([DRY_LIBCONFIG], [
DRY_LIBRARY([LIBCONFIG], [libconfig], [libconfig], [libconfig], [[#include <libconfig.h>]],
  [[config_t c; config_init(&c); config_destroy(&c);]], [-lconfig], [libconfig-dev], [it reads configuration files])
])
