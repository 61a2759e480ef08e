#!/usr/bin/env python3
"""Times build/dedup and datasketch 2 on the same documents, side by side: signatures, bands and candidates.

datasketch gets its fastest way: one batch of n-grams a document, with xxhash as hash function too, and its default
sha1 beside it. Both sides read, normalize and cut into n-grams what they hash; ours also compares the candidates.

Run: python3 dev/reference/bench_dedup.py [BUILD] [DOCUMENTS]   (pip install datasketch xxhash; default: build 2000)
"""
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import xxhash
from datasketch import MinHash, MinHashLSH
from datasketch.hashfunc import sha1_hash32

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
DOCUMENTS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
SEPARATOR = "<|endoftext|>"
NGRAM, WORDS, COPIES = 13, 400, 50  # ours gets COPIES times as many documents: it is too fast to time otherwise


def write(path, n):
    """Random words; every tenth document is the one before with another first word."""
    rng, words = random.Random(1), ["first"] * WORDS
    with open(path, "w") as file:
        for i in range(n):
            words = [f"{rng.getrandbits(24):x}" for _ in range(WORDS)] if i % 10 else ["again"] + words[1:]
            file.write(" ".join(words) + SEPARATOR)


def datasketch(path, hashfunc):
    start, lsh = time.perf_counter(), MinHashLSH(threshold=0.8, num_perm=128)
    for i, text in enumerate(open(path).read().split(SEPARATOR)[:-1]):
        words = text.lower().split()
        m = MinHash(num_perm=128, hashfunc=hashfunc)
        m.update_batch({" ".join(words[k:k + NGRAM]).encode() for k in range(max(1, len(words) - NGRAM + 1))})
        lsh.query(m)
        lsh.insert(i, m)
    return DOCUMENTS / (time.perf_counter() - start)


def ours(path, threads):
    text = subprocess.run([os.path.join(BUILD, "dedup"), "--bench", "--threads", str(threads), path], check=True,
                          capture_output=True, text=True).stdout
    return float(re.search(r"^all .* s +(\d+) documents/s", text, re.M).group(1))


with tempfile.TemporaryDirectory() as folder:
    small, large = os.path.join(folder, "small.txt"), os.path.join(folder, "large.txt")
    write(small, DOCUMENTS)
    write(large, DOCUMENTS * COPIES)
    ours(large, 1)  # the file is in memory from here on
    theirs = {"datasketch, sha1": datasketch(small, sha1_hash32),
              "datasketch, xxh3": datasketch(small, lambda b: xxhash.xxh3_64_intdigest(b) & 0xFFFFFFFF)}
    best = max(theirs.values())
    print("| near-duplicates | documents/s | of the faster datasketch |\n|---|---|---|")
    for name, speed in list(theirs.items()) + [(f"build/dedup, {t} thread{'s' * (t > 1)}", ours(large, t)) for t in (1, 2)]:
        print(f"| {name} | {speed:.0f} | {speed / best:.1f} |")
