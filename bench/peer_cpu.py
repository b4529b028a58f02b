#!/usr/bin/env python3
"""The peer on CPUs: LoRA fine-tuning with Transformers and PEFT in float32, on the records and in the order of a drydock run.

usage: peer_cpu.py --base DIR --data FILE --plan PLAN [options]      needs: torch transformers peft

PLAN is the standard output of `drydock plan ... --show-records`, so that both sides see the same records in the same
steps.  The mathematics is doc/design.md's "What is computed".  Settings:
  trainer   micro-batches of --micro-batch records as they come, padded to the longest, as Trainer runs them
  grouped   a step's records sorted by length first, then the same: less padding, the fairest match and the fastest
Prints one JSON line: losses before and after, seconds of every step, tokens a second, peak memory, threads.
"""
import argparse, json, os, random, resource, time


def add_training(p):
    """Options of a training, whatever it runs on."""
    p.add_argument("--base", required=True)
    p.add_argument("--data", required=True, help="JSON lines")
    p.add_argument("--init-adapter", help="PEFT folder to start from, such as drydock's own start; else PEFT's initial values")
    p.add_argument("--output", help="where to save the adapter")
    p.add_argument("--micro-batch", type=int, default=8, help="records")
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--alpha", type=float, default=32)
    p.add_argument("--learning-rate", type=float, default=2e-4)
    p.add_argument("--warmup-steps", type=int, default=0)
    p.add_argument("--schedule", choices=["cosine", "linear", "constant"], default="cosine")
    p.add_argument("--max-grad-norm", type=float, default=1.0)
    p.add_argument("--prompt-field", default="prompt")
    p.add_argument("--completion-field", default="completion")
    p.add_argument("--separator", default="\n")
    p.add_argument("--seed", type=int, default=42)


def with_adapter(peft, model, a):
    """The model with the adapter that is trained: --init-adapter, or a new one on all seven projections."""
    if a.init_adapter:
        model = peft.PeftModel.from_pretrained(model, a.init_adapter, is_trainable=True)
    else:
        names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=a.rank, lora_alpha=a.alpha,
                                                           lora_dropout=0.0, target_modules=names))
    model.config.use_cache = False
    return model


def make_optimizer(torch, transformers, parameters, steps, a, **more):
    """AdamW and its schedule over so many steps."""
    optimizer = torch.optim.AdamW(parameters, lr=a.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, **more)
    name = "constant_with_warmup" if a.schedule == "constant" else a.schedule
    return optimizer, transformers.get_scheduler(name, optimizer, a.warmup_steps, steps)


def collate(torch, tokenizer, chosen):
    """Records padded to the longest of them, as Trainer's collator does."""
    longest = max(len(ids) for ids, _ in chosen)
    x = {"input_ids": torch.full((len(chosen), longest), tokenizer.eos_token_id or 0),
         "labels": torch.full((len(chosen), longest), -100),
         "attention_mask": torch.zeros((len(chosen), longest), dtype=torch.long)}
    for i, (ids, labels) in enumerate(chosen):
        x["input_ids"][i, :len(ids)] = torch.tensor(ids)
        x["labels"][i, :len(ids)] = torch.tensor(labels)
        x["attention_mask"][i, :len(ids)] = 1
    return x


def supervised(record):
    return sum(label != -100 for label in record[1][1:])


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_training(p)
    p.add_argument("--validation-data", help="JSON lines: held-out loss before and after")
    p.add_argument("--plan", required=True, help="output of drydock plan --show-records")
    p.add_argument("--setting", choices=["trainer", "grouped"], default="grouped")
    p.add_argument("--max-steps", type=int, default=0, help="0: the whole plan")
    p.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    p.add_argument("--threads", type=int, default=0, help="0: as many as the cores that this process may use")
    return p.parse_args()


