#!/usr/bin/env python3
"""Writes what PyTorch computes in a run's first update as a dump, for build/diff: is it rounding or a bug?

    build/train tiny --run.name=ours --run.steps=1 --run.dump=1 --data.shuffle=false
    /usr/bin/python3 dev/reference/dump_torch.py runs/ours runs/torch
    build/diff runs/torch runs/ours

The model below stands in for your own. It gets the weights and the tokens from RUN's dump, and runs forward, backward and AdamW in float32 with PyTorch's own operations. `keep` records a unit's result under the name that
the dump has for it (doc/diff.md). Everything else about a tensor (its shape, its place in the order, how far rounding
may move it) is copied from RUN's dump; only the numbers are new. So RUN must have one rank, fp32, no dropout, no packed
documents, no QK-norm, no groups and no capacity of experts, and its dump is of update 1. --break plants an error of planted.py, to see what
build/diff says; check_planted.py does that for all of them.
"""
import json
import os
import re
import struct
import sys
import tomllib

import numpy as np
import torch
import torch.nn.functional as F


TYPES = {"F32": "<f4", "I32": "<i4"}  # of a dump's tensors; the choices of experts are integers


def read_dump(path):
    """The header unchanged, its size in bytes, and {name: tensor}."""
    with open(path, "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    tensors = {name: torch.tensor(np.frombuffer(data[slice(*t["data_offsets"])], TYPES[t["dtype"]]).reshape(t["shape"]))
               for name, t in header.items() if name != "__metadata__"}
    return raw[:8 + size], header, tensors


