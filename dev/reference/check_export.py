#!/usr/bin/env python3
"""Does a run exported for Transformers predict there what it predicts here?

Trains a few steps of a small LLaMA for each way of stretching rotary positions (and a GPT-2), exports it with
`build/export --to hf`, loads that with AutoModelForCausalLM, and compares the mean loss over the first validation tokens
with the run's own, in both over adjoining windows. They differ only by float32 rounding: a millionth of the loss.

Run: python3 dev/reference/check_export.py   (PyTorch, transformers, NumPy; build/ must exist)
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoModelForCausalLM

T, TOKENS = 128, 4096
LLAMA = ["norm=rmsnorm", "activation=swiglu", "position=rope", "kv_heads=2", "bias=false", "tie=false"]
CASES = {"gpt2": []} | {kind: LLAMA + ([f"rope_scaling={kind}", "rope_original=32"] if kind != "none" else [])
                        for kind in ("none", "linear", "ntk", "yarn", "llama3")}


def program(*words):
    done = subprocess.run(["build/" + words[0], *words[1:]], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr}")


def here(folder, name, settings):
    program("train", "tiny", f"--run.dir={folder}", f"--run.name={name}", "--run.steps=30", "--sample.count=0",
            f"--data.train={folder}/train_*.bin", f"--data.val={folder}/val_*.bin", f"--data.tokenizer={folder}",
            f"--model.context={T}", "--batch.micro=8", f"--eval.tokens={TOKENS}", *("--model." + s for s in settings))
    with open(f"{folder}/{name}/metrics.jsonl") as file:
        return [json.loads(line) for line in file][-1]["val_loss"]


def there(folder, name):
    program("export", f"{folder}/{name}", "--to", "hf", "--out", f"{folder}/{name}_hf")
    model = AutoModelForCausalLM.from_pretrained(f"{folder}/{name}_hf", dtype=torch.float32).eval()
    tokens = torch.tensor(np.fromfile(f"{folder}/val_000000.bin", np.uint16, offset=1024).astype(np.int64))
    with torch.no_grad():
        logits = model(tokens[:TOKENS].view(-1, T)).logits
    return float(torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), tokens[1:TOKENS + 1]))


worst = 0
with tempfile.TemporaryDirectory() as folder:
    program("stories", "--bytes", "1000000", "--val-bytes", "60000", "--out", folder)
    program("prepare", "tokens", "--train", f"{folder}/train.txt", "--val-file", f"{folder}/val.txt", "--vocab", "512",
            "--out", folder)
    for name, settings in CASES.items():
        a, b = here(folder, name, settings), there(folder, name)
        worst = max(worst, abs(a / b - 1))
        print(f"{name:8} {a:.7f} here, {b:.7f} in Transformers: {a / b - 1:+.1e}")
os._exit(0 if worst <= 1e-6 else 1)
