#!/usr/bin/env python3
"""Writes test/fixtures/formats.safetensors: PyTorch's conversions to and from bf16, fp16, fp8 and (by
arithmetic in float64, because it has no such dtype) tf32.

fp8 is stored whole; for the larger formats the file has XXH3-128 hashes of the results in its metadata (as
`xxhsum -H2` prints them), over inputs that test/test_formats.c makes by the same rules, and a sample in full:

  decode     every pattern, as float32
  edges      for every finite pattern p >= 0 with value v, w the next value (beyond the largest number, at the
             same distance) and m = (v + w) / 2: v, the float32 below m, m, the float32 above m; then all negated
  sweep      the float32 with the bits k * 4099 mod 2^32, k = 0 .. 2^20 - 1
  sample     the sweep's every 4096th

NaN is 0x7fc00000 in float32; in a format it is the pattern one below the sign bit (0x7fff, 0x7f), for any payload.
Names end in _sat where the input was first clamped to the largest number (OCP OFP8's saturating mode). The others are
its non-saturating mode: what is too large, and Inf, becomes NaN in E4M3 and Inf in E5M2. PyTorch 2.5 converts to E4M3 in
that mode, 2.15 saturates (to E5M2 both give Inf); so too_large puts the NaN there, and every version writes one file.

Needs PyTorch 2.1 or later for fp8, xxhash, NumPy. Run: python3 dev/reference/make_formats.py
"""
import numpy as np
import torch
import xxhash

from fixture import save

FORMATS = {  # dtype, integer type, exponent bits, mantissa bits
    "bf16": (torch.bfloat16, np.uint16, 8, 7),
    "fp16": (torch.float16, np.uint16, 5, 10),
    "e4m3": (torch.float8_e4m3fn, np.uint8, 4, 3),
    "e5m2": (torch.float8_e5m2, np.uint8, 5, 2),
}
VIEW = {np.uint16: torch.int16, np.uint8: torch.uint8}


def values(patterns, name):
    """The float32 numbers of patterns."""
    if name == "tf32":
        return (patterns << 13).astype(np.uint32).view(np.float32)
    dtype, integer, _, _ = FORMATS[name]
    signed = patterns.astype(integer).view(np.int16 if integer is np.uint16 else np.uint8)
    return torch.from_numpy(signed).view(dtype).to(torch.float32).numpy()


def tf32(x, largest, saturate):
    """To nearest even with 10 mantissa bits, by arithmetic: in float64 every step but rint is exact."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        x = x.astype(np.float64)
    if saturate:
        x = np.clip(x, -largest, largest)
    finite = np.where(np.isfinite(x), x, 0)
    step = np.exp2(np.maximum(np.frexp(finite)[1] - 1.0, -126.0) - 10.0)
    rounded = np.rint(finite / step) * step
    rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, rounded), rounded)
    rounded = np.where(np.isfinite(x), np.copysign(rounded, x), x)
    with np.errstate(over="ignore"):
        return (rounded.astype(np.float32).view(np.uint32) >> 13).astype(np.uint32)


def too_large(x, largest):
    """For E4M3: 464, half a step above the largest number, 448, is a tie and rounds to it."""
    return np.abs(x) > largest + (np.exp2(np.floor(np.log2(largest))) / 8) / 2


def encoded(x, name, largest, saturate):
    """The patterns of float32 numbers, NaN as one below the sign bit."""
    if name == "tf32":
        out, top = tf32(x, largest, saturate), (1 << 18) - 1
    else:
        dtype, integer, _, _ = FORMATS[name]
        tensor = torch.from_numpy(x)
        if saturate:
            tensor = tensor.clamp(-largest, largest)
        out, top = tensor.to(dtype).view(VIEW[integer]).numpy().view(integer), np.iinfo(integer).max >> 1
        if name == "e4m3" and not saturate:
            out = np.where(too_large(x, largest), top, out).astype(integer)
    return np.where(np.isnan(x), top, np.where(np.isnan(values(out, name)), top, out)).astype(out.dtype)


def edges(numbers):
    """numbers: the finite ones, ascending from 0."""
    v = numbers.astype(np.float64)
    above = np.append(v[1:], v[-1] + (v[-1] - v[-2]))
    middle = ((v + above) / 2).astype(np.float32)
    assert np.array_equal(middle.astype(np.float64), (v + above) / 2)
    below, above = (np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf))
    rows = [numbers, below, middle, above]
    positive = np.stack(rows, 1).reshape(-1)
    return np.concatenate([positive, -positive])


def digest(array):
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).tobytes())


def main():
    tensors, metadata = {}, {"torch": torch.__version__}
    sweep = (np.arange(1 << 20, dtype=np.uint64) * 4099).astype(np.uint32).view(np.float32)
    tensors["sample"] = sweep[::4096].view(np.int32)
    for name in ["tf32", *FORMATS]:
        bits = 19 if name == "tf32" else 8 * np.dtype(FORMATS[name][1]).itemsize
        every = values(np.arange(1 << bits, dtype=np.uint32), name)
        table = np.where(np.isnan(every), np.uint32(0x7FC00000), every.view(np.uint32)).astype(np.uint32)
        numbers = every[: 1 << (bits - 1)]
        numbers = numbers[np.isfinite(numbers)]
        metadata[f"{name}/decode"] = digest(table)
        if bits == 8:
            tensors[f"{name}/decode"] = table.view(np.int32)
        for suffix, saturate in [("", False), ("_sat", True)]:
            out = {kind: encoded(x, name, numbers[-1], saturate)
                   for kind, x in [("edges", edges(numbers)), ("sweep", sweep)]}
            for kind, array in out.items():
                metadata[f"{name}/{kind}{suffix}"] = digest(array)
            tensors[f"{name}/sample{suffix}"] = out["sweep"][::4096].astype(np.int32)
            if bits == 8:
                tensors[f"{name}/edges{suffix}"] = out["edges"].astype(np.int32)
    save("formats", tensors, metadata)


main()
