#!/usr/bin/env python3
"""Are the gradients of models with experts those of Transformers?

For each shape: a MixtralForCausalLM, a Qwen3MoeForCausalLM or an OlmoeForCausalLM with random weights is saved in
float32. Transformers computes loss and gradients of one batch in float64 (its router is in float32 whatever the model is); `build/import` and
one step of `build/train --run.dump=1` compute ours in float32. The difference of a tensor is that of its largest
deviation to its largest element, or to a thousandth of the largest element of all: some tensors are 0 but for rounding.

What may differ: Transformers computes the same gradients in float32 too. Both float32 results round the same sums, each in
an order of its own, so their errors are walks of equally many random steps of 2^-24 of a part sum, and the largest of
thousands of them differ little. So our largest difference from float64 may be at most FACTOR times theirs. It is 4 and not
1 since the chains of a blocked product and of a plain one differ in length, by sqrt(n) at most a few times.

A token whose k-th and next scores are closer than rounding may choose other experts here than there. So weights are drawn
again until none of the batch is closer than GAP.

The balance loss is Transformers' own load_balancing_loss_func, of each sequence and layer, with c / L: what a coefficient
c of its config.json becomes here (doc/models.md). With one layer and one sequence it is exactly the loss of its class.

Run: python3 dev/reference/check_experts.py   (PyTorch, transformers, NumPy, safetensors; build/ must exist)
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, MixtralConfig, OlmoeConfig, Qwen3MoeConfig
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

V, FACTOR, GAP = 512, 4, 1e-5
SIZES = dict(vocab_size=V, hidden_size=66, num_attention_heads=6, num_key_value_heads=2, head_dim=14)
# class, layers, T, sequences, width, E, k, coefficient; then what else there is
CASES = {
    "plain": ("mixtral", 2, 32, 4, 130, 8, 2, 0.0, {}),
    "one expert": ("mixtral", 2, 37, 2, 50, 1, 1, 0.0, {}),
    "all experts": ("mixtral", 2, 29, 3, 33, 5, 5, 0.0, {}),
    "one of many": ("mixtral", 3, 41, 2, 17, 13, 1, 0.0, {}),
    "experts without tokens": ("qwen3_moe", 2, 5, 1, 24, 32, 2, 0.0, dict(norm_topk_prob=True)),
    "one has all tokens": ("qwen3_moe", 2, 31, 3, 40, 6, 1, 0.0, dict(one=True)),
    "one always chosen": ("mixtral", 2, 31, 3, 40, 6, 2, 0.0, dict(one=True)),
    "weights not divided": ("qwen3_moe", 2, 33, 3, 37, 7, 3, 0.0, {}),
    "every second layer": ("qwen3_moe", 3, 23, 4, 37, 6, 2, 0.0, dict(decoder_sparse_step=2, norm_topk_prob=True)),
    "a dense layer first": ("qwen3_moe", 3, 30, 2, 64, 4, 3, 0.0, dict(mlp_only_layers=[0], tie_word_embeddings=True)),
    "balance": ("mixtral", 1, 63, 1, 40, 8, 2, 0.5, {}),
    "balance of layers": ("qwen3_moe", 3, 27, 4, 29, 9, 4, 0.3, dict(norm_topk_prob=True)),
    "balance of two": ("qwen3_moe", 2, 35, 3, 20, 5, 2, 2.0, {}),
    "window": ("mixtral", 2, 40, 2, 48, 4, 2, 0.1, dict(sliding_window=7)),
    "whole norms": ("olmoe", 3, 33, 3, 37, 7, 3, 0.0, dict(num_key_value_heads=6)),
    "whole norms, grouped": ("olmoe", 2, 26, 4, 41, 5, 2, 0.3, dict(norm_topk_prob=True)),
    "two tokens": ("mixtral", 1, 2, 1, 10, 4, 2, 0.0, {}),
}


def program(*words):
    done = subprocess.run(["build/" + words[0], *words[1:]], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr}")


def config_of(kind, layers, T, width, E, k, coefficient, more):
    more = {key: value for key, value in more.items() if key != "one"}
    common = dict(SIZES | more, num_hidden_layers=layers, max_position_embeddings=T, num_experts_per_tok=k,
                  router_aux_loss_coef=coefficient)
    if kind == "mixtral":
        return MixtralConfig(**common, intermediate_size=width, num_local_experts=E)
    if kind == "olmoe":  # heads are as wide together as the channels
        del common["head_dim"]
        return OlmoeConfig(**dict(common, hidden_size=72), intermediate_size=width, num_experts=E)
    return Qwen3MoeConfig(**common, intermediate_size=90, moe_intermediate_size=width, num_experts=E)


def random_model(config, seed, one):
    """one: a channel that is large in every token decides between the first expert and the others."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn_like(weight) * (0.2 if weight.dim() > 1 else 0.3) + (weight.dim() == 1))
            if one and "embed" in name:
                weight[:, 0] = 6
            if one and name.endswith("gate.weight"):
                weight *= 0.2
                weight[:, 0] = -0.3
                weight[0, 0] = 0.3
    return model


