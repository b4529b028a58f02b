/*
 * What this program was built from, for --version and the manifest.  Owns nothing.
 */
#ifndef DRY_BASE_BUILD_H
#define DRY_BASE_BUILD_H

/* Local. Constant texts. */
const char *dry_build_version(void); /* "0.1.0" */
const char *
dry_build_revision(void); /* git describe of the checkout, "-dirty" appended when changed; "" in a tarball */
const char *dry_build_summary(void); /* what configure decided, a line each, no final newline */

#endif
