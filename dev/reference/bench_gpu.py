#!/usr/bin/env python3
"""PyTorch beside dev/cuda_on_cpu/tests/speed.cu: the same operations, names and sizes, on the first GPU.

usage: bench_gpu.py      A line is "NAME|MILLISECONDS"; exit status 2 where there is no PyTorch with CUDA.

Element-wise operations go through torch.compile, where it works; it makes one kernel of each.
"""
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(2)
if not torch.cuda.is_available():
    sys.exit(2)


def timed(name, f, launches=20):
    f(), f()
    best = float("inf")
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(launches):
            f()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / launches)
    print(f"{name}|{best:.4f}", flush=True)


def noise(*shape, dtype=torch.bfloat16, most=1.0, grad=False):
    x = torch.empty(shape, dtype=dtype, device="cuda").uniform_(-most, most)
    return x.requires_grad_(grad)


def fused(f):
    """f compiled by torch.compile, or f itself where that fails (no compiler on the machine)."""
    try:
        return torch.compile(f)
    except Exception:
        return f


def machine():
    a = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    b = torch.empty_like(a)
    timed("copy", lambda: b.copy_(a))
    x, w = noise(8192, 8192), noise(8192, 8192)
    timed("matmul bf16", lambda: F.linear(x, w))


def rows(N=32768, C=768, width=3072, V=50304):
    a, b, weight, bias = noise(N, C), noise(N, C), noise(C), noise(C)
    with torch.no_grad():
        layer = fused(lambda a, b: (a + b, F.layer_norm(a + b, (C,), weight, bias)))
        timed("residual + layernorm bf16", lambda: layer(a, b))
        root = fused(lambda a, b: (a + b, (a + b) * torch.rsqrt((a + b).float().square().mean(-1, True) + 1e-5)
                                   .to(a.dtype) * weight))
        timed("residual + rmsnorm bf16", lambda: root(a, b))
        timed("add bf16", lambda: torch.add(a, b))
        act, gate_up = noise(N, width), noise(N, 2 * width)
        timed("gelu bf16", lambda: F.gelu(act, approximate="tanh"))
        swiglu = fused(lambda x: F.silu(x[:, :width]) * x[:, width:])
        timed("swiglu bf16", lambda: swiglu(gate_up))
    del act, gate_up
    z, target = noise(N // 4, V, grad=True), torch.zeros(N // 4, dtype=torch.long, device="cuda")
    loss = fused(lambda z: F.cross_entropy(z.float(), target, reduction="sum"))
    timed("softmax + cross-entropy bf16", lambda: torch.autograd.grad(loss(z), z))


def update(n=124000000):
    w = torch.nn.Parameter(noise(n, dtype=torch.float32))
    w.grad = noise(n, dtype=torch.float32)
    optimizer = torch.optim.AdamW([w], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    timed("adamw", optimizer.step)
    timed("weights to bf16", lambda: w.detach().bfloat16())


def attention(B, T, H, D):
    q, k, v = (noise(B, H, T, D, most=2.0, grad=True) for _ in range(3))
    with torch.no_grad():
        timed(f"attention forward bf16 D={D} T={T}", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    dout = noise(*out.shape)
    timed(f"attention backward bf16 D={D} T={T}",
          lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))


if __name__ == "__main__":
    for part in (machine, rows, update, lambda: attention(8, 1024, 12, 64), lambda: attention(4, 2048, 16, 128),
                 lambda: attention(2, 4096, 16, 128)):
        try:
            part()
        except Exception as error:  # a part that fails does not stop the others
            print(f"bench_gpu: {error}", file=sys.stderr)
        torch.cuda.empty_cache()
