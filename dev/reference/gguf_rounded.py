"""What llama.cpp computes from a file of Q4_1 and Q8_0 matrices, with and without its rounding of activations.

llama.cpp does not widen such a matrix. It rounds each block of 32 activations x to 8 bits, d = max |x| / 127, q = x / d
to the nearest integer, keeps d and (for Q4_1, d sum q) in fp16, and multiplies integers:

    Q8_0   y = sum over blocks of  d_w d  (sum of q_w q)
    Q4_1   y = sum over blocks of  d_w d  (sum of q_w q) + m_w s        s = d sum q

`Rounded` is LLaMA's forward pass with that, from the bytes of the file. `first_layers` writes the file of a model that
has only the first n blocks, so that the same can be compared after few layers.
"""
import struct

import numpy as np
import torch

F32, Q4_1, Q8_0, BLOCK = 0, 3, 8, 32
SIZE = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value, by type
BYTES = {F32: (1, 4), Q4_1: (BLOCK, 20), Q8_0: (BLOCK, 34)}  # a block: numbers, bytes


class File:
    """A GGUF file's keys (numbers only) and tensors."""

    def __init__(self, path):
        self.bytes, self.at = open(path, "rb").read(), 8
        n_tensors, n_keys = self.take("<QQ")
        self.keys, self.place, self.tensors = {}, {}, {}
        for _ in range(n_keys):
            self.key(*self.text(), *self.take("<I"))
        self.begin_of_tensors = self.at
        for _ in range(n_tensors):
            (name,), (n,) = self.text(), self.take("<I")
            shape = self.take(f"<{n}Q")[::-1]
            self.tensors[name] = (shape, *self.take("<IQ"))
        self.data = -(-self.at // 32) * 32

    def take(self, form):
        values = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self):
        n = self.take("<Q")[0]
        self.at += n
        return (self.bytes[self.at - n:self.at].decode(),)

    def key(self, name, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            kind, n = self.take("<IQ")
            for _ in range(n if kind == 8 else 0):
                self.text()
            self.at += 0 if kind == 8 else n * SIZE[kind]
        else:
            self.place[name] = self.at
            self.keys[name] = self.take({4: "<I", 6: "<f"}.get(kind, f"<{SIZE[kind]}s"))[0]

    def raw(self, name):
        shape, kind, offset = self.tensors[name]
        per, size = BYTES[kind]
        return self.bytes[self.data + offset:self.data + offset + int(np.prod(shape)) // per * size]


def first_layers(file, n, path):
    head = bytearray(file.bytes[:file.begin_of_tensors])
    struct.pack_into("<I", head, file.place["llama.block_count"], n)
    names = [name for name in file.tensors if not name.startswith("blk.") or int(name.split(".")[1]) < n]
    struct.pack_into("<Q", head, 8, len(names))
    data = bytearray()
    for name in names:
        shape, kind, _ = file.tensors[name]
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1],
                                                                         kind, len(data))
        data += file.raw(name)
        data += bytes(-len(data) % 32)
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % 32) + data)


class Matrix:
    """d q and m of each block, as float32, which holds them exactly."""

    def __init__(self, file, name):
        (rows, cols), kind, _ = file.tensors[name]
        raw = np.frombuffer(file.raw(name), np.uint8).reshape(rows, cols // BLOCK, BYTES[kind][1])
        half = lambda at: raw[..., at:at + 2].copy().view(np.float16).astype(np.float32)
        if kind == Q8_0:
            q, self.m = raw[..., 2:].view(np.int8), None
        else:
            q = np.concatenate((raw[..., 4:] & 15, raw[..., 4:] >> 4), -1)
            self.m = torch.tensor(half(2)[..., 0])
        self.dq = torch.tensor((half(0) * q).reshape(rows, cols))

    def row(self, i):
        return self.dq[i]

    def times(self, x, rounding):
        blocks = x.unflatten(-1, (-1, BLOCK))
        sums = blocks.sum(-1)
        if rounding:
            top = blocks.abs().amax(-1, keepdim=True).float()
            q = torch.round(blocks.float() * torch.where(top > 0, 127 / top, torch.zeros(())))
            d = top / 127
            sums = (d[..., 0] * q.sum(-1)).half().to(x)
            x = (d.half().float() * q).flatten(-2).to(x)
        y = x @ self.dq.to(x).T
        return y if self.m is None else y + sums @ self.m.to(x).T


class Rounded:
    def __init__(self, file, layers):
        number = lambda key: file.keys["llama." + key]
        self.H, self.G = number("attention.head_count"), number("attention.head_count_kv")
        self.eps, self.theta = number("attention.layer_norm_rms_epsilon"), number("rope.freq_base")
        self.layers = layers
        vector = lambda name: torch.tensor(np.frombuffer(file.raw(name), np.float32).copy())
        self.p = {name[:-7]: vector(name) if kind == F32 else Matrix(file, name)
                  for name, (_, kind, _) in file.tensors.items()
                  if not name.startswith("blk.") or int(name.split(".")[1]) < layers}

    def norm(self, x, name):
        mean = (x * x).double().mean(-1, keepdim=True).to(x)
        return x * (1 / torch.sqrt(mean + self.eps)) * self.p[name].to(x)

    def rotate(self, x):  # (T, heads, D): neighbours turn. An angle is the one before it times a factor, in float32
        T, _, D = x.shape
        angle = torch.full((T, D // 2), self.theta ** (-2 / D)).index_put((torch.tensor(range(T)), torch.tensor(0)),
                                                                          torch.arange(T).float())
        for j in range(1, D // 2):
            angle[:, j] *= angle[:, j - 1]
        c, s, (a, b) = angle.cos()[:, None].to(x), angle.sin()[:, None].to(x), (x[..., ::2], x[..., 1::2])
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    def logprobs(self, ids, rounding, dtype=torch.float32):
        """(T, V), in float64, of the token that follows each."""
        p = self.p
        x = p["token_embd"].row(ids).to(dtype)
        linear = lambda x, name: p[name].times(x, rounding)
        hidden = torch.ones(len(ids), len(ids)).triu(1).bool()
        for i in range(self.layers):
            at = f"blk.{i}."
            a = self.norm(x, at + "attn_norm")
            q, k, v = (linear(a, at + "attn_" + n).unflatten(-1, (h, -1)) for n, h in (("q", self.H), ("k", self.G), ("v", self.G)))
            q, k = self.rotate(q), self.rotate(k)
            q, k, v = (y.repeat_interleave(self.H // y.shape[1], 1).transpose(0, 1) for y in (q, k, v))
            score = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf)
            x = x + linear((torch.softmax(score, -1) @ v).transpose(0, 1).flatten(1), at + "attn_output")
            b = self.norm(x, at + "ffn_norm")
            wide = torch.nn.functional.silu(linear(b, at + "ffn_gate")) * linear(b, at + "ffn_up")
            x = x + linear(wide, at + "ffn_down")
        head = p.get("output", p["token_embd"])
        return torch.log_softmax(head.times(self.norm(x, "output_norm"), rounding).double(), -1)
