#!/usr/bin/env python3
"""Writes test/fixtures/optim.safetensors and optim_8bit.safetensors: six updates by every optimizer.

SGD, momentum, Adam and AdamW are torch.optim's. Adafactor, Lion, Muon, NorMuon (arXiv
2510.05491), cautious decay (arXiv 2510.12402) and 8-bit AdamW follow their papers and
the reference implementations (Transformers' Adafactor, arXiv 2302.06675 algorithm 2, Jordan's Newton-Schulz with
the scale of arXiv 2502.16982, bitsandbytes' code book). All in float64 from float32 inputs; results are rounded to
float32 once. Run: /usr/bin/python3 dev/reference/make_optim.py   (PyTorch, NumPy)
"""
import numpy as np
import torch

from fixture import save

torch.set_num_threads(1)
single = lambda x: float(np.float32(x))
STEPS = 6
LR = [single(0.03 * (1 + 0.5 * k)) for k in range(STEPS)]  # not constant
BETA1, BETA2, EPS = single(0.9), single(0.95), single(1e-8)


def by_torch(make, keys):
    """A class of torch.optim: an update function, and the names of its state."""
    def start(weight, decay):
        param = torch.nn.Parameter(weight.clone())
        optim = make([param], decay)

        def update(grad, step, lr):
            for group in optim.param_groups:
                group["lr"] = lr
            param.grad = grad.clone()
            optim.step()
            return param.detach().clone()
        return update, lambda: [optim.state[param][key] for key in keys]
    return start


def adafactor(relative):
    """Transformers' Adafactor: scale_parameter, clip_threshold 1, decay_rate -0.8, eps (1e-30, 1e-3), no beta1."""
    def start(weight, decay):
        w = weight.clone()
        matrix = w.dim() == 2
        state = [torch.zeros(w.shape[0]), torch.zeros(w.shape[1])] if matrix else [torch.zeros_like(w)]
        state = [s.double() for s in state]

        def rms(x):
            return x.norm(2) / x.numel() ** 0.5

        def update(grad, step, lr):
            nonlocal w
            rel = single(min(1e-2, 1 / step ** 0.5)) if relative else lr  # a float in the program
            lr = max(1e-3, rms(w).item()) * rel
            beta2 = 1 - step ** -0.8
            square = grad ** 2 + 1e-30
            if matrix:
                state[0].mul_(beta2).add_(square.mean(dim=-1), alpha=1 - beta2)
                state[1].mul_(beta2).add_(square.mean(dim=-2), alpha=1 - beta2)
                row = (state[0] / state[0].mean(dim=-1, keepdim=True)).rsqrt().unsqueeze(-1)
                u = row * state[1].unsqueeze(-2).rsqrt() * grad
            else:
                state[0].mul_(beta2).add_(square, alpha=1 - beta2)
                u = state[0].rsqrt() * grad
            u = u / max(1.0, rms(u).item()) * lr
            w = w - decay * lr * w - u
            return w
        return update, lambda: state
    return start


def lion(weight, decay):
    w, m = weight.clone(), torch.zeros_like(weight)

    def update(grad, step, lr):
        nonlocal w, m
        c = BETA1 * m + (1 - BETA1) * grad
        w = w - lr * (torch.sign(c) + decay * w)
        m = BETA2 * m + (1 - BETA2) * grad
        return w
    return update, lambda: [m]


def newton_schulz(G, steps=5):
    a, b, c = single(3.4445), single(-4.7750), single(2.0315)
    X = G.T if G.shape[0] > G.shape[1] else G
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.shape[0] > G.shape[1] else X


MOMENTUM = single(0.95)


ROW_BETA2 = single(0.9)


def apply(w, step, lr, decay, cautious):
    """w after a step of this size and decay; cautious: which spares the elements that the step drives away from 0."""
    mask = (step * w >= 0).double() if cautious else torch.ones_like(w)
    return w - lr * decay * mask * w - step


def adamw_cautious(weight, decay):
    w, m, v = weight.clone(), torch.zeros_like(weight), torch.zeros_like(weight)

    def update(grad, step, lr):
        nonlocal w
        m.mul_(BETA1).add_(grad, alpha=1 - BETA1)
        v.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
        mhat, vhat = m / (1 - BETA1 ** step), v / (1 - BETA2 ** step)
        w = apply(w, lr * mhat / (vhat.sqrt() + EPS), lr, decay, True)
        return w
    return update, lambda: [m, v]


def muon_like(rows, cautious):
    """Muon; rows: each divided by the root of its running mean square, then all scaled to the norm before."""
    def start(weight, decay):
        w, m, v = weight.clone(), torch.zeros_like(weight), torch.zeros(weight.shape[0]).double()

        def update(grad, step, lr):
            nonlocal w, m, v
            m = m.lerp(grad, 1 - MOMENTUM)
            O = newton_schulz(grad.lerp(m, MOMENTUM))
            if rows:
                norm = O.norm()
                v = ROW_BETA2 * v + (1 - ROW_BETA2) * (O * O).mean(1)
                O = O / (v.sqrt() + EPS)[:, None]
                O = O * norm / O.norm()
            w = apply(w, lr * 0.2 * max(w.shape) ** 0.5 * O, lr, decay, cautious)
            return w
        return update, lambda: [m, v] if rows else [m]
    return start


