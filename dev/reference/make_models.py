#!/usr/bin/env python3
"""Writes test/fixtures/model_*.safetensors: whole tiny models, their gradients and ten AdamW steps, by
PyTorch.

Two families from one forward function, as in src/: GPT (LayerNorm, learned positions, GELU, biases, tied
head) and LLaMA (RMSNorm, rotate-half RoPE, SwiGLU, grouped queries, no biases, untied head), the latter
also with QK-norm, with norms of what its branches give (OLMo 2) and with experts in three forms: softmax with
renormalised weights (Mixtral), softmax as it is in every second layer, with a norm of all heads' queries together and one of their keys (OLMoE), sigmoid with groups, a scale, a
shared expert and a first dense layer (DeepSeek-V3). Everything is computed in float64 by autograd and
torch.optim.AdamW and stored as float32.

How far may a float32 implementation be from that? As far as PyTorch's own float32 is. The same computation
runs in float32 with the channels in ORDERS random orders, which changes only the rounding of the sums. A
tensor's yardstick (metadata "yard.KIND.NAME") is the largest error of any of its elements over all orders,
but at least half a unit in the last place of its largest element. test/test_model.c allows a small multiple of it.

Files: model_FAMILY: param/, grad/, token, target, logits, loss. model_FAMILY_steps: token, target, lr,
loss, grad_norm, final/.
Run: /usr/bin/python3 dev/reference/make_models.py   (PyTorch, NumPy)
"""
import numpy as np
import torch
import torch.nn.functional as F

from fixture import save

torch.set_num_threads(1)
ORDERS, STEPS = 16, 10
B, T = 3, 12
GPT = dict(layers=2, channels=20, heads=4, kv_heads=4, head_size=5, ffn=32, vocab=31, context=14,
           layernorm=1, swiglu=0, rope=0, bias=1, tie=1, qk_norm=0)
LLAMA = dict(layers=2, channels=16, heads=4, kv_heads=2, head_size=6, ffn=28, vocab=31, context=14,
             layernorm=0, swiglu=1, rope=1, bias=0, tie=0, qk_norm=0)
EXPERTS = dict(LLAMA, experts=4, experts_active=2, experts_ffn=12, experts_shared=0, experts_dense=0, experts_every=1,
               experts_groups=0, experts_groups_active=0, sigmoid=0, renorm=1, experts_scale=1.0,
               balance_coef=0.05, z_coef=0.0)
MODELS = {"gpt": GPT, "llama": LLAMA, "llama_qknorm": dict(LLAMA, qk_norm=1),
          "mixtral": EXPERTS,
          "olmoe": dict(EXPERTS, qk_norm=2, experts=5, experts_active=3, experts_every=2, renorm=0, balance_coef=0.0,
                        z_coef=0.02),
          "deepseek": dict(EXPERTS, experts=6, experts_ffn=8, experts_shared=10, experts_dense=1, experts_groups=3,
                           experts_groups_active=2, sigmoid=1, experts_scale=1.5, z_coef=0.01),
          "olmo2": dict(LLAMA, kv_heads=4, head_size=4, qk_norm=2, norm_of_output=1, seed=107)}
single = lambda x: float(np.float32(x))  # hyper-parameters are float32 numbers, too
NORM_EPS, THETA = single(1e-5), 10000.0
ADAMW = dict(betas=(single(0.9), single(0.95)), eps=single(1e-8))
DECAY, CLIP = single(0.1), 1.0


def has_experts(c, layer):
    first = c.get("experts_dense", 0)
    return c.get("experts", 0) > 0 and layer >= first and (layer - first + 1) % c["experts_every"] == 0


