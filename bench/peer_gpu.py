#!/usr/bin/env python3
"""The peer on a GPU: LoRA fine-tuning with Transformers and PEFT as Trainer runs it, on given records.

usage: peer_gpu.py --base DIR --data FILE [--plan PLAN] [options]      needs: torch transformers peft

With --plan (standard output of `drydock plan ... --show-records`) both sides see the same records in the same steps;
without, a step's records are drawn at random, --micro-batch x --accumulation of them.  Micro-batches are padded to their
longest record, with an attention mask, as Trainer's collator does.  --type:
  bfloat16  the base in bfloat16, the adapter in float32, forward under autocast: what Trainer(bf16=True) and PEFT do
  float32   all in float32, no TF32: what the other is measured against
--seconds ends the steps after so long; what was left out is told.  Prints one JSON line.
"""
import argparse, json, os, random, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peer_cpu import plan_steps, read_records


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--base", required=True)
    p.add_argument("--data", required=True, help="JSON lines")
    p.add_argument("--plan", help="output of drydock plan --show-records")
    p.add_argument("--init-adapter", help="PEFT folder to start from, such as drydock's own start; else PEFT's initial values")
    p.add_argument("--output", help="where to save the adapter")
    p.add_argument("--type", choices=["bfloat16", "float32"], default="bfloat16")
    p.add_argument("--micro-batch", type=int, default=8, help="records")
    p.add_argument("--accumulation", type=int, default=4, help="micro-batches of a step, without --plan")
    p.add_argument("--max-steps", type=int, default=0, help="0: the whole plan, or one epoch")
    p.add_argument("--seconds", type=float, default=0, help="no new step after so long; 0: no limit")
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--alpha", type=float, default=32)
    p.add_argument("--learning-rate", type=float, default=2e-4)
    p.add_argument("--warmup-steps", type=int, default=0)
    p.add_argument("--schedule", choices=["cosine", "linear", "constant"], default="cosine")
    p.add_argument("--max-grad-norm", type=float, default=1.0)
    p.add_argument("--prompt-field", default="prompt")
    p.add_argument("--completion-field", default="completion")
    p.add_argument("--separator", default="\n")
    p.add_argument("--device", default="cuda")
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def main():
    a = arguments()
    began = time.perf_counter()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import torch
    import peft, transformers
    from transformers.utils import logging
    logging.disable_progress_bar()
    torch.manual_seed(a.seed)
    random.seed(a.seed)
    half = a.type == "bfloat16"

    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(a.base)  # tokenizer.json as it stands, no class over it
    records = read_records(a.data, tokenizer, a)
    if a.plan:
        steps = plan_steps(a.plan)
    else:
        order, size = list(records), a.micro_batch * a.accumulation
        random.shuffle(order)
        steps = [order[i:i + size] for i in range(0, len(order), size)]
    steps = steps[:a.max_steps] if a.max_steps else steps
    model = transformers.AutoModelForCausalLM.from_pretrained(a.base, dtype=torch.bfloat16 if half else torch.float32,
                                                              attn_implementation="sdpa").to(a.device)
    if a.init_adapter:
        model = peft.PeftModel.from_pretrained(model, a.init_adapter, is_trainable=True)
    else:
        names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=a.rank, lora_alpha=a.alpha,
                                                           lora_dropout=0.0, target_modules=names))
    model.config.use_cache = False
    parameters = [p for p in model.parameters() if p.requires_grad]
    assert all(p.dtype == torch.float32 for p in parameters)
    optimizer = torch.optim.AdamW(parameters, lr=a.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0,
                                  fused=a.device == "cuda")
    name = "constant_with_warmup" if a.schedule == "constant" else a.schedule
    scheduler = transformers.get_scheduler(name, optimizer, a.warmup_steps, len(steps))
    model.train()

    def batch(chosen):
        longest = max(len(ids) for ids, _ in chosen)
        x = {"input_ids": torch.full((len(chosen), longest), tokenizer.eos_token_id or 0),
             "labels": torch.full((len(chosen), longest), -100),
             "attention_mask": torch.zeros((len(chosen), longest), dtype=torch.long)}
        for i, (ids, labels) in enumerate(chosen):
            x["input_ids"][i, :len(ids)] = torch.tensor(ids)
            x["labels"][i, :len(ids)] = torch.tensor(labels)
            x["attention_mask"][i, :len(ids)] = 1
        return {k: v.to(a.device, non_blocking=True) for k, v in x.items()}

    loaded = time.perf_counter()
    losses, seconds, useful, supervised = [], [], 0, 0
    for lines in steps:
        if a.seconds and time.perf_counter() - loaded > a.seconds:
            break
        begin = time.perf_counter()
        chosen = [records[line] for line in lines]
        tokens = sum(label != -100 for _, labels in chosen for label in labels[1:])
        total = torch.zeros((), device=a.device)
        for i in range(0, len(chosen), a.micro_batch):
            x = batch(chosen[i:i + a.micro_batch])
            with torch.autocast(a.device, dtype=torch.bfloat16, enabled=half):
                loss = model(**x, num_items_in_batch=torch.tensor(tokens, device=a.device)).loss
            loss.backward()
            total += loss.detach()
        if a.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(parameters, a.max_grad_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total.item())
        seconds.append(time.perf_counter() - begin)
        useful += sum(len(ids) for ids, _ in chosen)
        supervised += tokens
    if a.output:
        model.save_pretrained(a.output)
    print(json.dumps({"peer": "transformers+peft", "type": a.type, "torch": torch.__version__, "transformers": transformers.__version__,
                      "peft": peft.__version__, "start_s": round(loaded - began, 2), "steps": len(losses), "of_steps": len(steps),
                      "steps_s": round(sum(seconds), 3), "step_s": [round(s, 4) for s in seconds], "useful_tokens": useful,
                      "supervised_tokens": supervised, "losses": losses}))


if __name__ == "__main__":
    main()
