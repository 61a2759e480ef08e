"""capture: what your PyTorch model computes in one step, under pretrain.c's names, for build/diff (doc/capture.md).

    with capture.step("theirs.safetensors", model, optimizer=optimizer) as c:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none")
        c.loss(loss, targets=y)
        loss.mean().backward()
        optimizer.step()

writes theirs.safetensors, and beside it the batch (theirs.data/) and our settings (theirs.toml), from which build/train
makes the same step. capture.gradients(path, model) writes weights and gradients alone, of any model that has some.
Copy this file beside your model; it needs PyTorch and nothing else.

capture.llmc(model, state) makes our side of the step in llm.c's debug state from its own files.

A map says which parameter is which. The rest follows from it: what goes into the module that holds attn.out is what
attention computed, what goes into the one that holds attn_norm is the residual stream, and so on. Queries and keys
after RoPE are what F.scaled_dot_product_attention is given; where attention is written in another way, they are left
out, as are modules that hold parameters of several kinds.

    weight, grad, state, updated    split and transposed to our rows; gradients as backward leaves them, before clipping
    forward, backward, loss         (samples, tokens, width), in the type in which the model computes them

The first update is captured; micro-batches before it are joined. Activation checkpointing is an error: turn it off.
"""
import ctypes
import json
import os
import re
import struct

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

# Parameters without .weight or .bias; N is the layer. Several names: a fused matrix, whose rows are these, in order.
GPT2 = NANOGPT = {  # the matrices of Transformers' Conv1D are transposed; it is recognised by its class
    "transformer.wte": "embed.tokens", "transformer.wpe": "embed.positions",
    "transformer.h.N.ln_1": "layers.N.attn_norm", "transformer.h.N.ln_2": "layers.N.ffn_norm",
    "transformer.h.N.attn.c_attn": ("layers.N.attn.q", "layers.N.attn.k", "layers.N.attn.v"),
    "transformer.h.N.attn.c_proj": "layers.N.attn.out",
    "transformer.h.N.mlp.c_fc": "layers.N.ffn.up", "transformer.h.N.mlp.c_proj": "layers.N.ffn.down",
    "transformer.ln_f": "final_norm", "lm_head": "head"}
LLAMA = {"model.embed_tokens": "embed.tokens", "model.norm": "final_norm", "lm_head": "head",
         "model.layers.N.input_layernorm": "layers.N.attn_norm",
         "model.layers.N.post_attention_layernorm": "layers.N.ffn_norm",
         **{f"model.layers.N.self_attn.{x}_proj": f"layers.N.attn.{x}" for x in "qkv"},
         "model.layers.N.self_attn.o_proj": "layers.N.attn.out",
         **{f"model.layers.N.mlp.{x}_proj": f"layers.N.ffn.{x}" for x in ("gate", "up", "down")}}
QWEN3 = {**LLAMA, **{f"model.layers.N.self_attn.{x}_norm": f"layers.N.attn.{x}_norm" for x in "qk"}}

# In the order of our parameter table, and of a step; what a module's input and output are.
ROWS = ("embed.tokens", "embed.positions", "attn_norm", "attn.q", "attn.k", "attn.v", "attn.q_norm", "attn.k_norm",
        "attn.out", "ffn_norm", "ffn.gate", "ffn.up", "ffn.down", "final_norm", "head")
KINDS = ("input", "weight", "forward", "loss", "backward", "grad", "state", "updated")
BUFFERS = ("norm1", "q", "k", "v", "q_normed", "k_normed", "attn", "resid", "norm2", "gate", "pre", "up", "act", "out",
           "norm")
INPUT = {"attn.out": "attn", "ffn_norm": "resid", "ffn.down": "act"}
OUTPUT = {"attn_norm": "norm1", "attn.q": "q", "attn.k": "k", "attn.v": "v", "ffn_norm": "norm2", "ffn.gate": "gate",
          "ffn.up": "up", "final_norm": "norm"}


def fail(text):
    raise SystemExit("error: capture: " + text)


def copied(x):
    return x.detach().to("cpu", copy=True).contiguous()