def init_params(c, rng):
    """float32 numbers, {name: array}; large enough that logits, and the gradients of every tensor, are not
    trivial."""
    C, D, H, G, width = c["channels"], c["head_size"], c["heads"], c["kv_heads"], c["ffn"]
    p = {}

    def matrix(name, rows, cols):
        p[name] = rng.standard_normal((rows, cols)) * (1.2 / cols ** 0.5)

    def linear(name, rows, cols):
        matrix(name + ".weight", rows, cols)
        if c["bias"]:
            p[name + ".bias"] = 0.2 * rng.standard_normal(rows)

    def norm(name, size, bias):
        p[name + ".weight"] = 1 + 0.2 * rng.standard_normal(size)
        if bias:
            p[name + ".bias"] = 0.2 * rng.standard_normal(size)

    p["embed.tokens.weight"] = 0.5 * rng.standard_normal((c["vocab"], C))
    if not c["rope"]:
        p["embed.positions.weight"] = 0.5 * rng.standard_normal((c["context"], C))
    for i in range(c["layers"]):
        at = f"layers.{i}."
        norm(at + "attn_norm", C, c["layernorm"])
        for name, n_heads in (("q", H), ("k", G), ("v", G)):
            linear(f"{at}attn.{name}", n_heads * D, C)
        if c["qk_norm"]:
            whole = c["qk_norm"] == 2
            norm(at + "attn.q_norm", H * D if whole else D, False)
            norm(at + "attn.k_norm", G * D if whole else D, False)
        linear(at + "attn.out", C, H * D)
        norm(at + "ffn_norm", C, c["layernorm"])
        networks = [("ffn", width)]
        if has_experts(c, i):
            matrix(at + "router.weight", c["experts"], C)
            networks = [("shared", c["experts_shared"])] if c["experts_shared"] else []
            networks += [(f"experts.{e}", c["experts_ffn"]) for e in range(c["experts"])]
        for name, width_of in networks:
            if c["swiglu"]:
                linear(f"{at}{name}.gate", width_of, C)
            linear(f"{at}{name}.up", width_of, C)
            linear(f"{at}{name}.down", C, width_of)
    norm("final_norm", C, c["layernorm"])
    if not c["tie"]:
        matrix("head.weight", c["vocab"], C)
    return {name: value.astype(np.float32) for name, value in p.items()}


