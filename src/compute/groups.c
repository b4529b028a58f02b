/*
 * Groups of linears that share an input: their members and shapes.
 * Owns one constant table.  Must not know of backends or weights.
 */
#include "config.h"

#include "compute/backend.h"

#include <assert.h>

static const struct {
    int members;
    enum dry_proj member[3];
} groups[] = {
    [DRY_GROUP_QKV] = {3, {DRY_PROJ_Q, DRY_PROJ_K, DRY_PROJ_V}},
    [DRY_GROUP_O] = {1, {DRY_PROJ_O}},
    [DRY_GROUP_GATE_UP] = {2, {DRY_PROJ_GATE, DRY_PROJ_UP}},
    [DRY_GROUP_DOWN] = {1, {DRY_PROJ_DOWN}},
};
_Static_assert(sizeof groups / sizeof groups[0] == DRY_GROUPS, "a row per group");

int64_t dry_group_in(const struct dry_arch *a, enum dry_group g)
{
    assert(g < DRY_GROUPS);
    return dry_proj_in(a, groups[g].member[0]);
}

int64_t dry_group_out(const struct dry_arch *a, enum dry_group g)
{
    int64_t out = 0;

    assert(g < DRY_GROUPS);
    for (int i = 0; i < groups[g].members; i++)
        out += dry_proj_out(a, groups[g].member[i]);
    return out;
}

int dry_group_members(enum dry_group g, enum dry_proj member[3])
{
    assert(g < DRY_GROUPS);
    for (int i = 0; i < groups[g].members; i++)
        member[i] = groups[g].member[i];
    return groups[g].members;
}

int dry_group_has_bias(const struct dry_base_layer *layer, enum dry_group g)
{
    assert(g < DRY_GROUPS);
    for (int i = 0; i < groups[g].members; i++)
        if (layer->bias[groups[g].member[i]])
            return 1;
    return 0;
}

int64_t dry_group_most_ranks(const struct dry_adapter *adapter)
{
    int64_t most = 0;

    for (int64_t l = 0; adapter && l < adapter->layers; l++)
        for (int g = 0; g < DRY_GROUPS; g++) {
            int64_t ranks = 0;
            for (int i = 0; i < groups[g].members; i++) {
                const struct dry_adapter_part *part = dry_adapter_at(adapter, l, groups[g].member[i]);
                ranks += part ? part->rank : 0;
            }
            most = ranks > most ? ranks : most;
        }
    return most;
}
