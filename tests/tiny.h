/*
 * A tiny base with random weights in a Hugging Face folder, for the tests of every layer that needs one.
 * Owns nothing.  No tokenizer is written.
 */
#ifndef DRY_TESTS_TINY_H
#define DRY_TESTS_TINY_H

#include "base/status.h"
#include "model/safetensors.h"

/* A value of 0 or NULL stands for what the comment says. */
struct tiny_spec {
    const char *family;      /* llama | mistral | qwen2 | qwen3; llama */
    int64_t hidden, ffn;     /* 16, 24 */
    int64_t layers;          /* 2 */
    int64_t heads, kv_heads; /* 4, 2 */
    int64_t head_dim;        /* hidden / heads; qwen3 too */
    int64_t vocab;           /* 32 */
    int64_t window;          /* mistral: none */
    int tied;                /* head is the embedding */
    int qkv_bias;            /* llama and qwen3: attention_bias (then o too); qwen2 always has it */
    int mlp_bias;            /* llama */
    int llama3;              /* Llama 3 rope scaling with an original context of 16 tokens */
    enum dry_dtype dtype;    /* DRY_F32 */
    int shards;              /* 1: model.safetensors; more: an index and this many shards */
    int old_keys;            /* rope_theta, rope_scaling, torch_dtype instead of rope_parameters, dtype */
    double scale;            /* standard size of weights; 1: 1 / sqrt(in) */
    unsigned seed;
};

/* Local. Makes DIR (with parents) and writes config.json and the weights. */
enum dry_status tiny_base_write(const char *dir, const struct tiny_spec *spec);

#endif
