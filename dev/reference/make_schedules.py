#!/usr/bin/env python3
"""Writes test/fixtures/schedules.safetensors: learning rates of 70 steps, as PyTorch's schedulers give them.

Warm-up is LinearLR, the decays are CosineAnnealingLR, LinearLR and ExponentialLR, each an object that goes
from one rate to the next. PyTorch has no class for 1/sqrt and 1-sqrt; there LambdaLR gets the papers' formulas
(arXiv 1706.03762, section 5.3; arXiv 2405.18392). Rates are stored as float32.

Run: /usr/bin/python3 dev/reference/make_schedules.py   (PyTorch 1.13 or later, NumPy)
"""
import numpy as np
import torch
from torch.optim import lr_scheduler

from fixture import save

LR, MIN_LR, WARMUP, START, END = 6e-4, 6e-5, 10, 40, 70


def rates(n, scheduler, *args, **kwargs):
    """The first n rates that the scheduler sets, starting from LR."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    curve, out = scheduler(optimizer, *args, **kwargs), []
    for _ in range(n):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        curve.step()
    return out


def cosine(n):
    return rates(n, lr_scheduler.CosineAnnealingLR, T_max=n, eta_min=MIN_LR)


def linear(n):
    return rates(n, lr_scheduler.LinearLR, start_factor=1.0, end_factor=MIN_LR / LR, total_iters=n)


def exponential(n):
    return rates(n, lr_scheduler.ExponentialLR, gamma=(MIN_LR / LR) ** (1 / n))


def one_minus_sqrt(n):
    return rates(n, lr_scheduler.LambdaLR, lambda s: (MIN_LR + (LR - MIN_LR) * (1 - (s / n) ** 0.5)) / LR)


def main():
    warm = rates(WARMUP, lr_scheduler.LinearLR, start_factor=1 / WARMUP, end_factor=1.0, total_iters=WARMUP - 1)
    stable = warm + [LR] * (START - WARMUP)
    noam = lambda s: WARMUP ** 0.5 * min((s + 1) ** -0.5, (s + 1) * WARMUP ** -1.5)
    curves = {
        "cosine": warm + cosine(END - WARMUP),
        "linear": warm + linear(END - WARMUP),
        "invsqrt": rates(END, lr_scheduler.LambdaLR, noam),
        "constant": warm + [LR] * (END - WARMUP),
        "wsd_linear": stable + linear(END - START),
        "wsd_cosine": stable + cosine(END - START),
        "wsd_exponential": stable + exponential(END - START),
        "wsd_sqrt": stable + one_minus_sqrt(END - START),
    }
    for name, curve in curves.items():
        assert len(curve) == END, name
    save("schedules", {name: np.array(curve) for name, curve in curves.items()},
         {"lr": LR, "min_lr": MIN_LR, "warmup": WARMUP, "decay_start": START, "decay_steps": END})


if __name__ == "__main__":
    main()
