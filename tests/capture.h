/*
 * What the code under test writes to standard error, as text.
 */
#ifndef DRY_TESTS_CAPTURE_H
#define DRY_TESTS_CAPTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *capture_file;
static int capture_saved = -1;
static char capture_text[16384];

static inline void capture_begin(void)
{
    fflush(stderr);
    capture_file = tmpfile();
    if (!capture_file) {
        printf("Bail out! no temporary file\n");
        exit(1);
    }
    capture_saved = dup(STDERR_FILENO);
    dup2(fileno(capture_file), STDERR_FILENO);
}

/* Ends it; the text stays in capture_text until the next one. */
static inline const char *capture_end(void)
{
    size_t n;

    fflush(stderr);
    dup2(capture_saved, STDERR_FILENO);
    close(capture_saved);
    rewind(capture_file);
    n = fread(capture_text, 1, sizeof capture_text - 1, capture_file);
    capture_text[n] = '\0';
    fclose(capture_file);
    return capture_text;
}

#endif
