/*
 * Version, revision and configure's summary as text.
 * Owns nothing; it alone includes the generated revision.h, so that a commit rebuilds one file.
 * Must not know who prints it.
 */
#include "config.h"

#include "base/build.h"

#include "revision.h"

const char *dry_build_version(void)
{
    return PACKAGE_VERSION;
}

const char *dry_build_revision(void)
{
    return DRY_REVISION;
}

const char *dry_build_summary(void)
{
    return DRY_BUILD_SUMMARY;
}
