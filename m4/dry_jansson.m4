# jansson for JSON: data records, model and tokenizer descriptions, manifests.
AC_DEFUN([DRY_JANSSON], [
DRY_LIBRARY([JANSSON], [jansson], [jansson], [jansson], [[#include <jansson.h>]], [[json_decref(json_object());]],
  [-ljansson], [libjansson-dev], [it reads and writes JSON])
])
