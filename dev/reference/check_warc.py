#!/usr/bin/env python3
"""Compares what build/prepare filter reads of WET files with what warcio reads, on files that warcio writes: versions, gzip or
not, records of every type but responses; and on files written by hand.

Run: python3 dev/reference/check_warc.py [--build BUILD]
(pip install warcio; BUILD: build)
"""
import argparse
import gzip
import io
import json
import os
import subprocess
import tempfile

from warcio.archiveiterator import ArchiveIterator
from warcio.warcwriter import WARCWriter

ALL = ["--rules", "guide.words", "--set", "guide.words.min=0", "--set", "guide.words.max=1e12"]
BODIES = ["one", "zwei – drei\n", "x" * 70000, "WARC/1.0\r\n\r\nin a page", "a\n\n\nb\r\n\r\n"]


def read(build, data, folder):
    """The texts that build/prepare filter reads."""
    path, out = os.path.join(folder, "x.warc"), os.path.join(folder, "out.jsonl")
    with open(path, "wb") as file:
        file.write(data)
    done = subprocess.run([os.path.join(build, "prepare"), "filter", path, "--out", out, *ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(out) as file:
        return [json.loads(line)["text"] for line in file]


def written(packed, version):
    """A file of warcio's."""
    out = io.BytesIO()
    w = WARCWriter(out, gzip=packed, warc_version=version)
    w.write_record(w.create_warcinfo_record("x.warc.gz", {"software": "check"}))
    for i, body in enumerate(BODIES):
        uri = f"http://example.org/{i}?" + "long" * (i * 500)
        w.write_record(w.create_warc_record(uri, "request", payload=io.BytesIO(b"GET / HTTP/1.1\r\n\r\n")))
        w.write_record(w.create_warc_record(uri, "metadata", payload=io.BytesIO(b"fetchTimeMs: 7\r\n\r\n")))
        w.write_record(w.create_revisit_record(uri, "sha1:X", uri, "2024-01-01T00:00:00Z"))
        w.write_record(w.create_warc_record(uri, "resource", payload=io.BytesIO(b"no text"), warc_content_type="image/png"))
        w.write_record(w.create_warc_record(uri, "conversion", payload=io.BytesIO(body.encode()),
                                            warc_content_type="text/plain"))
    return out.getvalue()


def theirs(data):
    return [record.content_stream().read().decode() for record in ArchiveIterator(io.BytesIO(data))
            if record.rec_type == "conversion"]


def cases():
    """Bytes of a file, its texts."""
    for packed in (False, True):
        for version in ("1.0", "1.1"):
            data = written(packed, version)
            assert theirs(data) == BODIES
            yield data, BODIES
    text = b"WARC/0.18\nWARC-Type: conversion\ncontent-length : 11\n\nline feeds\n\n\n"
    yield text * 3, ["line feeds\n"] * 3
    yield text.replace(b"Type: conv", b"Type:\r\n\tconv") * 2, ["line feeds\n"] * 2
    yield text[:-2] * 3, ["line feeds\n"] * 3
    yield gzip.compress(text * 3), ["line feeds\n"] * 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    n = n_texts = 0
    with tempfile.TemporaryDirectory() as folder:
        for data, want in cases():
            got = read(args.build, data, folder)
            assert got == want, (data[:80], [g[:80] for g in got], [w[:80] for w in want])
            n, n_texts = n + 1, n_texts + len(want)
    print(f"warcio: {n} files, {n_texts} texts, all the same")


if __name__ == "__main__":
    main()
