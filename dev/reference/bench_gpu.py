#!/usr/bin/env python3
"""PyTorch beside dev/cuda_on_cpu/tests/speed.cu: the same operations, names and sizes, on the first GPU.

usage: bench_gpu.py      A line is "NAME|MILLISECONDS"; exit status 2 where there is no PyTorch with CUDA.
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
    f()
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


def bf16(*shape, **options):
    return torch.full(shape, 0.1, dtype=torch.bfloat16, device="cuda", **options)


N, C, V = 8192, 768, 50304
with torch.no_grad():
    a, b, weight, bias = bf16(N, C), bf16(N, C), bf16(C), bf16(C)
    timed("residual + layernorm bf16", lambda: F.layer_norm(a + b, (C,), weight, bias))
    timed("gelu bf16", lambda: F.gelu(a, approximate="tanh"))
z, target = bf16(N, V, requires_grad=True), torch.zeros(N, dtype=torch.long, device="cuda")
timed("softmax + cross-entropy bf16",
      lambda: torch.autograd.grad(F.cross_entropy(z, target, reduction="sum"), z))
del z
w = torch.nn.Parameter(torch.ones(124000000, device="cuda"))
w.grad = torch.ones_like(w)
optimizer = torch.optim.AdamW([w], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
timed("adamw", optimizer.step)
del w, optimizer
for B, T, H, D in ((8, 1024, 12, 64), (4, 2048, 16, 128)):
    q, k, v = (bf16(B, H, T, D, requires_grad=True) for _ in range(3))
    with torch.no_grad():
        timed(f"flash forward bf16 D={D}", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    dout = torch.ones_like(out)
    timed(f"flash backward bf16 D={D}", lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
