/*
 * The model on a backend: one arena laid out once, and one micro-batch forward and backward in the order of
 * its operations. Owns the layout of the arena and the pointers into it. Must not know of ranks, steps,
 * files, or how an operation computes.
 *
 * What forward keeps for backward, per layer from the lowest adapted one up: the residual stream before
 * attention and before the MLP, q k v after rotation (and before, with qk_norm), the attention's output and
 * log-sum-exp, and gate and up. SwiGLU's output comes again with its gradient; norms' outputs are cheap to
 * compute again and are kept only with DRY_RECOMPUTE_NONE. With DRY_RECOMPUTE_FULL only the residual stream
 * before attention is kept for each layer; the other buffers are one set, which backward fills again, but for
 * the last layer, whose values are still there. Layers below the lowest adapted one, and all layers when
 * nothing is trained, share one set. Operations give the same bits each time, so that the choice changes no
 * bit of a run.
 */
#include "config.h"

#include "train/engine.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Buffers in the arena: the first SHARED kinds once per kept layer (see copies_of), the others once. */
enum slot {
    SLOT_X1,  /* [T, H] residual stream into the layer */
    SLOT_RAW, /* [T, Q + K] q and k before their norm; only with qk_norm */
    SLOT_QKV, /* [T, Q + 2K] rotated */
    SLOT_O,   /* [T, Q] attention's output */
    SLOT_LSE, /* [T, Hq] float32 */
    SLOT_X2,  /* [T, H] residual stream into the MLP */
    SLOT_GU,  /* [T, 2F] gate and up; in backward their gradient */
    SLOT_N1,  /* [T, H] input of q k v; this and the next only where nothing is recomputed */
    SLOT_N2,  /* [T, H] input of gate and up */
    SLOT_SHARED,
    SLOT_IN = SLOT_SHARED, /* [T, H] norm's output where it is not kept; in the end the last hidden state */
    SLOT_DH,               /* [T, H] gradient of the residual stream */
    SLOT_WIDE,    /* [T, max(F, Q + 2K)] SwiGLU's output; in backward its gradient, or that of q k v */
    SLOT_DNARROW, /* [T, max(H, Q)] gradient of a norm's output, or of the attention's */
    SLOT_SPARE,   /* bytes that operations are to be lent and that no idle buffer has */
    SLOTS
};

static const char *const slot_names[] = {
    [SLOT_X1] = "kept: residual stream",
    [SLOT_RAW] = "kept: q, k before their norm",
    [SLOT_QKV] = "kept: q, k, v",
    [SLOT_O] = "kept: attention output",
    [SLOT_LSE] = "kept: attention sums",
    [SLOT_X2] = "kept: residual stream, MLP",
    [SLOT_GU] = "kept: gate, up",
    [SLOT_N1] = "kept: norm, attention",
    [SLOT_N2] = "kept: norm, MLP",
    [SLOT_IN] = "scratch: norm, last hidden state",
    [SLOT_DH] = "gradient: residual stream",
    [SLOT_WIDE] = "scratch: MLP, q k v",
    [SLOT_DNARROW] = "gradient: norm, attention",
    [SLOT_SPARE] = "scratch: attention, loss",
};
_Static_assert(sizeof slot_names / sizeof *slot_names == SLOTS, "each slot has a name");
_Static_assert(SLOTS + 4 <= DRY_LAYOUT_NAMES, "the layout has room for each slot");

static const char *const recompute_names[] = {
    [DRY_RECOMPUTE_NORMS] = "norms", [DRY_RECOMPUTE_NONE] = "none", [DRY_RECOMPUTE_FULL] = "full"};

enum { ALIGNMENT = 256 };

struct slots {
    size_t bytes[SLOTS];   /* of one buffer */
    size_t offset[SLOTS];  /* of the first one */
    int64_t copies[SLOTS]; /* how many lie one behind the other */
    int64_t lowest;        /* layers below keep nothing: no adapter is there */
    enum dry_recompute recompute;
    int lends_gate_up; /* attention works in the layer's gate and up, which come later or are done with */
    size_t arena;
};

