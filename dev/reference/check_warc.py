#!/usr/bin/env python3
"""Compares what build/filter reads of WARC files with what warcio reads, and the text of pages with other extractors'.

Records: warcio writes files in many variations (versions, gzip or not, chunks, packed bodies, folded and odd headers,
records of every type); the texts of build/filter must be those of warcio's own reader, for pages of type text/plain.

Pages: each PAGES is a folder with HTML files of a package's documentation. At most 40 of each (by a hash of their names)
go into a file, plain and as .warc.gz, from which build/filter takes the texts. They are compared with those of
trafilatura and resiliparse: the F1 score of the words (the harmonic mean of the part of our words that are in theirs and
the part of theirs that are in ours, each word as often as it occurs). For each pair of programs: the median, and the
value below which a tenth of the pages are.

Run: python3 dev/reference/check_warc.py [--build BUILD] [--worst N] [PAGES...]
(pip install warcio trafilatura resiliparse; BUILD: build; --worst shows the texts of the N worst pages)
"""
import argparse
import collections
import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import statistics
import subprocess
import tempfile
import zlib

import warcio
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

ALL = ["--rules", "guide.words", "--set", "guide.words.min=0", "--set", "guide.words.max=1e12"]
FOLDED = "Content-Type: text/plain;\r\n charset=utf-8\r\n"