def theirs(model, tokens, n, T, coefficient):
    """The loss, with gradients in the parameters; the smallest distance of a token's k-th and next score; used experts."""
    k, E, gap, used, loss = model.config.num_experts_per_tok, model.config.num_local_experts, 1.0, set(), 0
    for b in range(n):
        out = model(tokens[b * T:(b + 1) * T][None], output_router_logits=True)
        loss = loss + torch.nn.functional.cross_entropy(out.logits[0], tokens[b * T + 1:(b + 1) * T + 1]) / n
        for z in out.router_logits:
            loss = loss + load_balancing_loss_func((z,), E, k) * coefficient / len(out.router_logits) / n
            score = torch.softmax(z.detach(), -1).sort(-1, descending=True).values
            gap = min(gap, float((score[:, k - 1] - score[:, k]).min()) if k < E else 1.0)
            used |= set(z.detach().topk(k).indices.flatten().tolist())
    loss.backward()
    return gap, used


def our_names(model):
    """Theirs under our names: gates and ups of a layer's experts are one tensor there."""
    grads = {}
    rules = [(r"^model\.embed_tokens", "embed.tokens"), (r"^model\.norm", "final_norm"), (r"^lm_head", "head"),
             (r"^model\.layers\.", "layers."), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
             (r"self_attn\.([qkv])_(proj|norm)", lambda m: f"attn.{m[1]}" + ("_norm" if m[2] == "norm" else "")),
             (r"self_attn\.o_proj", "attn.out"), (r"mlp\.gate\.weight", "router.weight"),
             (r"mlp\.(gate|up|down)_proj", r"ffn.\1")]
    for name, w in model.named_parameters():
        for pattern, ours in rules:
            name = re.sub(pattern, ours, name)
        experts = re.match(r"(layers\.\d+)\.mlp\.experts\.(gate_up|down)_proj", name)
        if not experts:
            grads[name] = w.grad
        for e in range(w.shape[0] if experts else 0):
            parts = w.grad[e].chunk(2) if experts[2] == "gate_up" else [w.grad[e]]
            for part, kind in zip(parts, ("gate", "up") if len(parts) == 2 else ("down",)):
                grads[f"{experts[1]}.experts.{e}.{kind}.weight"] = part
    return {name: grad.numpy() for name, grad in grads.items()}


def ours(data, folder, tokens, n, T):
    with open(f"{folder}/train.bin", "wb") as file:
        file.write(np.fromfile(f"{data}/val_000000.bin", np.uint8, 1024).tobytes())
        file.write(tokens.numpy().astype(np.uint16).tobytes())
    for file in "tokenizer.json", "tokenizer_config.json":
        shutil.copy(f"{data}/{file}", folder)
    name = os.path.basename(folder)
    program("import", folder, "--out", f"{folder}_run")
    program("train", f"{folder}_run/config.toml", f"--run.dir={data}", f"--run.name={name}_step", "--run.dump=1",
            f"--ckpt.init={folder}_run", "--run.steps=1", f"--data.train={folder}/train.bin", f"--data.val={data}/val_*.bin",
            "--data.shuffle=false", f"--batch.micro={n}", f"--batch.tokens={n * T}", "--eval.tokens=64", "--sample.count=0")
    dump = load_file(f"{data}/{name}_step/dump/step_00000001/rank_00000.safetensors")
    return {key[5:]: value for key, value in dump.items() if key.startswith("grad.")}


def differences(grads, exact):
    largest = max(abs(grad).max() for grad in exact.values())
    return {x: float(abs(grads[x] - exact[x]).max() / max(abs(exact[x]).max(), 1e-3 * largest)) for x in exact}


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager")


def compare(data, name, case, tokens):
    kind, layers, T, n, width, E, k, coefficient, more = case
    folder, seed, gap = f"{data}/{name.replace(' ', '_')}", 0, 0
    while gap < GAP:
        seed += 1
        random_model(config_of(kind, layers, T, width, E, k, coefficient, more), seed, "one" in more).save_pretrained(folder)
        model = load(folder, torch.float64)
        gap, used = theirs(model, tokens, n, T, coefficient)
    there, here, narrow = our_names(model), ours(data, folder, tokens, n, T), load(folder, torch.float32)
    theirs(narrow, tokens, n, T, coefficient)
    if there.keys() != here.keys():
        sys.exit(f"{name}: only on one side: {sorted(there.keys() ^ here.keys())[:6]}")
    apart, rounding = differences(here, there), max(differences(our_names(narrow), there).values())
    router = max(value for x, value in apart.items() if "router" in x)
    experts = max(value for x, value in apart.items() if ".experts." in x)
    worst = max(apart, key=apart.get)
    print(f"{name:22} {kind:9} {layers:6} {n:2} x {T:2} {E:3} {k:2} {len(used):5} {coefficient:5} {router:8.1e} {experts:8.1e} "
          f"{apart[worst]:8.1e} {rounding:8.1e}  {worst}", flush=True)
    return apart[worst] / rounding


def main():
    with tempfile.TemporaryDirectory() as data:
        program("stories", "--bytes", "200000", "--val-bytes", "30000", "--out", data)
        program("prepare", "tokens", "--train", f"{data}/train.txt", "--val-file", f"{data}/val.txt", "--vocab", str(V),
                "--out", data)
        tokens = torch.tensor(np.fromfile(f"{data}/val_000000.bin", np.uint16, offset=1024).astype(np.int64))
        print(f"{'':22} {'class':9} layers  batch   E  k  used  coef   router  experts  largest   theirs  tensor")
        worst = max(compare(data, name, case, tokens) for name, case in CASES.items())
    print(f"{len(CASES)} shapes, largest difference {worst:.2f} times that of float32 there (at most {FACTOR})")
    os._exit(0 if worst <= FACTOR else 1)


main()
