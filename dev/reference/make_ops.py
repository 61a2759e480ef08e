#!/usr/bin/env python3
"""Writes test/fixtures/ops_*.safetensors: every op of src/ops/dev.h, both passes, as PyTorch computes them.

Inputs are random float32 numbers from fixed seeds. They are widened to float64, PyTorch's own functions and
its autograd give outputs and gradients in float64, and these are rounded once to float32. So a fixture
value is within half a unit in the last place of the true one, and everything beyond that is the error of
the op under test.

Sizes are odd on purpose. Names are CASE/TENSOR; parameter gradients start from a random CASE/..._start,
because the ops add to what is there. Run: /usr/bin/python3 dev/reference/make_ops.py   (PyTorch, NumPy)
"""
import numpy as np
import torch
import torch.nn.functional as F

from fixture import save

torch.set_num_threads(1)
single = lambda x: float(np.float32(x))  # hyper-parameters are float32 numbers, too
EPS = single(1e-5)


class Case:
    """The tensors of one case: random inputs on demand, and results added by name."""

    def __init__(self, name, seed):
        self.name, self.rng, self.tensors = name, np.random.default_rng(seed), {}

    def put(self, name, value):
        self.tensors[f"{self.name}/{name}"] = value

    def normal(self, name, *shape, scale=1.0, shift=0.0):
        """A float32 input, stored, and as a float64 leaf for autograd."""
        value = (shift + scale * self.rng.standard_normal(shape)).astype(np.float32)
        self.put(name, value)
        return torch.tensor(value.astype(np.float64), requires_grad=True)

    def ints(self, name, low, high, *shape):
        value = self.rng.integers(low, high, shape)
        self.put(name, value)
        return torch.tensor(value)

    def results(self, **values):
        for name, value in values.items():
            self.put(name, value)

    def accumulated(self, name, grad):
        """A parameter gradient: the start is random, the result is start + grad."""
        self.put(name, self.normal(name + "_start", *grad.shape) + grad)


def matmul(N=7, C=13, OC=19):
    case = Case("matmul", 1)
    inp, weight, bias = case.normal("inp", N, C), case.normal("weight", OC, C), case.normal("bias", OC)
    dout = case.normal("dout", N, OC).detach()
    out = F.linear(inp, weight, bias)
    dinp, dweight, dbias = torch.autograd.grad(out, (inp, weight, bias), dout)
    case.results(out=out, out_no_bias=F.linear(inp, weight), dinp=dinp)
    case.accumulated("dweight", dweight)
    case.accumulated("dbias", dbias)
    return case.tensors


def matmul_gelu(N=7, C=13, OC=19):
    case = Case("matmul_gelu", 2)
    inp, weight = case.normal("inp", N, C), case.normal("weight", OC, C, scale=0.4)
    bias = case.normal("bias", OC)
    pre = F.linear(inp, weight, bias)
    case.results(pre=pre, out=F.gelu(pre, approximate="tanh"))
    # backward: pre (N, C) -> gelu -> matmul with weight (OC, C)
    fed, dout = case.normal("fed", N, C, scale=2.0), case.normal("dout", N, OC).detach()
    out = F.linear(F.gelu(fed, approximate="tanh"), weight)
    case.results(dpre=torch.autograd.grad(out, fed, dout)[0])
    return case.tensors


def swiglu(N=7, F_=11):
    case = Case("swiglu", 3)
    gate_up = case.normal("gate_up", N, 2 * F_, scale=2.0)
    dout = case.normal("dout", N, F_).detach()
    out = F.silu(gate_up[:, :F_]) * gate_up[:, F_:]
    case.results(out=out, dgate_up=torch.autograd.grad(out, gate_up, dout)[0])
    return case.tensors


def add(n=47):
    case = Case("add", 24)
    a, b = case.normal("a", n), case.normal("b", n, scale=100.0)
    case.results(out=a + b)
    return case.tensors


def embed(N=21, C=13, V=17, T=9):
    case = Case("embed", 4)
    token, pos = case.ints("token", 0, V, N), case.ints("pos", 0, T, N)
    wte, wpe = case.normal("wte", V, C), case.normal("wpe", T, C)
    dout = case.normal("dout", N, C).detach()
    out = F.embedding(token, wte) + F.embedding(pos, wpe)
    dwte, dwpe = torch.autograd.grad(out, (wte, wpe), dout)
    case.results(out=out, out_no_pos=F.embedding(token, wte))
    case.accumulated("dwte", dwte)
    case.accumulated("dwpe", dwpe)
    return case.tensors


