#!/usr/bin/env python3
"""Load an adapter that drydock wrote in PEFT, and compare the loss of a file of records with `drydock evaluate`.

usage: check_peft.py DRYDOCK BASE ADAPTER DATA.jsonl        needs: torch transformers peft safetensors

Passes when PEFT finds no missing and no unexpected key, every value is in place, and the mean loss over supervised tokens
(template plain) of base and of base with adapter is drydock's within 1e-5 relative, both computed in float32 on a CPU.
Prints TAP.
"""
import json, os, subprocess, sys, warnings

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

TOLERANCE = 1e-5
failures = []


def ok(condition, name, detail=""):
    ok.count += 1
    print(f"{'ok' if condition else 'not ok'} {ok.count} - {name}")
    if not condition:
        failures.append(name)
        print(f"# {detail}")


ok.count = 0


def records(tokenizer, path):
    """Each record's ids, and from which token on they are supervised."""
    for line in open(path, encoding="utf-8"):
        if line.strip():
            record = json.loads(line)
            prompt = tokenizer(record["prompt"] + "\n").input_ids
            completion = tokenizer(record["completion"], add_special_tokens=False).input_ids
            yield prompt + completion + [tokenizer.eos_token_id], len(prompt)


def mean_loss(model, data):
    total, count = 0.0, 0
    with torch.no_grad():
        for ids, start in data:
            logits = model(torch.tensor([ids])).logits[0, :-1].double()
            labels = torch.tensor(ids[1:])
            losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
            first = max(start, 1) - 1
            total += losses[first:].sum().item()
            count += len(ids) - 1 - first
    return total / count, count


def evaluate(drydock, *arguments):
    done = subprocess.run([drydock, "evaluate", *arguments, "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main(drydock, base_folder, adapter_folder, data_path):
    told = evaluate(drydock, "--base", base_folder, "--adapter", adapter_folder, "--data", data_path)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base_folder)
    data = list(records(tokenizer, data_path))
    base = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32, attn_implementation="eager").eval()
    loss, count = mean_loss(base, data)
    want = told["base_result"]
    ok(count == want["supervised"], "supervised tokens", f"Transformers {count}, drydock {want['supervised']}")
    ok(abs(loss - want["loss"]) <= TOLERANCE * abs(loss), "loss of the base", f"Transformers {loss}, drydock {want['loss']}")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(base, adapter_folder).eval()
    key_warnings = [str(w.message) for w in said if "key" in str(w.message).lower()]
    ok(not key_warnings, "PEFT warns of no missing or unexpected key", key_warnings)
    stored = load_file(os.path.join(adapter_folder, "adapter_model.safetensors"))
    loaded = get_peft_model_state_dict(model)
    ok(set(stored) == set(loaded), "PEFT asks for the keys of the file", sorted(set(stored) ^ set(loaded)))
    ok(all(torch.equal(stored[k], loaded[k].to(stored[k].dtype)) for k in stored if k in loaded), "every value is in place")
    loss, _ = mean_loss(model, data)
    want = told["adapter_result"]
    ok(abs(loss - want["loss"]) <= TOLERANCE * abs(loss), "loss with the adapter", f"PEFT {loss}, drydock {want['loss']}")
    print(f"1..{ok.count}")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
