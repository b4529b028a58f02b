# OpenSSL's libcrypto for SHA-256.
AC_DEFUN([DRY_CRYPTO], [
DRY_LIBRARY([CRYPTO], [openssl], [OpenSSL libcrypto], [libcrypto], [[#include <openssl/evp.h>]],
  [[EVP_MD_CTX_free(EVP_MD_CTX_new());]], [-lcrypto], [libssl-dev],
  [it computes the SHA-256 that names data and checks files])
])
