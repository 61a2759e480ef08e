#!/usr/bin/env python3
"""Times build/prepare tokenizer, Hugging Face tokenizers and tiktoken on the same text: MB/s and ratios, as a table.

Training: from text in memory to a vocabulary, on 2 threads, in wall-clock and in processor time. Encoding: from
documents in memory to ids, with GPT-2's expression and the vocabulary just trained, on one thread, in processor time,
which other work on the machine changes less. Rounds alternate (ours, theirs, ours, theirs), and the median of their
ratios is printed. Every program fills its cache of words within the timing. Ids are compared first.

Run: python3 dev/reference/bench_tokenizer.py [--build build] [--mb 20] [--vocab 8192] [--rounds 5] [--train-mb MB]
     [--train-rounds 1] [FILE]     (pip install tokenizers tiktoken; <|endoftext|> cuts documents)
Texts: MB of mixed scripts (mixed_text.py), of build/stories, and FILE. Training: half mixed, half stories, of --train-mb
together; that text is kept in runs/bench_data.
"""
import argparse
import array
import base64
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from mixed_text import SEPARATOR

args = argparse.ArgumentParser()
args.add_argument("--build", default="build")
args.add_argument("--mb", type=float, default=20)
args.add_argument("--train-mb", type=float, default=100)
args.add_argument("--train-rounds", type=int, default=1)
args.add_argument("--vocab", type=int, default=8192)
args.add_argument("--rounds", type=int, default=5)
args.add_argument("--train", action="store_true")  # for the process in which this program times theirs
args.add_argument("file", nargs="?")
args = args.parse_args()
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
TOKENIZE = [os.path.join(args.build, "prepare"), "tokenizer"]


def tokenize(*arguments):
    room = [] if arguments[0] == "convert" else ["--max-document", "4095"]  # texts of any size
    return subprocess.run([*TOKENIZE, *map(str, arguments), *room], check=True, capture_output=True).stdout


def read(path):
    text = open(path, newline="").read()
    return len(text.encode()) / 1e6, text.split(SEPARATOR)


def train(path):
    """Prints the seconds that tokenizers takes, in wall-clock and in processor time."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    _, texts = read(path)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=args.vocab - 1, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    start, work = time.perf_counter(), time.process_time()
    t.train_from_iterator(texts, trainer)
    print(time.perf_counter() - start, time.process_time() - work)


def speed(line):  # of a row of build/prepare tokenizer bench: training MB/s, its MB/CPU s, encoding MB/s, its MB/CPU s
    return [float(x) if x != "-" else None for x in line.split()[1:]]


def row(text, mb, what, ours, theirs, ratio):
    print(f"| {text} | {mb:.0f} | {what} | {ours:.1f} | {theirs:.1f} | {ratio:.1f} |", flush=True)


def time_training(name, path):
    mb, rounds = os.path.getsize(path) / 1e6, []
    command = [sys.executable, __file__, "--train", "--vocab", str(args.vocab), path]
    env = dict(os.environ, RAYON_NUM_THREADS="2", TOKENIZERS_PARALLELISM="true")
    for _ in range(args.train_rounds):
        ours = speed(tokenize("bench", "--train-only", "--special", "--threads", 2, "--vocab", args.vocab, path).decode()
                     .splitlines()[-1])
        theirs = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.split()
        rounds.append([(ours[k], mb / float(theirs[k])) for k in (0, 1)])
    for k, clock in enumerate(("clock", "processor")):
        pairs = [r[k] for r in rounds]
        row(name, mb, f"training, 2 threads, by the {clock}: tokenizers", *(statistics.median(p[i] for p in pairs)
            for i in (0, 1)), statistics.median(a / b for a, b in pairs))


def time_encoding(name, path, folder):
    import tiktoken
    from tokenizers import Tokenizer
    mb, texts = read(path)
    tok, ranks = os.path.join(folder, "tok"), os.path.join(folder, "ranks")
    tokenize("train", "--special", "--vocab", args.vocab, "--out", tok, path)
    tokenize("convert", "--tokenizer", tok, "--to", "ranks", "--out", ranks)
    rank = {base64.b64decode(k): int(v) for k, v in (line.split() for line in open(ranks, "rb"))}
    encoding = tiktoken.Encoding("bench", mergeable_ranks=rank, special_tokens={}, pat_str=GPT2)
    hf = Tokenizer.from_file(os.path.join(tok, "tokenizer.json"))
    ids = array.array("i")
    for i, text in enumerate(texts):
        ids.extend(([len(rank)] if i else []) + encoding.encode_ordinary(text))
    if tokenize("encode", "--special", "--raw", "--tokenizer", tok, path) != ids.tobytes():
        sys.exit(f"{name}: ids are not tiktoken's")
    del ids
    works = {"tiktoken": lambda: [encoding.encode_ordinary(x) and None for x in texts],
             "tokenizers": lambda: [hf.encode_batch_fast(texts[k:k + 1000]) and None for k in range(0, len(texts), 1000)]}
    for other, work in works.items():
        pairs = []
        for _ in range(args.rounds):
            line = tokenize("bench", "--special", "--threads", 1, "--tokenizer", tok, path).decode().splitlines()[-1]
            start = time.process_time()
            work()
            pairs.append((speed(line)[3], mb / (time.process_time() - start)))
        ours, theirs = (statistics.median(p[k] for p in pairs) for k in (0, 1))
        row(name, mb, f"encoding, 1 thread: {other}", ours, theirs, statistics.median(a / b for a, b in pairs))


def write_mixed(path, mb, seed=1):
    command = [sys.executable, os.path.join(os.path.dirname(__file__), "mixed_text.py"), str(mb), str(seed), path]
    return subprocess.Popen(command)


def training_text(mb):
    """Half of it mixed, half of it stories. Kept, because making it takes as long as training on it."""
    path, folder = f"runs/bench_data/text_{mb:g}.txt", "runs/bench_data/parts"
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        mixed = [write_mixed(f"{folder}/mixed_{seed}.txt", mb / 4, seed) for seed in (1, 2)]
        command = [os.path.join(args.build, "stories"), "--bytes", f"{mb / 2 * 1e6:.0f}", "--out", folder]
        subprocess.run(command, check=True, capture_output=True)
        if any(p.wait() for p in mixed):
            sys.exit("mixed_text.py failed")
        with open(path + ".tmp", "wb") as out:
            for k, part in enumerate(("mixed_1.txt", "mixed_2.txt", "train.txt")):
                out.write(SEPARATOR.encode() if k else b"")
                with open(os.path.join(folder, part), "rb") as f:
                    shutil.copyfileobj(f, out)
        os.rename(path + ".tmp", path)
        shutil.rmtree(folder)
    return path


os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
if args.train:
    sys.exit(train(args.file))
large = training_text(args.train_mb)
print("| text | MB | what, and beside whom | ours, MB/s | theirs | ratio |\n|---|---|---|---|---|---|")
time_training("both", large)
with tempfile.TemporaryDirectory() as folder:
    mixed, stories = (os.path.join(folder, name) for name in ("mixed.txt", "train.txt"))
    write_mixed(mixed, args.mb).wait()
    command = [os.path.join(args.build, "stories"), "--bytes", f"{args.mb * 1e6:.0f}", "--out", folder]
    subprocess.run(command, check=True, capture_output=True)
    for name, path in [("mixed", mixed), ("stories", stories)] + [("file", args.file)] * bool(args.file):
        time_encoding(name, path, folder)