def read_records(path, tokenizer, a):
    """Line number -> (ids, labels)."""
    out = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                record = json.loads(line)
                prompt = tokenizer(record[a.prompt_field] + a.separator, add_special_tokens=True).input_ids
                completion = tokenizer(record[a.completion_field], add_special_tokens=False).input_ids
                completion = completion + [tokenizer.eos_token_id]
                out[number] = (prompt + completion, [-100] * len(prompt) + completion)
    return out


def plan_steps(path):
    """Line numbers of each step's records: the plan's lines {"step": 1, ..., "micro_batches": [[LINE, ...], ...]}."""
    steps = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith('{"step"'):
                steps.append([record for micro in json.loads(line)["micro_batches"] for record in micro])
    if not steps:
        raise SystemExit(f"{path}: no steps; was the plan made with --show-records?")
    return steps


def main():
    a = arguments()
    threads = a.threads or len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    started = time.perf_counter()
    import torch
    import peft, transformers
    from transformers.utils import logging
    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    torch.manual_seed(a.seed)
    random.seed(a.seed)

    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(a.base)  # tokenizer.json as it stands, no class over it
    records = read_records(a.data, tokenizer, a)
    steps = plan_steps(a.plan)
    steps = steps[:a.max_steps] if a.max_steps else steps
    model = transformers.AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.float32, attn_implementation=a.attention)
    model = with_adapter(peft, model, a)
    parameters = [p for p in model.parameters() if p.requires_grad]
    loaded = time.perf_counter()

    def micro_batches(chosen, sort):
        chosen = sorted(chosen, key=lambda r: len(r[0])) if sort else chosen
        return [chosen[i:i + a.micro_batch] for i in range(0, len(chosen), a.micro_batch)]

    def held_out(records):
        model.eval()
        tokens, total = sum(map(supervised, records)), 0.0
        with torch.no_grad():
            for chosen in micro_batches(records, True):
                total += model(**collate(torch, tokenizer, chosen), num_items_in_batch=torch.tensor(tokens)).loss.item()
        return total

    def peak_mib():
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    out = {"peer": "transformers+peft", "setting": a.setting, "micro_batch": a.micro_batch, "threads": torch.get_num_threads(),
           "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
           "load_s": round(loaded - started, 2)}
    held = list(read_records(a.validation_data, tokenizer, a).values()) if a.validation_data else []
    if held:
        out["held_out_before"] = held_out(held)

    optimizer, scheduler = make_optimizer(torch, transformers, parameters, len(steps), a)
    model.train()
    seconds, losses, useful, labels, padded = [], [], [], [], []
    for lines in steps:
        chosen = [records[line] for line in lines]
        if a.setting == "trainer":  # the plan lists a step's records by length; Trainer takes them as they come
            random.shuffle(chosen)
        begin = time.perf_counter()
        tokens, total, width = sum(map(supervised, chosen)), 0.0, 0
        for micro in micro_batches(chosen, a.setting == "grouped"):
            x = collate(torch, tokenizer, micro)
            loss = model(**x, num_items_in_batch=torch.tensor(tokens)).loss
            loss.backward()
            total += loss.item()
            width += x["input_ids"].numel()
        if a.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(parameters, a.max_grad_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
        losses.append(total)
        useful.append(sum(len(ids) for ids, _ in chosen))
        labels.append(tokens)
        padded.append(width)
    out["peak_mib"] = peak_mib()
    if held:
        out["held_out_after"] = held_out(held)
    if a.output:
        model.save_pretrained(a.output)
    # The first step warms caches and thread pools up; where there are more, it is left out of the rates.
    first = 1 if len(seconds) > 1 else 0
    spent = sum(seconds[first:])
    out |= {"steps": len(seconds), "timed_steps": len(seconds) - first, "timed_s": round(spent, 3),
            "useful_tokens": sum(useful[first:]), "useful_tok_s": round(sum(useful[first:]) / spent, 1),
            "supervised_tok_s": round(sum(labels[first:]) / spent, 1), "padding": round(1 - sum(useful[first:]) / sum(padded[first:]), 3),
            "losses": losses, "step_s": [round(s, 3) for s in seconds]}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
