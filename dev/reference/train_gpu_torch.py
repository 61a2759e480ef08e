#!/usr/bin/env python3
"""PyTorch's twin of a run of build/train_gpu (or build/train): the same model, batches, learning rates and update.

Run:  train_gpu_torch.py RUN [--weights FILE] [--first N] [--steps N] [--device cuda|cpu] [--no-compile]

RUN is the run's directory: config.toml has the model and the batch, metrics.jsonl each learning rate. The run must have
read its text in order (data.shuffle = false). Prints a line of JSON a step (step, loss, ms), and one at the end with
what was used. Weights are drawn anew, or come from --weights: a safetensors file with our names, or the dump of the
run's first update (run.dump=1), which has the run's initial weights. --first N begins with the batch of update N, for
the dump of that update; only its first loss is comparable, because the moments start at zero.

What PyTorch is given, and where ours differs:
- bf16: autocast over fp32 weights, fp32 gradients; ours keeps bf16 weights beside its fp32 master weights, and fp32
  gradients. The products see the same numbers.
- one product for q, k, v, and one for gate and up; attention by SDPA (flash); AdamW in one kernel (fused); gradients
  set to None; clipping by PyTorch's own function.
- torch.compile: of the whole model up to 24 layers; in deeper ones of each block, and of head and loss, because
  compiling the whole takes many minutes.
Where an older PyTorch lacks a function, this file has its formula.
"""
import argparse
import glob
import json
import os
import statistics
import struct
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import tomllib
except ImportError:
    import tomli as tomllib  # Python before 3.11

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")
HAS_GROUPS = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 5)  # SDPA with enable_gqa


def parse():
    parser = argparse.ArgumentParser(description="PyTorch's twin of a run: the same model, batches and updates")
    parser.add_argument("run", help="the run's directory")
    parser.add_argument("--weights", help="safetensors with the first weights, by our names")
    parser.add_argument("--first", type=int, default=1, help="the run's update to begin with")
    parser.add_argument("--steps", type=int, default=0, help="updates; 0: up to the run's last")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args()


def refuse(what):
    sys.exit(f"error: train_gpu_torch.py: {what}")


def read_run(path):
    with open(os.path.join(path, "config.toml"), "rb") as file:
        config = tomllib.load(file)
    with open(os.path.join(path, "metrics.jsonl")) as file:
        rows = [row for row in map(json.loads, file) if row["event"] == "train"]
    m, supported = config["model"], {"qk_norm": "false", "norm_place": "input", "dropout": 0, "window": 0, "logit_cap": 0}
    for key, value in supported.items():
        if m.get(key, value) != value:
            refuse(f"model.{key} = {m[key]} (only {value})")
    if m["activation"] == "relu2":
        refuse("model.activation = relu2 (only gelu and swiglu)")
    if config["data"]["shuffle"] or config["data"]["document_mask"]:
        refuse("the run shuffled its text or masked documents (data.shuffle = false, data.document_mask = false)")
    if config["optim"]["name"] != "adamw" or config["numerics"]["dtype"] not in ("fp32", "bf16"):
        refuse("only optim.name = adamw, numerics.dtype = fp32 or bf16")
    return config, rows


# ---- the model
class RMSNorm(nn.Module):
    def __init__(self, C, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(C)), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight.to(x.dtype)


def norm(m):
    C, eps = m["channels"], m["norm_eps"]
    if m["norm"] == "rmsnorm":
        return RMSNorm(C, eps)
    layer = nn.LayerNorm(C, eps=eps)
    if not m["bias"]:
        layer.register_parameter("bias", None)
    return layer


