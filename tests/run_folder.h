/*
 * A run's folder, written by hand: the files that a test of what reads them begins from.
 */
#ifndef DRY_TESTS_RUN_FOLDER_H
#define DRY_TESTS_RUN_FOLDER_H

#include "scratch.h"

#define RUN_STAGES_HEADER                                                                                  \
    "start,phase,step,rank,began,seconds,tokens,padded_tokens,supervised,micro_batches,start-up,tokenise," \
    "data_wait,copy_in,forward,backward,reduce,wait_for_slowest_rank,optimizer,checkpoint,validation,"     \
    "unexplained\n"
#define RUN_GPU_HEADER                                                                                      \
    "timestamp,index,utilization.gpu,utilization.memory,memory.used,power.draw,clocks.sm,"                  \
    "clocks_event_reasons.active,temperature.gpu,pcie.tx,pcie.rx,nvlink.tx,nvlink.rx,energy,at,start,rank," \
    "host,step,stage\n"
#define RUN_PROCESS_HEADER "timestamp,cpu,memory.used,read,written,at,start,rank,host,step,stage\n"

/* scratch/run/NAME holds the text; the folder is made if absent. Returns the folder. */
static inline const char *run_file(const char *run, const char *name, const char *text)
{
    const char *folder = scratch_path(run);
    char path[1024];

    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    scratch_write(path, text, strlen(text));
    return folder;
}

#endif