def case(name, seed, start, shape, decay):
    """Weights, gradients of six steps, the weights after each, and the state after the last."""
    rng = np.random.default_rng(seed)
    draw = lambda *s, scale=1.0: torch.tensor((scale * rng.standard_normal(s)).astype(np.float32).astype(np.float64))
    weight, grads = draw(*shape, scale=0.5), draw(STEPS, *shape)
    grads[2].view(-1)[0] = 0  # an element without a gradient
    update, state = start(weight, single(decay))
    after = torch.stack([update(grads[k], k + 1, LR[k]) for k in range(STEPS)])
    out = {f"{name}/weight": weight, f"{name}/grad": grads, f"{name}/after": after,
           f"{name}/decay": np.array([single(decay)])}
    for k, s in enumerate(state()):
        out[f"{name}/state{k}"] = s
    return out


def cases():
    sgd = by_torch(lambda p, d: torch.optim.SGD(p, lr=1.0, weight_decay=d), [])
    momentum = by_torch(lambda p, d: torch.optim.SGD(p, lr=1.0, momentum=BETA1, weight_decay=d), ["momentum_buffer"])
    adam = by_torch(lambda p, d: torch.optim.Adam(p, lr=1.0, betas=(BETA1, BETA2), eps=EPS, weight_decay=d),
                    ["exp_avg", "exp_avg_sq"])
    adamw = by_torch(lambda p, d: torch.optim.AdamW(p, lr=1.0, betas=(BETA1, BETA2), eps=EPS, weight_decay=d),
                     ["exp_avg", "exp_avg_sq"])
    out = {"lr": np.array(LR)}
    for i, (name, start) in enumerate([("sgd", sgd), ("momentum", momentum), ("adam", adam), ("adamw", adamw),
                                       ("lion", lion), ("adafactor", adafactor(False)),
                                       ("adafactor_relative", adafactor(True))]):
        out.update(case(f"{name}/matrix", 10 * i, start, (5, 9), 0.1))
        out.update(case(f"{name}/vector", 10 * i + 1, start, (13,), 0.0))
    out.update(case("muon/wide", 91, muon_like(False, False), (6, 11), 0.1))
    out.update(case("muon/tall", 92, muon_like(False, False), (10, 7), 0.0))
    out.update(case("muon/square", 93, muon_like(False, False), (8, 8), 0.1))
    out.update(case("normuon/wide", 94, muon_like(True, False), (6, 11), 0.1))
    out.update(case("normuon/tall", 95, muon_like(True, False), (10, 7), 0.0))
    out.update(case("adamw_cautious/matrix", 96, adamw_cautious, (5, 9), 0.1))
    out.update(case("muon_cautious/tall", 97, muon_like(False, True), (10, 7), 0.1))
    out.update(case("normuon_cautious/tall", 98, muon_like(True, True), (10, 7), 0.1))
    return out


def code_book(signed):
    """bitsandbytes' create_dynamic_map(signed, 7, 8)."""
    data = []
    for i in range(7):
        items = 2 ** i + 1 if signed else 2 ** (i + 1) + 1
        edges = np.linspace(0.1, 1, items)
        means = 10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2
        data += means.tolist() + ((-means).tolist() if signed else [])
    return np.sort(np.array(data + [0.0, 1.0]))


def nearest(book, x):
    return np.abs(x[:, None] - book[None, :]).argmin(1)


def pack(codes):
    """Four codes in one int32, the first in the lowest byte."""
    return np.frombuffer(codes.astype(np.uint8).tobytes(), "<i4")


def adamw8bit(n=3 * 1400, block=2048, step=4, decay=single(0.1)):
    """One update from a random state of more than two blocks, the last one not full."""
    rng = np.random.default_rng(99)
    f32 = lambda x: x.astype(np.float32).astype(np.float64)
    books = f32(code_book(True)), f32(code_book(False))
    weight, grad = f32(0.5 * rng.standard_normal(n)), f32(rng.standard_normal(n) * 10.0 ** rng.uniform(-4, 0, n))
    scale = [f32(np.array([0.3, 0.002, 1.5])), f32(np.array([0.4, 0.0, 0.7]))]  # a block whose v is all 0
    code = [rng.integers(0, 256, n), rng.integers(0, 256, n)]
    out = {"weight": weight, "grad": grad, "books/m": books[0], "books/v": books[1], "lr": np.array([LR[0]])}
    value = []
    for k in range(2):
        value.append(books[k][code[k]] * np.repeat(scale[k], block)[:n])
        out.update({f"code{k}": pack(code[k]), f"scale{k}": scale[k]})
    m = BETA1 * value[0] + (1 - BETA1) * grad
    v = BETA2 * value[1] + (1 - BETA2) * grad ** 2
    update = m / (1 - BETA1 ** step) / (np.sqrt(v / (1 - BETA2 ** step)) + EPS)
    out["weight_after"] = weight - LR[0] * (update + decay * weight)
    for k, x in enumerate([m, v]):
        top = np.array([np.abs(x[b:b + block]).max() for b in range(0, n, block)])
        codes = nearest(books[k], x / np.repeat(top, block)[:n])
        if k == 1:
            codes = np.maximum(codes, (x > 0).astype(int))  # a code of a number above 0 stays above 0
        out.update({f"code{k}_after": pack(codes), f"scale{k}_after": top})
    return out


if __name__ == "__main__":
    save("optim", cases(), {"beta1": BETA1, "beta2": BETA2, "eps": EPS, "momentum": MOMENTUM,
                           "row_beta2": ROW_BETA2})
    save("optim_8bit", adamw8bit(), {"beta1": BETA1, "beta2": BETA2, "eps": EPS, "decay": single(0.1), "step": 4})