class Program:
    """The model and the update, an operation a method; `at` names the unit or the layer that asks for it. Another
    program's operation, or an error (planted.py), takes a method's place."""

    def __init__(self, weights, config, lr, eot=None, dtype=torch.float32, micros=1):
        self.p = {name: torch.nn.Parameter(x.to(dtype, copy=True)) for name, x in weights.items()}
        self.m, self.o, self.lr, self.micros = config["model"], config["optim"], lr, micros
        self.moe, self.aux = config.get("moe"), 0  # aux: the routers' losses, summed over layers and sequences
        self.eot = eot  # the token with which a document begins that attention stays within; None: it does not
        self.D = self.m["head_size"] or self.m["channels"] // self.m["heads"]

    def keep(self, name, x):
        self.kept["forward." + name] = x
        return x

    def stream(self, unit, x):
        x.retain_grad()
        self.streams["backward." + unit] = x
        return x

    # ---- the model

    def linear(self, x, at):
        return F.linear(x, self.p[at + ".weight"], self.p.get(at + ".bias"))

    def norm(self, x, at):
        w, eps = self.p[at + ".weight"], self.m["norm_eps"]
        if self.m["norm"] == "layernorm":
            return F.layer_norm(x, w.shape, w, self.p.get(at + ".bias"), eps)
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w

    def place(self, token):
        """Of each token its document's first, and its position in it: (S, T), or (1, T) if all rows are alike."""
        at = torch.arange(token.shape[1])[None]
        self.first = torch.where(token == self.eot, at, 0).cummax(1)[0] if self.eot is not None else 0 * at
        self.pos = at - self.first

    def rotate(self, x, theta, at):
        """Turns the pairs (i, i + D/2) of x (S, T, heads, D)."""
        D = x.shape[3]
        angle = self.pos.double()[..., None] * theta ** (-torch.arange(0, D, 2).double() / D)
        angle = torch.cat((angle, angle), -1)[:, :, None, :]
        half = torch.cat((-x[..., D // 2:], x[..., :D // 2]), -1)
        return x * angle.cos().to(x.dtype) + half * angle.sin().to(x.dtype)

    def hidden(self, T, window, at):
        """True where a query (row) does not see a key (column)."""
        mask = torch.ones(T, T).triu(1).bool() | (torch.arange(T) < self.first[:, None, :, None])
        return mask | torch.ones(T, T).tril(-window).bool() if window else mask

    def spread(self, y, at):
        """Keys or values (S, T, kv_heads, D) for every query head."""
        return y.repeat_interleave(self.m["heads"] // y.shape[2], 2)

    def softmax(self, score, at):
        return F.softmax(score, -1)

    def attention(self, q, k, v, mask, at):
        q, k, v = q.transpose(1, 2), self.spread(k, at).transpose(1, 2), self.spread(v, at).transpose(1, 2)
        score = q @ k.transpose(2, 3) / self.D ** 0.5
        return (self.softmax(score.masked_fill(mask, -np.inf), at) @ v).transpose(1, 2).flatten(2)

    def gelu(self, x, at):
        return F.gelu(x, approximate="tanh")

    def swiglu(self, gate, up, at):
        return F.silu(gate) * up

    def dropped(self, x, at):
        return x

    # ---- mixture of experts (doc/experts.md)

    def router(self, x, at):
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32  # whatever the others compute in
        with torch.autocast("cpu", enabled=False):
            return F.linear(x.to(dtype), self.p[at + "router.weight"].to(dtype))

    def scores(self, z, at):
        return z.sigmoid() if self.m["experts_score"] == "sigmoid" else F.softmax(z, -1)

    def choose(self, s, at):
        choice = s.topk(self.m["experts_active"], -1)[1]
        w = s.gather(-1, choice)
        return choice, (w / w.sum(-1, keepdim=True) if self.m["experts_renorm"] else w) * self.m["experts_scale"]

    def expert(self, x, rows, at):
        return F.linear(x, self.p[at + rows + ".weight"])

    def balance(self, z, s, choice, at):
        """The losses on the router, of each sequence (S)."""
        E, moe = z.shape[-1], self.moe
        share = F.one_hot(choice, E).float().mean((1, 2))
        loss = moe["z_coef"] * z.logsumexp(-1).square().mean(1)
        if moe["balance"] == "sequence":  # of the batch, the shares of a first step are 1 / E: the gradient is 0
            loss = loss + moe["balance_coef"] * E * (share * (s / s.sum(-1, keepdim=True)).mean(1)).sum(-1)
        return loss

    def combine(self, rows, at):
        return rows.sum(2)

    def experts(self, x, at):
        m, keep = self.m, self.keep
        z = keep(at + "router", self.router(x, at))
        s = self.scores(z, at)
        choice, weights = self.choose(s, at)
        if self.moe["balance"] == "bias":
            keep(at + "keys", s)  # biases begin as 0
        keep(at + "choice", choice), keep(at + "weights", weights)
        self.aux = self.aux + self.balance(z, s, choice, at).sum()

        def by_slot(name, made, width):
            """Of all experts' numbers (S, T, E, width) those of the experts that were chosen, by slot."""
            rows = torch.stack(made, 2).gather(2, choice[..., None].expand(*choice.shape, width))
            keep(at + name, rows.flatten(2))
            return rows

        each, width, C = range(m["experts"]), m["experts_ffn"], x.shape[-1]
        name = at + "experts.{}."
        made = [torch.cat([self.expert(x, row, name.format(e)) for row in ("gate", "up")], -1) for e in each]
        gate, up = by_slot("experts_pre", made, 2 * width).chunk(2, -1)
        act = self.swiglu(gate, up, at) * weights[..., None].to(x.dtype)
        keep(at + "experts_act", act.flatten(2))
        mine = [act * (choice == e)[..., None] for e in each]  # an expert's own slots: others give 0
        rows = sum(self.expert(mine[e], "down", name.format(e)) for e in each)
        keep(at + "experts_down", rows.flatten(2))
        y = self.combine(rows, at)
        if m["experts_shared"]:
            gate, up = (keep(at + row, self.linear(x, f"{at}shared.{row}")) for row in ("gate", "up"))
            y = y + self.linear(keep(at + "act", self.swiglu(gate, up, at)), at + "shared.down")
        return keep(at + "experts", y)

    def block(self, i, x):
        m, at, keep = self.m, f"layers.{i}.", self.keep
        outputs = m.get("norm_place", "input") == "output"  # norms of what the branches give

        def add(x, name, branch):
            branch = self.dropped(branch, at)
            if outputs:
                branch = self.norm(keep(f"{at}{name}_out", branch), f"{at}{name}_norm")
            return x + branch

        a = keep(at + "norm1", x if outputs else self.norm(x, at + "attn_norm"))
        q, k, v = (self.linear(a, f"{at}attn.{name}").unflatten(-1, (-1, self.D)) for name in "qkv")
        if m["position"] == "rope":
            q, k = self.rotate(q, m["rope_theta"], at), self.rotate(k, m["rope_theta"], at)
        for name, y in (("q", q), ("k", k), ("v", v)):
            keep(at + name, y.flatten(2))
        pattern = m.get("window_pattern", "s")
        window = m.get("window", 0) if pattern[i % len(pattern)] == "s" else 0
        mixed = keep(at + "attn", self.attention(q, k, v, self.hidden(x.shape[1], window, at), at))
        x = keep(at + "resid", add(x, "attn", self.linear(mixed, at + "attn.out")))
        b = keep(at + "norm2", x if outputs else self.norm(x, at + "ffn_norm"))
        if at + "router.weight" in self.p:
            return keep(at + "out", add(x, "ffn", self.experts(b, at)))
        up = keep(at + ("up" if m["activation"] == "swiglu" else "pre"), self.linear(b, at + "ffn.up"))
        if m["activation"] == "swiglu":
            act = self.swiglu(keep(at + "gate", self.linear(b, at + "ffn.gate")), up, at)
        else:
            act = F.relu(up) ** 2 if m["activation"] == "relu2" else self.gelu(up, at)
        return keep(at + "out", add(x, "ffn", self.linear(keep(at + "act", act), at + "ffn.down")))

    def positions(self, T, at):
        return self.p["embed.positions.weight"][self.pos]

    def logits(self, token):
        self.place(token)
        x = self.p["embed.tokens.weight"][token]
        if self.m["position"] == "learned":
            x = x + self.positions(token.shape[1], "embed")
        x = self.keep("embed.out", self.dropped(x, "embed"))
        for i in range(self.m["layers"]):
            x = self.block(i, self.stream(f"layers.{i}", x))
        x = self.keep("head.norm", self.norm(self.stream("head", x), "final_norm"))
        z, cap = F.linear(x, self.p["embed.tokens.weight" if self.m["tie"] else "head.weight"]), self.m.get("logit_cap", 0)
        return cap * torch.tanh(z / cap) if cap else z

    # ---- the update

    def losses(self, logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)

    def total(self, loss, counted, all_counted):
        """What backward starts from, of one micro-batch: its part of the mean over all targets that count."""
        return (loss * counted).sum() / all_counted.sum() + self.aux / len(all_counted)

    def accumulated(self, k):
        """After backward of micro-batch k: the gradients are in p."""

    def clip_factor(self):
        norm = torch.sqrt(sum((x.grad.double() ** 2).sum() for x in self.p.values()))
        return float(min(1.0, self.o["clip"] / norm)) if self.o["clip"] else 1.0

    def optimizer(self):
        groups = [{"params": [x for x in self.p.values() if (x.ndim == 2) == matrices],
                   "weight_decay": self.o["weight_decay"] * matrices} for matrices in (True, False)]
        return torch.optim.AdamW(groups, lr=self.lr, betas=(self.o["beta1"], self.o["beta2"]), eps=self.o["eps"])

    def run(self, token, target, counted, autocast=None):
        """{name in the dump: tensor} of one update; counted: 1 for the targets that count, else 0."""
        parts, made = [], {"weight." + name: x.detach().clone() for name, x in self.p.items()}
        for k, at in enumerate(torch.arange(len(token)).chunk(self.micros)):
            self.kept, self.streams, self.aux = {}, {}, 0
            with torch.autocast("cpu", autocast, enabled=autocast is not None):
                loss = self.losses(self.logits(token[at]), target[at])
            self.total(loss, counted[at], counted).backward()
            self.accumulated(k)
            parts.append(self.kept | {name: x.grad for name, x in self.streams.items()} | {"loss": loss * counted[at]})
        made.update({name: torch.cat([part[name].detach() for part in parts]) for name in parts[0]})
        made.update({f"grad.{name}": x.grad.clone() for name, x in self.p.items()})
        factor = self.clip_factor()
        for x in self.p.values():
            x.grad *= factor
        optim = self.optimizer()
        optim.step()
        for name, x in self.p.items():
            made[f"updated.{name}"] = x.detach()
            for array in ("exp_avg", "exp_avg_sq"):
                made[f"state.{array}.{name}"] = optim.state[x][array]
        return made


DUMP = os.path.join("dump", "step_00000001", "rank_00000.safetensors")


class Run:
    """A run of build/train that has dumped its first update: its settings, weights and tokens."""

    def __init__(self, path):
        if not os.path.exists(os.path.join(path, DUMP)):
            sys.exit(f"error: {path}: no dump of update 1 (train with --run.dump=1)")
        self.head, self.header, self.made = read_dump(os.path.join(path, DUMP))
        with open(os.path.join(path, "config.toml"), "rb") as file:
            self.config = tomllib.load(file)
        for section, key, want in (("data", "shuffle", False), ("data", "packing", "cut"),
                                   ("model", "qk_norm", "false"),
                                   ("model", "dropout", 0), ("optim", "name", "adamw"), ("optim", "agc", 0),
                                   ("model", "rope_scaling", "none"), ("model", "experts_groups", 0),
                                   ("moe", "capacity", 0)):
            if self.config.get(section, {}).get(key, want) != want:
                sys.exit(f"error: {path}: {section}.{key} = {self.config[section][key]} (train with --{section}.{key}="
                         f"{json.dumps(want).strip(chr(34))})")
        if self.header["__metadata__"]["ranks"] != "1":
            sys.exit(f"error: {path}: a dump of {self.header['__metadata__']['ranks']} ranks (train on one)")
        with open(os.path.join(path, "metrics.jsonl")) as file:
            self.lr = next(line["lr"] for line in map(json.loads, file) if line["event"] == "train")
        self.weights = {name[7:]: x for name, x in self.made.items() if name.startswith("weight.")}
        token, target = (self.made["input." + name].long() for name in ("tokens", "targets"))
        self.batch = token, target.clamp(min=0), (target >= 0).to(torch.float32)  # < 0: not counted

    def program(self, **how):
        eot = None
        if self.config["data"]["document_mask"]:
            with open(os.path.join(self.config["data"]["tokenizer"], "manifest.json")) as file:
                eot = int(re.search(r'"eot": (\d+)', file.read())[1])
        return Program(self.weights, self.config, self.lr, eot, **how)

    def write(self, out, made):
        """Writes `made` as a dump, whose header is the run's."""
        os.makedirs(os.path.dirname(os.path.join(out, DUMP)), exist_ok=True)
        with open(os.path.join(out, DUMP), "wb") as file:
            file.write(self.head)
            for name, t in self.header.items():
                if name != "__metadata__":
                    file.seek(len(self.head) + t["data_offsets"][0])
                    x = (self.made if name.startswith("input.") else made)[name].detach().reshape(t["shape"])
                    x = x.float() if x.is_floating_point() else x
                    file.write(x.numpy().astype(TYPES[t["dtype"]]).tobytes())


def main(path, out, error):
    run = Run(path)
    program = run.program()
    if error:
        import planted
        program = planted.plant(run, error)
    run.write(out, program.run(*run.batch))
    print(f"{out}: update 1 by PyTorch {torch.__version__}; now: build/diff {out} {path}")


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if not a.startswith("--break=")]
    errors = [a[8:] for a in sys.argv[1:] if a.startswith("--break=")]
    if len(arguments) != 2 or len(errors) > 1:
        sys.exit("usage: dump_torch.py RUN OUT [--break=ERROR[@UNIT]]   (the beginning of a name in planted.py)")
    main(*arguments, errors[0] if errors else None)
