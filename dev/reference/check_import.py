#!/usr/bin/env python3
"""Do models that Transformers made predict here what they predict there?

Makes models of each architecture that src/models/hf.c reads, with random weights and odd sizes, saves them with
save_pretrained (some in shards, some in bfloat16 or float16) beside a tokenizer of ours. Then:

- the mean loss of `build/eval FOLDER` over some tokens is Transformers', in both over adjoining windows in float32; they
  differ only by its rounding: a millionth of the loss;
- the gradients of one step are PyTorch's: `build/import` makes a run of the folder, another run begins with it and makes
  one step of SGD with a learning rate R, and its export says g = (w - w') / R. With R = 1000, w' rounds g by about
  2^-24. Of each tensor the largest difference is at most 1e-4 of its largest element: sums of 256 to 16,384 products,
  each rounded by up to 2^-24 of its part sum, through 3 layers and back.

Run: python3 dev/reference/check_import.py   (PyTorch, transformers, NumPy; build/ must exist)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import (AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config,
                          OlmoeConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig)

T, TOKENS, V = 64, 4096, 512
SIZES = dict(vocab_size=V, hidden_size=66, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=14,
             intermediate_size=130, max_position_embeddings=T)
WHOLE = {k: v for k, v in SIZES.items() if k != "head_dim"} | {"hidden_size": 72}  # heads as wide together as the channels
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, original_max_position_embeddings=16, low_freq_factor=1.0,
              high_freq_factor=4.0)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
CASES = {
    "gpt2": (GPT2Config(vocab_size=V, n_embd=66, n_layer=3, n_head=6, n_positions=T), torch.float32, "5GB"),
    "gpt2 f16": (GPT2Config(vocab_size=V, n_embd=66, n_layer=2, n_head=3, n_positions=T, n_inner=100,
                            tie_word_embeddings=False), torch.float16, "100KB"),
    "llama": (LlamaConfig(**SIZES), torch.float32, "5GB"),
    "llama tied": (LlamaConfig(**SIZES, tie_word_embeddings=True, rms_norm_eps=1e-5), torch.bfloat16, "200KB"),
    "llama biases": (LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True), torch.float32, "200KB"),
    "llama3": (LlamaConfig(**SIZES, rope_parameters=LLAMA3), torch.float32, "5GB"),
    "llama yarn": (LlamaConfig(**SIZES, rope_parameters=YARN), torch.float32, "5GB"),
    "mistral": (MistralConfig(**SIZES, sliding_window=None), torch.bfloat16, "5GB"),
    "mistral window": (MistralConfig(**SIZES, sliding_window=11), torch.float32, "5GB"),
    "qwen2": (Qwen2Config(**WHOLE), torch.float32, "200KB"),
    "qwen3 windows": (Qwen3Config(**SIZES, use_sliding_window=True, sliding_window=9, max_window_layers=1), torch.float32,
                      "5GB"),
    "qwen3": (Qwen3Config(**SIZES, tie_word_embeddings=True), torch.float32, "5GB"),
    "olmo2": (Olmo2Config(**WHOLE), torch.float32, "200KB"),
    "olmo2 tied": (Olmo2Config(**WHOLE, tie_word_embeddings=True, rope_parameters=YARN), torch.bfloat16, "5GB"),
    "mixtral": (MixtralConfig(**SIZES, num_local_experts=5, num_experts_per_tok=2, router_aux_loss_coef=0.0),
                torch.float32, "200KB"),
    "mixtral window": (MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=3, sliding_window=11,
                                  router_aux_loss_coef=0.0), torch.bfloat16, "5GB"),
    "qwen3_moe": (Qwen3MoeConfig(**SIZES, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=37,
                                 norm_topk_prob=True, router_aux_loss_coef=0.0), torch.float32, "5GB"),
    "qwen3_moe some": (Qwen3MoeConfig(**SIZES, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=37,
                                      decoder_sparse_step=2, router_aux_loss_coef=0.0), torch.float32, "200KB"),
    "olmoe": (OlmoeConfig(**WHOLE, num_experts=7, num_experts_per_tok=3, router_aux_loss_coef=0.0), torch.float32, "5GB"),
    "olmoe tied": (OlmoeConfig(**WHOLE, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, tie_word_embeddings=True,
                               router_aux_loss_coef=0.0), torch.bfloat16, "200KB"),
}


def program(*words):
    done = subprocess.run(["build/" + words[0], *words[1:]], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout


def random_model(config):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # biases are 0 and norms 1 at first, which would hide what is mixed up
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * (0.2 if weight.dim() > 1 else 0.5) + (weight.dim() == 1))
    return model


def gradients(data, folder, model, tokens):
    """The largest difference of an element of a gradient, as a part of the largest element of its tensor."""
    n, rate = 4, 1000.0
    with open(f"{folder}/train.bin", "wb") as file:  # the first window and the target after it are what is trained on
        file.write(np.fromfile(f"{data}/val_000000.bin", np.uint8, 1024).tobytes())
        file.write(tokens[:len(tokens)].numpy().astype(np.uint16).tobytes())
    program("import", folder, "--out", f"{folder}_run")
    program("train", f"{folder}_run/config.toml", f"--run.dir={data}", f"--run.name={os.path.basename(folder)}_step",
            f"--ckpt.init={folder}_run", "--run.steps=1", f"--data.train={folder}/train.bin",
            f"--data.val={data}/val_*.bin", "--data.shuffle=false", f"--batch.micro={n}", f"--batch.tokens={n * T}",
            "--optim.name=sgd", f"--optim.lr={rate}", "--optim.warmup=0", "--optim.schedule=constant", "--optim.clip=0",
            "--optim.weight_decay=0", "--eval.tokens=256", "--sample.count=0", "--model.dropout=0")
    program("export", f"{folder}_step", "--to", "hf", "--out", f"{folder}_after")
    after = dict(AutoModelForCausalLM.from_pretrained(f"{folder}_after", dtype=torch.float32).named_parameters())
    logits = model(tokens[:n * T].view(n, T)).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:n * T + 1]).backward()
    difference = [float((((w.detach() - after[name]).double() / rate) - w.grad).abs().max() / w.grad.abs().max())
                  for name, w in model.named_parameters()]
    return max(difference)


worst = worst_gradient = 0
with tempfile.TemporaryDirectory() as data:
    program("stories", "--bytes", "200000", "--val-bytes", "30000", "--out", data)
    program("prepare", "tokens", "--train", f"{data}/train.txt", "--val-file", f"{data}/val.txt", "--vocab", str(V),
            "--out", data)
    tokens = torch.tensor(np.fromfile(f"{data}/val_000000.bin", np.uint16, offset=1024).astype(np.int64))
    for name, (config, dtype, shard) in CASES.items():
        folder = f"{data}/{name.replace(' ', '_')}"
        random_model(config).to(dtype).save_pretrained(folder, max_shard_size=shard)
        for file in "tokenizer.json", "tokenizer_config.json":
            shutil.copy(f"{data}/{file}", folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                     experts_implementation="eager").eval()
        with torch.no_grad():
            logits = model(tokens[:TOKENS].view(-1, T)).logits
        there = float(torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), tokens[1:TOKENS + 1]))
        here = json.loads(program("eval", folder, f"{data}/val_*.bin", "--tokens", str(TOKENS), "--stride", "0", "--batch",
                                  "8", "--json"))["loss"]
        worst = max(worst, abs(here / there - 1))
        files = len([file for file in os.listdir(folder) if file.endswith(".safetensors")])
        step = gradients(data, folder, model, tokens)
        worst_gradient = max(worst_gradient, step)
        print(f"{name:15} {here:.8g} here, {there:.8g} in Transformers: {here / there - 1:+.1e}; gradients {step:.1e} "
              f"({dtype}, {files} files)", flush=True)
os._exit(0 if worst <= 1e-6 and worst_gradient <= 1e-4 else 1)
