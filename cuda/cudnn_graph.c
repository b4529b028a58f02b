/*
 * Attention as cuDNN's backend API wants it: a graph of products, element-wise operations and sums that cuDNN
 * recognises and runs as one kernel.  Owns the descriptors of a plan.  Must not know of micro-batches, layers
 * or errors' wording elsewhere.
 *
 * The form of the graphs is the one that cuDNN's own front end builds (causal and padding mask, keys shared
 * by query heads, ragged offsets), because cuDNN matches it as a pattern: S = scale Q K^T; P =
 * softmax(mask(S)); O = P V; and backward dS = P (dO V^T - rowsum(dO O)) scale; dQ = dS K; dK = dS^T Q; dV =
 * P^T dO.  dQ is the product itself, not a sum of pieces in float32: this selects the engine that adds in one
 * order.
 */
#include "config.h"

#include "cuda/cudnn_graph.h"

#include "base/memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DESCRIPTORS = 256, MOST_OPERATIONS = 40, MOST_ENGINES = 16, ALIGNMENT = 16, FLOAT_ALIGNMENT = 4 };
enum { FIRST_UID = 1, FIRST_VIRTUAL_UID = 1000 };

typedef cudnnBackendDescriptor_t descriptor;

struct dry_cudnn_plan {
    struct dry_cudnn_shape shape;
    descriptor made[MOST_DESCRIPTORS]; /* all, in order of making */
    int count;
    descriptor operation[MOST_OPERATIONS];
    int operations;
    int64_t virtuals;
    descriptor plan;
    int64_t bytes;
    int tensors;
    /* The first failure; what follows does nothing. */
    cudnnStatus_t status;
    const char *what;
};

static void note(struct dry_cudnn_plan *p, cudnnStatus_t status, const char *what)
{
    if (status && !p->status) {
        p->status = status;
        p->what = what;
    }
}