struct dry_engine {
    struct dry_backend *backend;
    const struct dry_base *base;
    const struct dry_adapter *adapter;
    struct slots slots;
    unsigned char *arena;
    int training;
    enum dry_group bottom; /* lowest adapted group of the lowest adapted layer: backward ends there */
};

enum dry_recompute dry_recompute_find(const char *name)
{
    for (size_t r = 0; r < sizeof recompute_names / sizeof *recompute_names; r++)
        if (strcmp(name, recompute_names[r]) == 0)
            return (enum dry_recompute)r;
    assert(!"a name that the option table lets through");
    return DRY_RECOMPUTE_NORMS;
}

const char *dry_recompute_name(enum dry_recompute r)
{
    return recompute_names[r];
}

static int group_adapted(const struct dry_adapter *a, int64_t layer, enum dry_group g)
{
    enum dry_proj member[3];
    int n = dry_group_members(g, member);

    for (int i = 0; i < n; i++)
        if (dry_adapter_at(a, layer, member[i]))
            return 1;
    return 0;
}

/* The lowest layer and group with an adapter; layers when there is none. */
static int64_t lowest_adapted(const struct dry_adapter *a, int64_t layers, enum dry_group *bottom)
{
    for (int64_t l = 0; l < layers; l++)
        for (int g = 0; g < DRY_GROUPS; g++)
            if (group_adapted(a, l, (enum dry_group)g)) {
                *bottom = (enum dry_group)g;
                return l;
            }
    return layers;
}

/* Elements of a row of each slot, without what the backend puts behind it; 0: not needed. */
static void slot_widths(const struct dry_arch *a, int training, enum dry_recompute recompute,
                        int64_t width[SLOTS])
{
    int keeps_inputs = recompute == DRY_RECOMPUTE_NONE;
    int64_t q = dry_proj_out(a, DRY_PROJ_Q), k = dry_proj_out(a, DRY_PROJ_K);

    width[SLOT_X1] = width[SLOT_X2] = width[SLOT_IN] = a->hidden;
    width[SLOT_RAW] = a->qk_norm && training ? q + k : 0;
    width[SLOT_QKV] = q + 2 * k;
    width[SLOT_O] = q;
    width[SLOT_LSE] = a->heads;
    width[SLOT_GU] = 2 * a->ffn;
    width[SLOT_N1] = width[SLOT_N2] = keeps_inputs ? a->hidden : 0;
    width[SLOT_WIDE] = training ? dry_larger(a->ffn, q + 2 * k) : a->ffn;
    width[SLOT_DH] = training ? a->hidden : 0;
    width[SLOT_DNARROW] = training ? dry_larger(a->hidden, q) : 0;
    width[SLOT_SPARE] = 0;
}

/* What is to be lent beyond idle buffers. The loss head has all from SLOT_WIDE on, which lie one behind the
 * other. */
static size_t spare_bytes(struct slots *s, const struct dry_scratch *scratch)
{
    size_t idle = s->bytes[SLOT_WIDE] + s->bytes[SLOT_DNARROW];
    size_t spare = scratch->loss > idle ? scratch->loss - idle : 0;

    s->lends_gate_up = scratch->attention <= s->bytes[SLOT_GU];
    return s->lends_gate_up || scratch->attention <= spare ? spare : scratch->attention;
}

/* One for each layer that keeps the slot, and one for the layers below. */
static int64_t copies_of(const struct slots *s, const struct dry_arch *a, int slot)
{
    if (slot >= SLOT_SHARED || (s->recompute == DRY_RECOMPUTE_FULL && slot != SLOT_X1))
        return 1;
    return a->layers - s->lowest + (s->lowest > 0);
}

