#!/usr/bin/env python3
"""Times build/tokenize, Hugging Face tokenizers and tiktoken on the same text, one after another: MB/s and ratios.

Training: the text in memory to a vocabulary. Encoding: documents in memory to ids, with GPT-2's expression and the
vocabulary just trained; ours fills its cache of words on the way, as theirs do. Ours is timed by build/tokenize bench.

Run: python3 dev/reference/bench_tokenizer.py [--build build] [--mb 50] [--vocab 8192] [FILE]
     (pip install tokenizers tiktoken; without FILE: MB of mixed scripts, mixed_text.py; <|endoftext|> cuts documents)
"""
import argparse
import base64
import os
import re
import subprocess
import sys
import tempfile
import time

args = argparse.ArgumentParser()
args.add_argument("--build", default="build")
args.add_argument("--mb", type=float, default=50)
args.add_argument("--vocab", type=int, default=8192)
args.add_argument("--threads", type=int)  # of theirs: this program starts itself once for each number
args.add_argument("file", nargs="?")
args = args.parse_args()
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
TOKENIZE = os.path.join(args.build, "tokenize")

from mixed_text import SEPARATOR, documents  # noqa: E402


def theirs(path, ranks, threads):
    """Prints the speeds of tokenizers and tiktoken on this many threads."""
    import tiktoken
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers
    text = open(path, newline="").read()
    mb, texts, speed = len(text.encode()) / 1e6, text.split(SEPARATOR), []
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=args.vocab - 1, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    ranks = {base64.b64decode(k): int(v) for k, v in (line.split() for line in open(ranks, "rb"))}
    encoding = tiktoken.Encoding("bench", mergeable_ranks=ranks, special_tokens={}, pat_str=GPT2)
    for work in (lambda: t.train_from_iterator(texts, trainer),
                 lambda: [t.encode_batch_fast(texts[k:k + 1000]) and None for k in range(0, len(texts), 1000)],
                 lambda: [encoding.encode_ordinary(x) and None for x in texts] if threads == 1
                 else encoding.encode_ordinary_batch(texts, num_threads=threads)):
        start = time.perf_counter()
        work()
        speed.append(mb / (time.perf_counter() - start))
    print(*speed)


if args.threads:
    sys.exit(theirs(args.file, os.environ["BENCH_RANKS"], args.threads))
with tempfile.TemporaryDirectory() as folder:
    path = args.file or os.path.join(folder, "mixed.txt")
    tok, ranks = os.path.join(folder, "tok"), os.path.join(folder, "ranks")
    if not args.file:
        with open(path, "w", newline="") as out:
            out.write(SEPARATOR.join(documents(args.mb * 1e6)))
    vocab = ["--special", "--vocab", str(args.vocab)]
    subprocess.run([TOKENIZE, "train", *vocab, "--out", tok, path], check=True, capture_output=True)
    subprocess.run([TOKENIZE, "convert", "--tokenizer", tok, "--to", "ranks", "--out", ranks], check=True)
    text = subprocess.run([TOKENIZE, "bench", *vocab, path], check=True, capture_output=True, text=True).stdout
    print(f"{'threads':<8}{'':<22}{'ours MB/s':>10}{'theirs':>10}{'ratio':>8}")
    for threads in 1, 2:
        train, encode = map(float, re.search(rf"^ +{threads} +(\S+) +(\S+)$", text, re.M).groups())
        env = dict(os.environ, RAYON_NUM_THREADS=str(threads), BENCH_RANKS=ranks)
        command = [sys.executable, __file__, "--threads", str(threads), "--vocab", str(args.vocab), path]
        run = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        for name, ours, other in zip(("training, tokenizers", "encoding, tokenizers", "encoding, tiktoken"),
                                     (train, encode, encode), map(float, run.split())):
            print(f"{threads:<8}{name:<22}{ours:10.1f}{other:10.1f}{ours / other:7.1f}x")
