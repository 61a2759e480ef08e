#!/usr/bin/env python3
"""Compares build/prepare tokenizer with Hugging Face tokenizers and tiktoken on the same texts: merges, ids, files.

For every text and pattern, BpeTrainer must find our merges. Our tokenizer.json must load there, give the same
ids, and be unchanged by loading and saving it. Our rank file must give the same ids in tiktoken, and when it is read
back here; so must vocab.json and merges.txt. With --gpt2, ids of GPT-2's own vocabulary are compared with tiktoken's.

Run: python3 dev/reference/check_tokenizer.py [--build build] [--mb 5] [--vocab 8192] [--gpt2 FOLDER] [FILE...]
     (pip install tokenizers tiktoken; --gpt2: a folder with GPT-2's vocab.json and merges.txt; --mb 100: minutes)
Texts: build/stories, MB of mixed scripts (mixed_text.py), and the FILEs, with <|endoftext|> between documents.
"""
import argparse
import array
import base64
import json
import os
import subprocess
import sys
import tempfile

import tiktoken
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from mixed_text import SEPARATOR, documents

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
BLANKS_LAST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
PATTERNS = {"gpt2": GPT2, "cl100k": CL100K, "llama3": CONTRACTIONS + r"\p{N}{1,3}" + BLANKS_LAST,
            "qwen2": CONTRACTIONS + r"\p{N}" + BLANKS_LAST,
            "smollm": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"}
args = argparse.ArgumentParser()
args.add_argument("--build", default="build")
args.add_argument("--mb", type=float, default=5)
args.add_argument("--vocab", type=int, default=8192)
args.add_argument("--gpt2")
args.add_argument("file", nargs="*")
args = args.parse_args()
failures = 0


def verdict(what, same):
    global failures
    failures += not same
    print(f"{'same' if same else 'DIFFERENT':<10}{what}", flush=True)


def tokenize(*arguments):
    room = [] if arguments[0] == "convert" else ["--max-document", "4095"]  # texts of any size
    command = [os.path.join(args.build, "prepare"), "tokenizer", *map(str, arguments), *room]
    return subprocess.run(command, check=True, capture_output=True).stdout


def our_ids(path, tokenizer, pattern="gpt2"):
    options = ["--raw", "--special", "--tokenizer", tokenizer, "--pattern", pattern]
    return array.array("i", tokenize("encode", *options, path))


def join(lists, eot):
    out = array.array("i")
    for i, ids in enumerate(lists):
        out.extend([eot] * (i > 0))
        out.extend(ids)
    return out


def their_trainer(pattern, texts):
    t = tokenizers.Tokenizer(models.BPE())
    if pattern == "gpt2":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif pattern == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        t.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"), to_bytes])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=args.vocab - 1, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def load_ranks(path):
    return {base64.b64decode(k): int(v) for k, v in (line.split() for line in open(path, "rb"))}


def their_encoding(pattern, ranks):
    return tiktoken.Encoding("check", pat_str=PATTERNS[pattern], mergeable_ranks=ranks,
                             special_tokens={SEPARATOR: len(ranks)})


def check_text(name, path, folder):
    texts = open(path, newline="").read().split(SEPARATOR)
    for pattern in PATTERNS:
        what, out = f"{name}, {pattern}: ", os.path.join(folder, "tok")
        tokenize("train", "--special", "--pattern", pattern, "--vocab", args.vocab, "--out", out, path)
        ours, theirs = json.load(open(out + "/tokenizer.json")), json.loads(their_trainer(pattern, texts).to_str())
        merges = [list(m) for m in ours["model"]["merges"]]
        verdict(f"{what}{len(merges)} merges, BpeTrainer", merges == [list(m) for m in theirs["model"]["merges"]])
        ids, eot = our_ids(path, out), len(merges) + 256
        loaded = tokenizers.Tokenizer.from_file(out + "/tokenizer.json")
        encoded = (e.ids for k in range(0, len(texts), 1000) for e in loaded.encode_batch_fast(texts[k:k + 1000]))
        verdict(f"{what}{len(ids)} ids, tokenizers", ids == join(encoded, eot))
        loaded.save(out + "/tokenizer.json")
        verdict(f"{what}ids after saving it in tokenizers", ids == our_ids(path, out))
        again = json.load(open(out + "/tokenizer.json"))
        verdict(f"{what}tokenizer.json after saving it in tokenizers",
                all(again[k] == ours[k] for k in ours if k not in ("decoder", "pre_tokenizer")))
        ranks = os.path.join(folder, "ranks")
        tokenize("convert", "--tokenizer", out, "--to", "ranks", "--out", ranks)
        encoding = their_encoding(pattern, load_ranks(ranks))
        verdict(f"{what}ids, tiktoken", ids == join((encoding.encode_ordinary(t) for t in texts), eot))
        verdict(f"{what}ids, the rank file read here", ids == our_ids(path, ranks, pattern))
        if pattern == "gpt2":
            two = os.path.join(folder, "gpt2")
            tokenize("convert", "--tokenizer", ranks, "--to", "gpt2", "--out", two)
            verdict(f"{what}ids, vocab.json and merges.txt read here", ids == our_ids(path, two))
            b = tokenizers.ByteLevelBPETokenizer(two + "/vocab.json", two + "/merges.txt")
            encoded = join((b.encode(t).ids for t in texts), eot)
            verdict(f"{what}ids, vocab.json and merges.txt in tokenizers", ids == encoded)
    if args.gpt2:
        encoding = their_encoding("gpt2", load_ranks(os.path.join(folder, "gpt2_ranks")))
        theirs = join((encoding.encode_ordinary(t) for t in texts), 50256)
        verdict(f"{name}: {len(theirs)} ids of GPT-2's vocabulary, tiktoken", our_ids(path, args.gpt2) == theirs)


def gpt2_ranks(path):
    """tiktoken's view of GPT-2's two files: the spelled tokens, as bytes, in the order of their ids."""
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in prints]
    byte = {chr(b): b for b in prints} | {chr(0x100 + k): b for k, b in enumerate(rest)}
    vocab = json.load(open(os.path.join(args.gpt2, "vocab.json")))
    with open(path, "wb") as out:
        for token, rank in sorted(vocab.items(), key=lambda row: row[1]):
            if token != SEPARATOR:
                out.write(base64.b64encode(bytes(byte[c] for c in token)) + b" %d\n" % rank)


with tempfile.TemporaryDirectory() as folder:
    stories, mixed = os.path.join(folder, "stories.txt"), os.path.join(folder, "mixed.txt")
    if args.gpt2:
        gpt2_ranks(os.path.join(folder, "gpt2_ranks"))
        tokenize("convert", "--tokenizer", args.gpt2, "--to", "ranks", "--out", os.path.join(folder, "our_ranks"))
        same = open(folder + "/gpt2_ranks", "rb").read() == open(folder + "/our_ranks", "rb").read()
        verdict("GPT-2's vocabulary as a rank file", same)
    command = [os.path.join(args.build, "stories"), "--bytes", "2000000", "--out", folder]
    subprocess.run(command, check=True, capture_output=True)
    os.rename(os.path.join(folder, "train.txt"), stories)
    with open(mixed, "w", newline="") as out:
        out.write(SEPARATOR.join(documents(args.mb * 1e6)))
    for name, path in [("stories", stories), ("mixed", mixed)] + [(os.path.basename(f), f) for f in args.file]:
        check_text(name, path, folder)
sys.exit(failures > 0)
