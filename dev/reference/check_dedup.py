#!/usr/bin/env python3
"""Compares build/prepare dedup with datasketch 2 on the same permutations: candidates, clusters, and the choice of bands.

datasketch's "affine32" mixes a hash (MurmurHash3's finalizer) before it permutes it. Ours is mixed already, so it is
handed over unmixed: the hash function here undoes what datasketch will do. The permutations are ours, drawn by a second
implementation of the counter generator (src/base/rng.h). So every number of every signature is the same on both sides.

Run: python3 dev/reference/check_dedup.py [BUILD]   (pip install datasketch xxhash; BUILD: build)
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np
import xxhash
from datasketch import MinHash, MinHashLSH
from datasketch.lsh import _optimal_param

DEDUP = [os.path.join(sys.argv[1] if len(sys.argv) > 1 else "build", "prepare"), "dedup"]
NGRAM, PERMUTATIONS, THRESHOLD, SEED = 13, 128, 0.8, 7
MASK = 0xFFFFFFFF


def philox(seed, name, index):
    """The first 64 bits of Philox4x32-10 at (seed, name, step 0, index)."""
    h = 2166136261
    for byte in name.encode():
        h = (h ^ byte) * 16777619 & MASK
    c, k = [index & MASK, index >> 32, 0, h], [seed & MASK, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & MASK, p >> 32 ^ c[3] ^ k[1], p & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return c[0] | c[1] << 32


def permutations(n):
    bits = [philox(SEED, "minhash", k) for k in range(n)]
    return np.array([[b & MASK | 1 for b in bits], [b >> 32 for b in bits]], dtype=np.uint32)


def unmix(h):
    """The inverse of MurmurHash3's 32-bit finalizer."""
    h ^= h >> 16
    h = h * pow(0xC2B2AE35, -1, 1 << 32) & MASK
    h ^= h >> 13 ^ h >> 26
    h = h * pow(0x85EBCA6B, -1, 1 << 32) & MASK
    return h ^ h >> 16


# Scripts without spaces: each character is a word.
ALONE = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def normalize(text):
    text = ALONE.sub(r" \g<0> ", text).encode()
    text = bytes(b + 32 if 65 <= b <= 90 else b for b in text)
    return [w for w in re.split(rb"[ \t\n\v\f\r]+", text) if w]


def shingles(text):
    words = normalize(text)
    return {b" ".join(words[i:i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))} if words else set()


def corpus(n):
    """Texts, copies of them with some words changed or spelled otherwise, and some short texts."""
    rng, texts = random.Random(1), []
    while len(texts) < n:
        if not texts or rng.random() < 0.4:
            texts.append(" ".join(f"w{rng.randrange(10**6)}" for _ in range(rng.choice([2, 20, 100, 300]))))
        else:
            words = rng.choice(texts[-50:]).split()
            for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
                words[rng.randrange(len(words))] = f"w{rng.randrange(10**6)}"
            texts.append("\n".join(words).upper() if rng.random() < 0.2 else " ".join(words))
    return texts


def clusters(n, pairs):
    """The smallest member of each document's component."""
    parent = list(range(n))

    def find(i):
        while parent[i] != i:
            i = parent[i]
        return i
    for a, b in pairs:
        a, b = sorted((find(a), find(b)))
        parent[b] = a
    return [find(i) for i in range(n)]


def ours(folder, n, *options):
    out = os.path.join(folder, "clusters")
    subprocess.run([*DEDUP, "--seed", str(SEED), "--clusters", out, *options, os.path.join(folder, "corpus.jsonl")],
                   check=True, stdout=subprocess.DEVNULL)
    keep = list(range(n))
    for line in open(out):
        cluster = json.loads(line)
        for i in cluster["remove"]:
            keep[i] = cluster["keep"]
    return keep


def check_bands():
    n = 0
    with tempfile.TemporaryDirectory() as folder:
        for n_perm in (16, 64, 100, 128, 256):
            for threshold in (0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
                text = subprocess.run([*DEDUP, "--permutations", str(n_perm), "--threshold", str(threshold), "--curve",
                                       os.path.join(folder, "curve.svg")], check=True, capture_output=True, text=True).stdout
                found = tuple(map(int, re.search(r"(\d+) bands of (\d+) rows", text).groups()))
                assert found == _optimal_param(threshold, n_perm, 0.5, 0.5), (n_perm, threshold, found)
                n += 1
    print(f"bands and rows: the same as datasketch's for {n} pairs of permutations and threshold")


def main():
    check_bands()
    texts = corpus(1500)
    n, sets = len(texts), [shingles(t) for t in texts]
    bands, rows = _optimal_param(THRESHOLD, PERMUTATIONS, 0.5, 0.5)
    lsh, table, candidates = MinHashLSH(num_perm=bands * rows, params=(bands, rows)), permutations(bands * rows), set()
    for i, grams in enumerate(sets):
        m = MinHash(num_perm=bands * rows, permutations=table, scheme="affine32",
                    hashfunc=lambda b: unmix(xxhash.xxh3_64_intdigest(b) & MASK))
        m.update_batch(grams)
        if grams:
            candidates |= {(j, i) for j in lsh.query(m)}
            lsh.insert(i, m)
    similar = [(a, b) for a, b in candidates if len(sets[a] & sets[b]) >= THRESHOLD * len(sets[a] | sets[b])]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "corpus.jsonl"), "w") as file:
            file.writelines(json.dumps({"text": t}) + "\n" for t in texts)
        for name, pairs, options in (("candidates", candidates, ["--no-verify"]), ("verified", similar, [])):
            theirs = clusters(n, pairs)
            got = ours(folder, n, *options)
            assert got == theirs, [(i, got[i], theirs[i]) for i in range(n) if got[i] != theirs[i]][:10]
            print(f"{name}: {len(pairs)} pairs, {n - len(set(got))} of {n} documents removed, the same clusters")


if __name__ == "__main__":
    main()