def read(build, path, folder):
    """The texts that build/filter reads, and its messages."""
    out = os.path.join(folder, "out.jsonl")
    done = subprocess.run([os.path.join(build, "filter"), path, "--out", out, *ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(out) as file:
        return [json.loads(line)["text"] for line in file], done.stderr


def chunked(body, size):
    parts = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x%s\r\n%s\r\n" % (len(p), b";name=value" if i % 2 else b"", p) for i, p in enumerate(parts)) + b"0\r\n\r\n"


def packed(body, wbits):
    z = zlib.compressobj(9, zlib.DEFLATED, wbits)
    return z.compress(body) + z.flush()


def response(body, coding, transfer):
    """A response of HTTP with its body coded, as bytes."""
    head = ["HTTP/1.1 200 OK", "Server: x"]
    if coding:
        body = {"gzip": lambda b: packed(b, 31), "deflate": lambda b: packed(b, 15),
                "raw deflate": lambda b: packed(b, -15), "two members": lambda b: packed(b[:9], 31) + packed(b[9:], 31),
                "says gzip": lambda b: b}[coding](body)
        head.append("Content-Encoding: " + ("deflate" if "deflate" in coding else "gzip"))
    if transfer:
        head.append("transfer-encoding:chunked")
        if transfer != "says chunked":
            body = chunked(body, transfer)
    return "\r\n".join(head).encode() + b"\r\n" + FOLDED.encode() + b"\r\n" + body


def records(check):
    """Writes a file by check(writer), and reads it with warcio: the bodies of its pages of text."""
    out = io.BytesIO()
    check(out)
    texts = []
    for record in ArchiveIterator(io.BytesIO(out.getvalue())):
        if record.rec_type == "conversion":
            texts.append(record.content_stream().read().decode())
        elif record.rec_type == "response" and record.http_headers.get_statuscode() == "200":
            if record.http_headers.get_header("Content-Type", "").startswith("text/plain"):
                texts.append(record.content_stream().read().decode())
    return out.getvalue(), texts


def variations():
    """NAME, a function that writes a file."""
    bodies = ["one", "zwei – drei\n", "x" * 70000, "WARC/1.0\r\n\r\nin a page", "a\n\n\nb\r\n\r\n"]

    def write(out, gzip, version, coding, transfer):
        w = WARCWriter(out, gzip=gzip, warc_version=version)
        w.write_record(w.create_warcinfo_record("x.warc.gz", {"software": "check"}))
        for i, body in enumerate(bodies):
            uri = f"http://example.org/{i}?" + "long" * (i * 500)
            w.write_record(w.create_warc_record(uri, "request", payload=io.BytesIO(b"GET / HTTP/1.1\r\n\r\n")))
            w.write_record(w.create_warc_record(uri, "response", payload=io.BytesIO(response(body.encode(), coding, transfer))))
            w.write_record(w.create_warc_record(uri, "metadata", payload=io.BytesIO(b"fetchTimeMs: 7\r\n\r\n")))
            w.write_record(w.create_revisit_record(uri, "sha1:X", uri, "2024-01-01T00:00:00Z"))
            w.write_record(w.create_warc_record(uri, "resource", payload=io.BytesIO(b"no page"), warc_content_type="image/png"))
            w.write_record(w.create_warc_record(uri, "conversion", payload=io.BytesIO(f"text {i} é".encode()),
                                                warc_content_type="text/plain"))
            moved = b"HTTP/1.1 301 Moved\r\nContent-Type: text/plain\r\n\r\nmoved"
            w.write_record(w.create_warc_record(uri, "response", payload=io.BytesIO(moved)))
            image = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n\x89PNG"
            w.write_record(w.create_warc_record(uri, "response", payload=io.BytesIO(image)))

    codings = (None, "gzip", "deflate", "raw deflate", "two members", "says gzip")
    for gzip, version, coding, transfer in itertools.product((False, True), ("1.0", "1.1"), codings, (None, 7, 4096, "says chunked")):
        if coding not in ("two members",):  # warcio gives the first member alone
            yield f"{gzip} {version} {coding} {transfer}", lambda out: write(out, gzip, version, coding, transfer)


def by_hand():
    """NAME, bytes of a file, its texts: what warcio's writer does not write."""
    http = "HTTP/1.0 200\nContent-type : text/plain\n\nbare line feeds\n".encode()
    page = b"WARC/0.18\r\nWARC-Type: response\r\ncontent-length: %d\r\n\r\n%s\r\n\r\n" % (len(http), http)
    folded = page.replace(b"WARC-Type: response\r\n", b"WARC-Type:\r\n\tresponse\r\nX:\r\n  many\r\n  lines\r\n")
    yield "WARC/0.18, bare line feeds", page * 3, ["bare line feeds\n"] * 3
    yield "folded fields", folded * 2, ["bare line feeds\n"] * 2
    yield "no empty lines between records", page[:-4] * 3, ["bare line feeds\n"] * 3
    yield "all in one member", packed(page * 3, 31), ["bare line feeds\n"] * 3


def words(text):
    return collections.Counter(re.findall(r"\w+", text or ""))


def f1(a, b):
    same = sum((a & b).values())
    return 2 * same / (sum(a.values()) + sum(b.values())) if a or b else 1.0


def is_long(path):
    """At least 100 words outside of tags, scripts and styles? Others are frames, links elsewhere, results of searches."""
    with open(path, errors="replace") as file:
        return len(re.findall(r"\w+", re.sub(r"(?is)<(script|style)\b.*?</\1|<[^>]*>", " ", file.read()))) >= 100


def choose(folder):
    """At most 40 pages below a folder."""
    found = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
             if name.endswith((".html", ".htm")) and not os.path.islink(os.path.join(at, name))]
    found.sort(key=lambda path: hashlib.sha1(path[len(folder):].encode()).hexdigest())
    return list(itertools.islice(filter(is_long, found), 40))


def pages_of(paths, gzip, folder):
    """A WARC file of pages; before each a page of text that says its number."""
    path = os.path.join(folder, "pages.warc.gz" if gzip else "pages.warc")
    with open(path, "wb") as out:
        w = WARCWriter(out, gzip=gzip)
        for i, page in enumerate(paths):
            for kind, body in (("plain", b"page %d" % i), ("html", open(page, "rb").read())):
                headers = StatusAndHeaders("200 OK", [("Content-Type", "text/" + kind)], protocol="HTTP/1.1")
                w.write_record(w.create_warc_record(f"http://example.org/{i}", "response", payload=io.BytesIO(body),
                                                    http_headers=headers))
    return path


def as_text(raw):
    """A page as a string: by its <meta>, else UTF-8 if it is that, else windows-1252."""
    said = re.search(rb"(?i)<meta[^>]*charset=[\"' ]*([\w-]+)", raw[:1024])
    for charset in ([said[1].decode()] if said else []) + ["utf-8", "cp1252"]:
        with contextlib.suppress(UnicodeDecodeError, LookupError):
            return raw.decode(charset)
    return raw.decode("utf-8", "replace")


def compare_pages(build, folders, n_worst, folder):
    import trafilatura
    from resiliparse.extract.html2text import extract_plain_text
    paths = [page for f in folders for page in choose(f)]
    texts, messages = read(build, pages_of(paths, True, folder), folder)
    assert texts == read(build, pages_of(paths, False, folder), folder)[0]
    ours, at = [""] * len(paths), None
    for text in texts:
        number = re.fullmatch(r"page (\d+)", text)
        if number:
            at = int(number[1])
        else:
            ours[at] = text
    theirs, others = [], []
    for page in paths:
        raw = open(page, "rb").read()
        html = as_text(raw)
        theirs.append(trafilatura.extract(html) or "")
        others.append(extract_plain_text(html, main_content=True))
    names = ("ours", "trafilatura", "resiliparse")
    bags = [[words(t) for t in all_texts] for all_texts in (ours, theirs, others)]
    print(f"{len(paths)} pages of {len(folders)} packages; without text: " +
          ", ".join(f"{name} {sum(not b for b in bag)}" for name, bag in zip(names, bags)))
    for a, b in ((0, 1), (0, 2), (1, 2)):
        score = sorted(f1(x, y) for x, y in zip(bags[a], bags[b]))
        print(f"{names[a]} and {names[b]}: median {statistics.median(score):.3f}, a tenth below "
              f"{score[len(score) // 10]:.3f}, worst {score[0]:.3f}")
    best = [max(f1(x, y), f1(x, z)) for x, y, z in zip(*bags)]
    score = sorted(best)
    print(f"ours and the nearer of both: median {statistics.median(score):.3f}, a tenth below "
          f"{score[len(score) // 10]:.3f}, worst {score[0]:.3f}")
    for i in sorted(range(len(paths)), key=best.__getitem__)[:n_worst]:
        print(f"\n#### {best[i]:.3f} {paths[i]}\n---- ours\n{ours[i][:3000]}\n---- trafilatura\n{theirs[i][:3000]}"
              f"\n---- resiliparse\n{others[i][:3000]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--build", default="build")
    parser.add_argument("--worst", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        n = n_texts = 0
        for name, check in variations():
            data, want = records(check)
            path = os.path.join(folder, "x.warc")
            open(path, "wb").write(data)
            got, _ = read(args.build, path, folder)
            assert got == want, (name, [g[:80] for g in got[:3]], [w[:80] for w in want[:3]], len(got), len(want))
            n, n_texts = n + 1, n_texts + len(want)
        for name, data, want in by_hand():
            path = os.path.join(folder, "x.warc")
            open(path, "wb").write(data)
            got, _ = read(args.build, path, folder)
            assert got == want, (name, got)
            n, n_texts = n + 1, n_texts + len(want)
        print(f"warcio: {n} variations, {n_texts} texts, all the same")
        if args.pages:
            compare_pages(args.build, args.pages, args.worst, folder)


if __name__ == "__main__":
    main()