static enum dry_status lay_out(const struct dry_backend_ops *ops, const struct dry_arch *arch,
                               const struct dry_adapter *adapter, const struct dry_limits *limits,
                               const struct dry_scratch *scratch, struct slots *s, enum dry_group *bottom)
{
    int64_t width[SLOTS], pad = ops->row_pad(adapter);
    size_t end = 0;

    memset(s, 0, sizeof *s);
    s->lowest = limits->training ? lowest_adapted(adapter, arch->layers, bottom) : arch->layers;
    s->recompute = limits->training ? limits->recompute : DRY_RECOMPUTE_NORMS;
    slot_widths(arch, limits->training, s->recompute, width);
    for (int i = 0; i < SLOTS; i++) {
        size_t element = i == SLOT_LSE ? sizeof(float) : ops->act_bytes, bytes, all;
        int64_t pitch = width[i] == 0 || i == SLOT_LSE || i == SLOT_RAW ? width[i] : width[i] + pad;

        s->copies[i] = copies_of(s, arch, i);
        if (dry_mul_size((size_t)limits->tokens, (size_t)pitch, &bytes) ||
            dry_mul_size(bytes, element, &bytes) || dry_add_size(bytes, ALIGNMENT - 1, &bytes))
            goto overflow;
        if (i == SLOT_SPARE && dry_add_size(bytes, spare_bytes(s, scratch), &bytes))
            goto overflow;
        bytes -= bytes % ALIGNMENT;
        s->bytes[i] = bytes;
        s->offset[i] = end;
        if (dry_mul_size(bytes, (size_t)s->copies[i], &all) || dry_add_size(end, all, &end))
            goto overflow;
    }
    s->arena = end;
    return DRY_OK;
overflow:
    dry_error("memory: activations of %lld tokens exceed what a size can hold", (long long)limits->tokens);
    return DRY_ERR_MEMORY;
}

static enum dry_status add_part(struct dry_layout *l, const char *name, size_t bytes, size_t offset,
                                int in_arena)
{
    if (bytes == 0)
        return DRY_OK;
    assert(l->parts < DRY_LAYOUT_NAMES);
    snprintf(l->part[l->parts].name, sizeof l->part[l->parts].name, "%s", name);
    l->part[l->parts].bytes = bytes;
    l->part[l->parts].offset = offset;
    l->part[l->parts].in_arena = in_arena;
    l->parts++;
    if (dry_add_size(l->total, bytes, &l->total)) {
        dry_error("memory: the run's buffers exceed what a size can hold");
        return DRY_ERR_MEMORY;
    }
    return DRY_OK;
}

enum dry_status dry_engine_layout(const struct dry_backend_ops *ops, const struct dry_base *base,
                                  const struct dry_adapter *adapter, const struct dry_limits *limits,
                                  struct dry_layout *layout)
{
    size_t weights = 0, state = 0, workspace = 0;
    struct dry_scratch scratch;
    struct dry_layout l = {.parts = 0};
    enum dry_group bottom = DRY_GROUP_QKV;
    enum dry_status status;
    struct slots s;

    status = ops->footprint(base, adapter, limits, &weights, &state, &workspace, &scratch);
    if (!status)
        status = lay_out(ops, &base->arch, adapter, limits, &scratch, &s, &bottom);
    if (!status)
        status = add_part(&l, "base weights", weights, 0, 0);
    if (!status)
        status = add_part(&l, limits->training ? "adapter, moments, gradients" : "adapter", state, 0, 0);
    if (!status)
        status = add_part(&l, "workspace of operations", workspace, 0, 0);
    if (!status)
        status = add_part(&l, "the device's libraries", ops->library_bytes, 0, 0);
    for (int i = 0; i < SLOTS && !status; i++)
        status = add_part(&l, slot_names[i], s.bytes[i] * (size_t)s.copies[i], s.offset[i], 1);
    if (status)
        return status;
    l.arena = s.arena;
    *layout = l;
    return DRY_OK;
}

enum dry_status dry_engine_create(struct dry_backend *backend, const struct dry_base *base,
                                  const struct dry_adapter *adapter, const struct dry_limits *limits,
                                  struct dry_engine **engine)
{
    struct dry_engine *e = dry_alloc(1, sizeof *e, "the engine");
    size_t weights, state, workspace;
    struct dry_scratch scratch;
    enum dry_status status;
    void *arena = NULL;

