"""Errors of training programs, to be planted in dump_torch.py's program or in a run's settings: which tensor must
build/diff name first? doc/diff.md has the table of what check_planted.py finds.

ERRORS: a row is an error and its places. A place is (base, unit, plant, first): the run it is planted in
(check_planted.py has them), the unit, what changes, and the tensor to be named first, a regular expression. What
changes is a function of (program, unit), settings of build/train ("ours"), or a bug of test/mutations ("mutation").
"""
import re

import torch
import torch.nn.functional as F

FIRST, LAST, HEAD = "layers.0.", "layers.2.", "final_norm"


# ---- how an error gets in

def swap(method, new):
    """program.method(..., at) becomes new(program, old method, ..., at) where `at` begins with the unit's name."""
    def plant(program, unit):
        old = getattr(program, method)
        setattr(program, method, lambda *a: new(program, old, *a) if str(a[-1]).startswith(unit) else old(*a))
    return plant


def always(method, new, **how):
    """program.method(...) becomes new(program, old method, ...); `how`: attributes of the program."""
    def plant(program, unit):
        old = getattr(program, method)
        setattr(program, method, lambda *a: new(program, old, *a))
        for name, value in how.items():
            setattr(program, name, value)
    return plant


def gradient(row, change, micros=1):
    """After each micro-batch k the gradient of a row, its name's end, is change(gradient, k, memory)."""
    def plant(program, unit):
        x, memory = program.p[unit + row], {}

        def accumulated(k):
            x.grad = change(x.grad, k, memory)
        program.accumulated, program.micros = accumulated, micros
    return plant


class Backward(torch.autograd.Function):
    """y, with change(dy, *saved) for its gradient to x."""
    @staticmethod
    def forward(ctx, x, y, change, *saved):
        ctx.change = change
        ctx.save_for_backward(*saved)
        return y

    @staticmethod
    def backward(ctx, dy):
        return (ctx.change(dy, *ctx.saved_tensors), None, None) + (None,) * len(ctx.saved_tensors)


# ---- forward

def norm_with(variance):
    """The norm written out, with variance(x) for the mean square of x and eps."""
    def norm(program, old, x, at):
        layer = program.m["norm"] == "layernorm"
        if layer:
            x = x - x.mean(-1, keepdim=True)
        y = x * variance(x, program.m["norm_eps"]) * program.p[at + ".weight"]
        return y + program.p[at + ".bias"] if layer and at + ".bias" in program.p else y
    return norm


def mean_square(x):
    return (x * x).mean(-1, keepdim=True)


def next_key(program, old, T, window, at):
    return old(T, window, at) & ~torch.ones(T, T).diagonal(1).diag_embed(1).bool()


def smaller_eps(x, eps):
    return torch.rsqrt(mean_square(x) + eps / 10)


def over_n_minus_1(x, eps):
    return torch.rsqrt(mean_square(x) * x.shape[-1] / (x.shape[-1] - 1) + eps)


def eps_outside(x, eps):
    return 1 / (mean_square(x).sqrt() + eps)


def interleaved(program, old, x, theta, at):
    T, D = x.shape[1], x.shape[3]
    angle = (torch.arange(T)[:, None] * theta ** (-torch.arange(0, D, 2).double() / D))[:, None, :]
    even, odd, c, s = x[..., 0::2], x[..., 1::2], angle.cos().float(), angle.sin().float()
    return torch.stack((even * c - odd * s, odd * c + even * s), -1).flatten(-2)


def rotated_from_one(program, old, x, theta, at):
    program.pos += 1
    turned = old(x, theta, at)
    program.pos -= 1
    return turned


