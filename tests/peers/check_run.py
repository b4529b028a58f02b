#!/usr/bin/env python3
"""One run of drydock in PEFT and Transformers.

usage: check_run.py --base DIR --adapter DIR --data FILE --evaluated FILE [--merged DIR]   needs: torch transformers peft

Checks that PEFT loads the adapter with no missing and no unexpected key, that Transformers and PEFT give the losses that
`drydock evaluate --json` printed (FILE of --evaluated), without and with the adapter, and that the folder of
`drydock merge` loads in Transformers as a plain model with the adapter's logits.  Prints TAP lines.
"""
import argparse, json, os, sys, warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

RELATIVE = 1e-5  # of a loss in float32


class Tap:
    def __init__(self, name):
        self.name, self.count, self.failed = name, 0, 0

    def ok(self, good, text, *details):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {self.name}: {text}")
        if not good:
            for line in details:
                print(f"# {line}")
        return good


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def read_records(path, tokenizer):
    """(ids, first supervised position) of each record; template plain."""
    out = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                record = json.loads(line)
                prompt = tokenizer(record["prompt"] + "\n").input_ids
                completion = tokenizer(record["completion"], add_special_tokens=False).input_ids
                out.append((prompt + completion + [tokenizer.eos_token_id], len(prompt)))
    return out


def mean_loss(model, records):
    total, tokens = 0.0, 0
    with torch.no_grad():
        for ids, first in records:
            x = torch.tensor(ids)
            p = torch.log_softmax(model(input_ids=x[None]).logits[0, :-1].double(), -1)
            chosen = p.gather(1, x[1:, None])[max(first, 1) - 1:, 0]
            total -= chosen.sum().item()
            tokens += chosen.numel()
    return total / tokens, tokens


def logits(model, records):
    with torch.no_grad():
        return [model(input_ids=torch.tensor(ids)[None]).logits[0] for ids, _ in records]


def largest(a, b):
    """Largest difference of two lists of tensors over the largest value."""
    return max((x - y).abs().max().item() for x, y in zip(a, b)) / max(x.abs().max().item() for x in a)


def check_keys(tap, base, adapter):
    """Loads the tensors into a fresh PEFT model by hand, since from_pretrained only warns of what does not fit."""
    config = LoraConfig.from_pretrained(adapter)
    config.inference_mode = False
    model = get_peft_model(load(base), config)
    state = load_file(os.path.join(adapter, "adapter_model.safetensors"))
    result = set_peft_model_state_dict(model, state)
    missing = [k for k in result.missing_keys if "lora_" in k]
    tap.ok(not missing, "PEFT misses no key", *missing[:5])
    tap.ok(not result.unexpected_keys, "PEFT finds no unexpected key", *result.unexpected_keys[:5])
    tap.ok(all(x.dtype == torch.float32 for x in state.values()), "the adapter is float32")


def same_loss(tap, what, got, want):
    tap.ok(abs(got / want["loss"] - 1) <= RELATIVE, f"{what}: loss {got:.6f}", f"drydock evaluate gives {want['loss']:.9f}, the peer {got:.9f}")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("base", "adapter", "data", "evaluated"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--merged")
    p.add_argument("--name", default="run")
    a = p.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))

    tap = Tap(a.name)
    records = read_records(a.data, PreTrainedTokenizerFast.from_pretrained(a.base))
    with open(a.evaluated, encoding="utf-8") as f:
        evaluated = json.load(f)
    check_keys(tap, a.base, a.adapter)

    model = load(a.base)
    got, tokens = mean_loss(model, records)
    tap.ok(tokens == evaluated["base_result"]["supervised"], "as many supervised tokens",
           f"drydock counts {evaluated['base_result']['supervised']}, the peer {tokens}")
    same_loss(tap, "base", got, evaluated["base_result"])
    before = logits(model, records)
    model = PeftModel.from_pretrained(model, a.adapter).eval()
    got, _ = mean_loss(model, records)
    same_loss(tap, "adapter", got, evaluated["adapter_result"])

    adapted = logits(model, records)
    tap.ok(largest(adapted, before) > 1e-3, "the adapter changes the logits, so that the rest proves something")
    if a.merged:
        merged, info = AutoModelForCausalLM.from_pretrained(a.merged, dtype=torch.float32, attn_implementation="eager",
                                                            output_loading_info=True)
        wrong = [k for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for k in info[kind]]
        tap.ok(not wrong, "Transformers loads the merged folder with no missing and no unexpected key", *map(str, wrong[:5]))
        difference = largest(adapted, logits(merged.eval(), records))
        tap.ok(difference <= 1e-4, f"the merged model has the adapter's logits ({difference:.1e})")
    print(f"1..{tap.count}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
