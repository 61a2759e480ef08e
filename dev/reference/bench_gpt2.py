#!/usr/bin/env python3
"""Times a GPT-2 training step in PyTorch on the CPU, eager or compiled, in float32 or bf16 autocast: the yardstick for
build/bench.

The same model and the same step: forward, backward, global-norm clip 1.0, AdamW with decay on matrices,
random tokens. One JSON line: the median of --steps timed steps after one warm-up.

PyTorch gets the best settings we know of, found by measuring where they depend on the machine:
- matmul: aten's sgemm (the system's BLAS) and oneDNN's (as a 1x1 convolution over channels-last rows, which
  copies nothing) are timed on this model's shapes, the former with each OpenBLAS kernel set that this
  processor can run, because OpenBLAS mistakes new processors for old ones. The fastest is used. Each is timed
  in a process of its own: BLAS reads OPENBLAS_CORETYPE when it is loaded.
- malloc: no mmap and no trimming, so that a freed activation's pages are there for the next one; huge
  pages. (--malloc default changes nothing: use it to compare peak memory.)
- attention: scaled_dot_product_attention (PyTorch 2); before, scale and causal mask in the batched product (baddbmm).
  q, k, v in one linear; gradients set to None; AdamW fused where PyTorch can (2.4).
- --compile and --dtype bf16 take torch's own linear, which is oneDNN's in bf16.

Run: python3 dev/reference/bench_gpt2.py --model gpt2 --T 64 --dtype bf16 --compile   (PyTorch 1.13 or later; 2.4)
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

SHAPES = {  # layers, channels, heads, ffn, vocab, context, B, T
    "gpt2": (12, 768, 12, 3072, 50257, 1024, 4, 1024),
    "demo": (6, 256, 4, 1024, 4096, 256, 16, 256),
}
FIELDS = ("layers", "channels", "heads", "ffn", "vocab", "context", "B", "T")
CHOSEN = "PRETRAIN_BENCH_CHOSEN"  # set for the process that measures: the route of matmul


def parse():
    parser = argparse.ArgumentParser(description="PyTorch's GPT-2 training step on the CPU")
    parser.add_argument("--model", choices=SHAPES, default="gpt2")
    for field in FIELDS:
        parser.add_argument("--" + field, type=int)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--matmul", choices=("auto", "blas", "onednn"), default="auto")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--malloc", choices=("keep", "default"), default="keep")
    parser.add_argument("--probe", action="store_true", help="time this process' matmul routes, stop")
    args = parser.parse_args()
    for field, value in zip(FIELDS, SHAPES[args.model]):
        if getattr(args, field) is None:
            setattr(args, field, value)
    return args


def environment(args, coretype):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), OPENBLAS_NUM_THREADS=str(args.threads))
    env.pop("OPENBLAS_CORETYPE", None)
    if coretype:
        env["OPENBLAS_CORETYPE"] = coretype
    if args.malloc == "keep":
        env.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40), MALLOC_TOP_PAD_=str(1 << 26),
                   GLIBC_TUNABLES="glibc.malloc.hugetlb=1")
    return env


def choose(args):
    """(OPENBLAS_CORETYPE, route) of the fastest matmul, each candidate timed in a process of its own."""
    try:
        flags = open("/proc/cpuinfo").read().split("flags", 1)[1].split("\n", 1)[0].split()
    except (OSError, IndexError):
        flags = []
    coretypes = [""] + ["Haswell"] * ("avx2" in flags) + ["SkylakeX"] * ("avx512f" in flags)
    coretypes += ["Cooperlake", "SapphireRapids"] * ("avx512_bf16" in flags)
    rates = {}
    for coretype in coretypes:
        child = subprocess.run([sys.executable, *sys.argv, "--probe"], env=environment(args, coretype),
                               stdout=subprocess.PIPE, text=True, check=True)
        for route, rate in json.loads(child.stdout).items():
            if args.matmul in ("auto", route):
                rates[coretype, route] = rate
    best = max(rates, key=rates.get)
    for (coretype, route), rate in rates.items():
        mark = "  <- used" if (coretype, route) == best else ""
        kernels = coretype or "its own choice"
        print(f"matmul by {route}, OpenBLAS kernels {kernels}: {rate:.0f} GFLOP/s{mark}", file=sys.stderr)
    return best


def onednn_linear(torch):
    """x (..., C) -> (..., OC) as a 1x1 convolution: rows of C are pixels of a channels-last image of height
    1."""
    def linear(x, weight, bias=None):
        image = x.reshape(1, 1, -1, x.shape[-1]).permute(0, 3, 1, 2)
        out = torch.mkldnn_convolution(image, weight[:, :, None, None], bias, (0, 0), (1, 1), (1, 1), 1)
        return out.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])
    return linear


def probe(args, torch, routes):
    """GFLOP/s of forward and backward through the block's matmuls, per route."""
    C, rows, rates = args.channels, min(args.B * args.T, 1024), {}
    shapes = [(C, 3 * C), (C, C), (C, args.ffn), (args.ffn, C)]
    leaf = lambda *shape: torch.randn(*shape, requires_grad=True)
    cases = [(leaf(rows, k), leaf(n, k), torch.randn(rows, n)) for k, n in shapes]
    for route, linear in routes.items():
        seconds = 0
        for x, weight, dout in cases:
            times = []
            for _ in range(7):
                start = time.perf_counter()
                torch.autograd.grad(linear(x, weight), (x, weight), dout)
                times.append(time.perf_counter() - start)
            seconds += min(times)
        rates[route] = sum(6 * rows * k * n for k, n in shapes) / seconds / 1e9
    print(json.dumps(rates))


