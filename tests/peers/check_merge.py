#!/usr/bin/env python3
"""Merge an adapter with `drydock merge`, load the result in Transformers, and compare it with PEFT's own merge.

usage: check_merge.py DRYDOCK BASE ADAPTER [SHARD_BYTES]        needs: torch transformers peft

Passes when Transformers loads the folder with no missing and no unexpected key, and in float32 every weight and the logits
of some token ids are those of merge_and_unload() within float32 rounding.  Prints TAP.
"""
import subprocess, sys, tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

failures = []


def ok(condition, name, detail=""):
    ok.count += 1
    print(f"{'ok' if condition else 'not ok'} {ok.count} - {name}")
    if not condition:
        failures.append(name)
        print(f"# {detail}")


ok.count = 0


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                output_loading_info=True)


def main(drydock, base_folder, adapter_folder, shard_bytes="5000000000"):
    with tempfile.TemporaryDirectory() as scratch:
        merged_folder = scratch + "/merged"
        subprocess.run([drydock, "merge", "--base", base_folder, "--adapter", adapter_folder, "--output", merged_folder,
                        "--dtype", "float32", "--shard-bytes", shard_bytes], check=True)
        merged, info = load(merged_folder)
        told = {key: list(value) for key, value in info.items() if value}
        ok(not told, "Transformers finds no missing, unexpected or mismatched key", told)
    base, _ = load(base_folder)
    peft = PeftModel.from_pretrained(base, adapter_folder).merge_and_unload()
    mine, theirs = merged.state_dict(), peft.state_dict()
    ok(set(mine) == set(theirs), "the same tensors", sorted(set(mine) ^ set(theirs)))
    worst = max(((mine[k] - theirs[k]).abs().max() / theirs[k].abs().max()).item() for k in mine)
    ok(worst <= 2e-6, f"the same weights (largest difference {worst:.1e} of a tensor's largest entry)", worst)
    ids = torch.arange(1, 65).remainder(merged.config.vocab_size).unsqueeze(0)
    with torch.no_grad():
        a, b = merged.eval()(ids).logits, peft.eval()(ids).logits
    worst = ((a - b).abs().max() / b.abs().max()).item()
    ok(worst <= 1e-5, f"the same logits (largest difference {worst:.1e} of the largest logit)", worst)
    print(f"1..{ok.count}")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
