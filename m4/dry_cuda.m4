# CUDA for the second backend, each piece three-valued: not said (used where it is found), DIR or yes (must be there), no.
#
#   --with-cuda=DIR            toolkit with nvcc and cuBLASLt; guessed from NVCC, nvcc in PATH, $CUDA_HOME, /usr/local/cuda
#   --with-cudnn, --with-nccl  attention and the communicator between GPUs; guessed in the toolkit and the system folders
#   --with-nvcc-gencode=FLAGS  the code that nvcc makes; otherwise each architecture from 8.0 on that this nvcc knows, and
#                              PTX of the last one for cards to come
#
# Sets NVCC, NVCCFLAGS, NVCC_GENCODE, CUDA_CFLAGS, CUDA_LIBS, DRY_HAVE_CUDA, DRY_HAVE_NCCL and the conditionals CUDA, CUDNN
# and NCCL.  The runtime API alone is used, so that a program linked here also starts where there is no driver.
AC_DEFUN([DRY_CUDA], [
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [flags for the CUDA compiler (default: -O3)])
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit under DIR (default: used where nvcc is found)])],
  [], [with_cuda=guess])
AC_ARG_WITH([cudnn],
  [AS_HELP_STRING([--with-cudnn=DIR], [cuDNN under DIR, for attention on GPUs (default: used where it is found)])],
  [], [with_cudnn=guess])
AC_ARG_WITH([nccl],
  [AS_HELP_STRING([--with-nccl=DIR], [NCCL under DIR, for sums over several GPUs (default: used where it is found)])],
  [], [with_nccl=guess])
AC_ARG_WITH([nvcc-gencode],
  [AS_HELP_STRING([--with-nvcc-gencode=FLAGS],
     [what nvcc makes code for, such as '-gencode arch=compute_90a,code=sm_90a' (default: all from 8.0 on)])],
  [], [with_nvcc_gencode=guess])