def build(args, torch, linear):
    """The parameters by name, and the function from tokens to the mean loss."""
    F, C, H, V = torch.nn.functional, args.channels, args.heads, args.vocab
    p = {}

    def add(name, *shape, std=0.02, mean=0.0):
        p[name] = torch.nn.Parameter(mean + std * torch.randn(*shape))

    add("tokens", V, C)
    add("positions", args.context, C)
    for i in range(args.layers):
        shapes = (("qkv", 3 * C, C), ("out", C, C), ("up", args.ffn, C), ("down", C, args.ffn))
        for name, rows, cols in shapes:
            add(f"{i}.{name}.weight", rows, cols)
            add(f"{i}.{name}.bias", rows, std=0.0)
    for name in [f"{i}.{norm}" for i in range(args.layers) for norm in ("norm1", "norm2")] + ["norm"]:
        add(name + ".weight", C, std=0.0, mean=1.0)
        add(name + ".bias", C, std=0.0)
    mask = torch.full((args.T, args.T), float("-inf")).triu(1)[None]

    def norm(x, name):
        return F.layer_norm(x, (C,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def layer(x, name):
        return linear(x, p[name + ".weight"], p[name + ".bias"])

    def loss(token, target):
        B, T = token.shape
        x = F.embedding(token, p["tokens"]) + p["positions"][:T]
        for i in range(args.layers):
            qkv = layer(norm(x, f"{i}.norm1"), f"{i}.qkv").view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
            if hasattr(F, "scaled_dot_product_attention"):
                mixed = F.scaled_dot_product_attention(*qkv, is_causal=True)
            else:
                q, k, v = (y.reshape(B * H, T, C // H) for y in qkv)
                score = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=(C // H) ** -0.5)
                mixed = torch.bmm(F.softmax(score, -1), v).view(B, H, T, C // H)
            mixed = mixed.transpose(1, 2).reshape(B, T, C)
            x = x + layer(mixed, f"{i}.out")
            up = F.gelu(layer(norm(x, f"{i}.norm2"), f"{i}.up"), approximate="tanh")
            x = x + layer(up, f"{i}.down")
        logits = linear(norm(x, "norm"), p["tokens"])
        return F.cross_entropy(logits.view(B * T, V), target.view(B * T))

    return p, loss


def measure(args, torch, linear):
    torch.manual_seed(1)
    p, loss_of = build(args, torch, linear)
    params = list(p.values())
    groups = [{"params": [x for x in params if (x.ndim == 2) == matrices],
               "weight_decay": 0.1 if matrices else 0.0} for matrices in (True, False)]
    settings = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8)
    try:
        optim = torch.optim.AdamW(groups, fused=True, **settings)
    except (TypeError, RuntimeError):  # not on the CPU before 2.4
        optim = torch.optim.AdamW(groups, **settings)
    if args.compile:
        loss_of = torch.compile(loss_of)
    text = torch.randint(args.vocab, (2, args.B, args.T))
    times = []
    for step in range(args.steps + 1):  # the first is the warm-up, and compiles
        start = time.perf_counter()
        optim.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = loss_of(text[0], text[1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optim.step()
        value = loss.item()
        times.append(time.perf_counter() - start)
    if not value < 20:
        sys.exit(f"error: the loss is {value}")
    seconds = statistics.median(times[1:])
    return {
        "model": args.model, "B": args.B, "T": args.T, "ms_per_step": round(1e3 * seconds, 1),
        "tokens_per_s": round(args.B * args.T / seconds, 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "params": sum(x.numel() for x in params), "steps": args.steps, "threads": args.threads,
        "loss": round(value, 3), "torch": torch.__version__, "matmul": os.environ[CHOSEN],
        "coretype": os.environ.get("OPENBLAS_CORETYPE", ""), "malloc": args.malloc,
        "dtype": args.dtype, "compiled": args.compile,
    }


def main():
    args = parse()
    if args.steps < 1 or args.T > args.context or args.channels % args.heads:
        sys.exit("error: steps >= 1, T <= context and channels divisible by heads are needed")
    if CHOSEN not in os.environ and not args.probe:
        own = args.compile or args.dtype == "bf16"
        coretype, route = ("", "blas") if own else choose(args)
        env = dict(environment(args, coretype), **{CHOSEN: route})
        os.execve(sys.executable, [sys.executable, *sys.argv], env)
    import torch
    torch.set_num_threads(args.threads)
    routes = {"blas": torch.nn.functional.linear}
    if args.threads > 1 and hasattr(torch, "mkldnn_convolution"):  # with one thread PyTorch takes another backward
        routes["onednn"] = onednn_linear(torch)
    if args.probe:
        return probe(args, torch, routes)
    print(json.dumps(measure(args, torch, routes[os.environ[CHOSEN]])))


if __name__ == "__main__":
    main()