def attention(q, k, v):
    """(B, H, T, D) and (B, G, T, D), causal; query head h has key and value head h / (H / G)."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1 and HAS_SDPA and HAS_GROUPS:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    if HAS_SDPA:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    T = q.shape[2]
    hidden = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    score = (q @ k.transpose(2, 3)) * q.shape[3] ** -0.5
    return F.softmax(score.masked_fill(hidden, float("-inf")), -1) @ v


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)  # pairs (i, i + D/2)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.H, self.G, self.D, self.width = m["heads"], m["kv_heads"], m["head_size"], m["ffn"]
        C, bias, self.swiglu = m["channels"], m["bias"], m["activation"] == "swiglu"
        self.attn_norm, self.ffn_norm = norm(m), norm(m)
        self.qkv = nn.Linear(C, (self.H + 2 * self.G) * self.D, bias=bias)
        self.out = nn.Linear(self.H * self.D, C, bias=bias)
        self.up = nn.Linear(C, self.width * (2 if self.swiglu else 1), bias=bias)  # swiglu: the gate first
        self.down = nn.Linear(self.width, C, bias=bias)

    def forward(self, x, rope):
        B, T, _ = x.shape
        H, G, D = self.H, self.G, self.D
        q, k, v = self.qkv(self.attn_norm(x)).split((H * D, G * D, G * D), dim=2)
        q, k, v = (y.view(B, T, -1, D).transpose(1, 2) for y in (q, k, v))
        if rope is not None:
            cos, sin = (y.to(q.dtype) for y in rope)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        x = x + self.out(attention(q, k, v).transpose(1, 2).reshape(B, T, H * D))
        y = self.up(self.ffn_norm(x))
        if self.swiglu:
            gate, up = y.chunk(2, -1)
            y = F.silu(gate) * up
        else:
            y = F.gelu(y, approximate="tanh")
        return x + self.down(y)


class Net(nn.Module):
    """From tokens and targets to the mean loss in nats."""

    def __init__(self, m):
        super().__init__()
        C, T, V = m["channels"], m["context"], m["vocab"]
        self.tokens = nn.Embedding(V, C)
        self.positions = nn.Embedding(T, C) if m["position"] == "learned" else None
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.norm = norm(m)
        self.head = nn.Linear(C, V, bias=False)
        if m["tie"]:
            self.head.weight = self.tokens.weight
        if m["position"] == "rope":
            D = m["head_size"]
            angle = torch.outer(torch.arange(T).double(), m["rope_theta"] ** (-torch.arange(0, D, 2).double() / D))
            self.register_buffer("cos", angle.cos().float())
            self.register_buffer("sin", angle.sin().float())

    def first_weights(self):
        deep = 0.02 / (2 * len(self.blocks)) ** 0.5
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=deep if name.endswith(("out.weight", "down.weight")) else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, token, target):
        x = self.tokens(token)
        if self.positions is not None:
            x = x + self.positions.weight[: token.shape[1]]
        rope = None if self.positions is not None else (self.cos, self.sin)
        for block in self.blocks:
            x = block(x, rope)
        return self.loss(x, target)

    def loss(self, x, target):
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), target.view(-1))


# ---- weights and tokens
def read_safetensors(path):
    """fp32 tensors by name, those of a dump without their prefix "weight."."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32" or 0 in entry["shape"]:
            continue
        begin, end = entry["data_offsets"]
        tensor = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(entry["shape"])
        tensors[name[7:] if name.startswith("weight.") else name] = tensor
    return tensors


def load(net, tensors):
    """Our names to those of Net; every parameter of the model must be there."""
    def get(name, kind):
        return tensors[f"{name}.{kind}"]

    def put(module, *names):
        for kind in ("weight", "bias"):
            to = getattr(module, kind, None)
            if to is not None:
                to.data.copy_(torch.cat([get(name, kind) for name in names]))

    put(net.tokens, "embed.tokens")
    if net.positions is not None:
        put(net.positions, "embed.positions")
    for i, block in enumerate(net.blocks):
        at = f"layers.{i}."
        put(block.attn_norm, at + "attn_norm")
        put(block.qkv, at + "attn.q", at + "attn.k", at + "attn.v")
        put(block.out, at + "attn.out")
        put(block.ffn_norm, at + "ffn_norm")
        put(block.up, *([at + "ffn.gate"] if block.swiglu else []), at + "ffn.up")
        put(block.down, at + "ffn.down")
    put(net.norm, "final_norm")
    if net.head.weight is not net.tokens.weight:
        put(net.head, "head")