def raw(x):
    return ctypes.string_at(x.data_ptr(), x.numel() * x.element_size())


# ---- the file

def order(name):
    """The place of a tensor in a step: forward goes up the network, backward down."""
    kind, _, rest = name.partition(".")
    array, _, row = rest.partition(".") if kind == "state" else ("", "", rest)
    layer = re.match(r"layers\.(\d+)\.?", row)
    place = 1 + int(layer[1]) if layer else 0 if row.startswith("embed") else 1 << 20
    base, _, last = row[layer.end() if layer else 0:].rpartition(".")
    slot = 2 * ROWS.index(base) + (last == "bias") if base in ROWS else BUFFERS.index(last) if last in BUFFERS else 0
    sign = -1 if kind in ("backward", "grad") else 1
    return KINDS.index(kind), array, sign * place, sign * slot


def write(path, model, tensors, autocast=None, more={}):
    """safetensors: the header's length, the header, the data. Longer types first, so that all are aligned."""
    short = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
    long = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
            torch.int32: "I32"}
    param = next(model.parameters()) if model else torch.empty(0)
    tf32 = param.is_cuda and param.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    dtype = short[autocast] + "-autocast" if autocast else "tf32" if tf32 else short[param.dtype]
    names = sorted(tensors, key=order)
    header = {"__metadata__": {"dtype": dtype, "producer": f"PyTorch {torch.__version__}", "order": "\n".join(names),
                               **more}}
    names.sort(key=lambda name: -tensors[name].element_size())
    at = 0
    for name in names:
        end = at + tensors[name].numel() * tensors[name].element_size()
        header[name] = {"dtype": long[tensors[name].dtype], "shape": tensors[name].shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            file.write(raw(tensors[name]))
    return dtype


# ---- parameters

class Row:
    """A parameter of theirs: our names, how many of its rows each has, and the module that holds it."""
    def __init__(self, name, param, ours, module):
        self.param, self.ours, self.module = param, ours, module
        self.transposed = type(module).__name__ == "Conv1D" and param.dim() == 2
        self.n = param.shape[-1 if self.transposed else 0]

    def parts(self, kind, x):
        x = x.t() if self.transposed else x
        return {f"{kind}.{name}": copied(part) for name, part in zip(self.ours, x.split(self.sizes))}


def our_names(name, names):
    name = re.sub(r"^(module\.|_orig_mod\.)+", "", name)  # of DDP, of compile
    layer = re.search(r"\.(\d+)\.", name)
    base, _, kind = (name[:layer.start()] + ".N." + name[layer.end():] if layer else name).rpartition(".")
    ours = names.get(base, ())
    return [(x.replace(".N.", f".{layer[1]}.") if layer else x) + "." + kind
            for x in ([ours] if isinstance(ours, str) else ours)]


def table(model, names):
    """The rows of a model. A matrix with two names, as a tied head has, is the embedding's."""
    given = dict(model.named_parameters(remove_duplicate=False))
    maps = (GPT2, QWEN3) if names == "auto" else (names,)
    unknown, names = min((([n for n in given if not our_names(n, m)], m) for m in maps), key=lambda pair: len(pair[0]))
    if unknown:
        shown = ", ".join(f"{n} {tuple(given[n].shape)}" for n in unknown[:6]) + ", ..." * (len(unknown) > 6)
        fail(f"{len(unknown)} of {len(given)} parameters have no name of ours: {shown} (extend the map: "
             'names={**capture.NANOGPT, "blocks.N.attn.proj": "layers.N.attn.out"}; our names are in doc/params.md)')
    rows = {}
    for name, param in given.items():
        row = Row(name, param, our_names(name, names), model.get_submodule(name.rpartition(".")[0]))
        if id(param) not in rows or row.ours[0].startswith("embed."):
            rows[id(param)] = row
    out = {x.ours[0]: x.param.numel() // x.param.shape[1 if x.transposed else 0] for x in rows.values()}
    for row in rows.values():
        n, parts = row.n, len(row.ours)
        q = out.get(re.sub(r"attn\.q\.\w+$", "attn.out.weight", row.ours[0]), n // 3)  # as wide as what attn.out reads
        row.sizes = [q, (n - q) // 2, (n - q) // 2] if parts == 3 else [n // parts] * parts
        if sum(row.sizes) != n:
            fail(f"{n} rows do not divide into {', '.join(row.ours)}")
    return list(rows.values())


def gradients(path, model, names="auto"):
    """Weights and the gradients that they have now: after backward, before clipping and the step."""
    tensors = {}
    for row in table(model, names):
        tensors.update(row.parts("weight", row.param.float()))
        if row.param.grad is not None:
            tensors.update(row.parts("grad", row.param.grad))
    write(path, model, tensors)


# ---- a step

class Attention(TorchFunctionMode):
    """Sees the calls of F.scaled_dot_product_attention(query, key, ...), which no module shows."""
    def __init__(self, step):
        super().__init__()
        self.step = step

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.scaled_dot_product_attention:
            given = {**dict(zip(("query", "key"), args)), **(kwargs or {})}
            self.step.attended(given["query"], given["key"])
        return function(*args, **(kwargs or {}))


class step:
    """Captures what is computed inside `with`. settings ({"model.heads": 4}): for theirs.toml, what no shape shows."""
    def __init__(self, path, model, names="auto", optimizer=None, settings=None):
        self.path, self.model, self.optimizer, self.settings = path, model, optimizer, settings or {}
        self.rows = table(model, names)
        self.ours = {name for row in self.rows for name in row.ours}
        self.layers = 1 + max((int(x.split(".")[1]) for x in self.ours if x.startswith("layers.")), default=-1)
        self.rope = "embed.positions.weight" not in self.ours
        self.whole, self.pieces = {}, {}  # tensors of the step; of each micro-batch, {name: {its number: tensor}}
        self.batch, self.targets, self.autocast, self.stepped, self.clip = [], [], None, False, 0
        self.before = {}  # metadata: the state that the step began with
        self.unit, self.attention = None, Attention(self)  # unit: the layer whose queries and keys are to be kept

    def __enter__(self):
        held = {}
        if self.optimizer:  # the hash of an optimizer's state that is 0, or another one (dump.c)
            fresh = not any(torch.is_tensor(x) and x.dim() and x.any() for s in self.optimizer.state.values()
                            for x in s.values())
            self.before = {"state_before": "0" if fresh else "1"}
        for row in self.rows:
            self.whole.update(row.parts("weight", row.param.float()))
            held.setdefault(row.module, {})[tuple(name.rpartition(".")[0] for name in row.ours)] = row.sizes
        trained = [row for row in self.rows if row.param.requires_grad]
        for row in trained:  # a gradient that never comes is 0
            self.whole.update(row.parts("grad", torch.zeros_like(row.param)))
        self.hooks = [row.param.register_post_accumulate_grad_hook(
            lambda param, row=row: self.whole.update(row.parts("grad", param.grad))) for row in trained]
        for module, kinds in held.items():
            if len(kinds) == 1:
                (bases, sizes), = kinds.items()
                self.hooks.append(module.register_forward_hook(
                    lambda _, args, more, out, bases=bases, sizes=sizes: self.saw(
                        bases, sizes, (*args, *more.values())[0], out), with_kwargs=True))
        if self.optimizer:
            self.hooks.append(self.optimizer.register_step_pre_hook(lambda *_: self.before_update()))
            self.hooks.append(self.optimizer.register_step_post_hook(lambda *_: self.after_update()))
        if any(isinstance(m, torch.nn.Dropout) and m.p > 0 and m.training for m in self.model.modules()):
            print("note: capture: dropout is on (try model.eval())")
        self.attention.__enter__()
        return self

    def keep(self, name, x, at=None):
        at = at or len(self.batch)
        piece = self.pieces.setdefault(name, {})
        if at in piece:
            fail(f"{name} is computed twice (activation checkpointing? turn it off for this step)")
        piece[at] = copied(x.reshape(*self.batch[at - 1].shape, *([-1] if name != "loss" else [])))

    def stream(self, unit, below, x):
        self.keep(f"forward.{below}.out", x)
        if x.requires_grad:
            x.register_hook(lambda g, at=len(self.batch): self.keep("backward." + unit, g, at))

    def saw(self, bases, sizes, x, out):
        """A module was called that holds the parameters `bases`."""
        unit, layer, role = re.match(r"(?:(layers\.(\d+))\.)?(.*)", bases[0]).groups()
        if not torch.is_grad_enabled():
            return
        if role == "embed.tokens":
            kind = x.device.type
            self.autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
            self.batch.append(copied(x.int()))
        if not self.batch or role.startswith("embed"):
            return
        if role == "attn_norm":
            self.stream(unit, f"layers.{int(layer) - 1}" if int(layer) else "embed", x)
        if role == "final_norm":
            self.stream("head", f"layers.{self.layers - 1}", x)
        if role in INPUT:
            self.keep(f"forward.{unit}.{INPUT[role]}", x)
        for base, part in zip(bases, out.split(sizes, -1) if len(bases) > 1 else [out]):
            role = base.removeprefix(f"{unit}.")
            normed = f"{unit}.attn.q_norm.weight" in self.ours
            if role == "attn.q" and (self.rope or normed):
                self.unit = unit
            if role in OUTPUT and (role not in ("attn.q", "attn.k") or normed or not self.rope):
                pre = role == "ffn.up" and f"{unit}.ffn.gate.weight" not in self.ours
                self.keep(f"forward.{unit or 'head'}.{'pre' if pre else OUTPUT[role]}", part)

    def attended(self, q, k):
        """Queries and keys (samples, heads, tokens, width), after QK-norm and RoPE; keys may be repeated in groups."""
        unit, self.unit = self.unit, None
        if not unit or q.dim() != 4:
            return
        heads = self.whole[f"weight.{unit}.attn.k.weight"].shape[0] // k.shape[3]
        after = "_normed" if f"{unit}.attn.q_norm.weight" in self.ours else ""
        self.keep(f"forward.{unit}.q{after}", q.transpose(1, 2))
        self.keep(f"forward.{unit}.k{after}", k[:, ::k.shape[1] // heads].transpose(1, 2))

    def loss(self, per_token, targets=None):
        """The loss of every token of a micro-batch; for theirs.toml, which tokens it should have predicted."""
        if not self.batch or per_token.numel() != self.batch[-1].numel():
            fail(f'c.loss: {per_token.numel()} numbers, not one for each token of the batch (reduction="none"?)')
        self.keep("loss", per_token)
        if targets is not None:
            self.targets.append(copied(targets.reshape(self.batch[-1].shape).int()))

    def before_update(self):
        square = lambda xs: sum(float(x.double().square().sum()) for x in xs)
        before = square(x for name, x in self.whole.items() if name.startswith("grad."))
        now = square(row.param.grad for row in self.rows if row.param.grad is not None)
        self.clip = float(f"{now ** 0.5:.5g}") if now < before * (1 - 1e-5) else 0

    def after_update(self):
        self.stepped = True
        for row in self.rows:
            self.whole.update(row.parts("updated", row.param))
            for array, x in self.optimizer.state.get(row.param, {}).items():
                if torch.is_tensor(x) and x.shape == row.param.shape:
                    self.whole.update(row.parts("state." + array, x))
        self.unhook()

    def unhook(self):
        while self.hooks:
            self.hooks.pop().remove()

    def __exit__(self, kind, *_):
        self.attention.__exit__(kind, *_)
        self.unhook()
        if kind:
            return
        joined = {name: torch.cat([x for _, x in sorted(piece.items())]) for name, piece in self.pieces.items()}
        for name, piece in self.pieces.items():
            if len(piece) != len(self.batch):
                fail(f"{name} is there for {len(piece)} of {len(self.batch)} micro-batches")
        for name, x in (("tokens", self.batch), ("targets", self.targets)):
            if x and len(x) == len(self.batch):
                joined["input." + name] = torch.cat(x)
        dtype = write(self.path, self.model, {**self.whole, **joined}, self.autocast, self.before)
        tokens = sum(x.numel() for x in self.batch)
        print(f"{self.path}: {len(self.whole) + len(joined)} tensors, {tokens} tokens, {dtype}")
        our_run(self, dtype)


# ---- the same step here

def model_settings(c, T):
    """What names, shapes and attributes say; a string: what they do not."""
    shape = {name[7:]: x.shape for name, x in c.whole.items() if name.startswith("weight.")}
    holders = (getattr(c.model, "config", None), *c.model.modules())
    number = lambda *names: next((getattr(h, n) for h in holders for n in names
                                  if isinstance(getattr(h, n, None), (int, float))), None)
    heads = c.settings.get("model.heads") or number("n_head", "num_attention_heads", "n_heads", "num_heads")
    if not heads:
        return 'how many heads it has is not to be seen (settings={"model.heads": 4})'
    if not c.rope and shape["embed.positions.weight"][0] != T:
        return f"the model has {shape['embed.positions.weight'][0]} positions, and the batch {T} tokens a sequence"
    norm = next(row.module for row in c.rows if row.ours[0] == "final_norm.weight")
    layernorm = "final_norm.bias" in shape or "layernorm" in type(norm).__name__.lower()
    q, k, up = (shape[f"layers.0.{x}.weight"][0] for x in ("attn.q", "attn.k", "ffn.up"))
    V, C = shape["embed.tokens.weight"]
    rope = getattr(holders[0], "rope_parameters", None) or {}
    return {"layers": c.layers, "channels": C, "heads": heads, "kv_heads": heads * k // q, "head_size": q // heads,
            "ffn": up, "vocab": V, "context": T, "norm": "layernorm" if layernorm else "rmsnorm",
            "norm_eps": getattr(norm, "eps", getattr(norm, "variance_epsilon", 1e-5)),
            "activation": "swiglu" if "layers.0.ffn.gate.weight" in shape else "gelu",
            "position": "rope" if c.rope else "learned", "bias": "layers.0.attn.q.bias" in shape,
            "tie": "head.weight" not in shape, "qk_norm": "layers.0.attn.q_norm.weight" in shape,
            **({"rope_theta": float(rope.get("rope_theta") or number("rope_theta") or 1e4)} if c.rope else {})}


def optimizer_settings(c):
    name, groups = type(c.optimizer).__name__.lower(), c.optimizer.param_groups if c.stepped else []
    values = {"name": "sgd", "lr": 0.0, "weight_decay": 0.0, "clip": c.clip, "warmup": 0, "schedule": "constant"}
    if groups and (name in ("adam", "adamw") or (name == "sgd" and not groups[0]["momentum"])):
        values.update(name=name, lr=groups[0]["lr"], weight_decay=max(group["weight_decay"] for group in groups))
        if name != "sgd":
            values.update(beta1=groups[0]["betas"][0], beta2=groups[0]["betas"][1], eps=groups[0]["eps"])
    elif groups:
        print(f"note: capture: {name} is not translated: set [optim] in the .toml")
    return values


def our_run(c, dtype):
    """theirs.toml and theirs.data/, from which build/train makes the same step, or a line that says why not."""
    stem = os.path.splitext(c.path)[0]
    x, y = (torch.cat(z) if z else None for z in (c.batch, c.targets))
    model = "no token was seen" if x is None else model_settings(c, x.shape[1])
    if y is None or y.shape != x.shape or not torch.equal(x[:, 1:], y[:, :-1]) or y.min() < 0:
        model = "c.loss needs targets that are the tokens one further"
    if isinstance(model, str):
        print(f"note: capture: no {stem}.toml for build/train: {model}")
        return
    run = write_run(stem, x, y, dtype, model, {"ckpt": {"init": c.path}, "optim": optimizer_settings(c)}, c.settings)
    print(f"now: build/train {stem}.toml; build/diff {c.path} {run}")


def write_run(stem, x, y, dtype, model, more, settings):
    """Settings and tokens of the same step, in stem.toml and stem.data/. Returns the folder of the run, which is free."""
    folder, name, number = settings.get("run.dir", "runs"), settings.get("run.name", os.path.basename(stem)), 1
    free = name
    while os.path.exists(f"{folder}/{free}/metrics.jsonl"):
        number += 1
        free = f"{name}-{number}"
    os.makedirs(stem + ".data", exist_ok=True)
    for i, row in enumerate(torch.cat((x, y[:, -1:]), 1).int()):  # each sequence is a source, of one window
        with open(f"{stem}.data/row_{i}.bin", "wb") as file:
            file.write(struct.pack("<256i", 20240801, 7, len(row), *[0] * 253) + raw(row.contiguous()))
    with open(stem + ".data/train.toml", "w") as file:
        file.write("".join(f'[source.row{i}]\npath = "row_{i}.bin"\n' for i in range(len(x))))
    sections = {"run": {"name": free, "steps": 1, "dump": 1},
                "data": {"train": stem + ".data/train.toml", "val": stem + ".data/row_0.bin", "shuffle": False,
                         "tokenizer": ""},
                "batch": {"tokens": x.numel(), "micro": len(x)}, "sample": {"count": 0}, "model": model,
                "numerics": {"dtype": dtype[:4] if dtype[:4] in ("bf16", "fp16") else "fp32"}, **more}
    for key, value in settings.items():
        sections.setdefault(key.split(".")[0], {})[key.split(".")[1]] = value
    sections["run"]["name"] = free
    with open(stem + ".toml", "w") as file:
        for section, values in sections.items():
            file.write(f"[{section}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items()) + "\n")
    return f"{folder}/{free}"


def llmc(model, state):
    """The step of llm.c's debug state, which build/diff reads, for build/train: weights, tokens and settings.

    model: its fp32 model file (version 3). The step has T tokens a sequence, and positions after them have no part in
    it; so our table of positions has T rows."""
    with open(model, "rb") as file:
        head = struct.unpack("<256i", file.read(1024))
        numbers = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    with open(state, "rb") as file:
        kind, version, B, T = struct.unpack("<256i", file.read(1024))[:4]
        x, y = (torch.frombuffer(bytearray(file.read(4 * B * T)), dtype=torch.int32).view(B, T) for _ in "xy")
    if (head[:2], kind, version) != ((20240326, 3), 20240327, 2):
        fail(f"{model}, {state}: not an fp32 model file (version 3) and a debug state (version 2) of llm.c")
    context, V, L, H, C, padded = head[2:8]
    weights, at = {}, 0

    def take(name, rows, columns, layers=L, of="layers.{}.", cut=None):
        nonlocal at
        for i in range(layers):
            n = rows * (columns or 1)
            whole = numbers[at:at + n].view(rows, columns) if columns else numbers[at:at + n]
            parts = zip("qkv", whole.chunk(3)) if "?" in name else [("", whole[:cut])]
            weights.update({"weight." + of.format(i) + name.replace("?", letter): x for letter, x in parts})
            at += n

    take("embed.tokens.weight", padded, C, 1, "", V)
    take("embed.positions.weight", context, C, 1, "", T)
    for name, rows, columns in (("attn_norm", C, 0), ("attn.?", 3 * C, C), ("attn.out", C, C), ("ffn_norm", C, 0),
                                ("ffn.up", 4 * C, C), ("ffn.down", C, 4 * C)):
        take(name + ".weight", rows, columns)
        take(name + ".bias", rows, 0)
    take("final_norm.weight", C, 0, 1, "")
    take("final_norm.bias", C, 0, 1, "")
    stem = os.path.splitext(os.path.basename(model))[0]
    write(stem + ".safetensors", None, weights)
    run = write_run(stem, x, y, "fp32", {"layers": L, "channels": C, "heads": H, "ffn": 4 * C, "vocab": V, "context": T},
              {"ckpt": {"init": stem + ".safetensors"}}, {})
    print(f"now: build/train {stem}.toml; build/diff {state} {run} --only 'grad.*'")