    if (!e)
        return DRY_ERR_MEMORY;
    assert(!limits->training || adapter);
    e->backend = backend;
    e->base = base;
    e->adapter = adapter;
    e->training = limits->training;
    status = backend->ops->footprint(base, adapter, limits, &weights, &state, &workspace, &scratch);
    if (!status)
        status = lay_out(backend->ops, &base->arch, adapter, limits, &scratch, &e->slots, &e->bottom);
    if (!status)
        status = backend->ops->load(backend, base, adapter, limits);
    if (!status)
        status = backend->ops->arena(backend, e->slots.arena, &arena);
    if (status) {
        dry_engine_destroy(e);
        return status;
    }
    e->arena = arena;
    *engine = e;
    return DRY_OK;
}

void dry_engine_destroy(struct dry_engine *e)
{
    dry_free(e);
}

struct dry_backend *dry_engine_backend(struct dry_engine *e)
{
    return e->backend;
}

void *dry_engine_arena(struct dry_engine *e, size_t *bytes)
{
    *bytes = e->slots.arena;
    return e->arena;
}

/* Where a buffer lies; layers below the lowest adapted one share the first copy, and all do where there is
 * one. */
static void *at(const struct dry_engine *e, enum slot slot, int64_t layer)
{
    const struct slots *s = &e->slots;
    size_t set = 0;

    if (s->bytes[slot] == 0)
        return NULL;
    if (s->copies[slot] > 1 && layer >= s->lowest)
        set = (size_t)(layer - s->lowest + (s->lowest > 0));
    return e->arena + s->offset[slot] + set * s->bytes[slot];
}

/* Where a linear's input lies that a norm makes. */
static void *input_at(const struct dry_engine *e, enum slot slot, int64_t layer)
{
    return at(e, e->slots.recompute == DRY_RECOMPUTE_NONE ? slot : SLOT_IN, layer);
}

/* What attention is lent. */
static void *attention_scratch(const struct dry_engine *e, int64_t layer)
{
    return e->slots.lends_gate_up ? at(e, SLOT_GU, layer) : at(e, SLOT_SPARE, 0);
}

/* Where a layer's output goes: the next layer's input. */
static void *output_of(const struct dry_engine *e, int64_t layer)
{
    return layer + 1 < e->base->arch.layers ? at(e, SLOT_X1, layer + 1) : at(e, SLOT_IN, 0);
}

enum dry_status dry_engine_batch(struct dry_engine *e, const struct dry_batch *batch, int dropout)
{
    return e->backend->ops->batch(e->backend, batch, dropout);
}

/* From the layer's input to gate and up: all that backward needs beside what it makes itself. */
static enum dry_status layer_begin(struct dry_engine *e, int64_t l)
{
    const struct dry_backend_ops *ops = e->backend->ops;
    struct dry_backend *b = e->backend;
    void *x1 = at(e, SLOT_X1, l), *x2 = at(e, SLOT_X2, l);
    void *n1 = input_at(e, SLOT_N1, l), *n2 = input_at(e, SLOT_N2, l);
    void *qkv = at(e, SLOT_QKV, l), *o = at(e, SLOT_O, l), *gu = at(e, SLOT_GU, l);
    enum dry_status status;

    if ((status = ops->norm_forward(b, l, DRY_NORM_INPUT, x1, n1)) ||
        (status = ops->linear_forward(b, l, DRY_GROUP_QKV, n1, NULL, qkv)) ||
        (status = ops->attention_forward(b, l, qkv, at(e, SLOT_RAW, l), o, at(e, SLOT_LSE, l),
                                         attention_scratch(e, l))) ||
        (status = ops->linear_forward(b, l, DRY_GROUP_O, o, x1, x2)) ||
        (status = ops->norm_forward(b, l, DRY_NORM_POST, x2, n2)))
        return status;
    return ops->linear_forward(b, l, DRY_GROUP_GATE_UP, n2, NULL, gu);
}

static enum dry_status layer_forward(struct dry_engine *e, int64_t l)
{
    enum dry_status status = layer_begin(e, l);