def forward(p, c, token):
    """Logits (B, T, V), and the losses of routers. p: {name: tensor}; the precision is that of p."""
    D, H, G, context = c["head_size"], c["heads"], c["kv_heads"], token.shape[1]
    linear = lambda x, name: F.linear(x, p[name + ".weight"], p.get(name + ".bias"))
    rms = lambda x, w: x / torch.sqrt((x * x).mean(-1, keepdim=True) + NORM_EPS) * w

    def norm(x, name):
        w = p[name + ".weight"]
        return F.layer_norm(x, w.shape, w, p[name + ".bias"], NORM_EPS) if c["layernorm"] else rms(x, w)

    def rope(x):  # (B, T, heads, D)
        freqs = torch.arange(context).double()[:, None] * THETA ** (-torch.arange(0, D, 2).double() / D)
        angle = torch.cat((freqs, freqs), 1)[:, None, :]
        half = torch.cat((-x[..., D // 2:], x[..., :D // 2]), -1)
        return x * angle.cos().to(x) + half * angle.sin().to(x)

    def attention(x, at):
        q, k, v = (linear(x, f"{at}attn.{n}") for n in "qkv")
        split = lambda y: y.unflatten(-1, (-1, D))
        normed = lambda y, n: rms(y, p[f"{at}attn.{n}_norm.weight"])
        if c["qk_norm"] == 2:
            q, k = normed(q, "q"), normed(k, "k")
        q, k, v = split(q), split(k), split(v)
        if c["qk_norm"] == 1:
            q, k = normed(q, "q"), normed(k, "k")
        if c["rope"]:
            q, k = rope(q), rope(k)
        k, v = (y.repeat_interleave(H // G, 2) for y in (k, v))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))  # (B, H, T, D)
        score = (q @ k.transpose(2, 3)) / D ** 0.5
        score = score.masked_fill(torch.ones(context, context).triu(1).bool(), -np.inf)
        return linear((F.softmax(score, -1) @ v).transpose(1, 2).flatten(2), at + "attn.out")

    def ffn(x, at):
        up = linear(x, at + ".up")
        wide = F.silu(linear(x, at + ".gate")) * up if c["swiglu"] else F.gelu(up, approximate="tanh")
        return linear(wide, at + ".down")

    def experts(x, at):
        """Every expert computes every token; the weights of those that are not chosen are 0."""
        E, k, groups = c["experts"], c["experts_active"], c["experts_groups"]
        z = linear(x, at + "router")
        score = torch.sigmoid(z) if c["sigmoid"] else F.softmax(z, -1)
        key = score.detach()
        if groups:
            value = key.unflatten(-1, (groups, -1)).topk(2, -1).values.sum(-1)  # of softmax scores: the best alone
            best = torch.zeros_like(value).scatter(-1, value.topk(c["experts_groups_active"], -1).indices, 1)
            key = key.masked_fill(best.repeat_interleave(E // groups, -1) == 0, -1)
        chosen = torch.zeros_like(score).scatter(-1, key.topk(k, -1).indices, 1)
        weight = score * chosen
        if c["renorm"]:
            weight = weight / weight.sum(-1, keepdim=True)
        weight = weight * c["experts_scale"]
        share = chosen.mean(1) / k  # (B, E), of each sequence
        part = (score / score.sum(-1, keepdim=True)).mean(1)
        extra.append(single(c["balance_coef"]) * E * (share * part).sum(-1).mean())
        extra.append(single(c["z_coef"]) * (torch.logsumexp(z, -1) ** 2).mean())
        out = sum(weight[..., e, None] * ffn(x, f"{at}experts.{e}") for e in range(E))
        return out + ffn(x, at + "shared") if c["experts_shared"] else out

    extra = []

    x = p["embed.tokens.weight"][token]
    if not c["rope"]:
        x = x + p["embed.positions.weight"][:context]
    for i in range(c["layers"]):
        at = f"layers.{i}."
        if c.get("norm_of_output"):
            x = x + norm(attention(x, at), at + "attn_norm")
            x = x + norm(ffn(x, at + "ffn"), at + "ffn_norm")
            continue
        x = x + attention(norm(x, at + "attn_norm"), at)
        x = x + (experts(norm(x, at + "ffn_norm"), at) if has_experts(c, i) else ffn(norm(x, at + "ffn_norm"), at + "ffn"))
    return F.linear(norm(x, "final_norm"), p["embed.tokens.weight" if c["tie"] else "head.weight"]), sum(extra)


def loss_of(logits, target):
    """Sum over valid tokens of the batch, over their number: not a mean of the sequences' means."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1)


def run(c, params, batches, lrs):
    """Everything that is compared, as one flat {kind.name: tensor}: the first batch, then the ten steps."""
    p = {name: torch.nn.Parameter(value.clone()) for name, value in params.items()}
    token, target = batches[0]
    result, losses, norms = {"logits": forward(p, c, token)[0].detach()}, [], []
    groups = [{"params": [x for x in p.values() if (x.ndim == 2) == matrices],
               "weight_decay": DECAY if matrices else 0.0} for matrices in (True, False)]
    optim = torch.optim.AdamW(groups, lr=1.0, **ADAMW)
    for step, (token, target) in enumerate(batches):
        optim.zero_grad()
        logits, extra = forward(p, c, token)
        loss = loss_of(logits, target)
        (loss + extra).backward()
        if step == 0:
            result.update({f"grad.{name}": x.grad.clone() for name, x in p.items()})
        norm = torch.sqrt(sum((x.grad.double() ** 2).sum() for x in p.values()))
        for x in p.values():
            x.grad *= float(min(1.0, CLIP / norm))
        for group in optim.param_groups:
            group["lr"] = lrs[step]
        optim.step()
        losses.append(loss.detach().double())
        norms.append(norm)
    result.update({f"final.{name}": x.detach() for name, x in p.items()})
    return dict(result, loss=torch.stack(losses), grad_norm=torch.stack(norms))


def reorder(tensors, order, c):
    """The same model (or its gradients) with the C channels in another order."""
    moved = {}
    for name, x in tensors.items():
        head_norm = "q_norm" in name or "k_norm" in name
        rows = "norm" in name and not head_norm or ".out." in name or ".down." in name
        x = x[order] if rows else x
        columns = name.endswith(("tokens.weight", "positions.weight", "head.weight", "attn.q.weight",
                                 "attn.k.weight", "attn.v.weight", "gate.weight", "up.weight", "router.weight"))
        moved[name] = x[:, order] if columns else x
    return moved


def strip(result, kind):
    return {name[len(kind) + 1:]: x for name, x in result.items() if name.startswith(kind + ".")}


def yardsticks(c, params, batches, lrs, exact, rng):
    """{kind.name: largest error of PyTorch's float32 over ORDERS orders of summation}."""
    yard = {name: float(x.abs().max()) * 2.0 ** -24 for name, x in exact.items()}
    for _ in range(ORDERS):
        order = torch.tensor(rng.permutation(c["channels"]))
        result = run(c, {name: x.float() for name, x in reorder(params, order, c).items()}, batches, lrs)
        back = torch.argsort(order)
        for kind in ("grad", "final"):
            straight = reorder(strip(result, kind), back, c)
            result.update({f"{kind}.{name}": x for name, x in straight.items()})
        for name, x in exact.items():
            yard[name] = max(yard[name], float((result[name].double() - x).abs().max()))
    return yard


def main():
    for index, (family, c) in enumerate(MODELS.items()):
        rng = np.random.default_rng(c.get("seed", 100 + index))
        params = {name: torch.tensor(x).double() for name, x in init_params(c, rng).items()}
        batches = []
        for _ in range(STEPS):
            text = torch.tensor(rng.integers(0, c["vocab"], (B, T + 1)))
            target = text[:, 1:].clone()
            target[1, T - 5:] = -1  # sequences with different numbers of valid tokens
            target[2, [0, 6]] = -1
            batches.append((text[:, :-1], target))
        lrs = [single(0.01 * min(1, (step + 1) / 4)) for step in range(STEPS)]
        exact = run(c, params, batches, lrs)
        yard = yardsticks(c, params, batches, lrs, exact, rng)
        sizes = {key: value for key, value in c.items() if key != "seed"}
        meta = dict(sizes, norm_eps=NORM_EPS, rope_theta=THETA, batch=B, tokens=T, params=len(params))
        keep = lambda kinds: {f"yard.{name}": f"{x:.3e}" for name, x in yard.items()
                              if name.split(".")[0] in kinds}
        save(f"model_{family}", {
            **{f"param/{name}": x for name, x in params.items()},
            **{f"grad/{name}": x for name, x in strip(exact, "grad").items()},
            "token": batches[0][0], "target": batches[0][1],
            "logits": exact["logits"], "loss": exact["loss"][:1],
        }, {**meta, **keep(("logits", "loss", "grad"))})
        save(f"model_{family}_steps", {
            **{f"final/{name}": x for name, x in strip(exact, "final").items()},
            "token": torch.stack([t for t, _ in batches]),
            "target": torch.stack([t for _, t in batches]),
            "lr": np.array(lrs), "loss": exact["loss"], "grad_norm": exact["grad_norm"],
        }, {"steps": STEPS, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": CLIP,
            **keep(("loss", "grad_norm", "final"))})
        worst = max((yard[n] / float(exact[n].abs().max() + 1e-30), n) for n in yard if "k.bias" not in n)
        print(f"  loss {exact['loss'][0]:.3f} to {exact['loss'][-1]:.3f}, norm {exact['grad_norm'][0]:.3f}, "
              f"logits up to {exact['logits'].abs().max():.2f}; "
              f"worst yardstick {worst[0]:.1e} of the largest of {worst[1]}")


if __name__ == "__main__":
    main()
