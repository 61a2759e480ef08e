"""Writes the test fixtures: safetensors files, without the safetensors package.

A file is: u64 little-endian header length, the JSON header padded with spaces to a multiple of 8, the data.
"""
import json
import os
import struct

import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "test", "fixtures")
LIMIT = 100_000  # bytes a file: fixtures live in git
TYPES = {np.dtype("float32"): "F32", np.dtype("int32"): "I32"}


def narrow(value):
    """Any tensor or array in the stored type: float32, or int32 for integers."""
    array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    return np.ascontiguousarray(array.astype(np.int32 if array.dtype.kind in "iu" else np.float32))


def save(name, tensors, metadata=None):
    """Writes test/fixtures/NAME.safetensors; tensors: {name: array}, metadata: {name: number or string}."""
    header, blocks, at = {"__metadata__": {"format": "pt"}}, [], 0
    for key, value in (metadata or {}).items():
        header["__metadata__"][key] = str(value)
    for key in sorted(tensors):
        array = narrow(tensors[key])
        ends = [at, at + array.nbytes]
        header[key] = {"dtype": TYPES[array.dtype], "shape": list(array.shape), "data_offsets": ends}
        blocks.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    total = 8 + len(text) + at
    assert total < LIMIT, f"{name}: {total} bytes, the limit is {LIMIT}"
    with open(os.path.join(FOLDER, name + ".safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blocks))
    print(f"{name}.safetensors: {len(tensors)} tensors, {total} bytes")
