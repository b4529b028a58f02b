#!/usr/bin/env python3
"""Make the golden files: tiny models of every architecture, and what Transformers and PEFT compute on them in float32.

usage: make_golden.py [--out DIR] [--only CASE]      needs: torch transformers peft tokenizers safetensors

For each case it writes a folder models/CASE with
  base/               the base, as Hugging Face has it (stored type, keys and sharding differ from case to case)
  init/               the adapter to start from, saved by PEFT
  train.jsonl, validation.jsonl
  gradient.safetensors  gradient of step 1's mean loss before clipping, by PEFT tensor name
  final.safetensors     the adapter after the last step
  golden.json           the options, the records of every step, losses, norms, rates, validation losses

The training follows doc/design.md, "What is computed".  The records of a step come from drydock's own permutation, written
out again in permutation() below; tests/golden_run.c compares it with the program's plan first.  As a check on the
tolerances, everything is computed a second time in float64 and the differences are printed.
"""
import argparse, json, math, os, random, shutil, warnings, zlib

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM, get_scheduler)
from transformers.utils import logging

EOS = "<|endoftext|>"
VOCABULARY = 288
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

WORDS = """anchor bell cloud copper dawn ember field garden harbour island jacket kettle lantern meadow needle orchard
pebble quarry river saddle timber umbrella valley willow yarrow Zürich café naïve über 水 日本 🙂 12 345 0.5 x_1 (ok) --""".split()

SMALL = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=0, pad_token_id=None)

