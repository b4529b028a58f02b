/*
 * What several commands do alike on the way to their work: base, tokenizer, data, contract, adapter, engine.
 * Each step is Collective, ends in an agreement, and logs its own errors.
 */
#ifndef DRY_COMMAND_SETUP_H
#define DRY_COMMAND_SETUP_H

#include "command/command.h"
#include "config/contract.h"
#include "data/cache.h"
#include "data/plan.h"
#include "model/adapter.h"
#include "model/base.h"
#include "parallel/device.h"
#include "train/engine.h"

/* setup_data.c */

/* Collective. Base folder by name (dry_base_locate) and its tokenizer; *dir in new memory. */
enum dry_status dry_setup_tokenizer(const struct dry_call *call, char **dir, struct dry_tokenizer **t);
/* Collective. The rule from the options (texts borrowed from them). */
enum dry_status dry_setup_rule(const struct dry_call *call, const struct dry_tokenizer *t,
                               struct dry_record_rule *rule);
/* Collective. The cache of one data file: found valid in --cache (default OUTPUT/cache) and reused, or built;
 * then opened on every rank. A stale or damaged file of the same name is an error that names the field and
 * the remedy. */
enum dry_status dry_setup_cache(const struct dry_call *call, struct dry_tokenizer *t,
                                const struct dry_record_rule *rule, const char *data_path,
                                struct dry_cache **cache);
/* Collective. Plan of the training cache under a contract; plan of a validation cache (file order,
 * micro-batches cut as the contract says). Compares the plan's hash over ranks. */
enum dry_status dry_setup_plan(const struct dry_call *call, const struct dry_contract *k,
                               const struct dry_cache *cache, struct dry_plan **plan);
enum dry_status dry_setup_validation_plan(const struct dry_call *call, const struct dry_contract *k,
                                          const struct dry_cache *cache, struct dry_plan **plan);

/* setup_model.c */

/* Collective. Opens the base. */
enum dry_status dry_setup_base(const struct dry_call *call, const char *dir, struct dry_base **base);
/* Collective. The adapter to train: from --init-adapter (its configuration decides; a contradicting flag is
 * USAGE) or from the options; values [parameters] in new memory: the initial ones. */
enum dry_status dry_setup_adapter(const struct dry_call *call, const struct dry_base *base,
                                  struct dry_adapter **adapter, float **values);
/* Collective. An existing PEFT adapter folder with its values (evaluate, merge). */
enum dry_status dry_setup_peft(const struct dry_call *call, const char *dir, const struct dry_base *base,
                               struct dry_adapter **adapter, float **values);
/* Local. Whether the base can take a cache's records: no id over its vocabulary, none longer than its sliding
 * window (within it, full attention computes the same); a record over the base's positions is only warned of.
 * INPUT. */
enum dry_status dry_setup_check_records(const struct dry_base *base, const struct dry_cache *cache);
/* Collective. Completes the contract: resolve from options, ranks and records, then the three hashes. Checks
 * the records by dry_setup_check_records. */
enum dry_status dry_setup_contract(const struct dry_call *call, const struct dry_cache *cache,
                                   const struct dry_base *base, const struct dry_adapter *adapter,
                                   const float *values, struct dry_contract *k);
/* Local. The checks that need neither tokens nor weights: the data's lines counted and the contract resolved
 * from them, config.json read and the adapter shaped for it, so that a refusal comes before any work. */
enum dry_status dry_setup_early(const struct dry_call *call);
/* Local. The same for a run on so many ranks. */
enum dry_status dry_setup_early_on(const struct dry_config *c, int ranks);

/* setup_engine.c */

/* Local. The backend that the options name. USAGE. */
enum dry_status dry_setup_backend(const struct dry_config *c, const struct dry_backend_ops **ops);
/* Local. Bytes that can still be taken where the backend computes: on the host, all its ranks together; on
 * the first device that the options name or the host has. -1: not known, such as for a host without a device.
 */
enum dry_status dry_setup_room(const struct dry_config *c, const struct dry_backend_ops *ops, int64_t *room);
/* Collective. This rank's device on its host, -1 where the backend has none to choose from, and whether it is
 * the lowest rank that computes there. USAGE, DEVICE, MEMORY. */
enum dry_status dry_setup_device(const struct dry_call *call, const struct dry_backend_ops *ops, int *device,
                                 int *first);
/* Collective. What adds up gradients from device to device, as --communicator says: NULL with one rank, over
 * MPI, and where ranks share a device. USAGE, COMM. */
enum dry_status dry_setup_device_comm(const struct dry_call *call, const struct dry_backend_ops *ops,
                                      struct dry_device_comm **d);

/* Collective. The backend that the options name and the engine on it. Before memory is taken, what all ranks
 * of a host need is compared with what the host, or each rank with what its device, has left; if it does not
 * fit, the message names what would. Two ranks on one device are refused unless --devices names it twice. On
 * failure *backend and *engine may be set and are still to be destroyed (engine first). USAGE, MEMORY,
 * DEVICE. */
enum dry_status dry_setup_engine(const struct dry_call *call, const struct dry_base *base,
                                 const struct dry_adapter *adapter, const struct dry_limits *limits,
                                 uint64_t seed, struct dry_backend **backend, struct dry_engine **engine,
                                 struct dry_layout *layout);
/* Local. "1.5 GiB". */
void dry_bytes_text(double bytes, char text[16]);

#endif
