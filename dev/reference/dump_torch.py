#!/usr/bin/env python3
"""Writes what PyTorch computes in a run's first update as a dump, for build/diff: is it rounding or a bug?

    build/train tiny --run.name=ours --run.steps=1 --run.dump=1 --data.shuffle=false
    /usr/bin/python3 dev/reference/dump_torch.py runs/ours runs/torch
    build/diff runs/torch runs/ours

The model below stands in for your own. It gets the weights from RUN's dump and the tokens from its shards, and runs
forward, backward and AdamW in float32 with PyTorch's own operations. `keep` records a unit's result under the name that
the dump has for it (doc/diff.md). Everything else about a tensor (its shape, its place in the order, how far rounding
may move it) is copied from RUN's dump; only the numbers are new. So RUN must have one rank, fp32, no dropout, no
document masks and no QK-norm, and its dump is of update 1. --break computes something wrong, to see what build/diff
says.
"""
import glob
import json
import os
import struct
import sys
import tomllib

import numpy as np
import torch
import torch.nn.functional as F


def read_dump(path):
    """The header unchanged, its size in bytes, and {name: tensor}."""
    with open(path, "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    tensors = {name: torch.tensor(np.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"]))
               for name, t in header.items() if name != "__metadata__"}
    return raw[:8 + size], header, tensors


def read_tokens(pattern, n):
    """The first n tokens of the shards (doc/dataset.md): 256 integers, the third their number, then 2 or 4 bytes."""
    tokens = []
    for path in sorted(glob.glob(pattern)):
        count = int(np.fromfile(path, "<i4", 256)[2])
        wide = (os.path.getsize(path) - 1024) // count == 4
        tokens.append(np.fromfile(path, "<u4" if wide else "<u2", offset=1024).astype(np.int64))
        if sum(map(len, tokens)) >= n:
            break
    return torch.tensor(np.concatenate(tokens)[:n])


