/*
 * A layer's MLP on a GPU: SwiGLU, and how it shares passes over its tensors with the thin products beside it.
 * Owns nothing.  Must not know how a kernel computes.
 *
 *   forward   act = silu(gate) up and, in the same pass, down's x A^T;  y = [act | pad] [W | B]^T + residual
 *   backward  d_act = [dy | u] [W ; A];  one pass over gate, up and d_act gives their gradients, the sums of
 * down's A and of gate's and up's B, and the pad of the gradients;  the rest is linear.c's
 *
 * Where ranks are more than one unit holds, rows are not of whole vectors, or dropout makes another input,
 * the pieces run one by one; SwiGLU's output then takes the place of d_act.
 */
#include "config.h"

#include "cuda/linear.h"

#include "cuda/elementwise.h"

#include <assert.h>

enum {
    WHOLE_ROWS = 4096, /* from so many rows on, forward does not cut the columns: there are blocks enough */
    MOST_SLICES = 8,
    FIXED_STEPS = 6 /* what a block of the backward pass costs beside its rows, in steps */
};

static struct dry_cuda_rows rows_of(const struct dry_cuda *c)
{
    int64_t ffn = c->arch->ffn;

    return (struct dry_cuda_rows){.rows = c->batch.tokens,
                                  .useful = c->batch.useful,
                                  .width = ffn,
                                  .x_pitch = dry_cuda_pitch(c, 2 * ffn),
                                  .y_pitch = dry_cuda_pitch(c, ffn)};
}

static enum dry_status swiglu(struct dry_cuda *c, const void *gate_up, void *act)
{
    struct dry_cuda_rows r = rows_of(c);

    return dry_cuda_check(c, dry_cuda_swiglu_forward_launch(&r, gate_up, act, c->stream), "SwiGLU");
}

/* Whether a group's thin products can be done beside SwiGLU. */
static int fits(const struct dry_cuda_group *g)
{
    return g->aligned && !g->drops && dry_cuda_group_units(g) <= 1;
}

/* Cuts of the columns: a rule of the rows alone. */
static int slices_of(const struct dry_cuda_group *g)
{
    int slices = 1, most = (g->in + DRY_SKINNY_SLICE - 1) / DRY_SKINNY_SLICE;

    while (slices < MOST_SLICES && 2 * slices <= most && g->tokens * slices < WHOLE_ROWS)
        slices *= 2;
    return slices;
}

/* act and its pad in one pass. */
static enum dry_status fused_forward(const struct dry_cuda_group *g, const dry_bf16 *gate_up, dry_bf16 *act)
{
    struct dry_cuda *c = g->c;
    const struct dry_cuda_member *m = &g->member[0];
    int pad_first = dry_cuda_group_unit_first(g, m, 1), slices = slices_of(g);
    struct dry_cuda_swiglu_job j = {.gate_up = gate_up,
                                    .a = dry_cuda_group_a(g) + pad_first * g->w_pitch,
                                    .act = act,
                                    .partial = c->reduce,
                                    .x_pitch = dry_cuda_pitch(c, 2 * c->arch->ffn),
                                    .y_pitch = g->x_pitch,
                                    .a_pitch = g->w_pitch,
                                    .tokens = g->tokens,
                                    .useful = g->useful,
                                    .width = g->in,
                                    .slices = slices};
    struct dry_skinny_finish f = {.partial = c->reduce,
                                  .width = DRY_SKINNY_UNIT,
                                  .tokens = g->tokens,
                                  .useful = g->useful,
                                  .end = g->columns,
                                  .parts = 1,
                                  .part = {{.first = m->rank_first,
                                            .end = m->rank_first + m->rank,
                                            .pad_first = pad_first,
                                            .slices = slices,
                                            .scale = m->scale}},
                                  .pad = act + g->in,
                                  .kept = g->kept,
                                  .pitch = g->x_pitch,
                                  .kept_pitch = c->pad};
    enum dry_status status = dry_cuda_check(c, dry_cuda_swiglu_launch(&j, c->stream), "SwiGLU and x A");

    return status ? status : dry_cuda_check(c, dry_cuda_skinny_finish_launch(&f, c->stream), "x A's sum");
}

enum dry_status dry_cuda_mlp_forward(struct dry_backend *b, int64_t layer, const void *gate_up,
                                     const void *residual, void *act, void *y)
{
    struct dry_cuda *c = dry_cuda_of(b);
    enum dry_status status;
    struct dry_cuda_group g;

    dry_cuda_group_make(c, layer, DRY_GROUP_DOWN, &g);
    if (g.ranks && fits(&g)) {
        status = fused_forward(&g, gate_up, act);
    } else {
        status = swiglu(c, gate_up, act);
        if (!status)
            status = dry_cuda_group_xa(&g, act);
    }
    return status ? status : dry_cuda_group_output(&g, act, residual, y);
}

static struct dry_cuda_thin_target target_of(const struct dry_cuda_member *m, int pad_first, int64_t at)
{
    return (struct dry_cuda_thin_target){.first = m->rank_first - pad_first, .rank = m->rank, .at = at};
}

/* From gate_up and d_act: the gradient in gate_up's place with its pad, and the sums of down's A, gate's and
 * up's B. */
