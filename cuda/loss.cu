/*
 * The kernel of the loss head: -log softmax of each row's label, and the gradient in the logits' place.
 * Owns nothing.  Must not know where logits come from.
 *
 * A block takes a row: largest logit and sum of exponentials in one pass (each thread keeps both and scales
 * its sum when the largest grows), the gradient in a second one, from the end, where the row is still in the
 * cache.  float32, in an order that follows from the vocabulary alone; the losses are added as integers.
 */
#include "cuda/loss.h"

#include "cuda/fixed.cuh"

#include <float.h>

enum {
    LOSS_BLOCK = 1024, /* few rows at once, so that they are in the cache for the second pass */
    LOSS_EACH = 4      /* vectors that a thread has under way at once */
};
/* No loss of a row reaches 2^16: whatever the rows of a chunk add stays far from where the sum would wrap. */
#define ROW_LIMIT ((double)(INT64_C(1) << (DRY_LOSS_BITS + 16)))

/* The largest of some logits, and the sum of exp(z - largest). Empty: -FLT_MAX and 0, which adds up like any
 * other. */
struct part {
    float largest, sum;
};

static __device__ __forceinline__ struct part part_of(float z)
{
    return {z, 1.0f};
}

static __device__ __forceinline__ struct part joined(struct part a, struct part b)
{
    float largest = fmaxf(a.largest, b.largest);

    return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
}

/* Eight logits more. */
static __device__ __forceinline__ void take(struct part *p, const dry_cuda_eight &z)
{
    float largest = z.v[0], sum = 0;

#pragma unroll
    for (int k = 1; k < 8; k++)
        largest = fmaxf(largest, z.v[k]);
    if (largest > p->largest) {
        p->sum *= __expf(p->largest - largest);
        p->largest = largest;
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
        sum += __expf(z.v[k] - p->largest);
    p->sum += sum;
}

/* The parts of all threads, the same bits in all of them: lanes by butterfly, then warps the same way. */
static __device__ struct part block_joined(struct part p)
{
    __shared__ struct part warp[LOSS_BLOCK / 32];

#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        struct part other = {__shfl_xor_sync(0xffffffffu, p.largest, step),
                             __shfl_xor_sync(0xffffffffu, p.sum, step)};
        p = joined(p, other);
    }
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = p;
    __syncthreads();
    p = warp[threadIdx.x % 32];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        struct part other = {__shfl_xor_sync(0xffffffffu, p.largest, step),
                             __shfl_xor_sync(0xffffffffu, p.sum, step)};
        p = joined(p, other);
    }
    return p;
}

/* One row's loss into the words; by one thread. */
static __device__ void add_loss(double loss, int64_t *words)
{
    double v = loss * (double)(INT64_C(1) << DRY_LOSS_BITS);
    int64_t fixed = 0, flags = 0;

    if (!isfinite(v))
        flags = DRY_FLAG_NOT_FINITE;
    else if (!(fabs(v) < ROW_LIMIT))
        flags = DRY_FLAG_RANGE;
    else
        fixed = __double2ll_rn(v);
    int64_t before = (int64_t)atomicAdd(reinterpret_cast<unsigned long long *>(words + DRY_SUM_LOSS),
                                        (unsigned long long)fixed);
    atomicAdd(reinterpret_cast<unsigned long long *>(words + DRY_SUM_TOKENS), 1ull);
    if (before + fixed >= DRY_LOSS_LIMIT || before + fixed <= -DRY_LOSS_LIMIT)
        flags |= DRY_FLAG_RANGE;
    dry_cuda_flag(words, flags);
}

/* 2 V bytes a row, with gradient 6 V (of which 2 V may come from the cache); an exponential per element and
 * pass. */
__global__ static void __launch_bounds__(LOSS_BLOCK)
    loss_rows(dry_bf16 *logits, int vocab, int64_t pitch, const int32_t *label, int gradient, int64_t *words)
{
    dry_bf16 *row = logits + blockIdx.x * pitch;
    uint4 *vector = reinterpret_cast<uint4 *>(row);
    int count = vocab / 8,
        tail = count * 8 + (int)threadIdx.x; /* < vocab: this thread's element behind the vectors */
    int32_t target = label[blockIdx.x];
    struct part p = {-FLT_MAX, 0};

    for (int first = threadIdx.x; first < count; first += LOSS_BLOCK * LOSS_EACH) {
        uint4 held[LOSS_EACH];
#pragma unroll
        for (int j = 0; j < LOSS_EACH; j++)
            if (first + j * LOSS_BLOCK < count)
                held[j] = vector[first + j * LOSS_BLOCK];
#pragma unroll
        for (int j = 0; j < LOSS_EACH; j++)
            if (first + j * LOSS_BLOCK < count)
                take(&p, dry_cuda_unpack(held[j]));
    }
    if (tail < vocab)
        p = joined(p, part_of(dry_cuda_float(row[tail])));
    float at = dry_cuda_float(row[target]);
    p = block_joined(p); /* and all have read the label's logit */
    if (threadIdx.x == 0)
        add_loss((double)p.largest + log((double)p.sum) - (double)at, words);
    if (!gradient)
        return;
    float scale = 1.0f / p.sum;
    if (tail < vocab)
        row[tail] = dry_cuda_bits(__expf(dry_cuda_float(row[tail]) - p.largest) * scale -
                                  (tail == target ? 1.0f : 0.0f));
    for (int last = count - 1 - (int)threadIdx.x; last >= 0; last -= LOSS_BLOCK * LOSS_EACH) {
        uint4 held[LOSS_EACH];
#pragma unroll
        for (int j = 0; j < LOSS_EACH; j++)
            if (last - j * LOSS_BLOCK >= 0)
                held[j] = vector[last - j * LOSS_BLOCK];
#pragma unroll
        for (int j = 0; j < LOSS_EACH; j++) {
            int i = last - j * LOSS_BLOCK;
            if (i < 0)
                break;
            dry_cuda_eight z = dry_cuda_unpack(held[j]);
#pragma unroll
            for (int k = 0; k < 8; k++)
                z.v[k] = __expf(z.v[k] - p.largest) * scale;
            if (target / 8 == i) {
#pragma unroll
                for (int k = 0; k < 8; k++)
                    z.v[k] -= target % 8 == k ? 1.0f : 0.0f;
            }
            vector[i] = dry_cuda_pack(z);
        }
    }
}

cudaError_t dry_cuda_loss_rows_launch(dry_bf16 *logits, int64_t rows, int64_t vocab, int64_t pitch,
                                      const int32_t *label, int gradient, int64_t *words, cudaStream_t stream)
{
    loss_rows<<<(unsigned)rows, LOSS_BLOCK, 0, stream>>>(logits, (int)vocab, pitch, label, gradient, words);
    return cudaGetLastError();
}
