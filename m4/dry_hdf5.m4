# HDF5 for caches and checkpoints.  One process writes a file, so the serial library is the one wanted; Debian and
# Ubuntu call its module hdf5-serial, others hdf5.
AC_DEFUN([DRY_HDF5], [
DRY_LIBRARY([HDF5], [hdf5], [HDF5], [hdf5-serial hdf5], [[#include <hdf5.h>]], [[return H5open() < 0;]], [-lhdf5],
  [libhdf5-dev], [it keeps caches and checkpoints])
])