static enum dry_status fused_backward(const struct dry_cuda_group *down, const struct dry_cuda_group *g,
                                      const dry_bf16 *dy, dry_bf16 *gate_up, const dry_bf16 *d_act)
{
    struct dry_cuda *c = g->c;
    const struct dry_cuda_member *d = &down->member[0], *gate = &g->member[0], *up = &g->member[1];
    int d_first = dry_cuda_group_unit_first(down, d, 1), gate_first = dry_cuda_group_unit_first(g, gate, 1),
        up_first = dry_cuda_group_unit_first(g, up, 1);
    const struct dry_cuda_swiglu_plan *p = &c->linear->swiglu;
    int columns = p->columns, slices = (down->in + columns - 1) / columns;
    const dry_bf16 *b = g->weight + g->in;
    struct dry_cuda_swiglu_back j = {.gate_up = gate_up,
                                     .d_act = d_act,
                                     .u = dy + down->out + d_first,
                                     .v_gate = g->kept + gate_first,
                                     .v_up = g->kept + up_first,
                                     .b_gate = b + gate_first,
                                     .b_up = b + up->out_first * g->w_pitch + up_first,
                                     .partial = c->reduce,
                                     .x_pitch = g->y_pitch,
                                     .y_pitch = down->x_pitch,
                                     .u_pitch = down->y_pitch,
                                     .v_pitch = c->pad,
                                     .b_pitch = g->w_pitch,
                                     .tokens = g->tokens,
                                     .useful = g->useful,
                                     .width = down->in,
                                     .slices = slices,
                                     .down = target_of(d, d_first, d->a),
                                     .gate = target_of(gate, gate_first, gate->b),
                                     .up = target_of(up, up_first, up->b),
                                     .sums = c->sums,
                                     .words = c->sums + c->gradients};
    struct dry_skinny_finish f = {.partial = c->reduce,
                                  .width = DRY_SKINNY_UNIT,
                                  .tokens = g->tokens,
                                  .useful = g->useful,
                                  .end = g->columns,
                                  .pad = gate_up + g->out,
                                  .pitch = g->y_pitch};
    enum dry_status status;

    j.chunk = dry_cuda_thin_chunk(g->tokens, DRY_SWIGLU_ROWS, slices,
                                  (int64_t)c->sms * (p->resident > 0 ? p->resident : 1), FIXED_STEPS);
    for (int i = 0; i < 2; i++) {
        const struct dry_cuda_member *m = &g->member[i];
        if (m->rank)
            f.part[f.parts++] = (struct dry_skinny_part){.first = m->rank_first,
                                                         .end = m->rank_first + m->rank,
                                                         .pad_first = i ? up_first : gate_first,
                                                         .slice_first = i * slices,
                                                         .slices = slices,
                                                         .scale = m->scale};
    }
    status = dry_cuda_check(c, dry_cuda_swiglu_fused_launch(&j, p, c->stream), "SwiGLU's backward");
    return status ? status : dry_cuda_check(c, dry_cuda_skinny_finish_launch(&f, c->stream), "dy B's sum");
}

/* The same piece by piece. */
static enum dry_status pieces_backward(const struct dry_cuda_group *down, const struct dry_cuda_group *g,
                                       const dry_bf16 *dy, dry_bf16 *gate_up, dry_bf16 *d_act)
{
    struct dry_cuda *c = g->c;
    struct dry_cuda_rows r = rows_of(c);
    enum dry_status status = dry_cuda_check(c, dry_cuda_swiglu_backward_launch(&r, gate_up, d_act, c->stream),
                                            "SwiGLU's backward");

    if (!status && down->ranks)
        status = dry_cuda_group_da(down, d_act, dy);
    return !status && g->ranks ? dry_cuda_group_dy(g, gate_up) : status;
}

enum dry_status dry_cuda_mlp_backward(struct dry_backend *b, int64_t layer, const struct dry_mlp *m)
{
    struct dry_cuda *c = dry_cuda_of(b);
    struct dry_cuda_group down, g;
    enum dry_status status = DRY_OK;

    dry_cuda_group_make(c, layer, DRY_GROUP_DOWN, &down);
    dry_cuda_group_make(c, layer, DRY_GROUP_GATE_UP, &g);
    assert(g.kept || (!g.ranks && !down.ranks));
    if (down.ranks)
        status = dry_cuda_group_dy(&down, (dry_bf16 *)m->dy); /* behind its width */
    if (status)
        return status;
    if (m->down_only) {
        status = swiglu(c, m->gate_up, m->act);
        return !status && down.ranks ? dry_cuda_group_da(&down, m->act, m->dy) : status;
    }
    status = dry_cuda_group_input(&down, m->dy, m->act);
    if (status)
        return status;
    if (g.ranks && fits(&g) && fits(&down) && c->linear->swiglu.columns)
        status = fused_backward(&down, &g, m->dy, m->gate_up, m->act);
    else
        status = pieces_backward(&down, &g, m->dy, m->gate_up, m->act);
    if (!status && g.ranks)
        status = dry_cuda_group_normed_da(&g, DRY_NORM_POST, m->x, m->normed, m->again, m->gate_up);
    return status || !m->dx ? status : dry_cuda_group_input(&g, m->gate_up, m->dx);
}