    return status ? status
                  : e->backend->ops->mlp_forward(e->backend, l, at(e, SLOT_GU, l), at(e, SLOT_X2, l),
                                                 at(e, SLOT_WIDE, 0), output_of(e, l));
}

/* dh: gradient of the layer's output in, of its input out. Ends at the bottom group of the lowest adapted
 * layer. */
static enum dry_status layer_backward(struct dry_engine *e, int64_t l)
{
    const struct dry_backend_ops *ops = e->backend->ops;
    struct dry_backend *b = e->backend;
    void *x1 = at(e, SLOT_X1, l), *x2 = at(e, SLOT_X2, l), *qkv = at(e, SLOT_QKV, l), *o = at(e, SLOT_O, l);
    void *dh = at(e, SLOT_DH, 0), *wide = at(e, SLOT_WIDE, 0), *narrow = at(e, SLOT_DNARROW, 0);
    enum dry_group last = l == e->slots.lowest ? e->bottom : DRY_GROUPS;
    int again = e->slots.recompute != DRY_RECOMPUTE_NONE;
    struct dry_mlp mlp = {.x = x2,
                          .normed = input_at(e, SLOT_N2, l),
                          .again = again,
                          .gate_up = at(e, SLOT_GU, l),
                          .act = wide,
                          .dy = dh,
                          .down_only = last == DRY_GROUP_DOWN,
                          .dx = last == DRY_GROUP_DOWN || last == DRY_GROUP_GATE_UP ? NULL : narrow};
    enum dry_status status = ops->mlp_backward(b, l, &mlp);

    if (status || !mlp.dx)
        return status;
    if ((status = ops->norm_backward(b, l, DRY_NORM_POST, x2, narrow, dh)) ||
        (status = ops->linear_backward(b, l, DRY_GROUP_O, o, dh, last == DRY_GROUP_O ? NULL : narrow)) ||
        last == DRY_GROUP_O)
        return status;
    if ((status = ops->attention_backward(b, l, qkv, at(e, SLOT_RAW, l), o, at(e, SLOT_LSE, l), narrow, wide,
                                          attention_scratch(e, l))) ||
        (status = ops->normed_backward(b, l, DRY_NORM_INPUT, x1, input_at(e, SLOT_N1, l), again, wide,
                                       last == DRY_GROUP_QKV ? NULL : narrow)) ||
        last == DRY_GROUP_QKV)
        return status;
    return ops->norm_backward(b, l, DRY_NORM_INPUT, x1, narrow, dh);
}

/* All layers, up to the hidden state that the loss is taken from. */
static enum dry_status run_forward(struct dry_engine *e)
{
    enum dry_status status = e->backend->ops->embed(e->backend, at(e, SLOT_X1, 0));

    for (int64_t l = 0; l < e->base->arch.layers && !status; l++)
        status = layer_forward(e, l);
    return status;
}

enum dry_status dry_engine_forward(struct dry_engine *e)
{
    enum dry_status status;

    assert(e->training);
    if (dry_fault("forward")) {
        dry_error("forward: failed on purpose (DRY_FAULT)");
        return DRY_ERR_DEVICE;
    }
    status = run_forward(e);
    if (!status)
        status = e->backend->ops->loss(e->backend, at(e, SLOT_IN, 0), at(e, SLOT_DH, 0), at(e, SLOT_WIDE, 0));
    return status;
}

enum dry_status dry_engine_backward(struct dry_engine *e)
{
    int64_t last = e->base->arch.layers - 1;
    enum dry_status status = DRY_OK;

    assert(e->training);
    for (int64_t l = last; l >= e->slots.lowest && !status; l--) {
        if (e->slots.recompute == DRY_RECOMPUTE_FULL && l < last)
            status = layer_begin(e, l);
        if (!status)
            status = layer_backward(e, l);
    }
    return status;
}

enum dry_status dry_engine_evaluate(struct dry_engine *e)
{
    enum dry_status status = run_forward(e);

    if (!status)
        status = e->backend->ops->loss(e->backend, at(e, SLOT_IN, 0), NULL, at(e, SLOT_WIDE, 0));
    return status;
}
