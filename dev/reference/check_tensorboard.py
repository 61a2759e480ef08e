#!/usr/bin/env python3
"""Does TensorBoard read from a run's event files what metrics.jsonl has?

Trains a small run three times: as a whole; stopped, then killed after its last checkpoint and resumed, so that two
files have the same steps; and with a loss that is not a number. TensorBoard's own reader opens each folder. It must
find, for every number of every train, val, end, set and task line, one scalar with that step and that value (as a float), nothing
else, and no step twice. So must the reader's record loader, which checks every checksum, on each file alone.

Run: python3 dev/reference/check_tensorboard.py   (pip install tensorboard; build/ must exist)
"""
import glob
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader


def train(folder, name, *settings, fails=False):
    done = subprocess.run(["build/train", "tiny", f"--run.dir={folder}", f"--run.name={name}", "--run.steps=40",
                           "--run.tensorboard=true", "--run.eval_every=7", "--run.save_every=10",
                           f"--data.train={folder}/train_*.bin", f"--data.val={folder}/val_*.bin",
                           f"--data.tokenizer={folder}", "--sample.count=0", "--eval.tokens=1000", f"--eval.sets=other={folder}/train_*.bin",
                           f"--eval.tasks=story={folder}/story.jsonl", "--eval.tasks_every=10", *settings],
                          capture_output=True, text=True)
    if (done.returncode != 0) != fails:
        sys.exit(f"{name}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")


def as_float(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def tag(row, key):
    name = "/" + row["name"] if row["event"] in ("set", "task") else ""
    if key.startswith("val_"):
        return "val/" + key[4:] + name
    if row["event"] == "task":
        return "task/" + key + name
    return "train/loss" if key == "loss" else "time/" + key if key.endswith("_ms") else key


def lines(run):
    """{tag: {step: value}} of metrics.jsonl; NaN for null."""
    want = {}
    for line in open(f"{run}/metrics.jsonl"):
        row = json.loads(line)
        if row["event"] not in ("train", "val", "end", "set", "task"):
            continue
        named = row["event"] in ("set", "task")
        for key, value in row.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if key in ("step", "t") or (named and key in ("tokens", "items")):
                continue
            if number or (value is None and row["event"] != "task"): # a task's null is a figure that it has not
                want.setdefault(tag(row, key), {})[row["step"]] = math.nan if value is None else as_float(value)
    return want


def same(a, b):
    """The line has 9 digits of a double, the event the float nearest to the double: a float apart at most."""
    return abs(a - b) <= 2**-23 * abs(b) or (math.isnan(a) and math.isnan(b))


def check(folder, name, n_files):
    run = f"{folder}/{name}"
    found = glob.glob(f"{run}/events.out.tfevents.*")
    assert len(found) == n_files, (name, found)
    records = sum(len(list(RawEventFileLoader(path).Load())) for path in found) # raises at a wrong checksum
    reader = EventAccumulator(run, size_guidance={"scalars": 0})
    reader.Reload()
    want, n = lines(run), 0
    assert set(reader.Tags()["scalars"]) == set(want), set(reader.Tags()["scalars"]) ^ set(want)
    for name_of, value in want.items():
        have = {}
        for e in reader.Scalars(name_of):
            # one step may have two events: a val line, and the end line of the same step
            assert e.step not in have or name_of.startswith("val/") or name_of.startswith(("floor", "seconds", "tokens")), \
                (name_of, e.step)
            have[e.step] = e.value
        assert set(have) == set(value), (name, name_of, sorted(set(have) ^ set(value)))
        for step in value:
            assert same(have[step], value[step]), (name, name_of, step, have[step], value[step])
            n += 1
    print(f"{name}: {n_files} file(s), {records} records, {len(want)} tags, {n} numbers equal")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for words in (["build/stories", "--bytes", "200000", "--seed", "3", "--out", folder],
                      ["build/prepare", "tokens", "--train", f"{folder}/train.txt", "--val-file", f"{folder}/val.txt",
                       "--vocab", "512", "--out", folder]):
            subprocess.run(words, check=True, capture_output=True)
        with open(f"{folder}/story.jsonl", "w") as f:
            f.write('{"goal": "Long ago", "sol1": "there lived a girl", "sol2": "girl a lived there", "label": 0}\n' * 20)
        train(folder, "whole")
        check(folder, "whole", 1)
        train(folder, "killed", "--run.fault=kill:rank=0,step=26", fails=True)
        check(folder, "killed", 1)
        assert 25 in lines(f"{folder}/killed")["train/loss"]
        train(folder, "killed", "--ckpt.resume=true")
        check(folder, "killed", 2)
        train(folder, "nan", "--run.fault=nan:rank=0,step=20,of=gradient,tensor=layers.0.attn.q.weight")
        check(folder, "nan", 1)
    print("ok")


main()