def uneven_rows(N):
    """Scales of the rows of a norm's input: one so small that eps matters, and one of zeros, where only eps
    is left."""
    size = np.ones(N)
    size[2], size[4] = 1e-3, 0
    return size


def norm(name, seed, N=7, C=37, eps=EPS):
    """The sum of a and b is rounded to float32 before it is normalised, as an op with a float32 stream must
    do."""
    case = Case(name, seed)
    size = uneven_rows(N)[:, None]
    a, b = case.normal("a", N, C, shift=0.3 * size, scale=size), case.normal("b", N, C, scale=2 * size)
    weight, bias = case.normal("weight", C, shift=1.0, scale=0.5), case.normal("bias", C)
    dout, dresid = case.normal("dout", N, C).detach(), case.normal("dresid", N, C).detach()
    x = (a + b).detach().float().double().requires_grad_()
    if name == "layernorm":
        mean = x.mean(1, keepdim=True)
        rstd = 1 / torch.sqrt(x.var(1, unbiased=False, keepdim=True) + eps)
        out = F.layer_norm(x, (C,), weight, bias, eps)
        case.results(mean=mean[:, 0])
        leaves = (x, weight, bias)
    else:
        rstd = 1 / torch.sqrt((x * x).mean(1, keepdim=True) + eps)
        out = x * rstd * weight
        leaves = (x, weight)
    grads = torch.autograd.grad(out, leaves, dout)
    case.results(sum=x, rstd=rstd[:, 0], out=out, dinp=grads[0], dinp_resid=grads[0] + dresid)
    case.accumulated("dweight", grads[1])
    if name == "layernorm":
        case.accumulated("dbias", grads[2])
    return case.tensors


def head_norm(N=7, heads=3, D=10, ld=41, eps=EPS):
    """Rows are ld elements apart; the first heads*D of each are the vectors, and the rest is not the op's
    to touch."""
    case = Case("head_norm", 7)
    inp = case.normal("inp", N, ld, scale=uneven_rows(N)[:, None])
    weight, dout = case.normal("weight", D, shift=1.0, scale=0.5), case.normal("dout", N, ld).detach()
    x = inp[:, :heads * D].reshape(N, heads, D)
    rstd = 1 / torch.sqrt((x * x).mean(2, keepdim=True) + eps)
    out = (x * rstd * weight).reshape(N, heads * D)
    dinp, dweight = torch.autograd.grad(out, (inp, weight), dout[:, :heads * D])
    case.results(out=out, rstd=rstd[:, :, 0], dinp=dinp[:, :heads * D])
    case.accumulated("dweight", dweight)
    return case.tensors