# base: class and configuration; store: type of the file, number of shards, style of config.json's keys.
# lora: as PEFT takes it; b: standard deviation of B's initial values (0: B = 0).
# train: as drydock takes it.
CASES = {
    "llama": dict(
        base=(LlamaConfig, LlamaForCausalLM, SMALL | dict(
            attention_bias=True, mlp_bias=True, tie_word_embeddings=False, rms_norm_eps=1e-5, head_dim=8,
            rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                 high_freq_factor=4.0, original_max_position_embeddings=64))),
        store=dict(dtype=torch.float32, shards=1, keys="old"),
        lora=dict(r=4, lora_alpha=8, target_modules=ALL), b=0.05,
        train=dict(records=24, effective_batch=7, micro=dict(micro_batch_tokens=256), rate=2e-3, warmup=2, schedule="cosine",
                   decay=0.0, max_norm=1.0, seed=42)),
    "llama-tied": dict(
        base=(LlamaConfig, LlamaForCausalLM, SMALL | dict(
            hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=20, tie_word_embeddings=True,
            rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=500.0))),
        store=dict(dtype=torch.bfloat16, shards=1, keys="old"),
        lora=dict(r=8, lora_alpha=16, target_modules=ALL), b=0.0,
        train=dict(records=20, effective_batch=4, micro=dict(per_device_batch_size=2), rate=1e-3, warmup=0,
                   schedule="linear", decay=0.0, max_norm=1.0, seed=7)),
    "llama-linear": dict(
        base=(LlamaConfig, LlamaForCausalLM, SMALL | dict(
            num_hidden_layers=3, num_key_value_heads=4, tie_word_embeddings=False, rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
        store=dict(dtype=torch.bfloat16, shards=1, keys="new"),
        lora=dict(r=3, lora_alpha=5, target_modules=["k_proj", "o_proj", "down_proj"]), b=0.1,
        train=dict(records=10, effective_batch=10, micro=dict(micro_batch_tokens=192), rate=1e-2, warmup=3,
                   schedule="linear", decay=0.1, max_norm=0.0, seed=1)),
    "llama-long": dict(
        base=(LlamaConfig, LlamaForCausalLM, SMALL | dict(
            num_key_value_heads=1, head_dim=8, tie_word_embeddings=True, rms_norm_eps=1e-5, max_position_embeddings=2048,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
        store=dict(dtype=torch.bfloat16, shards=1, keys="new"),
        lora=dict(r=2, lora_alpha=4, target_modules=ALL), b=0.05, words=160,
        train=dict(records=9, effective_batch=4, micro=dict(micro_batch_tokens=2500), rate=2e-3, warmup=0, schedule="cosine",
                   decay=0.0, max_norm=1.0, seed=3, max_seq_length=2000)),
    "mistral": dict(
        base=(MistralConfig, MistralForCausalLM, SMALL | dict(
            tie_word_embeddings=False, rms_norm_eps=1e-5, sliding_window=256, head_dim=8,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
        store=dict(dtype=torch.float16, shards=1, keys="old"),
        lora=dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"], use_rslora=True), b=0.05,
        train=dict(records=16, effective_batch=5, micro=dict(per_device_batch_size=5), rate=3e-3, warmup=1,
                   schedule="constant", decay=0.05, max_norm=0.5, seed=123456789)),
    "qwen2": dict(
        base=(Qwen2Config, Qwen2ForCausalLM, SMALL | dict(
            tie_word_embeddings=True, rms_norm_eps=1e-6, use_sliding_window=False,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
        store=dict(dtype=torch.float32, shards=3, keys="old"),
        lora=dict(r=4, lora_alpha=8, target_modules=ALL, rank_pattern={"down_proj": 2, "model.layers.0.self_attn.q_proj": 6},
                  alpha_pattern={"up_proj": 3, "layers.1.self_attn.o_proj": 12}), b=0.05,
        train=dict(records=30, effective_batch=8, micro=dict(micro_batch_tokens=200), rate=2e-3, warmup=2, schedule="cosine",
                   decay=0.01, max_norm=1.0, seed=2 ** 40 + 3)),
    "qwen3": dict(
        base=(Qwen3Config, Qwen3ForCausalLM, SMALL | dict(
            head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
        store=dict(dtype=torch.float32, shards=1, keys="new"),
        lora=dict(r=4, lora_alpha=8, target_modules=ALL), b=0.05,
        train=dict(records=40, effective_batch=16, micro=dict(per_device_batch_size=3), rate=3e-3, warmup=2,
                   schedule="cosine", decay=0.0, max_norm=1.0, seed=42)),
}
STEPS = 10


# --- drydock's order of records ---------------------------------------------------------------------------------------

def philox(key, counter):
    """Philox4x32-10 (Salmon et al., SC 2011): four words of 32 bits."""
    mask = 0xFFFFFFFF
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(10):
        p, q = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (q >> 32) ^ c1 ^ k0, q & mask, (p >> 32) ^ c3 ^ k1, p & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return c0, c1, c2, c3


def permutation(seed, epoch, n):
    """src/base/random.c, dry_random_permutation for DRY_RANDOM_PERMUTATION: Fisher-Yates by 64-bit draws."""
    key, drawn, order = (seed + 1 * 0x9E3779B97F4A7C15) % 2 ** 64, 0, list(range(n))
    for i in range(n - 1, 0, -1):
        while True:
            block = philox((key % 2 ** 32, key >> 32), (epoch, 0, drawn // 2, 0))
            word = block[drawn % 2 * 2] | block[drawn % 2 * 2 + 1] << 32
            drawn += 1
            if word < 2 ** 64 - 2 ** 64 % (i + 1):
                break
        j = word % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def plan(train, steps):
    """Record indices of each step: every epoch a permutation, cut into effective batches; the last may be smaller."""
    n, batch, out, epoch = train["records"], train["effective_batch"], [], 0
    while len(out) < steps:
        order = permutation(train["seed"], epoch, n)
        out += [sorted(order[i:i + batch]) for i in range(0, n, batch)]
        epoch += 1
    return out[:steps]


# --- what goes in -----------------------------------------------------------------------------------------------------


def words(rng, most):
    return rng.choice([" ", " ", " ", "  ", "\n"]).join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def write_records(path, rng, count, most):
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(count):
            record = {"prompt": words(rng, most) + rng.choice(["", "?", ":"]), "completion": words(rng, most) + rng.choice(["", "."])}
            out.write(json.dumps(record, ensure_ascii=rng.random() < 0.3) + "\n")


def make_tokenizer():
    rng = random.Random(5)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([words(rng, 12) for _ in range(500)], trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[EOS], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return tokenizer


def randomise(model, generator):
    """Weights large enough that every part matters to the loss."""
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=generator)
        if name.endswith("bias"):
            x = 0.2 * x
        elif "norm" in name:
            x = 1 + 0.2 * x
        elif "embed_tokens" in name or "lm_head" in name:
            x = 0.3 * x
        else:
            x = 1.2 * x / math.sqrt(p.shape[1])
        p.data.copy_(x)


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=1, ensure_ascii=False)
        out.write("\n")


def write_golden(path, value):
    """JSON with a line for each step."""
    steps = value.pop("steps")
    with open(path, "w", encoding="utf-8") as out:
        out.write("{\n")
        for name, x in value.items():
            out.write(f" {json.dumps(name)}: {json.dumps(x)},\n")
        out.write(' "steps": [\n' + ",\n".join("  " + json.dumps(s) for s in steps) + "\n ]\n}\n")


def old_keys(config):
    """config.json as Transformers 4 wrote it."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.0"
    return config


def write_base(folder, case, tokenizer, generator):
    (config_class, model_class, arguments), store = case["base"], case["store"]
    model = model_class(config_class(**arguments))
    randomise(model, generator)
    model = model.to(store["dtype"])
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size="5GB" if store["shards"] == 1 else int(size / (store["shards"] - 0.5)))
    if store["keys"] == "old":
        path = os.path.join(folder, "config.json")
        write_json(path, old_keys(read_json(path)))
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    write_json(os.path.join(folder, "tokenizer_config.json"),
               {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "clean_up_tokenization_spaces": False})
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)

    again, reference = load_base(folder, case), model_class(config_class(**arguments))
    reference.load_state_dict(model.state_dict())
    ids = torch.arange(VOCABULARY)[None]
    with torch.no_grad():
        difference = (again(input_ids=ids).logits - reference(input_ids=ids).logits).abs().max().item()
    if not difference <= 1e-4:
        raise SystemExit(f"{folder}: the files give other logits than the model ({difference})")


def load_base(folder, case):
    return case["base"][1].from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def write_init(folder, base, case, generator):
    model = get_peft_model(load_base(base, case), LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **case["lora"]))
    for name, p in model.named_parameters():
        if "lora_A" in name:
            p.data.copy_((2 * torch.rand(p.shape, generator=generator) - 1) / math.sqrt(p.shape[1]))
        elif "lora_B" in name:
            p.data.copy_(case["b"] * torch.randn(p.shape, generator=generator))
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    path = os.path.join(folder, "adapter_config.json")
    config = read_json(path)
    config["base_model_name_or_path"] = "base"
    config["target_modules"] = sorted(config["target_modules"])
    write_json(path, config)
    os.chmod(os.path.join(folder, "adapter_model.safetensors"), 0o644)


# --- what comes out ---------------------------------------------------------------------------------------------------


def encode(path, tokenizer):
    """(ids, labels) of each record; template plain, separator a newline."""
    out = []
    for line in open(path, encoding="utf-8"):
        record = json.loads(line)
        prompt = tokenizer.encode(record["prompt"] + "\n").ids
        completion = tokenizer.encode(record["completion"]).ids + [tokenizer.token_to_id(EOS)]
        out.append((prompt + completion, [-100] * len(prompt) + completion))
    return out


def supervised(record):
    return sum(label != -100 for label in record[1][1:])


def loss_sum(model, record):
    """Sum of -log p over one record's supervised tokens."""
    ids, labels = (torch.tensor(x)[None] for x in record)
    logits = model(input_ids=ids).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, labels[0, 1:], reduction="sum", ignore_index=-100)


def validate(model, records):
    with torch.no_grad():
        return sum(loss_sum(model, r).item() for r in records) / sum(supervised(r) for r in records)


def adapter_of(model, value):
    """PEFT's tensor names -> value(parameter)."""
    return {n.replace(".default.weight", ".weight"): value(p).detach().clone().float().contiguous()
            for n, p in model.named_parameters() if "lora_" in n}


def run(folder, case, dtype, tokenizer):
    """Ten steps; everything that is compared."""
    train = case["train"]
    records = encode(os.path.join(folder, "train.jsonl"), tokenizer)
    held_out = encode(os.path.join(folder, "validation.jsonl"), tokenizer)
    model = PeftModel.from_pretrained(load_base(os.path.join(folder, "base"), case), os.path.join(folder, "init"),
                                      is_trainable=True).to(dtype)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=train["rate"], betas=(0.9, 0.999), eps=1e-8, weight_decay=train["decay"])
    scheduler = get_scheduler(train["schedule"], optimizer, train["warmup"], STEPS) if train["schedule"] != "constant" \
        else get_scheduler("constant_with_warmup", optimizer, train["warmup"])
    out = {"validation_before": validate(model, held_out), "steps": []}
    for step, chosen in enumerate(plan(train, STEPS), 1):
        tokens = sum(supervised(records[i]) for i in chosen)
        total = 0.0
        for i in chosen:
            loss = loss_sum(model, records[i])
            (loss / tokens).backward()
            total += loss.item()
        if step == 1:
            gradient = adapter_of(model, lambda p: p.grad)
        norm = torch.nn.utils.clip_grad_norm_(parameters, train["max_norm"] or math.inf).item()
        out["steps"].append({"step": step, "records": chosen, "supervised": tokens, "loss": total / tokens, "norm": norm,
                             "rate": scheduler.get_last_lr()[0]})
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    out["validation_after"] = validate(model, held_out)
    return out, gradient, adapter_of(model, lambda p: p.data)


def arguments_of(train):
    """The same run's options for drydock."""
    options = {"effective_batch": train["effective_batch"], "max_steps": STEPS, "max_seq_length": train.get("max_seq_length", 160),
               "learning_rate": train["rate"], "warmup_steps": train["warmup"], "schedule": train["schedule"],
               "weight_decay": train["decay"], "max_grad_norm": train["max_norm"], "seed": train["seed"]} | train["micro"]
    return [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]


def largest(a, b):
    """Largest difference of two adapters over the largest entry of the first."""
    return max((a[n] - b[n]).abs().max().item() for n in a) / max(x.abs().max().item() for x in a.values())


def make(name, case, out):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    number = zlib.crc32(name.encode())
    generator = torch.Generator().manual_seed(number)
    tokenizer, most = make_tokenizer(), case.get("words", 8)
    write_base(os.path.join(folder, "base"), case, tokenizer, generator)
    write_init(os.path.join(folder, "init"), os.path.join(folder, "base"), case, generator)
    write_records(os.path.join(folder, "train.jsonl"), random.Random(number + 1), case["train"]["records"], most)
    write_records(os.path.join(folder, "validation.jsonl"), random.Random(number + 2), 9, most)

    result, gradient, final = run(folder, case, torch.float32, tokenizer)
    exact, exact_gradient, exact_final = run(folder, case, torch.float64, tokenizer)
    for file, tensors in (("gradient.safetensors", gradient), ("final.safetensors", final)):
        save_file(tensors, os.path.join(folder, file))
        os.chmod(os.path.join(folder, file), 0o644)
    write_golden(os.path.join(folder, "golden.json"), {"arguments": arguments_of(case["train"])} | result)
    losses = [(s["loss"], t["loss"]) for s, t in zip(result["steps"], exact["steps"])]
    noise = largest(final, exact_final)
    print(f"{name}: loss {losses[0][0]:.4f} -> {losses[-1][0]:.4f}, validation {result['validation_before']:.4f} -> "
          f"{result['validation_after']:.4f}, norm {result['steps'][0]['norm']:.3f}; against float64: loss "
          f"{max(abs(a - b) / b for a, b in losses):.1e}, gradient {largest(gradient, exact_gradient):.1e}, "
          f"adapter {noise:.1e}", flush=True)
    if not noise <= 2e-5:
        raise SystemExit(f"{name}: float32 itself is off by {noise:.1e}; take a case that rounding decides less")


def quiet():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(here, "models"))
    parser.add_argument("--only", choices=CASES)
    a = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, case in CASES.items():
        if a.only in (None, name):
            make(name, case, a.out)


if __name__ == "__main__":
    main()
