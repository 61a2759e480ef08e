#!/usr/bin/env python3
"""A PyTorch twin of the stories model, to try dozens of settings on a GPU before one is run on the CPU.

    explore_stories.py CORPUS_DIR... [--list experiments.json] [--part I/N]     prints one JSON line a run

CORPUS_DIR is what scripts/run.sh makes (train_000000.bin, val_000000.bin, floor.json). The optimizer step is captured as
a CUDA graph, so a run of 2,000 steps takes seconds; several processes (--part) share a GPU. On a machine
without a GPU it runs step by step, slowly.

A run has as many steps as the CPU program would take in a fixed time, if time were proportional to floating-point
operations: BUDGET of them, including Muon's own. Initial weights and data order come from PyTorch's generator, so
a run agrees with the C program's in distribution, not in bits. Needs PyTorch >= 2.0.
"""
import argparse, json, math, time
import numpy as np
import torch
import torch.nn.functional as F

DEV = "cuda" if torch.cuda.is_available() else "cpu"
BASE = dict(channels=192, layers=2, heads=4, ffn=192, context=256, rows=8, documents=True, optim="muon", lr=3e-3,
            matrix_lr=4.0, warmup=60, min_lr=0.025, beta1=0.9, beta2=0.98, decay=0.1, clip=1.0, seed=1)
BUDGET = 7.8e13  # operations of 4 minutes on two cores of the machine of doc/log.md

# What doc/log.md compares; each with seeds 1, 2, 3.
EXPERIMENTS = [dict(name="preset"), dict(name="no document masks", documents=False),
               dict(name="AdamW", optim="adamw", lr=1e-3), dict(name="three layers", layers=3),
               dict(name="ffn 128", ffn=128), dict(name="ffn 512", ffn=512), dict(name="3 heads", heads=3),
               dict(name="224 channels", channels=224, ffn=224), dict(name="256 channels", channels=256, ffn=256),
               dict(name="lr 2e-3", lr=2e-3)]


def load(folder):
    def tokens(name):
        return torch.from_numpy(np.fromfile(f"{folder}/{name}_000000.bin", dtype="<u2")[512:].astype(np.int64)).to(DEV)
    with open(f"{folder}/floor.json") as file:
        return tokens("train"), tokens("val"), json.load(file)["val"]["nats"]


def operations(c, vocab):
    """Of one step: 6 per matmul parameter and token, attention, and Muon's five iterations per matrix."""
    C, L, Fd, T = c["channels"], c["layers"], c["ffn"], c["context"]
    def newton_schulz(m, n):
        m, n = min(m, n), max(m, n)
        return 5 * (4 * m * m * n + 2 * m ** 3)
    step = c["rows"] * T * (6 * (L * (4 * C * C + 3 * C * Fd) + vocab * C) + 6 * L * C * T)
    return step + (L * (4 * newton_schulz(C, C) + 3 * newton_schulz(C, Fd)) if c["optim"] == "muon" else 0)


class Model(torch.nn.Module):
    """LLaMA family with QK-norm and a tied head, initialised as src/net/model.c does."""
    def __init__(self, c, vocab):
        super().__init__()
        C, L, Fd = c["channels"], c["layers"], c["ffn"]
        self.heads, self.size = c["heads"], C // c["heads"]
        matrix = lambda r, k, std=0.02: torch.nn.Parameter(torch.randn(r, k, device=DEV) * std)
        ones = lambda n: torch.nn.Parameter(torch.ones(n, device=DEV))
        self.embed, self.final_norm, self.blocks = matrix(vocab, C), ones(C), torch.nn.ModuleList()
        for _ in range(L):
            out = 0.02 / math.sqrt(2 * L)
            self.blocks.append(torch.nn.ParameterDict(dict(
                norm1=ones(C), q=matrix(C, C), k=matrix(C, C), v=matrix(C, C), q_norm=ones(self.size),
                k_norm=ones(self.size), o=matrix(C, C, out), norm2=ones(C), gate=matrix(Fd, C), up=matrix(Fd, C),
                down=matrix(C, Fd, out))))
        angle = torch.arange(c["context"], device=DEV)[:, None] * 1e4 ** (
            -torch.arange(0, self.size, 2, device=DEV) / self.size)
        self.cos, self.sin = angle.cos(), angle.sin()

    @staticmethod
    def norm(x, weight):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight

    def rotate(self, x, pos):
        cos, sin, half = self.cos[pos][:, None], self.sin[pos][:, None], self.size // 2
        return torch.cat([x[..., :half] * cos - x[..., half:] * sin, x[..., :half] * sin + x[..., half:] * cos], -1)

    def forward(self, token, pos, mask):
        B, T = token.shape
        x = self.embed[token]
        split = lambda y: y.view(B, T, self.heads, self.size).transpose(1, 2)
        for b in self.blocks:
            y = self.norm(x, b["norm1"])
            q = self.rotate(self.norm(split(y @ b["q"].T), b["q_norm"]), pos)
            k = self.rotate(self.norm(split(y @ b["k"].T), b["k_norm"]), pos)
            score = (q @ k.transpose(-1, -2) / math.sqrt(self.size)).masked_fill(~mask[:, None], float("-inf"))
            x = x + (score.softmax(-1) @ split(y @ b["v"].T)).transpose(1, 2).reshape(B, T, -1) @ b["o"].T
            y = self.norm(x, b["norm2"])
            x = x + (F.silu(y @ b["gate"].T) * (y @ b["up"].T)) @ b["down"].T
        return self.norm(x, self.final_norm) @ self.embed.T


