/*
 * finetune's state, shared by its parts: the output folder, the state resumed from, the results.
 * Owns everything that a run holds, released by dry_command_finetune.
 */
#ifndef DRY_COMMAND_FINETUNE_H
#define DRY_COMMAND_FINETUNE_H

#include "command/setup.h"
#include "measure/ledger.h"
#include "measure/run.h"
#include "state/checkpoint.h"
#include "train/loop.h"

struct dry_finetune {
    const struct dry_call *call;
    struct dry_comm *comm;
    int rank, ranks;
    /* the folder */
    int lock;                 /* rank 0: descriptor of OUTPUT/.lock, -1 */
    json_t *options;          /* as given, before anything is completed */
    int earlier;              /* a run is in the folder: */
    struct dry_contract then; /*   its contract */
    json_t *before;           /*   its options, or NULL */
    /* what is trained */
    char *dir;
    struct dry_tokenizer *tokenizer;
    struct dry_cache *cache, *validation_cache;
    struct dry_base *base;
    struct dry_adapter *adapter;
    float *values, *m, *v; /* [parameters]: what is saved, and what is put into the backend at start */
    struct dry_contract contract;
    struct dry_plan *plan, *validation_plan;
    struct dry_loader *loader, *validation_loader;
    struct dry_layout layout;
    struct dry_backend *backend;
    struct dry_engine *engine;
    struct dry_device_comm *device_comm; /* NULL: sums go over the host */
    /* where it begins */
    int resumed; /* values, m, v and this are a checkpoint's: */
    struct dry_checkpoint state;
    json_t *change; /* an accepted batch change, for run.json */
    /* what it tells; rank 0, except where stated */
    double resident;             /* share of the base's files in memory at start; NAN: not known */
    json_t *devices;             /* what ranks compute on, for run.json */
    struct dry_stages stages;    /* every rank's */
    struct dry_sampler *sampler; /* NULL: no samples */
    struct dry_ledger *ledger;
    struct dry_run *run;
    struct dry_progress *progress;
    char *options_text, *manifest_text; /* for checkpoints */
    int metrics_failed;                 /* said once */
    /* sums of this start */
    int exported; /* OUTPUT/adapter is written and proved */
    int64_t steps_done, tokens_done;
    double first_loss, last_loss, validation_loss;
    double loop_seconds;
};

/* finetune_output.c. Collective: the folder, where there is one, checked and locked (it must be a run's, or
 * hold nothing but harmless things); the checkpoint that --resume names; the earlier run's contract; an
 * accumulation that is given as the earlier run was given it stands for that run's effective batch. Makes no
 * folder. */
enum dry_status dry_finetune_look(struct dry_finetune *f);
/* Local. What may lie in a folder before its first run: prepare's cache, and what a shell or a batch system
 * writes there. */
int dry_finetune_harmless(const char *name);
/* Collective. Makes and locks the folder if it was not there: once nothing is left to be refused. */
enum dry_status dry_finetune_folder(struct dry_finetune *f);

/* finetune_state.c. Collective: the checkpoint to go on from, if any, compared with the contract; an accepted
 * batch change is carried out: the state is saved under the new contract and the old checkpoints are set
 * aside. */
enum dry_status dry_finetune_resume(struct dry_finetune *f);
/* Local. dry_contract_compare with the contract of this start; a refusal also lists the options that differ.
 */
enum dry_status dry_finetune_compare(const struct dry_finetune *f, const struct dry_contract *then,
                                     const char *accept, double *factor);
/* Collective. The state after a step into OUTPUT/checkpoints; checks first that all ranks hold the same
 * adapter. */
enum dry_status dry_finetune_save(struct dry_finetune *f, const struct dry_loop *l, int64_t step);
/* Collective. Non-zero in *done: the checkpoint is the last step's, and OUTPUT/adapter holds its values. */
enum dry_status dry_finetune_done(struct dry_finetune *f, int *done);

/* finetune_tell.c. Collective: what the ranks compute on and the rate of its products; the sampler gets the
 * device's probe. */
enum dry_status dry_finetune_machine(struct dry_finetune *f, const struct dry_limits *limits);
/* Local, rank 0: what is about to happen. */
enum dry_status dry_finetune_say_start(struct dry_finetune *f);
/* Local, rank 0: manifest, metrics and progress. */
enum dry_status dry_finetune_open_run(struct dry_finetune *f);
/* Local, rank 0: ends run.json, and tells where the time went and what that means. */
enum dry_status dry_finetune_finish(struct dry_finetune *f, const struct dry_loop *l,
                                    enum dry_status outcome);

/* finetune_result.c. Collective: OUTPUT/adapter written, read back from disk, and proved by computing a loss
 * again. */
enum dry_status dry_finetune_export(struct dry_finetune *f);
/* Local, rank 0: what run.json keeps of the end; NULL: no memory. */
json_t *dry_finetune_results(const struct dry_finetune *f, const struct dry_loop *l);

#endif
