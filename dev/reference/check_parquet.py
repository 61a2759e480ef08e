#!/usr/bin/env python3
"""Writes Parquet files with pyarrow in many variations and compares what build/prepare filter reads with what pyarrow reads.

build/prepare filter is told to keep every document. It leaves out nulls and documents of white space, as for JSONL; so they are
left out of pyarrow's texts too; the others must be the same, in the same order. Then come files of other writers, where
they are installed, and files that must be refused, each in one line with the given words.

Run: python3 dev/reference/check_parquet.py [BUILD]   (pip install pyarrow, and polars duckdb fastparquet; BUILD: build)
"""
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

FILTER = [os.path.join(sys.argv[1] if len(sys.argv) > 1 else "build", "prepare"), "filter"]
ALL = ["--rules", "guide.words", "--set", "guide.words.min=0", "--set", "guide.words.max=1e12"]


def texts(n, seed=1, nulls=True):
    """Short and long texts with common beginnings, some twice, some empty, and nulls."""
    rng, out = random.Random(seed), []
    words = "river stone café вода 水 morning \U0001F33F letter".split()
    for i in range(n):
        kind = rng.random()
        if nulls and kind < 0.1:
            out.append(None)
        elif kind < 0.15:
            out.append("")
        elif kind < 0.3 and out:
            out.append(out[-1])
        else:
            out.append(f"page {i // 7}: " + " ".join(rng.choice(words) for _ in range(rng.choice([1, 9, 40, 900]))))
    return out


def table(rows, kind=None, required=False):
    field = pa.field("text", kind or pa.string(), nullable=not required)
    return pa.table([pa.array(rows, field.type)], schema=pa.schema([field]))


def fineweb(n):
    """The columns of FineWeb, and two with lists."""
    rows = texts(n, 5)
    return pa.table({"text": rows, "id": [f"<urn:uuid:{i}>" for i in range(n)], "dump": ["CC-MAIN-2024-10"] * n,
                     "url": [f"https://example.org/{i}" for i in range(n)], "date": ["2024-02-21T00:00:00Z"] * n,
                     "tags": [["a", "b"][:i % 3] for i in range(n)], "language": ["en"] * n,
                     "language_score": [0.9] * n, "token_count": list(range(n)),
                     "spans": pa.array([[{"from": i, "to": "x"}] for i in range(n)])})


def nested(n, depth):
    """The texts in groups in groups, some of which are absent."""
    rows, path = texts(n, 6), "text"
    for d in range(depth):
        rows = [None if (i + d) % 11 == 0 else {"other": i, path.split(".")[0]: r} for i, r in enumerate(rows)]
        path = f"g{d}." + path
    return pa.table({"id": list(range(n)), path.split(".")[0]: rows}), path


def variations():
    """NAME, table, column, options of write_table."""
    rows = table(texts(3000))
    codecs = {"none": {"compression": "none"}, "snappy": {"compression": "snappy"}, "gzip": {"compression": "gzip"},
              "zstd": {"compression": "zstd"}}
    encodings = {"dictionary": {}, "plain": {"use_dictionary": False},
                 "delta length": {"use_dictionary": False, "column_encoding": "DELTA_LENGTH_BYTE_ARRAY"},
                 "delta": {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}}
    for codec, encoding, version in itertools.product(codecs, encodings, ("1.0", "2.0")):
        yield (f"{codec}, {encoding}, pages {version}", rows, "text",
               {**codecs[codec], **encodings[encoding], "data_page_version": version})
    for version in ("1.0", "2.0"):
        yield (f"required, pages {version}", table(texts(3000, 2, False), required=True), "text",
               {"data_page_version": version})
        yield (f"only nulls, pages {version}", table([None] * 1000), "text", {"data_page_version": version})
        yield (f"one text, nulls and small pages, pages {version}", table([None] * 500 + ["x"] + [None] * 9), "text",
               {"data_page_version": version, "data_page_size": 64, "write_batch_size": 16})
        for depth in (1, 3):
            t, path = nested(1000, depth)
            yield f"in {depth} groups, pages {version}", t, path, {"data_page_version": version}
    for kind in (pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()):
        yield f"type {kind}", table(texts(1000, 3), kind), "text", {}
    as_dictionary = table([texts(20, 4)[i % 20] for i in range(3000)]).column(0).dictionary_encode()
    yield "type dictionary", pa.table({"text": as_dictionary}), "text", {"row_group_size": 700}
    yield "row groups of 1", table(texts(200)), "text", {"row_group_size": 1}
    yield "row groups of 97", rows, "text", {"row_group_size": 97}
    yield "small pages", rows, "text", {"data_page_size": 100, "write_batch_size": 7}
    yield "a dictionary that grows too large", rows, "text", {"dictionary_pagesize_limit": 2000, "data_page_size": 3000,
                                                            "write_batch_size": 10}
    yield "delta, small pages", rows, "text", {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY",
                                               "data_page_size": 100, "write_batch_size": 7}
    yield "checksums", rows, "text", {"write_page_checksum": True, "row_group_size": 500}
    yield "an index of pages", rows, "text", {"write_page_index": True, "row_group_size": 500}
    yield "no statistics", rows, "text", {"write_statistics": False}
    yield "no schema of Arrow", rows, "text", {"store_schema": False}
    yield "format 1.0", rows, "text", {"version": "1.0"}
    yield "zstd at level 19", rows, "text", {"compression": "zstd", "compression_level": 19}
    yield "pages cut by content", rows, "text", {"use_content_defined_chunking": True}
    yield "no row", table([]), "text", {}
    yield "one word 100,000 times", table(["word"] * 100000), "text", {}
    yield "long texts", table(["a" * 3000000, "b" * 5000000, None, "c d " * 700000]), "text", {"use_dictionary": False}
    yield "the columns of FineWeb", fineweb(2000), "text", {"compression": "zstd"}
    yield "FineWeb's url", fineweb(2000), "url", {"compression": "zstd", "data_page_version": "2.0"}
    wiki = pa.table({"id": [str(i) for i in range(1500)], "url": ["u"] * 1500, "title": ["t"] * 1500,
                     "text": texts(1500, 8)})
    yield "the columns of Wikipedia", wiki, "text", {"row_group_size": 1000}