def rope(N=7, heads=3, D=10, ld=41, theta=10000.0):
    """As Transformers writes it for LLaMA: x * cos + rotate_half(x) * sin, cos and sin of cat(freqs,
    freqs)."""
    case = Case("rope", 8)
    inp, pos = case.normal("x", N, ld), case.ints("pos", 0, 300, N)
    dout = case.normal("dout", N, ld).detach()
    freqs = pos[:, None].double() * theta ** (-torch.arange(0, D, 2).double() / D)
    angle = torch.cat((freqs, freqs), 1)[:, None, :]
    x = inp[:, :heads * D].reshape(N, heads, D)
    half = torch.cat((-x[..., D // 2:], x[..., :D // 2]), -1)
    out = (x * angle.cos() + half * angle.sin()).reshape(N, heads * D)
    dinp = torch.autograd.grad(out, inp, dout[:, :heads * D])[0]
    case.results(out=out, dinp=dinp[:, :heads * D])
    return case.tensors


def attention(name, seed, B, Tq, Tk, H, G, D, documents=None):
    """q, k and v are packed: rows of (H + 2G) * D when Tq == Tk; otherwise q apart, k and v in rows of 2G *
    D. documents: for each row of the batch the lengths of its documents; a query attends to its own."""
    case = Case(name, seed)
    if Tq == Tk:
        packed = case.normal("qkv", B, Tq, H + 2 * G, D)
        q, k, v = packed.split((H, G, G), 2)
    else:
        q, packed = case.normal("q", B, Tq, H, D), case.normal("kv", B, Tk, 2 * G, D)
        k, v = packed.split((G, G), 2)
    k, v = (x.repeat_interleave(H // G, 2).transpose(1, 2) for x in (k, v))  # (B, H, Tk, D)
    score = q.transpose(1, 2) @ k.transpose(2, 3) / D ** 0.5
    seen = torch.arange(Tk)[None, :] <= torch.arange(Tq)[:, None] + (Tk - Tq)
    if documents:
        number = torch.tensor([[i for i, n in enumerate(row) for _ in range(n)] for row in documents])  # (B, Tq)
        seen = (seen & (number[:, :, None] == number[:, None, :]))[:, None]
        first = [[sum(row[:i]) for i, n in enumerate(row) for _ in range(n)] for row in documents]
        case.put("first", torch.tensor(first, dtype=torch.int32))
    score = score.masked_fill(~seen, -np.inf)
    out = (F.softmax(score, 3) @ v).transpose(1, 2)
    case.results(out=out, lse=torch.logsumexp(score, 3))
    if Tq == Tk:
        dout = case.normal("dout", B, Tq, H, D).detach()
        case.results(dqkv=torch.autograd.grad(out, packed, dout)[0])
    return case.tensors


def xent(N=9, V=31, scale=0.125):
    case = Case("xent", 20)
    logits, target = case.normal("logits", N, V, scale=3.0), case.ints("target", 0, V, N)
    target[2], target[7] = -1, -1
    case.put("target", target)
    loss = F.cross_entropy(logits, target, ignore_index=-1, reduction="none")
    case.results(loss=loss, dlogits=torch.autograd.grad(loss.sum() * np.float64(scale), logits)[0])
    return case.tensors


def adamw(name, seed, step, weight_decay, n=29):
    """One update by torch.optim.AdamW from a random state."""
    case = Case(name, seed)
    weight, m = case.normal("weight", n), case.normal("m", n, scale=0.1)
    v, grad = case.normal("v_root", n, scale=0.1).detach() ** 2, case.normal("grad", n)
    v = v.float().double()
    case.put("v", v)
    grad_scale = single(0.37)
    if step == 1:
        m, v = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
        case.results(m=m, v=v)
    param = torch.nn.Parameter(weight.detach().clone())
    optim = torch.optim.AdamW([param], lr=single(1e-3), betas=(single(0.9), single(0.95)), eps=single(1e-8),
                              weight_decay=single(weight_decay))
    optim.state[param] = {"step": torch.tensor(float(step - 1)), "exp_avg": m.detach().clone(),
                          "exp_avg_sq": v.clone()}
    param.grad = grad.detach() * grad_scale
    optim.step()
    state = optim.state[param]
    case.results(weight_after=param, m_after=state["exp_avg"], v_after=state["exp_avg_sq"])
    return case.tensors


def sum_squares(n=1003):
    case = Case("sum_squares", 23)
    x = case.normal("x", n)
    case.results(sum=(x * x).sum().reshape(1))
    return case.tensors


if __name__ == "__main__":
    save("ops_matmul", {**matmul(), **matmul_gelu(), **swiglu(), **embed(), **sum_squares(), **add()})
    save("ops_norm", {**norm("layernorm", 5), **norm("rmsnorm", 6), **head_norm(), **rope()})
    save("ops_loss", {**xent(), **adamw("adamw_first", 21, 1, 0.1), **adamw("adamw_later", 22, 10, 0.0)})
    save("ops_attention", {**attention("grouped", 10, B=2, Tq=7, Tk=7, H=6, G=2, D=10),
                           **attention("cached", 11, B=2, Tq=3, Tk=11, H=6, G=2, D=10),
                           **attention("one", 12, B=1, Tq=1, Tk=75, H=2, G=1, D=10)})
    save("ops_attention_long", attention("long", 13, B=1, Tq=150, Tk=150, H=2, G=1, D=6))
    save("ops_attention_documents", attention("documents", 15, B=2, Tq=23, Tk=23, H=4, G=2, D=6,
                                              documents=[(5, 1, 13, 4), (9, 14)]))
    save("ops_attention_wide", attention("wide", 14, B=1, Tq=19, Tk=19, H=2, G=2, D=64))