def angles_in_bf16(program, old, x, theta, at):
    T, D = x.shape[1], x.shape[3]
    angle = torch.arange(T)[:, None] * (theta ** (-torch.arange(0, D, 2).double() / D)).bfloat16().double()
    angle = torch.cat((angle, angle), 1)[:, None, :]
    half = torch.cat((-x[..., D // 2:], x[..., :D // 2]), -1)
    return x * angle.cos().float() + half * angle.sin().float()


def narrow(x, bits):
    """x with so many bits of significand; its gradient passes."""
    scale = torch.exp2(torch.floor(torch.log2(x.detach().abs().clamp_min(1e-38))) - bits + 1)
    return x + (torch.round(x.detach() / scale) * scale - x.detach())


def tf32(program, old, x, at):
    return F.linear(narrow(x, 11), narrow(program.p[at + ".weight"], 11), program.p.get(at + ".bias"))


def sums_in_bf16(program, old, x, at):
    """Partial sums of 16 products are added in bf16."""
    y, total = old(x, at), 0
    for a, b in zip(x.detach().split(16, -1), program.p[at + ".weight"].detach().split(16, 1)):
        total = (total + F.linear(a, b)).bfloat16().float()
    bias = program.p.get(at + ".bias")
    return y + (total + (0 if bias is None else bias.detach()) - y.detach())


def stale(program, old, x, at):
    """The input is still that of the micro-batch before."""
    before, program.before = getattr(program, "before", x.detach()), x.detach()
    return old(x + (before - x.detach()), at)


def dropout(keep):
    """Drops a tenth, the same in every program; `keep` divides what stays."""
    def dropped(program, old, x, at):
        seed = torch.Generator().manual_seed(sum(map(ord, at)))
        return x * (torch.rand(x.shape, generator=seed) >= 0.1) / keep
    return dropped


honest_dropout = swap("dropped", dropout(0.9))


# ---- backward

def statistics_constant(program, old, x, at):
    variance = norm_with(lambda y, eps: torch.rsqrt(mean_square(y) + eps).detach())
    return variance(program, old, x, at)


def gelu_without_cubic(program, old, x, at):
    t = torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)).detach()
    slope = 0.5 * (1 + t) + 0.5 * x.detach() * (1 - t * t) * 0.7978845608
    return Backward.apply(x, old(x, at).detach(), lambda dy, s: dy * s, slope)


def softmax_without_sum(program, old, score, at):
    p = old(score, at).detach()
    return Backward.apply(score, p, lambda dp, p: p * (dp - 0.999 * (dp * p).sum(-1, keepdim=True)), p)


def branch_times(factor):
    def linear(program, old, x, at):
        return old(Backward.apply(x, x.detach().clone(), lambda dy: dy * factor), at)
    return linear


def first_of_the_group(program, old, y, at):
    n = program.m["heads"] // y.shape[2]
    return torch.stack([y] + [y.detach()] * (n - 1), 3).flatten(2, 3)


def repeated(program, old, y, at):
    return y.repeat(1, 1, program.m["heads"] // y.shape[2], 1)


# ---- loss

def minus_one(program, old, loss, counted, all_counted):
    return (loss * counted).sum() / (all_counted.sum() - 1)


def one_uncounted(program, old, loss, counted, all_counted):
    but = counted.clone()
    but[1, 7] = 0
    return (loss * but).sum() / (all_counted.sum() - (counted - but).sum())


def mean_of_means(program, old, loss, counted, all_counted):
    return (loss * counted).sum() / counted.sum() / program.micros


def sum_of_means(program, old, loss, counted, all_counted):
    return (loss * counted).sum() / counted.sum()


def all_positions(program, old, loss, counted, all_counted):
    return (loss * counted).sum() / all_counted.numel()


def z_loss(program, old, logits, target):
    z = 1e-4 * torch.logsumexp(logits, -1) ** 2
    return old(logits, target) + (z - z.detach())


def smoothed(program, old, logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none",
                           label_smoothing=1e-4).view(target.shape)


def unshifted(program, old, logits, target):
    return old(logits, torch.cat((target[:, :1], target[:, :-1]), 1))


# ---- gradients

def last_only(g, k, memory):
    """A gradient that each micro-batch overwrites."""
    before, memory["sum"] = memory.get("sum", torch.zeros_like(g)), g.clone()
    return g - before if k else g


def added_in_bf16(g, k, memory):
    total = (memory.get("low", 0) + g - memory.get("all", 0)).bfloat16().float()
    memory["low"], memory["all"] = total, total.clone()
    return total


def without_last_rows(g, k, memory):
    g = g.clone()
    g[-1] = 0
    return g


def head_times(times):
    """The tied head's part of the embedding's gradient, so many times."""
    def plant(program, unit):
        logits = program.logits

        def changed(token):
            out, w = logits(token), program.p["embed.tokens.weight"]
            x = program.kept["forward.head.norm"].detach()
            extra = F.linear(x, w)
            return out + (times - 1) * (extra - extra.detach())
        program.logits = changed
    return plant


def overwritten(program, unit):
    """The embedding's gradient is that of a token's last place."""
    def accumulated(k):
        x, d = program.p["embed.tokens.weight"], program.streams["backward.layers.0"].grad.flatten(0, 1)
        token = program.token.flatten()
        x.grad.index_add_(0, token, -d)
        last = {int(t): i for i, t in enumerate(token)}
        rows = torch.tensor(list(last)), torch.tensor(list(last.values()))
        x.grad.index_add_(0, rows[0], d[rows[1]])
    logits = program.logits

    def remember(token):
        program.token = token
        return logits(token)
    program.logits, program.accumulated = remember, accumulated


# ---- the update

def clip_scaled(program, old):
    norm = 65536 * torch.sqrt(sum((x.grad.double() ** 2).sum() for x in program.p.values()))
    return float(min(1.0, program.o["clip"] / norm))


def clip_matrices(program, old):
    norm = torch.sqrt(sum((x.grad.double() ** 2).sum() for x in program.p.values() if x.ndim == 2))
    return float(min(1.0, program.o["clip"] / norm))


def adamw(**change):
    """The optimizer with other settings, each a function of its own value."""
    def optimizer(program, old):
        optim = old()
        for group in optim.param_groups:
            for key, new in change.items():
                group[key] = new(group[key])
        return optim
    return always("optimizer", optimizer)


def adam_step(begin):
    """Its count of updates begins at `begin`."""
    def optimizer(program, old):
        optim = old()
        for x in program.p.values():
            optim.state[x] = {"step": torch.tensor(float(begin)), "exp_avg": torch.zeros_like(x),
                              "exp_avg_sq": torch.zeros_like(x)}
        return optim
    return always("optimizer", optimizer)


def decay_all(program, old):
    optim = old()
    for group in optim.param_groups:
        group["weight_decay"] = program.o["weight_decay"]
    return optim


def l2(program, old):
    for x in program.p.values():
        if x.ndim == 2:
            x.grad += program.o["weight_decay"] * x.detach()
    optim = old()
    for group in optim.param_groups:
        group["weight_decay"] = 0
    return optim


def then(change):
    """After the step of each weight: change(program, x, weight before, optimizer)."""
    def optimizer(program, old):
        optim, step = old(), None
        step = optim.step

        def changed():
            before = {name: x.detach().clone() for name, x in program.p.items()}
            step()
            with torch.no_grad():
                for name, x in program.p.items():
                    change(program, x, before[name], optim)
        optim.step = changed
        return optim
    return always("optimizer", optimizer)


def decay_last(program, x, before, optim):
    if x.ndim == 2:
        x -= program.lr * program.o["weight_decay"] * (x - before * (1 - program.lr * program.o["weight_decay"]))


def eps_in_root(program, x, before, optim):
    shrink = 1 - program.lr * program.o["weight_decay"] * (x.ndim == 2)
    x.copy_(before * shrink - program.lr * x.grad / torch.sqrt(x.grad ** 2 + program.o["eps"]))


def last_rows_stay(program, x, before, optim):
    if x.ndim == 2:
        x[-1] = before[-1]


# ---- the table

def layers(base, plant, first, units=(FIRST, LAST)):
    return [(base, unit, plant, first.replace("#.", re.escape(unit)).replace("#", re.escape(unit[:-1]) + "$"))
            for unit in units]


def mutation(name, base, first):
    return [(base, "mutation", name, first)]


def both(plant, first, bases=("gpt", "llama")):
    return [(base, "", plant, first) for base in bases]


def ours(first, *options, bases=("gpt", "llama")):
    return [(base, "ours", list(options), first) for base in bases]


MASKED = "gpt masked", "llama masked"  # some targets are not counted
STATE, UPDATED, TOP = r"state\.exp_avg\.", r"updated\.", r"backward\.head"

ERRORS = {
    # forward
    "gelu: erf form for tanh": layers("gpt", swap("gelu", lambda p, old, x, at: F.gelu(x)), r"forward\.#.act"),
    "mask: a query sees the next key": layers("gpt", swap("hidden", next_key), r"forward\.#.attn")
    + layers("llama", swap("hidden", next_key), r"forward\.#.attn")
    + mutation("attention_mask_off_by_one", "llama", r"forward\.layers\.0\.attn"),
    "window: one key more": layers(
        "llama", swap("hidden", lambda p, old, T, w, at: old(T, w + 1, at)), r"forward\.#.attn")
    + ours(r"forward\.layers\.0\.attn", "--model.window=12", bases=["llama"]),
    "rope: theta 500,000 for 10,000": layers("llama", swap("rotate", lambda p, old, x, theta, at: old(x, 5e5, at)),
                                             r"forward\.#.q")
    + ours(r"forward\.layers\.0\.q", "--model.rope_theta=500000", bases=["llama"]),
    "rope: interleaved pairs": layers("llama", swap("rotate", interleaved), r"forward\.#.q"),
    "rope: angles in bf16": layers("llama", swap("rotate", angles_in_bf16), r"forward\.#.q"),
    "positions count from 1": layers("llama", swap("rotate", rotated_from_one), r"forward\.#.q", [FIRST, LAST])
    + [("gpt", "embed", swap("positions", lambda p, old, T, at: old(T, at).roll(-1, 1)), r"forward\.embed\.out")],
    "norm: eps 1e-6 for 1e-5": layers("gpt", swap("norm", norm_with(smaller_eps)), r"forward\.#.norm1", [FIRST])
    + [("llama", HEAD, swap("norm", norm_with(smaller_eps)), r"forward\.head\.norm")]
    + ours(r"forward\.layers\.0\.norm1", "--model.norm_eps=1e-6"),
    "norm: variance over N - 1": layers("gpt", swap("norm", norm_with(over_n_minus_1)), r"forward\.#.norm1")
    + [("llama", HEAD, swap("norm", norm_with(over_n_minus_1)), r"forward\.head\.norm")],
    "norm: eps outside the root": layers("llama", swap("norm", norm_with(eps_outside)), r"forward\.#.norm1"),
    "attention: scale 1 / sqrt(D + 1)": layers(
        "gpt", swap("softmax", lambda p, old, s, at: old(s * (p.D / (p.D + 1)) ** 0.5, at)), r"forward\.#.attn"),
    "attention: probabilities in bf16": layers("gpt", swap("softmax", lambda p, old, s, at: narrow(old(s, at), 8)),
                                               r"forward\.#.attn", [FIRST])
    + layers("llama", swap("softmax", lambda p, old, s, at: narrow(old(s, at), 8)), r"forward\.#.attn", [LAST]),
    "grouped heads: repeated, not interleaved": layers("llama", swap("spread", repeated), r"forward\.#.attn"),
    "swiglu: gate and up exchanged": layers("llama", swap("swiglu", lambda p, old, gate, up, at: old(up, gate, at)),
                                            r"forward\.#.act"),
    "matmul: TF32 in one layer": [(base, unit + "ffn.up", swap("linear", tf32), rf"forward\.{re.escape(unit)}{name}$")
                                  for base, unit, name in (("gpt", FIRST, "pre"), ("llama", LAST, "up"))],
    "matmul: sums in bf16": [(base, unit + "ffn.down", swap("linear", sums_in_bf16), rf"forward\.{re.escape(unit)}out")
                             for base, unit in (("gpt", FIRST), ("llama", LAST))],
    "stale buffer: the input of the micro-batch before": [
        ("gpt two", FIRST + "attn.q", swap("linear", stale), r"forward\.layers\.0\.q"),
        ("llama two", LAST + "ffn.down", swap("linear", stale), r"forward\.layers\.2\.out")],
    "dropout: kept values not divided by 1 - p": [
        ("gpt dropout", "embed", swap("dropped", dropout(1)), r"forward\.embed\.out"),
        ("llama dropout", LAST, swap("dropped", dropout(1)), r"forward\.layers\.2\.resid")],
    "bf16 called fp32": ours(r"forward\.(embed\.out|layers\.0\.norm1)", "--numerics.dtype=bf16"),
    "another order of the data (`cannot tell`)": ours(r"input\.tokens", "--data.shuffle=true"),
    # loss
    "loss: 1 / (N - 1), N = 16,384": both(always("total", minus_one), TOP, ("gpt 16384", "llama 16384")),
    "loss: one target of 16,384 not counted": both(always("total", one_uncounted), TOP, ("gpt 16384", "llama 16384")),
    "loss: mean of the ranks' means": both(always("total", mean_of_means, micros=2), TOP, MASKED),
    "loss: accumulated without 1/m": both(always("total", sum_of_means, micros=2), TOP),
    "loss: uncounted targets in the denominator": both(always("total", all_positions), TOP, MASKED),
    "loss: targets not shifted": both(always("losses", unshifted), "loss"),
    "loss: label smoothing of 1e-4": both(always("losses", smoothed), "loss"),
    "loss: z-loss of 1e-4 left on": both(always("losses", z_loss), TOP),
    # backward
    "backward: a norm's statistics are constants": layers("gpt", swap("norm", statistics_constant), r"backward\.#")
    + layers("llama", swap("norm", statistics_constant), r"backward\.#", [LAST])
    + mutation("norm_rms_mean_term", "llama", TOP),
    "backward: slope of gelu without the cubic term": layers("gpt", swap("gelu", gelu_without_cubic), r"backward\.#")
    + mutation("gelu_grad", "gpt", r"backward\.layers\.2$"),
    "backward: 0.999 of softmax's sum": layers("gpt", swap("softmax", softmax_without_sum), r"backward\.#")
    + layers("llama", swap("softmax", softmax_without_sum), r"backward\.#", [LAST]),
    "backward: a branch times 1.001": [
        (base, unit + "ffn.up", swap("linear", branch_times(1.001)), rf"backward\.{re.escape(unit[:-1])}$")
        for base, unit in (("gpt", FIRST), ("gpt", LAST), ("llama", FIRST))],
    "backward: a branch times 1.0001": [
        (base, unit + "ffn.up", swap("linear", branch_times(1.0001)), rf"backward\.{re.escape(unit[:-1])}$")
        for base, unit in (("gpt", FIRST), ("llama", LAST))],
    "backward: keys of a group's first head only": layers("llama", swap("spread", first_of_the_group), r"backward\.#"),
    # gradients
    "gradient times 1.0001": layers("gpt", gradient("ffn.up.weight", lambda g, k, m: g * 1.0001),
                                    r"grad\.#.ffn\.up\.weight")
    + layers("llama", gradient("attn.v.weight", lambda g, k, m: g * 1.0001), r"grad\.#.attn\.v\.weight"),
    "gradient times 1.00001": layers("gpt", gradient("ffn.up.weight", lambda g, k, m: g * 1.00001),
                                     r"grad\.#.ffn\.up\.weight")
    + layers("llama", gradient("attn.v.weight", lambda g, k, m: g * 1.00001), r"grad\.#.attn\.v\.weight"),
    "gradient of one bias missing": layers("gpt", gradient("ffn.down.bias", lambda g, k, m: g * 0),
                                           r"grad\.#.ffn\.down\.bias")
    + layers("gpt", gradient("attn.v.bias", lambda g, k, m: g * 0), r"grad\.#.attn\.v\.bias"),
    "gradient: a row missing": layers("gpt", gradient("attn.out.weight", without_last_rows),
                                      r"grad\.#.attn\.out\.weight")
    + layers("llama", gradient("ffn.down.weight", without_last_rows), r"grad\.#.ffn\.down\.weight"),
    "gradient overwritten by the last micro-batch": layers(
        "gpt", gradient("attn.q.weight", last_only, 2), r"grad\.#.attn\.q\.weight")
    + layers("llama", gradient("ffn_norm.weight", last_only, 2), r"grad\.#.ffn_norm\.weight")
    + mutation("accum_overwrites", "gpt two", r"grad\."),
    "gradient added in bf16": layers("gpt", gradient("ffn.down.weight", added_in_bf16, 8), r"grad\.#.ffn\.down\.weight")
    + layers("llama", gradient("ffn.up.weight", added_in_bf16, 8), r"grad\.#.ffn\.up\.weight"),
    "gradient rounded to fp16": layers("gpt", gradient("attn.k.weight", lambda g, k, m: g.half().float()),
                                       r"grad\.#.attn\.k\.weight"),
    "tied head counted twice": both(head_times(2), r"grad\.embed\.tokens", ("gpt", "gpt dropout")),
    "tied head not counted": both(head_times(0), r"grad\.embed\.tokens", ("gpt", "gpt dropout"))
    + mutation("M09_tied_head_gradient", "gpt", r"grad\.embed\.tokens"),
    "embedding: repeated tokens overwrite": both(overwritten, r"grad\.embed\.tokens"),
    # the update
    "clip before unscale": both(always("clip_factor", clip_scaled), STATE)
    + mutation("M16_clip_before_unscaling", "gpt fp16", STATE),
    "clip: norm of the matrices alone": both(always("clip_factor", clip_matrices), STATE, ("gpt", "gpt dropout")),
    "clip: 0.101 for 0.1": ours(STATE, "--optim.clip=0.101"),
    "adam: one update too many": both(adam_step(1), UPDATED) + mutation("adamw_step_from_zero", "gpt", UPDATED),
    "adam: no bias correction": both(adam_step(10000), UPDATED),
    "adam: eps under the root": both(then(eps_in_root), UPDATED),
    "adam: eps 1e-6 for 1e-8": ours(UPDATED, "--optim.eps=1e-6") + both(adamw(eps=lambda e: 1e-6), UPDATED),
    "beta1 0.95 for 0.9": both(adamw(betas=lambda b: (0.95, b[1])), STATE) + ours(STATE, "--optim.beta1=0.95"),
    "beta2 0.999 for 0.95": both(adamw(betas=lambda b: (b[0], 0.999)), r"state\.exp_avg_sq\.")
    + ours(r"state\.exp_avg_sq\.", "--optim.beta2=0.999"),
    "decay in the gradient (L2)": both(always("optimizer", l2), STATE) + ours(STATE, "--optim.name=adam"),
    "decay on norms and biases": both(always("optimizer", decay_all), r"updated\..*(norm|bias)")
    + mutation("decay_on_vectors", "llama", r"updated\..*(norm|bias)"),
    "decay on norms, learning rate 1e-6": both(always("optimizer", decay_all), r"updated\..*(norm|bias)",
                                               ("gpt lr 1e-6", "llama lr 1e-6")),
    "decay after the step": both(then(decay_last), UPDATED),
    "decay 0.11 for 0.1": ours(UPDATED, "--optim.weight_decay=0.11"),
    "learning rate times 1.0001": both(adamw(lr=lambda lr: lr * 1.0001), UPDATED),
    "learning rate one update late, linear": ours(UPDATED, "--optim.lr=0.0009991"),
    "learning rate one update late, cosine": both(adamw(lr=lambda lr: lr * (1 - 2.2e-6)), UPDATED),
    "update: a row left out": both(then(last_rows_stay), UPDATED),
}


def plant(run, text):
    """The program of a run with ERROR@UNIT planted, the beginning of an error's name; else its first place's unit."""
    name, _, unit = text.partition("@")
    found = [key for key in ERRORS if key.startswith(name)]
    if len(found) != 1:
        raise SystemExit(f"error: --break={name}: begins {len(found)} of: " + "; ".join(ERRORS))
    program = run.program()
    places = [place for place in ERRORS[found[0]] if callable(place[2])]
    if not places:
        raise SystemExit(f"error: --break={name}: in settings of build/train alone: {ERRORS[found[0]][0][2]}")
    places[0][2](program, unit or places[0][1])
    return program