def other_writers(rows):
    """NAME, a function that writes rows to a path, column; of the writers that are installed."""
    codecs = ("uncompressed", "snappy", "gzip", "zstd")
    try:
        import polars
        frame = polars.DataFrame({"id": list(range(len(rows))), "text": rows, "m": [{"t": r, "x": 1} for r in rows]})
        for codec, options in itertools.product(codecs, ({}, {"row_group_size": 100, "data_page_size": 500})):
            for column in ("text", "m.t"):
                yield "polars", lambda path: frame.write_parquet(path, compression=codec, **options), column
    except ImportError:
        pass
    try:
        import duckdb
        connection = duckdb.connect()
        connection.register("t", table(rows))
        for codec, version, more in itertools.product(codecs, ("V1", "V2"), ("", ", row_group_size 2048")):
            command = f"(format parquet, codec '{codec}', parquet_version {version}{more})"
            yield "DuckDB", lambda path: connection.execute(f"copy t to '{path}' {command}"), "text"
    except ImportError:
        pass
    try:
        import fastparquet
        import pandas
        frame = pandas.DataFrame({"text": rows})
        for codec, options in itertools.product(codecs, ({}, {"row_group_offsets": 100})):
            yield "fastparquet", lambda path: fastparquet.write(path, frame, compression=codec.upper(),
                                                                object_encoding="utf8", **options), "text"
    except ImportError:
        pass


def leaf(t, path):
    column = t.column(path.split(".")[0]).to_pylist()
    for name in path.split(".")[1:]:
        column = [None if row is None else row[name] for row in column]
    return [row.decode() if isinstance(row, bytes) else row for row in column]


def read(path, column, folder):
    """What build/prepare filter reads, its status and its messages."""
    out = os.path.join(folder, "out.jsonl")
    done = subprocess.run([*FILTER, path, "--field", column, "--out", out, *ALL], capture_output=True, text=True)
    if done.returncode:
        return None, done
    with open(out) as file:
        return [json.loads(line)["text"] for line in file], done


def refused():
    """NAME, table, column, options of write_table, words of the message."""
    choose = "columns of strings, to be chosen with 'field'"
    rows = table(texts(100))
    for codec in ("brotli", "lz4"):
        yield codec, rows, "text", {"compression": codec}, f"compressed by {'LZ4_RAW' if codec == 'lz4' else codec}"
    t = fineweb(10)
    yield "a column that is not there", t, "body", {}, f"no column 'body' ({choose}: text, id,"
    yield "a column of numbers", t, "token_count", {}, "column 'token_count' holds INT64, not strings"
    yield "a list", t, "tags", {}, "column 'tags' is in a list"
    yield "a column in a list", t, "spans.list.element.to", {}, "is in a list"
    yield "a group", nested(10, 1)[0], "g0", {}, f"no column 'g0' ({choose}: g0.text)"
    yield "fixed lengths", table([b"abc"] * 9, pa.binary(3)), "text", {}, "holds FIXED_LEN_BYTE_ARRAY, not strings"
    yield "dates of Impala", pa.table({"text": pa.array([1] * 9, pa.timestamp("ns"))}), "text", \
        {"use_deprecated_int96_timestamps": True}, "holds INT96, not strings"


def main():
    n = n_texts = n_refused = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.parquet")
        for name, t, column, options in variations():
            pq.write_table(t, path, **options)
            want = [row for row in leaf(pq.read_table(path), column) if row and row.strip()]
            got, done = read(path, column, folder)
            assert got == want, (name, done.stderr, len(got or []), len(want))
            n, n_texts = n + 1, n_texts + len(want)
        print(f"pyarrow {pa.__version__}: {n} variations, {n_texts} texts, all the same")
        rows, counts = texts(3000), {}
        for name, write, column in other_writers(rows):
            write(path)
            got, done = read(path, column, folder)
            assert got == [row for row in rows if row and row.strip()], (name, done.stderr, len(got or []))
            counts[name] = counts.get(name, 0) + 1
        print("other writers, all the same: " + (", ".join(f"{name} {k}" for name, k in counts.items()) or "none here"))
        for name, t, column, options, words in refused():
            pq.write_table(t, path, **options)
            got, done = read(path, column, folder)
            assert done.returncode == 1 and done.stderr.count("\n") == 1 and words in done.stderr, (name, done.stderr)
            n_refused += 1
        print(f"{n_refused} files refused, each in one line")


if __name__ == "__main__":
    main()
