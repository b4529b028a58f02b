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
from peer_cpu import add_training, collate, make_optimizer, plan_steps, read_records, supervised, with_adapter


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_training(p)
    p.add_argument("--plan", help="output of drydock plan --show-records")
    p.add_argument("--type", choices=["bfloat16", "float32"], default="bfloat16")
    p.add_argument("--accumulation", type=int, default=4, help="micro-batches of a step, without --plan")
    p.add_argument("--max-steps", type=int, default=0, help="0: the whole plan, or one epoch")
    p.add_argument("--seconds", type=float, default=0, help="no new step after so long; 0: no limit")
    p.add_argument("--device", default="cuda")
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
    model = with_adapter(peft, model, a)
    parameters = [p for p in model.parameters() if p.requires_grad]
    assert all(p.dtype == torch.float32 for p in parameters)
    optimizer, scheduler = make_optimizer(torch, transformers, parameters, len(steps), a, fused=a.device == "cuda")
    model.train()

    loaded = time.perf_counter()
    losses, seconds, useful, labels = [], [], 0, 0
    for lines in steps:
        if a.seconds and time.perf_counter() - loaded > a.seconds:
            break
        begin = time.perf_counter()
        chosen = [records[line] for line in lines]
        tokens = sum(map(supervised, chosen))
        total = torch.zeros((), device=a.device)
        for i in range(0, len(chosen), a.micro_batch):
            x = collate(torch, tokenizer, chosen[i:i + a.micro_batch])
            x = {k: v.to(a.device, non_blocking=True) for k, v in x.items()}
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
        labels += tokens
    if a.output:
        model.save_pretrained(a.output)
    print(json.dumps({"peer": "transformers+peft", "type": a.type, "torch": torch.__version__, "transformers": transformers.__version__,
                      "peft": peft.__version__, "start_s": round(loaded - began, 2), "steps": len(losses), "of_steps": len(steps),
                      "steps_s": round(sum(seconds), 3), "step_s": [round(s, 4) for s in seconds], "useful_tokens": useful,
                      "supervised_tokens": labels, "losses": losses}))


if __name__ == "__main__":
    main()
