#!/usr/bin/env python3
"""The way of doc/capture.md, from an empty folder, with a model that is not of this project.

- The ten lines of the chapter, as they stand, on a nanoGPT-style model: every tensor agrees with build/train's within
  the bound of rounding (build/diff), and each takes part: the file has the tensors that our dump has.
- The same after each of some slips in the model: build/diff names the tensor where it was made.
- Models of Transformers' classes with random weights, two micro-batches, clipped: all agree, and every tensor that our
  dump has is captured.
- The model file and the debug state that llm.c's scripts write of such a model, here written by PyTorch: our gradients
  agree, and a loss over N - 1 is seen.
- bf16 autocast against numerics.dtype = bf16, gradients alone, and a map that lacks a parameter.

Run: python3 dev/reference/check_capture.py [BUILD]   (BUILD [build] must exist; makes its own virtual environment in
build/venv)
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / "build/venv"
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
STEP = "dump/step_00000001"

MODEL = '''
import math
import torch
import torch.nn as nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.n_head = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for y in self.c_attn(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), CausalSelfAttention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab=65, context=64, layers=4, heads=4, width=64):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocab, width), wpe=nn.Embedding(context, width),
            h=nn.ModuleList(Block(width, heads) for _ in range(layers)), ln_f=nn.LayerNorm(width)))
        self.lm_head = nn.Linear(width, vocab, bias=False)
        for x in self.parameters():
            if x.dim() == 2:
                nn.init.normal_(x, std=0.02)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, idx):
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(idx.shape[1]))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))
'''

# name: (in the model? else in the ten lines, what it was, what it becomes, the tensor that build/diff must name)
SLIPS = {
    "GELU by the error function, ours by tanh": (True, 'approximate="tanh"', 'approximate="none"',
                                                 "forward.layers.0.act"),
    "eps of the last norm 1e-6, ours 1e-5": (True, "ln_f=nn.LayerNorm(width)", "ln_f=nn.LayerNorm(width, eps=1e-6)",
                                             "forward.head.norm"),
    "a mask that lets each token see the next": (True, "triu(1)", "triu(2)", "forward.layers.0.attn"),
    "a bias without its gradient": (
        True, 'self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))',
        'F.linear(F.gelu(self.c_fc(x), approximate="tanh"), self.c_proj.weight, self.c_proj.bias.detach())',
        "grad.layers.3.ffn.down.bias"),
    "the loss divided by N - 1": (False, "loss.mean()", "(loss.sum() / (loss.numel() - 1))", "backward.head"),
    "a head that is a copy, not tied": (True, "self.lm_head.weight = self.transformer.wte.weight",
                                        "self.lm_head.weight.data = self.transformer.wte.weight.data.clone()",
                                        "grad.embed.tokens.weight"),
}
THEIRS = '''
import sys, torch, torch.nn.functional as F, capture
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen3Config
V, T = 500, 32
SIZES = dict(vocab_size=V, hidden_size=66, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
             head_dim=14, intermediate_size=130, max_position_embeddings=T)
MODELS = {
    "gpt2": GPT2Config(vocab_size=V, n_embd=66, n_layer=3, n_head=6, n_positions=T, resid_pdrop=0, embd_pdrop=0,
                       attn_pdrop=0, bos_token_id=0, eos_token_id=0),
    "llama": LlamaConfig(**SIZES), "qwen3": Qwen3Config(**SIZES, tie_word_embeddings=True),
    "biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5,
                          rope_parameters=dict(rope_type="default", rope_theta=5e5))}
for name, config in MODELS.items():
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0)
    tokens = torch.randint(V, (4, T + 1))
    with capture.step(name + ".safetensors", model, optimizer=optimizer) as c:
        for half in tokens[:2], tokens[2:]:
            x, y = half[:, :-1], half[:, 1:]
            loss = F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten(), reduction="none")
            c.loss(loss, targets=y)
            (loss.mean() / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
'''


LLMC = """
import struct, torch, torch.nn.functional as F
from model import GPT
torch.manual_seed(3)
model = GPT()
L, H, C, V, T = 4, 4, 64, 65, 32
tokens = torch.randint(V, (4, T + 1))
x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
logits = model(x)
loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
loss.backward()
t = "transformer."
kinds = [f"{t}h.{{}}.{x}.{w}" for x in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj") for w in ("weight", "bias")]
order = [t + "wte.weight", t + "wpe.weight"] + [k.format(i) for k in kinds for i in range(L)] + [t + "ln_f.weight", t + "ln_f.bias"]
named = dict(model.named_parameters())
def put(file, x):
    file.write(x.detach().float().contiguous().numpy().tobytes())
def all_of(file, value):
    for name in order:
        p = value(named[name])
        put(file, F.pad(p, (0, 0, 0, 128 - V)) if name.endswith("wte.weight") else p)
with open("gpt.bin", "wb") as file:
    file.write(struct.pack("<256i", 20240326, 3, named[t + "wpe.weight"].shape[0], V, L, H, C, 128, *[0] * 248))
    all_of(file, lambda p: p)
with open("gpt_debug_state.bin", "wb") as file:
    file.write(struct.pack("<256i", 20240327, 2, *x.shape, *[0] * 252))
    file.write(x.int().numpy().tobytes() + y.int().numpy().tobytes())
    put(file, logits), put(file, loss)
    all_of(file, lambda p: p.grad)
"""


def own_environment():
    if sys.prefix == str(VENV.resolve()) or sys.prefix == str(VENV):
        return
    if not (VENV / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin/pip", "install", "-q", "--only-binary", ":all:", "torch", "transformers"],
                       check=True)
        (VENV / "ready").touch()
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])


def program(*words, status=(0,)):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode not in status:
        sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def python(text, name="compare.py", status=(0,)):
    pathlib.Path(name).write_text(text)
    return program(sys.executable, name, status=status)


def diff(theirs, run, *options):
    """The last line of the report, and the tensor that it names as the first out of bound."""
    last = program(BUILD / "diff", theirs, run, *options, status=(0, 1, 3)).strip().splitlines()[-1]
    first = re.match(r"DIFFERENT: first at ([\w.]+)", last)
    return last, first and first[1]


def header(path):
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


def mean_loss(path):
    with open(path, "rb") as file:
        start = 8 + struct.unpack("<Q", file.read(8))[0]
        begin, end = header(path)["loss"]["data_offsets"]
        file.seek(start + begin)
        values = struct.unpack(f"<{(end - begin) // 4}f", file.read(end - begin))
    return sum(values) / len(values)


def left_out(theirs, run):
    return sorted(set(header(f"{run}/{STEP}/rank_00000.safetensors")) - set(header(theirs)))


def expect(what, ok):
    print(f"{'ok' if ok else 'NOT OK'}  {what}", flush=True)
    failed.append(what) if not ok else None


def the_ten_lines(lines):
    begin = time.time()
    print(python(lines), end="")
    captured = time.time()
    program(BUILD / "train", "theirs.toml")
    trained = time.time()
    last, first = diff("theirs.safetensors", "runs/theirs")
    print(f"capture {captured - begin:.1f} s, build/train {trained - captured:.1f} s, build/diff "
          f"{time.time() - trained:.1f} s, {len(lines.splitlines())} lines: {last}")
    expect("a nanoGPT-style model agrees", first is None and last.startswith("rounding"))
    expect("every tensor of our dump is captured", left_out("theirs.safetensors", "runs/theirs") == [])
    expect("ten lines are enough", len(lines.splitlines()) <= 10)
    expect("the line that says how to go on names the next run",
           python(lines).endswith("build/diff theirs.safetensors runs/theirs-2\n") and
           "runs/theirs-2" in program(BUILD / "train", "theirs.toml"))
    python(lines.replace("theirs.", "other.").replace("tokens =", "torch.manual_seed(2); tokens ="))
    last, _ = diff("other.safetensors", "runs/theirs")
    expect(f"other tokens: {last}", last.startswith("cannot tell: other tokens, from sample 0, token 0 on"))
    python(re.sub(r"(?m), optimizer=optimizer|^ *optimizer.step.*\n", "", lines.replace("theirs.", "short.")))
    last, _ = diff("short.safetensors", "runs/theirs")
    expect(f"no optimizer: {last}", last.startswith("cannot tell: not compared: state, updated"))
    python(lines.replace("theirs.", "later.").replace("tokens =", """
def update():
    model(torch.randint(65, (8, 64))).mean().backward(); optimizer.step(); optimizer.zero_grad()
before = {k: v.clone() for k, v in model.state_dict().items()}; update(); model.load_state_dict(before)
torch.manual_seed(1); GPT(); tokens =""", 1))
    last, _ = diff("later.safetensors", "runs/theirs")
    expect(f"an optimizer in use: {last}", last.startswith("cannot tell: the optimizer's state already differed"))


def slips(lines):
    right = mean_loss("theirs.safetensors")
    for name, (in_model, was, becomes, where) in SLIPS.items():
        model, step = MODEL, lines.replace("theirs.", "slip.")
        if (model if in_model else step).count(was) != 1:
            sys.exit(f"{name}: '{was}' is not there once")
        if in_model:
            model = model.replace(was, becomes)
        else:
            step = step.replace(was, becomes)
        pathlib.Path("model.py").write_text(model)
        python(step)
        _, first = diff("slip.safetensors", "runs/theirs")
        expect(f"| {name} | `{first}` | {mean_loss('slip.safetensors') - right:+.1e} |", first == where)
    pathlib.Path("model.py").write_text(MODEL)


def others(lines):
    python(THEIRS)
    for name in "gpt2", "llama", "qwen3", "biases":
        program(BUILD / "train", f"{name}.toml")
        last, first = diff(f"{name}.safetensors", f"runs/{name}")
        expect(f"{name}: {last}", first is None and last.startswith("rounding"))
        expect(f"{name}: every tensor of our dump is captured", left_out(f"{name}.safetensors", f"runs/{name}") == [])
    for name, first in (("llama", "forward.layers.0.q"), ("qwen3", "forward.layers.0.q_normed")):
        program(BUILD / "train", f"{name}.toml", f"--run.name={name}-turned", "--model.rope_theta=10100")
        expect(f"{name}, another RoPE: {first}", diff(f"{name}.safetensors", f"runs/{name}-turned")[1] == first)


def other_ways(lines):
    python(lines.replace("theirs.", "cast.").replace(" as c:", ' as c, torch.autocast("cpu", torch.bfloat16):'))
    expect("autocast is named", header("cast.safetensors")["__metadata__"]["dtype"] == "bf16-autocast")
    program(BUILD / "train", "cast.toml")
    last, first = diff("cast.safetensors", "runs/cast")
    expect(f"bf16: {last}", first is None and last.startswith("rounding") and "would be seen from 1 +- 0.0" in last)
    alone = re.sub(r"(?s)with .*", "F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()\n"
                   'capture.gradients("alone.safetensors", model)\n', lines)
    python(alone)
    last, first = diff("alone.safetensors", "runs/theirs", "--only", "grad.*")
    expect(f"gradients alone: {last}", first is None and last.startswith("rounding"))
    short = lines.replace(", optimizer=", ', names={"lm_head": "head"}, optimizer=')
    done = subprocess.run([sys.executable, "-c", short], capture_output=True, text=True)
    line = r"error: capture: 52 of 53 parameters .*wte\.weight .*extend.*\n"
    expect("a map that lacks parameters is one line that says so",
           done.returncode == 1 and re.fullmatch(line, done.stderr))


def of_llmc(lines):
    begin = time.time()
    python(LLMC, "write.py")
    written = time.time()
    python('import capture\ncapture.llmc("gpt.bin", "gpt_debug_state.bin")\n', "two_lines.py")
    program(BUILD / "train", "gpt.toml")
    last, first = diff("gpt_debug_state.bin", "runs/gpt", "--only", "grad.*")
    expect(f"llm.c's debug state, {time.time() - written:.1f} s: {last}", first is None and last.startswith("rounding"))
    python(LLMC.replace("loss.backward()", "(loss * x.numel() / (x.numel() - 1)).backward()"), "write.py")
    last, first = diff("gpt_debug_state.bin", "runs/gpt", "--only", "grad.*")
    expect(f"with a loss over N - 1: {last}", first == "grad.final_norm.bias")


own_environment()
failed = []
text = (ROOT / "doc/capture.md").read_text()
ten_lines = re.search(r"```python\n(.*?)```", text, re.S)[1]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pathlib.Path("capture.py").write_text((ROOT / "dev/reference/capture.py").read_text())
    pathlib.Path("model.py").write_text(MODEL)
    print(f"the model has {len(MODEL.strip().splitlines())} lines")
    for part in the_ten_lines, of_llmc, slips, others, other_ways:
        part(ten_lines)
    os.chdir(ROOT)
sys.exit(f"{len(failed)} failed" if failed else 0)
