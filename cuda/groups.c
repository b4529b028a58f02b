/*
 * Groups of linears as the products on a GPU take them: columns of the output and of the pad, member by
 * member. Owns nothing.  Must not know how a product is done.
 */
#include "config.h"

#include "cuda/cuda.h"

enum { PAD_MULTIPLE = 64 }; /* rows stay aligned for the matrix units */

int64_t dry_cuda_row_pad(const struct dry_adapter *adapter)
{
    int64_t most = dry_group_most_ranks(adapter);

    return (most + PAD_MULTIPLE - 1) / PAD_MULTIPLE * PAD_MULTIPLE;
}

int dry_cuda_members(const struct dry_cuda *c, int64_t layer, enum dry_group g,
                     struct dry_cuda_member member[3], int *ranks)
{
    enum dry_proj proj[3];
    int members = dry_group_members(g, proj);
    int out = 0, used = 0;

    for (int i = 0; i < members; i++) {
        const struct dry_adapter_part *part = c->adapter ? dry_adapter_at(c->adapter, layer, proj[i]) : NULL;
        struct dry_cuda_member *m = &member[i];
        *m = (struct dry_cuda_member){.out_first = out,
                                      .out = (int)dry_proj_out(c->arch, proj[i]),
                                      .rank_first = used,
                                      .proj = (int)proj[i]};
        if (part) {
            m->rank = (int)part->rank;
            m->scale = part->scale;
            m->a = part->a;
            m->b = part->b;
        }
        out += m->out;
        used += m->rank;
    }
    *ranks = used;
    return members;
}
