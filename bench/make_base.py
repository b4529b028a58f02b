#!/usr/bin/env python3
"""A base of a known shape with random weights, as a Hugging Face folder: what the benchmark trains on.  7b-2: two layers.

usage: bench/make_base.py --shape 7b|7b-2|0.5b|135m|tiny --tokenizer DIR OUT

Weights are bfloat16, normal with deviation 0.02 (norms: 1): speed does not depend on them, but on zeros a GPU is faster
than it ever is in use.  The tokenizer's files are linked, not copied.  Needs Python with torch and safetensors.
"""
import argparse, json, os

SHAPES = {
    "7b": dict(model_type="qwen2", hidden_size=3584, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
               intermediate_size=18944, vocab_size=152064, tie_word_embeddings=False),
    "7b-2": dict(model_type="qwen2", hidden_size=3584, num_hidden_layers=2, num_attention_heads=28, num_key_value_heads=4,
                 intermediate_size=18944, vocab_size=152064, tie_word_embeddings=False),
    "0.5b": dict(model_type="qwen2", hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                 intermediate_size=4864, vocab_size=151936, tie_word_embeddings=True),
    "135m": dict(model_type="llama", hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                 intermediate_size=1536, vocab_size=151936, tie_word_embeddings=True),
    "tiny": dict(model_type="qwen2", hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 intermediate_size=256, vocab_size=151936, tie_word_embeddings=True),
}
ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
SHARD = 4 << 30


def tensors(c):
    """(name, shape) in the order of the model."""
    h, f, heads, kv = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"]
    d = h // heads
    yield "model.embed_tokens.weight", (c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name, out in (("q", heads * d), ("k", kv * d), ("v", kv * d)):
            yield p + f"self_attn.{name}_proj.weight", (out, h)
            if c["model_type"] == "qwen2":
                yield p + f"self_attn.{name}_proj.bias", (out,)
        yield p + "self_attn.o_proj.weight", (h, heads * d)
        yield p + "mlp.gate_proj.weight", (f, h)
        yield p + "mlp.up_proj.weight", (f, h)
        yield p + "mlp.down_proj.weight", (h, f)
        yield p + "input_layernorm.weight", (h,)
        yield p + "post_attention_layernorm.weight", (h,)
    yield "model.norm.weight", (h,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], h)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=SHAPES, default="7b")
    p.add_argument("--tokenizer", required=True, help="folder with tokenizer.json")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("out")
    a = p.parse_args()
    import torch
    from safetensors.torch import save_file
    c = dict(SHAPES[a.shape])
    os.makedirs(a.out, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(a.seed)
    shards, current, size = [], {}, 0
    for name, shape in tensors(c):
        if name.endswith("norm.weight"):
            t = torch.ones(shape, dtype=torch.bfloat16)
        else:
            t = torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0, 0.02).cpu()
        if current and size + t.nbytes > SHARD:
            shards.append(current)
            current, size = {}, 0
        current[name] = t
        size += t.nbytes
    shards.append(current)
    index, total = {}, 0
    for i, shard in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, os.path.join(a.out, file), metadata={"format": "pt"})
        total += sum(t.nbytes for t in shard.values())
        index.update({name: file for name in shard})
    if len(shards) > 1:
        with open(os.path.join(a.out, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": index}, f)
    c.update(architectures=[ARCHITECTURES[c["model_type"]]], hidden_act="silu", rms_norm_eps=1e-6, rope_theta=1e6,
             max_position_embeddings=32768, torch_dtype="bfloat16", bos_token_id=151643, eos_token_id=151643)
    with open(os.path.join(a.out, "config.json"), "w") as f:
        json.dump(c, f, indent=1)
    for file in os.listdir(a.tokenizer):
        to = os.path.join(a.out, file)
        if file != "config.json" and not os.path.lexists(to):
            os.symlink(os.path.abspath(os.path.join(a.tokenizer, file)), to)
    print(f"{a.out}: {a.shape}, {total} bytes in {len(shards)} files")


if __name__ == "__main__":
    main()