dry_have_cuda=no dry_have_cudnn=no dry_have_nccl=no
CUDA_CFLAGS= CUDA_LIBS= NVCC_GENCODE=
AS_IF([test "x$with_cuda" = xno],
  [for dry_word in "$with_cudnn" "$with_nccl"; do
     AS_CASE([$dry_word], [guess|no], [],
       [AC_MSG_ERROR([--without-cuda leaves nothing for --with-cudnn or --with-nccl to work with])])
   done
   DRY_SUMMARY_ADD([CUDA], [no])],
  [DRY_CUDA_TOOLKIT
   AS_IF([test $dry_have_cuda = yes], [DRY_CUDA_GENCODE
     DRY_CUDA_LIBRARY([cudnn], [cuDNN], [[#include <cudnn.h>]], [[return (int)cudnnGetVersion() == 0;]], [-lcudnn])
     DRY_CUDA_LIBRARY([nccl], [NCCL], [[#include <nccl.h>]], [[int v; return ncclGetVersion(&v) != ncclSuccess;]],
       [-lnccl])])])
AS_IF([test $dry_have_cuda = yes],
  [AC_DEFINE([DRY_HAVE_CUDA], [1], [1: the CUDA backend is built])
   CUDA_LIBS="$CUDA_LIBS -lstdc++ -ldl"])
AS_IF([test $dry_have_nccl = yes], [AC_DEFINE([DRY_HAVE_NCCL], [1], [1: sums over GPUs by NCCL are built])])
AC_SUBST([CUDA_CFLAGS])
AC_SUBST([CUDA_LIBS])
AC_SUBST([NVCC_GENCODE])
AM_CONDITIONAL([CUDA], [test $dry_have_cuda = yes])
AM_CONDITIONAL([CUDNN], [test $dry_have_cudnn = yes])
AM_CONDITIONAL([NCCL], [test $dry_have_nccl = yes])
])

# DRY_CUDA_MISSING(OPTION VALUE, WHAT): an error when it was asked for, else only a line of the summary
AC_DEFUN([DRY_CUDA_MISSING], [
AS_IF([test "x$1" != xguess], [AC_MSG_ERROR([$2])])
])

# DRY_CUDA_TOOLKIT: nvcc, its folder, cuBLASLt; sets dry_have_cuda
AC_DEFUN([DRY_CUDA_TOOLKIT], [
dry_cuda_path=$PATH
AS_CASE([$with_cuda],
  [guess|yes], [for dry_dir in "$CUDA_HOME" "$CUDA_PATH" /usr/local/cuda; do
     AS_IF([test -n "$dry_dir" && test -d "$dry_dir/bin"], [dry_cuda_path=$dry_cuda_path$PATH_SEPARATOR$dry_dir/bin])
   done],
  [dry_cuda_path=$with_cuda/bin])
AC_PATH_PROG([NVCC], [nvcc], [], [$dry_cuda_path])
AS_IF([test -z "$NVCC"],
  [DRY_CUDA_MISSING([$with_cuda], [--with-cuda=$with_cuda: no nvcc there; give the toolkit's folder with --with-cuda=DIR or NVCC])
   DRY_SUMMARY_ADD([CUDA], [no (no nvcc was found; --with-cuda=DIR names a toolkit)])],
  [AC_MSG_CHECKING([for the CUDA toolkit])
   # The folder as nvcc itself says: a compiler in PATH may be a link or a wrapper.
   dry_cuda_dir=`"$NVCC" --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' | sed 1q`
   dry_cuda_dir=`cd "${dry_cuda_dir:-/nonexistent}" 2>/dev/null && pwd -P`
   dry_cuda_version=`"$NVCC" --version 2>/dev/null | sed -n 's/^.*release \(@<:@0-9.@:>@*\),.*$/\1/p'`
   CUDA_CFLAGS="-isystem $dry_cuda_dir/include"
   CUDA_LIBS=
   for dry_dir in lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib; do
     AS_IF([test -e "$dry_cuda_dir/$dry_dir/libcudart.so"], [CUDA_LIBS="-L$dry_cuda_dir/$dry_dir"
       break])
   done
   CUDA_LIBS="$CUDA_LIBS -lcublasLt -lcudart"
   AS_VERSION_COMPARE([${dry_cuda_version:-0}], [12.4], [dry_cuda_new=no], [dry_cuda_new=yes], [dry_cuda_new=yes])
   AS_IF([test $dry_cuda_new = no],
     [AC_MSG_RESULT([$NVCC, too old])
      DRY_CUDA_MISSING([$with_cuda], [$NVCC is CUDA ${dry_cuda_version:-of an unknown version}; drydock needs 12.4 or newer])
      DRY_SUMMARY_ADD([CUDA], [no ($NVCC is CUDA ${dry_cuda_version:-of an unknown version}, 12.4 is needed)])],
     [DRY_TRY_LINK([CUDA], [[#include <cublasLt.h>
#include <cuda_runtime_api.h>]], [[int n; return (int)cublasLtGetVersion() == 0 || cudaGetDeviceCount(&n) != cudaSuccess;]],
        [AC_MSG_RESULT([$dry_cuda_dir, CUDA $dry_cuda_version])
         dry_have_cuda=yes],
        [AC_MSG_RESULT([no])
         DRY_CUDA_MISSING([$with_cuda], [$dry_cuda_dir: a program with cuBLASLt and the CUDA runtime does not link (see config.log)])
         DRY_SUMMARY_ADD([CUDA], [no ($dry_cuda_dir lacks cuBLASLt or the runtime; see config.log)])])])])
])

# DRY_CUDA_GENCODE: NVCC_GENCODE, and a .cu file is compiled with it
AC_DEFUN([DRY_CUDA_GENCODE], [
test -n "${NVCCFLAGS+set}" || NVCCFLAGS=-O3
AC_MSG_CHECKING([what $NVCC makes code for])
AS_CASE([$with_nvcc_gencode],
  [guess|yes], [dry_known=" `"$NVCC" --list-gpu-code 2>/dev/null | tr '\n' ' '` "
   dry_last=
   for dry_arch in 80 86 89 90 100 120; do
     AS_CASE(["$dry_known"], [*" sm_$dry_arch "*],
       [NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$dry_arch,code=sm_$dry_arch"
        dry_last=$dry_arch])
   done
   test -z "$dry_last" || NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$dry_last,code=compute_$dry_last"],
  [no], [AC_MSG_ERROR([--without-nvcc-gencode: nvcc must make code for something; give -gencode flags])],
  [NVCC_GENCODE=$with_nvcc_gencode])
dry_codes=`echo "$NVCC_GENCODE" | sed 's/-gencode //g; s/arch=@<:@^ @:>@*,code=//g'`
cat >conftest.cu <<'DRY_EOF'
__global__ void kernel(float *x) { x[[threadIdx.x]] *= 2; }
int launch(float *x) { kernel<<<1, 32>>>(x); return cudaGetLastError() == cudaSuccess; }
DRY_EOF
AS_IF(["$NVCC" $NVCCFLAGS $NVCC_GENCODE -std=c++17 -c conftest.cu -o conftest.$ac_objext >&AS_MESSAGE_LOG_FD 2>&1],
  [AC_MSG_RESULT([$dry_codes])
   DRY_SUMMARY_ADD([CUDA], [$dry_cuda_version in $dry_cuda_dir])
   DRY_SUMMARY_ADD([nvcc], [$NVCCFLAGS, code for $dry_codes])],
  [AC_MSG_RESULT([nothing])
   AS_IF([test "x$with_nvcc_gencode" != xguess],
     [AC_MSG_ERROR([$NVCC does not compile with --with-nvcc-gencode='$with_nvcc_gencode' (see config.log)])])
   DRY_CUDA_MISSING([$with_cuda], [$NVCC does not compile a kernel with $NVCC_GENCODE (see config.log)])
   DRY_SUMMARY_ADD([CUDA], [no ($NVCC does not compile; see config.log)])
   dry_have_cuda=no])
rm -f conftest.cu conftest.$ac_objext
])

# DRY_CUDA_LIBRARY(OPTION, NAME, HEADER, STATEMENT, LINK FLAGS): adds to CUDA_CFLAGS and CUDA_LIBS, sets dry_have_OPTION
AC_DEFUN([DRY_CUDA_LIBRARY], [
AS_IF([test $dry_have_cuda != yes], [:],
  [test "x$with_$1" = xno], [DRY_SUMMARY_ADD([$2], [no])],
  [AC_MSG_CHECKING([for $2])
   dry_from="system folders and toolkit" dry_flags= dry_lib=
   AS_CASE([$with_$1], [guess|yes], [],
     [test -f "$with_$1/include/$1.h" || AC_MSG_ERROR([--with-$1=$with_$1: no include/$1.h there])
      dry_from=$with_$1
      dry_flags="-isystem $with_$1/include"
      dry_lib="-L$with_$1/lib"
      test -d "$with_$1/lib" || dry_lib="-L$with_$1/lib64"])
   dry_plain_CFLAGS=$CUDA_CFLAGS
   dry_plain_LIBS=$CUDA_LIBS
   CUDA_CFLAGS="$dry_flags $CUDA_CFLAGS"
   CUDA_LIBS="$dry_lib $CUDA_LIBS $5"
   DRY_TRY_LINK([CUDA], [$3], [$4],
     [AC_MSG_RESULT([$dry_from])
      dry_have_$1=yes
      DRY_SUMMARY_ADD([$2], [$dry_from])],
     [AC_MSG_RESULT([no])
      AS_IF([test "x$with_$1" != xguess], [AC_MSG_ERROR([--with-$1=$with_$1: $2 was not found (tried: $dry_from); see config.log])])
      CUDA_CFLAGS=$dry_plain_CFLAGS
      CUDA_LIBS=$dry_plain_LIBS
      DRY_SUMMARY_ADD([$2], [no (not found; --with-$1=DIR names its folder)])])])
])
