#!/usr/bin/env python3
"""Times build/prepare dedup and datasketch 2 on the same documents, side by side: signatures, bands and candidates.

datasketch is used in its fastest way, one batch of n-grams a document, both with its default hash function sha1 and
with xxhash. Both sides read, normalize and cut into n-grams what they hash; ours also compares the candidates.
Processor time is measured, because other work on the machine changes it less, in alternating rounds; the median ratio
is printed.

Run: python3 dev/reference/bench_dedup.py [BUILD] [DOCUMENTS]   (pip install datasketch xxhash; default: build 2000)
"""
import os
import random
import re
import resource
import statistics
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
NGRAM, WORDS, ROUNDS, COPIES = 13, 400, 3, 25  # ours, which is faster, gets COPIES times as many documents


def write(path, n):
    """Random words; every tenth document is the previous one with another first word."""
    rng, words = random.Random(1), ["first"] * WORDS
    with open(path, "w") as file:
        for i in range(n):
            words = [f"{rng.getrandbits(24):x}" for _ in range(WORDS)] if i % 10 else ["again"] + words[1:]
            file.write(" ".join(words) + SEPARATOR)


def datasketch(path, hashfunc):
    start, lsh = time.process_time(), MinHashLSH(threshold=0.8, num_perm=128)
    for i, text in enumerate(open(path).read().split(SEPARATOR)[:-1]):
        words = text.lower().split()
        m = MinHash(num_perm=128, hashfunc=hashfunc)
        m.update_batch({" ".join(words[k:k + NGRAM]).encode() for k in range(max(1, len(words) - NGRAM + 1))})
        lsh.query(m)
        lsh.insert(i, m)
    return DOCUMENTS / (time.process_time() - start)


def ours(path, threads):
    """Documents a second of processor time, including the program's start; and of wall-clock time."""
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = dict(os.environ, OMP_WAIT_POLICY="passive")  # a waiting thread takes no time from the others
    text = subprocess.run([os.path.join(BUILD, "prepare"), "dedup", "--bench", "--threads", str(threads), path], check=True,
                          capture_output=True, text=True, env=env).stdout
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = end.ru_utime + end.ru_stime - begun.ru_utime - begun.ru_stime
    return DOCUMENTS * COPIES / work, float(re.search(r"^all .* s +(\d+) documents/s", text, re.M).group(1))


with tempfile.TemporaryDirectory() as folder:
    small, large = os.path.join(folder, "small.txt"), os.path.join(folder, "large.txt")
    write(small, DOCUMENTS)
    write(large, DOCUMENTS * COPIES)
    ours(large, 1)  # reads the file into the page cache
    rounds = []
    for _ in range(ROUNDS):
        theirs = [datasketch(small, sha1_hash32), datasketch(small, lambda b: xxhash.xxh3_64_intdigest(b) & 0xFFFFFFFF)]
        (one, one_wall), (two, two_wall) = ours(large, 1), ours(large, 2)
        rounds.append(theirs + [one, two, one_wall, two_wall])
    names = ["datasketch, sha1", "datasketch, xxh3", "build/prepare dedup, 1 thread", "build/prepare dedup, 2 threads"]
    print("| near-duplicates | documents a second of the processor | of the faster datasketch | by the clock |")
    print("|---|---|---|---|")
    for k, name in enumerate(names):
        ratio = statistics.median(r[k] / max(r[:2]) for r in rounds)
        wall = f"{statistics.median(r[k + 2] for r in rounds):.0f}" if k >= 2 else ""
        print(f"| {name} | {statistics.median(r[k] for r in rounds):.0f} | {ratio:.1f} | {wall} |")
