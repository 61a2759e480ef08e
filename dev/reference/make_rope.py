#!/usr/bin/env python3
"""Writes test/fixtures/rope.safetensors: the frequencies and the amplitude of stretched rotary positions (src/ops/rope.h),
as the package transformers computes them for a LLaMA with such a configuration.

It computes in float32. Names are CASE/frequency (D/2) and CASE/amplitude (1); the case's numbers are metadata:
CASE = "D theta kind factor original slow fast". The package has no `ntk`; the case gives
it the equivalent theta. Run: python3 dev/reference/make_rope.py   (PyTorch, transformers, NumPy)
"""
import numpy as np
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from fixture import save

# D, theta, kind, factor, original, slow, fast: as Llama 2 is stretched, and Llama 3.1 is, and with odd numbers
CASES = [
    (128, 10000.0, "linear", 4, 4096, 0, 0),
    (128, 10000.0, "ntk", 4, 4096, 0, 0),
    (128, 10000.0, "yarn", 16, 4096, 1, 32),
    (64, 500.0, "yarn", 2.5, 300, 2, 7.5),
    (10, 10000.0, "yarn", 4, 64, 1, 32),
    (128, 500000.0, "llama3", 8, 8192, 1, 4),
    (64, 1000.0, "llama3", 3.5, 700, 2, 9),
]


def reference(D, theta, kind, factor, original, slow, fast):
    rope = {"rope_type": kind, "rope_theta": theta, "factor": float(factor)}
    if kind == "ntk":
        rope = {"rope_type": "linear", "rope_theta": theta * factor ** (D / (D - 2)), "factor": 1.0}
    if kind in ("yarn", "llama3"):
        rope["original_max_position_embeddings"] = original
    if kind == "yarn":
        rope |= {"beta_slow": slow, "beta_fast": fast}
    if kind == "llama3":
        rope |= {"low_freq_factor": slow, "high_freq_factor": fast}
    config = LlamaConfig(hidden_size=4 * D, num_attention_heads=4, head_dim=D, rope_parameters=rope,
                         max_position_embeddings=int(original * factor))
    return ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, device="cpu")


tensors, metadata = {}, {}
for i, case in enumerate(CASES):
    frequency, amplitude = reference(*case)
    tensors[f"{i}/frequency"] = frequency
    tensors[f"{i}/amplitude"] = np.array([amplitude])
    metadata[str(i)] = " ".join(str(x) for x in case)
save("rope", tensors, metadata)