def read_tokens(pattern):
    """All shards concatenated: each has a header of 256 int32, then uint16 or uint32."""
    parts = []
    for path in sorted(glob.glob(pattern)):
        with open(path, "rb") as file:
            magic = struct.unpack("<i", file.read(1024)[:4])[0]
            data = bytearray(file.read())
        wide = magic == 20240801
        tokens = torch.frombuffer(data, dtype=torch.int32 if wide else torch.int16).long()
        parts.append(tokens if wide else tokens & 0xFFFF)
    if not parts:
        refuse(f"no shards: {pattern}")
    return torch.cat(parts)


# ---- the step
def optimizer_of(net, o, device):
    matrices = [p for p in net.parameters() if p.ndim == 2]
    vectors = [p for p in net.parameters() if p.ndim != 2]
    groups = [{"params": matrices, "weight_decay": o["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    settings = dict(lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    try:
        return torch.optim.AdamW(groups, fused=device == "cuda", **settings), device == "cuda"
    except TypeError:  # before PyTorch 2
        return torch.optim.AdamW(groups, **settings), False


def compile_net(net):
    if len(net.blocks) <= 24:
        return torch.compile(net)
    torch._dynamo.config.cache_size_limit = max(64, 2 * len(net.blocks))
    for block in net.blocks:
        block.forward = torch.compile(block.forward)
    net.loss = torch.compile(net.loss)
    return net


def train(args, config, rows):
    m, batch, o, cuda = config["model"], config["batch"], config["optim"], args.device == "cuda"
    T, micro = m["context"], batch["micro"]
    accum = batch["tokens"] // (micro * T)
    torch.manual_seed(1)
    net = Net(m)
    net.first_weights()
    if args.weights:
        load(net, read_safetensors(args.weights))
    net.to(args.device)
    optimizer, fused = optimizer_of(net, o, args.device)
    compiled = cuda and not args.no_compile and hasattr(torch, "compile")
    forward = compile_net(net) if compiled else net
    tokens = read_tokens(config["data"]["train"])
    windows = (len(tokens) - 1) // T
    bf16 = config["numerics"]["dtype"] == "bf16"
    times, seen = [], (args.first - 1) * accum * micro
    last = args.first - 1 + args.steps if args.steps else len(rows)
    for step in range(args.first - 1, last):
        for group in optimizer.param_groups:
            group["lr"] = rows[min(step, len(rows) - 1)]["lr"]
        start, total = time.perf_counter(), 0
        for _ in range(accum):
            at = [(seen + i) % windows * T for i in range(micro)]
            seen += micro
            window = torch.stack([tokens[a : a + T + 1] for a in at])
            if cuda:
                window = window.pin_memory().to(args.device, non_blocking=True)
            with torch.autocast(args.device, dtype=torch.bfloat16, enabled=bf16):
                loss = forward(window[:, :-1].contiguous(), window[:, 1:].contiguous()) / accum
            loss.backward()
            total = total + loss.detach()
        if o["clip"]:
            nn.utils.clip_grad_norm_(net.parameters(), o["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = float(total)  # waits for the device
        if cuda:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
        print(json.dumps({"step": step + 1, "loss": value, "ms": round(times[-1], 3)}), flush=True)
    peak = torch.cuda.max_memory_allocated() / 1e6 if cuda else 0
    print(json.dumps({"torch": torch.__version__, "compile": compiled, "sdpa": HAS_SDPA, "fused": fused,
                      "autocast": bf16, "peak_mb": round(peak), "ms": round(statistics.median(times), 3)}))


def main():
    args = parse()
    config, rows = read_run(args.run)
    train(args, config, rows)


if __name__ == "__main__":
    main()