def rope(x, theta):
    """Turns the pairs (i, i + D/2) of x (S, T, heads, D)."""
    T, D = x.shape[1], x.shape[3]
    angle = torch.arange(T).double()[:, None] * theta ** (-torch.arange(0, D, 2).double() / D)
    angle = torch.cat((angle, angle), 1)[:, None, :]
    half = torch.cat((-x[..., D // 2:], x[..., :D // 2]), -1)
    return x * angle.cos().float() + half * angle.sin().float()


def model(p, m, token, broken):
    """Logits, {name in the dump: tensor}, and the residual stream before every unit."""
    kept, streams, D = {}, {}, m["head_size"] or m["channels"] // m["heads"]
    groups = m["heads"] // (m["kv_heads"] or m["heads"])
    linear = lambda x, name: F.linear(x, p[name + ".weight"], p.get(name + ".bias"))

    def keep(name, x):
        kept["forward." + name] = x
        return x

    def stream(unit, x):
        x.retain_grad()
        streams["backward." + unit] = x
        return x

    def norm(x, name):
        w = p[name + ".weight"]
        if m["norm"] == "layernorm":
            return F.layer_norm(x, w.shape, w, p.get(name + ".bias"), m["norm_eps"])
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + m["norm_eps"]) * w

    def block(at, x):
        a = keep(at + "norm1", norm(x, at + "attn_norm"))
        q, k, v = (linear(a, f"{at}attn.{name}").unflatten(-1, (-1, D)) for name in "qkv")
        if m["position"] == "rope":
            if m.get("rope_scaling", "none") != "none":
                sys.exit("error: model.rope_scaling: only none is written here")
            q, k = rope(q, m["rope_theta"]), rope(k, m["rope_theta"])
        for name, y in (("q", q), ("k", k), ("v", v)):
            keep(at + name, y.flatten(2))
        q, k, v = (y.repeat_interleave(n, 2).transpose(1, 2) for y, n in ((q, 1), (k, groups), (v, groups)))
        score = q @ k.transpose(2, 3) / D ** 0.5
        future = torch.ones(score.shape[2:]).triu(2 if broken == "mask" else 1).bool()
        pattern = m.get("window_pattern", "s")
        if m.get("window") and pattern[int(at.split(".")[1]) % len(pattern)] == "s":
            future |= torch.ones(score.shape[2:]).tril(-m["window"]).bool()
        mixed = keep(at + "attn", (F.softmax(score.masked_fill(future, -np.inf), -1) @ v).transpose(1, 2).flatten(2))
        x = keep(at + "resid", x + linear(mixed, at + "attn.out"))
        b = keep(at + "norm2", norm(x, at + "ffn_norm"))
        if m["activation"] == "swiglu":
            act = F.silu(keep(at + "gate", linear(b, at + "ffn.gate"))) * keep(at + "up", linear(b, at + "ffn.up"))
        else:
            act = F.gelu(keep(at + "pre", linear(b, at + "ffn.up")), approximate="none" if broken == "gelu" else "tanh")
        return keep(at + "out", x + linear(keep(at + "act", act), at + "ffn.down"))

    x = p["embed.tokens.weight"][token]
    if m["position"] == "learned":
        x = x + p["embed.positions.weight"][:token.shape[1]]
    x = keep("embed.out", x)
    for i in range(m["layers"]):
        x = block(f"layers.{i}.", stream(f"layers.{i}", x))
    x = keep("head.norm", norm(stream("head", x), "final_norm"))
    return F.linear(x, p["embed.tokens.weight" if m["tie"] else "head.weight"]), kept, streams


def update(p, o, lr):
    """AdamW after clipping, from gradients in p. Returns the optimizer's state and the new weights."""
    norm = torch.sqrt(sum((x.grad.double() ** 2).sum() for x in p.values()))
    for x in p.values():
        x.grad *= float(min(1.0, o["clip"] / norm)) if o["clip"] else 1.0
    groups = [{"params": [x for x in p.values() if (x.ndim == 2) == matrices],
               "weight_decay": o["weight_decay"] * matrices} for matrices in (True, False)]
    optim = torch.optim.AdamW(groups, lr=lr, betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    optim.step()
    made = {f"updated.{name}": x for name, x in p.items()}
    for name, x in p.items():
        for array in ("exp_avg", "exp_avg_sq"):
            made[f"state.{array}.{name}"] = optim.state[x][array]
    return made


def main(run, out, broken):
    step = os.path.join("dump", "step_00000001", "rank_00000.safetensors")
    if not os.path.exists(os.path.join(run, step)):
        sys.exit(f"error: {run}: no dump of update 1 (train with --run.dump=1)")
    head, header, ours = read_dump(os.path.join(run, step))
    with open(os.path.join(run, "config.toml"), "rb") as file:
        config = tomllib.load(file)
    for section, key, want in (("data", "shuffle", False), ("data", "document_mask", False), ("model", "qk_norm", False),
                               ("model", "dropout", 0), ("numerics", "dtype", "fp32"), ("optim", "name", "adamw")):
        if config[section].get(key, want) != want:
            sys.exit(f"error: {run}: {section}.{key} = {config[section][key]} (train with --{section}.{key}="
                     f"{json.dumps(want).strip(chr(34))})")
    if header["__metadata__"]["ranks"] != "1":
        sys.exit(f"error: {run}: a dump of {header['__metadata__']['ranks']} ranks (train on one)")
    with open(os.path.join(run, "metrics.jsonl")) as file:
        lr = next(line["lr"] for line in map(json.loads, file) if line["event"] == "train")
    p = {name[7:]: torch.nn.Parameter(x.clone()) for name, x in ours.items() if name.startswith("weight.")}
    S, T = ours["loss"].shape
    text = read_tokens(config["data"]["train"], S * T + 1)
    logits, made, streams = model(p, config["model"], text[:-1].view(S, T), broken)
    loss = F.cross_entropy(logits.flatten(0, 1), text[1:], reduction="none")
    loss.mean().backward()
    made.update({"weight." + name: ours["weight." + name] for name in p}, loss=loss.view(S, T))
    made.update({f"grad.{name}": x.grad.clone() for name, x in p.items()})
    made.update({name: x.grad for name, x in streams.items()})
    made.update(update(p, config["optim"], lr))
    os.makedirs(os.path.dirname(os.path.join(out, step)), exist_ok=True)
    with open(os.path.join(out, step), "wb") as file:
        file.write(head)
        for name, t in header.items():
            if name == "__metadata__":
                continue
            x = made[name].detach().reshape(t["shape"]).numpy()
            file.seek(len(head) + t["data_offsets"][0])
            file.write(x.astype("<f4").tobytes())
    print(f"{out}: update 1 by PyTorch {torch.__version__}, {len(made)} tensors; now: build/diff {out} {run}")


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if not a.startswith("--break=")]
    breaks = [a[8:] for a in sys.argv[1:] if a.startswith("--break=")]
    if len(arguments) != 2 or any(b not in ("mask", "gelu") for b in breaks):
        sys.exit("usage: dump_torch.py RUN OUT [--break=mask|gelu]")
    main(*arguments, breaks[0] if breaks else None)