static descriptor make(struct dry_cudnn_plan *p, cudnnBackendDescriptorType_t type)
{
    descriptor d = NULL;

    if (p->status)
        return NULL;
    if (p->count == MOST_DESCRIPTORS) {
        note(p, CUDNN_STATUS_INTERNAL_ERROR, "the graph's size");
        return NULL;
    }
    note(p, cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
    if (d)
        p->made[p->count++] = d;
    return d;
}

static void set(struct dry_cudnn_plan *p, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    if (!p->status)
        note(p, cudnnBackendSetAttribute(d, name, type, count, value), "cudnnBackendSetAttribute");
}

static void set_descriptor(struct dry_cudnn_plan *p, descriptor d, cudnnBackendAttributeName_t name,
                           descriptor value)
{
    set(p, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(struct dry_cudnn_plan *p, descriptor d, const char *what)
{
    if (!p->status)
        note(p, cudnnBackendFinalize(d), what);
}

static descriptor tensor(struct dry_cudnn_plan *p, int64_t uid, cudnnDataType_t type, const int64_t size[4],
                         const int64_t stride[4], int64_t alignment, bool by_value, descriptor ragged)
{
    descriptor d = make(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    bool is_virtual = uid == 0;

    if (is_virtual)
        uid = FIRST_VIRTUAL_UID + p->virtuals++;
    set(p, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(p, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(p, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size);
    set(p, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(p, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_virtual)
        set(p, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value)
        set(p, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    if (ragged)
        set_descriptor(p, d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, ragged);
    finish(p, d, "a tensor");
    return d;
}

/* An intermediate value [places, heads, rows, columns]. */
static descriptor between(struct dry_cudnn_plan *p, cudnnDataType_t type, int64_t rows, int64_t columns)
{
    int64_t heads = p->shape.heads, size[4] = {p->shape.places, heads, rows, columns};
    int64_t stride[4] = {heads * rows * columns, rows * columns, columns, 1};

    return tensor(p, 0, type, size, stride, type == CUDNN_DATA_BFLOAT16 ? ALIGNMENT : FLOAT_ALIGNMENT, false,
                  NULL);
}

static descriptor score(struct dry_cudnn_plan *p, cudnnDataType_t type)
{
    return between(p, type, p->shape.longest, p->shape.longest);
}

static descriptor row_value(struct dry_cudnn_plan *p)
{
    return between(p, CUDNN_DATA_FLOAT, p->shape.longest, 1);
}

static descriptor number(struct dry_cudnn_plan *p, enum dry_cudnn_tensor which)
{
    const int64_t one[4] = {1, 1, 1, 1};

    return tensor(p, FIRST_UID + which, CUDNN_DATA_FLOAT, one, one, FLOAT_ALIGNMENT, true, NULL);
}

static descriptor table(struct dry_cudnn_plan *p, enum dry_cudnn_tensor which, int64_t count)
{
    const int64_t size[4] = {count, 1, 1, 1}, stride[4] = {1, 1, 1, 1};

    return tensor(p, FIRST_UID + which, CUDNN_DATA_INT32, size, stride, ALIGNMENT, false, NULL);
}

/* Rows of heads in a flat buffer, seen as [places, heads, rows, dim], or with rows and dim exchanged. */
static descriptor flat(struct dry_cudnn_plan *p, int64_t uid, int64_t heads, int64_t pitch, bool turned,
                       descriptor at)
{
    const struct dry_cudnn_shape *s = &p->shape;
    int64_t size[4] = {s->places, heads, turned ? s->dim : s->longest, turned ? s->longest : s->dim};
    int64_t stride[4] = {s->longest * pitch, s->dim, turned ? 1 : pitch, turned ? pitch : 1};

    return tensor(p, uid, CUDNN_DATA_BFLOAT16, size, stride, ALIGNMENT, false, at);
}

static descriptor flat_lse(struct dry_cudnn_plan *p, descriptor at)
{
    const struct dry_cudnn_shape *s = &p->shape;
    int64_t size[4] = {s->places, s->heads, s->longest, 1};
    int64_t stride[4] = {s->longest * s->pitch_lse, 1, s->pitch_lse, 1};

    return tensor(p, FIRST_UID + DRY_CUDNN_LSE, CUDNN_DATA_FLOAT, size, stride, FLOAT_ALIGNMENT, false, at);
}

static void add(struct dry_cudnn_plan *p, descriptor operation, const char *what)
{
    finish(p, operation, what);
    if (p->status)
        return;
    if (p->operations == MOST_OPERATIONS) {
        note(p, CUDNN_STATUS_INTERNAL_ERROR, "the graph's size");
        return;
    }
    p->operation[p->operations++] = operation;
}

/* c = a b. m, n, k: where the records' lengths bound a dimension. */
static void product(struct dry_cudnn_plan *p, descriptor a, descriptor b, descriptor c, descriptor m,
                    descriptor n, descriptor k)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor kind = make(p, CUDNN_BACKEND_MATMUL_DESCRIPTOR), o;

    set(p, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(p, kind, "a matrix product's type");
    o = make(p, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    if (m)
        set_descriptor(p, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m);
    if (n)
        set_descriptor(p, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n);
    if (k)
        set_descriptor(p, o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k);
    add(p, o, "a matrix product");
}

/* y = mode(x, b), for a selection by `mask`; axis of an index, else -1. Returns y. */
static descriptor pointwise(struct dry_cudnn_plan *p, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                            descriptor x, descriptor b, descriptor mask, descriptor y, int64_t axis)
{
    const float one = 1;
    descriptor kind = make(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), o;

    set(p, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(p, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (axis >= 0)
        set(p, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(p, kind, "an element-wise operation's type");
    o = make(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_descriptor(p, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (mask)
        set_descriptor(p, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    set(p, o, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    set(p, o, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    add(p, o, "an element-wise operation");
    return y;
}

/* On scores in float32. */
static descriptor scored(struct dry_cudnn_plan *p, cudnnPointwiseMode_t mode, descriptor x, descriptor b)
{
    return pointwise(p, mode, CUDNN_DATA_FLOAT, x, b, NULL, score(p, CUDNN_DATA_FLOAT), -1);
}

static descriptor reduce(struct dry_cudnn_plan *p, cudnnReduceTensorOp_t mode, descriptor x, descriptor y)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const bool deterministic = false; /* a property of other engines; here it only spoils the pattern */
    descriptor kind = make(p, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), o;

    set(p, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(p, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(p, kind, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1, &deterministic);
    finish(p, kind, "a sum's type");
    o = make(p, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add(p, o, "a sum");
    return y;
}

static descriptor reshape(struct dry_cudnn_plan *p, descriptor x, descriptor y)
{
    descriptor o = make(p, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_descriptor(p, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(p, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(p, o, "a reshape");
    return y;
}

static descriptor index_along(struct dry_cudnn_plan *p, cudnnDataType_t type, descriptor x, int64_t axis)
{
    return pointwise(p, CUDNN_POINTWISE_GEN_INDEX, type, x, NULL, NULL, score(p, CUDNN_DATA_INT32), axis);
}

static descriptor compare(struct dry_cudnn_plan *p, cudnnPointwiseMode_t mode, descriptor x, descriptor b)
{
    return pointwise(p, mode, CUDNN_DATA_BOOLEAN, x, b, NULL, score(p, CUDNN_DATA_BOOLEAN), -1);
}

static descriptor keep_where(struct dry_cudnn_plan *p, descriptor x, descriptor mask)
{
    return pointwise(p, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, number(p, DRY_CUDNN_NOTHING),
                     mask, score(p, CUDNN_DATA_FLOAT), -1);
}

/* Nothing behind the records' ends, where there are lengths. */
static descriptor inside(struct dry_cudnn_plan *p, descriptor x, descriptor length)
{
    descriptor row, column, row_in, column_in;

    if (!length)
        return x;
    row = index_along(p, CUDNN_DATA_INT32, x, 2);
    column = index_along(p, CUDNN_DATA_INT32, x, 3);
    row_in = compare(p, CUDNN_POINTWISE_CMP_LT, row, length);
    column_in = compare(p, CUDNN_POINTWISE_CMP_LT, column, length);
    return keep_where(p, x, compare(p, CUDNN_POINTWISE_LOGICAL_AND, row_in, column_in));
}

static descriptor causal(struct dry_cudnn_plan *p, descriptor x)
{
    descriptor row = index_along(p, CUDNN_DATA_FLOAT, x, 2), column = index_along(p, CUDNN_DATA_FLOAT, x, 3);

    return keep_where(p, x, compare(p, CUDNN_POINTWISE_CMP_GE, row, column));
}

/* Tensors that both directions have. */
struct common {
    descriptor length, at, at_o, at_lse, scale, q, k_turned, o, lse;
};

static struct common common_make(struct dry_cudnn_plan *p)
{
    const struct dry_cudnn_shape *s = &p->shape;
    struct common c;

    c.length = s->dense ? NULL : table(p, DRY_CUDNN_LENGTH, s->places);
    c.at = s->dense ? NULL : table(p, DRY_CUDNN_AT, s->places + 1);
    c.at_o = s->dense ? NULL : table(p, DRY_CUDNN_AT_O, s->places + 1);
    c.at_lse = s->dense ? NULL : table(p, DRY_CUDNN_AT_LSE, s->places + 1);
    c.scale = number(p, DRY_CUDNN_SCALE);
    c.q = flat(p, FIRST_UID + DRY_CUDNN_Q, s->heads, s->pitch, false, c.at);
    c.k_turned = flat(p, FIRST_UID + DRY_CUDNN_K, s->kv_heads, s->pitch, true, c.at);
    c.o = flat(p, FIRST_UID + DRY_CUDNN_O, s->heads, s->pitch_o, false, c.at_o);
    c.lse = flat_lse(p, c.at_lse);
    return c;
}

static void forward_graph(struct dry_cudnn_plan *p)
{
    const struct dry_cudnn_shape *s = &p->shape;
    struct common c = common_make(p);
    descriptor v = flat(p, FIRST_UID + DRY_CUDNN_V, s->kv_heads, s->pitch, false, c.at), x, most, sum, log;

    x = score(p, CUDNN_DATA_FLOAT);
    product(p, c.q, c.k_turned, x, c.length, c.length, NULL);
    x = scored(p, CUDNN_POINTWISE_MUL, x, c.scale);
    x = causal(p, inside(p, x, c.length));
    most = reduce(p, CUDNN_REDUCE_TENSOR_MAX, x, row_value(p));
    x = scored(p, CUDNN_POINTWISE_EXP, scored(p, CUDNN_POINTWISE_SUB, x, most), NULL);
    sum = reduce(p, CUDNN_REDUCE_TENSOR_ADD, x, row_value(p));
    log = pointwise(p, CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, sum, NULL, NULL, row_value(p), -1);
    pointwise(p, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, most, log, NULL, c.lse, -1);
    x = pointwise(p, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, x, sum, NULL, score(p, CUDNN_DATA_BFLOAT16), -1);
    product(p, x, v, c.o, c.length, NULL, c.length);
}

/* to [places, kv_heads, rows, dim] = x^T y, added up over the query heads that share a key head. */
static void turned_product(struct dry_cudnn_plan *p, descriptor x, descriptor y, descriptor length,
                           descriptor to)
{
    const struct dry_cudnn_shape *s = &p->shape;
    int64_t l = s->longest, size[4] = {s->places, s->heads, l, l},
            stride[4] = {s->heads * l * l, l * l, 1, l};
    descriptor turned =
        reshape(p, x, tensor(p, 0, CUDNN_DATA_BFLOAT16, size, stride, ALIGNMENT, false, NULL));

    if (s->heads == s->kv_heads) {
        product(p, turned, y, to, length, NULL, length);
    } else {
        descriptor all = between(p, CUDNN_DATA_BFLOAT16, l, s->dim);
        product(p, turned, y, all, length, NULL, length);
        reduce(p, CUDNN_REDUCE_TENSOR_ADD, all, to);
    }
}

static descriptor delta_graph(struct dry_cudnn_plan *p, descriptor d_o, descriptor o)
{
    const struct dry_cudnn_shape *s = &p->shape;
    int64_t size[4] = {s->places, s->heads, s->longest, 1},
            stride[4] = {s->heads * s->longest, s->longest, 1, 1};
    descriptor x = between(p, CUDNN_DATA_FLOAT, s->longest, s->dim), delta;

    x = pointwise(p, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, d_o, o, NULL, x, -1);
    x = reduce(p, CUDNN_REDUCE_TENSOR_ADD, x, row_value(p));
    delta = tensor(p, FIRST_UID + DRY_CUDNN_DELTA, CUDNN_DATA_FLOAT, size, stride, ALIGNMENT, false, NULL);
    return pointwise(p, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, x, number(p, DRY_CUDNN_ONE), NULL, delta, -1);
}

static void backward_graph(struct dry_cudnn_plan *p)
{
    const struct dry_cudnn_shape *s = &p->shape;
    struct common c = common_make(p);
    descriptor v_turned = flat(p, FIRST_UID + DRY_CUDNN_V, s->kv_heads, s->pitch, true, c.at);
    descriptor d_o = flat(p, FIRST_UID + DRY_CUDNN_D_O, s->heads, s->pitch_o, false, c.at_o);
    descriptor dq = flat(p, FIRST_UID + DRY_CUDNN_DQ, s->heads, s->pitch, false, c.at);
    descriptor dk = flat(p, FIRST_UID + DRY_CUDNN_DK, s->kv_heads, s->pitch, false, c.at);
    descriptor dv = flat(p, FIRST_UID + DRY_CUDNN_DV, s->kv_heads, s->pitch, false, c.at);
    descriptor delta = delta_graph(p, d_o, c.o), x, g;

    x = score(p, CUDNN_DATA_FLOAT);
    product(p, c.q, c.k_turned, x, c.length, c.length, NULL);
    x = scored(p, CUDNN_POINTWISE_MUL, x, c.scale);
    x = scored(p, CUDNN_POINTWISE_SUB, inside(p, x, c.length), c.lse);
    x = scored(p, CUDNN_POINTWISE_EXP, causal(p, x), NULL);
    turned_product(p, x, d_o, c.length, dv);
    g = score(p, CUDNN_DATA_FLOAT);
    product(p, d_o, v_turned, g, c.length, c.length, NULL);
    g = scored(p, CUDNN_POINTWISE_SUB, g, delta);
    g = scored(p, CUDNN_POINTWISE_MUL, scored(p, CUDNN_POINTWISE_MUL, g, x), c.scale);
    turned_product(p, g, c.q, c.length, dk);
    product(p, g, reshape(p, c.k_turned, flat(p, 0, s->kv_heads, s->pitch, false, c.at)), dq, c.length, NULL,
            c.length);
}

/* The first engine that cuDNN proposes and that can be made: a fixed rule for a shape, version and device. */
static void choose(struct dry_cudnn_plan *p, cudnnHandle_t handle, descriptor device)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    descriptor graph = make(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), ask, engine[MOST_ENGINES];
    cudnnStatus_t last = CUDNN_STATUS_NOT_SUPPORTED;
    int64_t count = 0;

    set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, p->operations, p->operation);
    if (handle)
        set(p, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finish(p, graph, "the graph");
    ask = make(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(p, ask, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(p, ask, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (device)
        set_descriptor(p, ask, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    finish(p, ask, "the question for engines");
    for (int i = 0; i < MOST_ENGINES; i++)
        engine[i] = make(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!p->status)
        note(p,
             cudnnBackendGetAttribute(ask, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      MOST_ENGINES, &count, engine),
             "the list of engines");
    for (int64_t i = 0; i < count && !p->status && !p->plan; i++) {
        descriptor plan = make(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set_descriptor(p, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine[i]);
        if (handle)
            set(p, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        else
            set_descriptor(p, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
        if (p->status)
            return;
        last = cudnnBackendFinalize(plan);
        if (!last)
            p->plan = plan;
    }
    if (!p->plan)
        note(p, last, count > 0 ? "a plan" : "an engine");
}

enum dry_status dry_cudnn_plan_create(cudnnHandle_t handle, cudnnBackendDescriptor_t device,
                                      const struct dry_cudnn_shape *shape, int backward,
                                      struct dry_cudnn_plan **plan, char *why, size_t why_bytes)
{
    struct dry_cudnn_plan *p = dry_alloc(1, sizeof *p, "a cuDNN plan");
    char words[512] = "";
    int64_t count;

    *plan = NULL;
    if (!p) {
        snprintf(why, why_bytes, "out of memory");
        return DRY_ERR_MEMORY;
    }
    p->shape = *shape;
    p->tensors = backward ? DRY_CUDNN_BACKWARD : DRY_CUDNN_FORWARD;
    if (backward)
        backward_graph(p);
    else
        forward_graph(p);
    choose(p, handle, device);
    if (!p->status)
        note(p,
             cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                      &count, &p->bytes),
             "the plan's workspace");
    if (p->status) {
        cudnnGetLastErrorString(words, sizeof words);
        snprintf(why, why_bytes, "%s: %s: %s", p->what, cudnnGetErrorString(p->status), words);
        dry_cudnn_plan_destroy(p);
        return DRY_ERR_DEVICE;
    }
    *plan = p;
    return DRY_OK;
}

void dry_cudnn_plan_destroy(struct dry_cudnn_plan *plan)
{
    if (!plan)
        return;
    for (int i = plan->count - 1; i >= 0; i--)
        (void)cudnnBackendDestroyDescriptor(plan->made[i]);
    dry_free(plan);
}

size_t dry_cudnn_plan_bytes(const struct dry_cudnn_plan *plan)
{
    return plan->bytes > 0 ? (size_t)plan->bytes : 0;
}

cudnnStatus_t dry_cudnn_plan_run(cudnnHandle_t handle, const struct dry_cudnn_plan *plan,
                                 void *const tensor_of[DRY_CUDNN_BACKWARD], void *workspace)
{
    void *pointer[DRY_CUDNN_BACKWARD];
    int64_t uid[DRY_CUDNN_BACKWARD], count = 0;
    descriptor pack = NULL;
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

    for (int i = 0; i < plan->tensors; i++)
        if (!plan->shape.dense || i < DRY_CUDNN_LENGTH || i > DRY_CUDNN_AT_LSE) {
            uid[count] = FIRST_UID + i;
            pointer[count++] = tensor_of[i];
        }
    if (!status)
        status =
            cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uid);
    if (!status)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                          count, pointer);
    if (!status)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                          &workspace);
    if (!status)
        status = cudnnBackendFinalize(pack);
    if (!status)
        status = cudnnBackendExecute(handle, plan->plan, pack);
    if (pack)
        (void)cudnnBackendDestroyDescriptor(pack);
    return status;
}
