#!/usr/bin/env python3
"""Does a run exported for Transformers predict and write there what it does here?

Trains a few steps of a small LLaMA for each way of stretching rotary positions, of one with QK-norm, of one with
norms of outputs, of one of each class with experts, and of a GPT-2,
exports it with `build/export --to hf`, and opens that folder, and nothing else, with AutoModelForCausalLM and
AutoTokenizer. Then:

- the mean loss over the first validation tokens is the run's own, in both over adjoining windows; they differ only by
  float32 rounding: a millionth of the loss;
- the tokenizer gives the ids of `build/sample` for strange texts, and decodes them;
- the greedy continuation of each of some prompts is that of `build/sample`, token by token.

Run: python3 dev/reference/check_export.py   (PyTorch, transformers, NumPy; build/ must exist)
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

T, TOKENS = 128, 4096
LLAMA = ["norm=rmsnorm", "activation=swiglu", "position=rope", "kv_heads=2", "bias=false", "tie=false"]
CASES = {"gpt2": []} | {kind: LLAMA + ([f"rope_scaling={kind}", "rope_original=32"] if kind != "none" else [])
                        for kind in ("none", "linear", "ntk", "yarn", "llama3")} | {"qwen3": LLAMA + ["qk_norm=true"]}
CASES |= {"mixtral": LLAMA + ["experts=5", "experts_ffn=40"], "qwen3moe": LLAMA + [
    "qk_norm=true", "experts=6", "experts_active=3", "experts_ffn=40", "experts_dense=1", "experts_renorm=false"]}
CASES |= {"olmo2": LLAMA + ["qk_norm=whole", "norm_place=output"]}
CASES |= {"olmoe": LLAMA + ["qk_norm=whole", "experts=6", "experts_active=3", "experts_ffn=40", "experts_renorm=false"]}
PROMPTS = ["", "Once upon a time", "The", "\"Oh\"", "Zwölf Boxkämpfer", "東京 😀", "a  b\n\nc\t", "x" * 50]


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
    model = AutoModelForCausalLM.from_pretrained(f"{folder}/{name}_hf", dtype=torch.float32).eval()
    tokens = torch.tensor(np.fromfile(f"{folder}/val_000000.bin", np.uint16, offset=1024).astype(np.int64))
    with torch.no_grad():
        logits = model(tokens[:TOKENS].view(-1, T)).logits
    return float(torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), tokens[1:TOKENS + 1]))


def texts_agree(folder, name):
    """Prompts of which ids or greedy texts differ."""
    model = AutoModelForCausalLM.from_pretrained(f"{folder}/{name}_hf", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(f"{folder}/{name}_hf")
    wrong = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        whole = torch.tensor([[tokenizer.bos_token_id] + ids])
        done = subprocess.run(["build/sample", f"{folder}/{name}", "--prompt", prompt, "--temperature", "0", "--tokens",
                               "40", "--json"], capture_output=True, text=True, check=True)
        ours = json.loads(done.stdout)
        with torch.no_grad():
            theirs = model.generate(whole, attention_mask=torch.ones_like(whole), max_new_tokens=40, do_sample=False)
        new = [i for i in theirs[0, whole.shape[1]:].tolist() if i != tokenizer.eos_token_id]
        if tokenizer.decode(ids) != prompt or new != ours["ids"] or ours["prompt"] != prompt:
            wrong.append(prompt)
    write = pipeline("text-generation", model=f"{folder}/{name}_hf")
    if "Once" not in write("Once", max_new_tokens=5)[0]["generated_text"]:
        wrong.append("pipeline")
    return wrong


worst, wrong = 0, []
with tempfile.TemporaryDirectory() as folder:
    program("stories", "--bytes", "1000000", "--val-bytes", "60000", "--out", folder)
    program("prepare", "tokens", "--train", f"{folder}/train.txt", "--val-file", f"{folder}/val.txt", "--vocab", "512",
            "--out", folder)
    for name, settings in CASES.items():
        a = here(folder, name, settings)
        program("export", f"{folder}/{name}", "--to", "hf", "--out", f"{folder}/{name}_hf")
        b, other = there(folder, name), texts_agree(folder, name)
        worst, wrong = max(worst, abs(a / b - 1)), wrong + other
        print(f"{name:8} {a:.7f} here, {b:.7f} in Transformers: {a / b - 1:+.1e}; of {len(PROMPTS)} greedy texts "
              f"{len(PROMPTS) - len(other)} are the same {other or ''}")
os._exit(0 if worst <= 1e-6 and not wrong else 1)