def documents(token, eot, on):
    """Positions (B, T), and which token attends to which (B, T, T)."""
    T = token.shape[1]
    t = torch.arange(T, device=DEV)
    causal = (t[:, None] >= t)[None]
    start = torch.where(token == eot, t, torch.zeros_like(t)).cummax(1).values if on else torch.zeros_like(token)
    return t - start, causal & (start[:, :, None] == start[:, None, :])


def orthogonal(g):
    x = g / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


def run(c, corpus):
    torch.manual_seed(c["seed"])
    train, val, nats = corpus
    eot, vocab, T, B = int(train[0]), (int(train.max()) + 32) // 32 * 32, c["context"], c["rows"]
    model = Model(c, vocab)
    weights = list(model.parameters())
    hidden = {id(p) for n, p in model.named_parameters() if p.ndim == 2 and n != "embed" and c["optim"] == "muon"}
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in weights]
    lr, fix1, fix2 = (torch.ones((), device=DEV) for _ in range(3))
    x, y = (torch.zeros(B, T, dtype=torch.long, device=DEV) for _ in range(2))

    def step():
        for p in weights:
            p.grad = None
        F.cross_entropy(model(x, *documents(x, eot, c["documents"])).view(-1, vocab), y.view(-1)).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.square().sum() for p in weights]).sum().sqrt()
            for p, (m, v) in zip(weights, state):
                g = p.grad * torch.clamp(c["clip"] / norm, max=1)
                if id(p) in hidden:
                    m.mul_(0.95).add_(g)
                    rate = lr * c["matrix_lr"]
                    p.mul_(1 - rate * c["decay"]).sub_(
                        orthogonal(g + 0.95 * m) * (rate * 0.2 * math.sqrt(max(p.shape))))
                else:
                    m.mul_(c["beta1"]).add_(g, alpha=1 - c["beta1"])
                    v.mul_(c["beta2"]).addcmul_(g, g, value=1 - c["beta2"])
                    p.mul_(1 - lr * c["decay"] if p.ndim == 2 else 1)
                    p.sub_(lr * m * fix1 / ((v * fix2).sqrt() + 1e-8))

    replay = step
    if DEV == "cuda":
        before = [p.detach().clone() for p in weights]
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replay = graph.replay
        with torch.no_grad():
            for p, old, (m, v) in zip(weights, before, state):
                p.copy_(old), m.zero_(), v.zero_()
    steps = c.get("steps") or int(BUDGET / operations(c, vocab))
    order = torch.randperm((len(train) - 1) // T, generator=torch.Generator().manual_seed(c["seed"])).to(DEV)
    begin = time.time()
    for i in range(steps):
        window = order[torch.arange(i * B, (i + 1) * B, device=DEV) % len(order)]
        part = train[window[:, None] * T + torch.arange(T + 1, device=DEV)]
        x.copy_(part[:, :-1]), y.copy_(part[:, 1:])
        w = c["warmup"]
        rate = (i + 1) / w if i < w else c["min_lr"] + (1 - c["min_lr"]) * 0.5 * (
            1 + math.cos(math.pi * (i - w) / max(1, steps - w)))
        lr.fill_(c["lr"] * rate), fix1.fill_(1 / (1 - c["beta1"] ** (i + 1))), fix2.fill_(1 / (1 - c["beta2"] ** (i + 1)))
        replay()
    loss = evaluate(model, val, eot, c, vocab)
    return dict(c, steps=steps, val_loss=loss, floor=nats / (len(val) - 1), above_floor=loss * (len(val) - 1) / nats - 1,
                seconds=round(time.time() - begin, 1))


@torch.no_grad()
def evaluate(model, val, eot, c, vocab):
    """Every target once, in windows that overlap by half, as in src/train/eval.c."""
    T, n, total = c["context"], len(val) - 1, 0.0
    starts = torch.arange(0, n, T // 2, device=DEV)
    t = torch.arange(T + 1, device=DEV)
    for group in starts.split(64):
        index = group[:, None] + t
        part = val[index.clamp(max=n)]
        loss = F.cross_entropy(model(part[:, :-1], *documents(part[:, :-1], eot, c["documents"])).reshape(-1, vocab),
                               part[:, 1:].reshape(-1), reduction="none").view(len(group), T)
        scored = (index[:, 1:] <= n) & ((group == 0)[:, None] | (t[None, :-1] >= T // 2))
        total += float((loss * scored).sum())
    return total / n


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", nargs="+")
    parser.add_argument("--list", help="JSON list of settings over BASE; default: EXPERIMENTS with three seeds")
    parser.add_argument("--part", default="0/1")
    args = parser.parse_args()
    runs = json.load(open(args.list)) if args.list else [dict(e, seed=s) for e in EXPERIMENTS for s in (1, 2, 3)]
    mine, parts = map(int, args.part.split("/"))
    jobs = [(folder, e) for folder in args.corpus for e in runs]
    loaded = {}
    for i, (folder, e) in enumerate(jobs):
        if i % parts != mine:
            continue
        loaded.setdefault(folder, None)
        loaded[folder] = loaded[folder] or load(folder)
        print(json.dumps(dict(run({**BASE, **e}, loaded[folder]), corpus=folder)), flush=True)


if __name__ == "__main__":
    main()
