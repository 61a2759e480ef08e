#!/usr/bin/env python3
"""Does build/diff find the errors of planted.py, name the tensor where they act, and leave honest pairs in peace?

    build/venv/bin/python dev/reference/check_planted.py [WORDS]      errors whose name has WORDS; without: all, for
                                                                      doc/diff.md (>runs/planted.txt; make docs)
    build/venv/bin/python dev/reference/check_planted.py --honest N   N pairs of PyTorch and build/train

An error is planted in a small model in PyTorch (dump_torch.py), in a run's settings, or as a bug of test/mutations in
build/train, and the dump is compared with that of a sound run. The models, whose sizes few numbers divide, begin with
weights that some updates have trained. An error that is not seen must be smaller than diff says it can see: then for
every tensor where it may be named, rms(error) / rms(tensor) is below `seen` (of weights: of their updates).

The honest pairs: float32, float64, TF32 (rounded operands), and bfloat16 by autocast, each against build/train in fp32
or bf16, with weights of many seeds, some trained.

Needs PyTorch and NumPy, a build, and for the mutations make.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dump_torch
import planted

GPT = "--model.channels=100 --model.heads=5 --model.ffn=300 --model.context=33 --batch.tokens=2046 --batch.micro=62"
LLAMA = ("--model.channels=108 --model.heads=6 --model.kv_heads=2 --model.ffn=200 --model.context=32 "
         "--batch.tokens=1536 --batch.micro=48 --model.window=11 --model.window_pattern=sf --model.norm=rmsnorm "
         "--model.activation=swiglu --model.position=rope --model.bias=false --model.tie=false")
BUILD = os.environ.get("BUILD", "build")
LARGE = ("--model.layers=1 --model.channels=48 --model.heads=4 --model.kv_heads=0 --model.context=64 "
         "--batch.tokens=16384 --batch.micro=64")
BASES = {  # settings after those of the family, micro-batches of PyTorch
    "gpt": (GPT, "", 1), "llama": (LLAMA, "", 1),
    "gpt 16384": (GPT, LARGE, 1), "llama 16384": (LLAMA, LARGE, 1),
    "gpt two": (GPT, "--batch.micro=31", 2), "llama two": (LLAMA, "--batch.micro=24", 2),
    "gpt masked": (GPT, "--data.document_mask=true", 1), "llama masked": (LLAMA, "--data.document_mask=true", 1),
    "gpt dropout": (GPT, "", 1), "llama dropout": (LLAMA, "", 1),
    "gpt lr 1e-6": (GPT, "--optim.lr=1e-6", 1), "llama lr 1e-6": (LLAMA, "--optim.lr=1e-6", 1),
    "gpt fp16": (GPT, "--numerics.dtype=fp16", 1),
}
COMMON = ("--model.layers=3 --run.steps=1000 --run.stop_at=1 --run.dump=1 --run.threads=1 --run.peak=100 "
          "--run.eval_every=0 --data.shuffle=false --optim.warmup=0 --optim.schedule=constant --optim.clip=0.1 "
          "--eval.tokens=100 --sample.count=0")


def machine():
    with open("/proc/cpuinfo") as file:
        return f"{re.search(r'model name.*: (.*)', file.read())[1]}, {os.cpu_count()} cores"


def program(*words, cwd=None):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


COMMIT = program("git", "describe", "--always", "--dirty").strip()


class Bench:
    def __init__(self, folder):
        self.folder, self.runs, self.start = folder, {}, {}
        program(f"{BUILD}/stories", "--bytes", 300000, "--seed", 3, "--out", f"{folder}/text")
        program(f"{BUILD}/prepare", "tokens", "--train", f"{folder}/text/train.txt", "--val-file",
                f"{folder}/text/val.txt", "--vocab", 509, "--out", f"{folder}/data")
        with open(f"{folder}/data/manifest.json") as file:
            eot = re.search(r'"eot": (\d+)', file.read()).group(1)
        for path in glob.glob(f"{folder}/data/train_*.bin"):
            tokens = np.memmap(path, "<u2", "r+", offset=1024)
            for i, at in enumerate(range(400, len(tokens) - 150, 900)):  # with masks, of one nothing predicts the next
                tokens[at:at + (110, 40)[i % 2]] = int(eot)
            tokens.flush()

    def train(self, name, *settings, binary=f"{BUILD}/train"):
        program(binary, f"--run.dir={self.folder}/runs", f"--run.name={name}",
                f"--data.train={self.folder}/data/train_*.bin", f"--data.val={self.folder}/data/val_*.bin",
                f"--data.tokenizer={self.folder}/data", *COMMON.split(), *settings)
        return f"{self.folder}/runs/{name}"

    def started(self, family, extra):
        """A checkpoint of a few updates, for the models of one shape."""
        shape = family + " ".join(word for word in extra.split() if word.startswith("--model."))
        if shape not in self.start:
            path = self.train(f"start{len(self.start)}", *family.split(), *extra.split(), "--run.stop_at=60",
                              "--run.dump=0", "--optim.lr=3e-3", "--data.shuffle=true")
            self.start[shape] = sorted(glob.glob(path + "/checkpoints/step_*/model.safetensors"))[-1]
        return f"--ckpt.init={self.start[shape]}"

    def settings(self, base):
        family, extra, _ = BASES[base]
        return *family.split(), *extra.split(), self.started(family, extra)

    def base(self, name):
        """(the sound run's path, Run) of a base; of dropout, PyTorch's: masks differ between programs."""
        if name not in self.runs:
            path = self.train(name.replace(" ", "_"), *self.settings(name))
            run = None if "fp16" in name else dump_torch.Run(path)  # PyTorch's dumps are fp32
            if "dropout" in name:
                path += "_torch"
                run.write(path, self.sound(name, run).run(*run.batch))
            self.runs[name] = path, run
        return self.runs[name]

    def sound(self, name, run):
        sound = run.program(micros=BASES[name][2])
        if "dropout" in name:
            planted.honest_dropout(sound, "")
        return sound

    def diff(self, a, b, *options):
        done = subprocess.run([f"{BUILD}/diff", a, b, "--json", *options], capture_output=True, text=True)
        return json.loads(done.stdout) if done.stdout else sys.exit(done.stderr)

    def mutant(self, name):
        """build/train with a bug of test/mutations."""
        tree = f"{self.folder}/tree"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(".", tree, symlinks=True, ignore=lambda folder, names: [
            n for n in names if folder == "." and n in ("runs", ".git") or folder == "./build" and
            n not in ("src", "dev", "flags", "setup", "libpretrain.a")])
        program("test/mutate.sh", "--apply", name, cwd=tree)
        program("make", "-s", "build/train", cwd=tree)
        return f"{tree}/build/train"

    def run_error(self, base, unit, change, out):
        """Writes the dump with the error; returns its path."""
        path, run = self.base(base)
        shutil.rmtree(f"{self.folder}/runs/{out}", ignore_errors=True)
        if unit == "mutation":
            return self.train(out, *self.settings(base), binary=self.mutant(change))
        if unit == "ours":
            return self.train(out, *self.settings(base), *change)
        broken = self.sound(base, run)
        change(broken, unit)
        run.write(f"{self.folder}/runs/{out}", broken.run(*run.batch))
        return f"{self.folder}/runs/{out}"

    def below_power(self, base, a, first):
        """(largest error / seen of the tensors that may be named, its error, its seen, its name)."""
        path, run = self.base(base)
        sound, made = self.sound(base, run).run(*run.batch), dump_torch.read_dump(os.path.join(a, dump_torch.DUMP))[2]
        worst = (0.0, 0.0, 0.0, "")
        for name, x in sound.items():
            if not re.match(first, name):
                continue
            size = x - sound["weight." + name[8:]] if name.startswith("updated.") else x
            error = float((made[name].double() - x.double()).norm() / size.double().norm().clamp_min(1e-300))
            seen = self.diff(a, path, "--only", name, "--a-dtype", "fp32").get("seen_median", float("inf"))
            if error > 0 and error / seen >= worst[0]:
                worst = (error / seen, error, seen, name)
        return worst


def check_errors(bench, words):
    count, table, fewest = dict(found=0, right=0, below=0, missed=0), [], 99
    for name in ("gpt", "llama", "gpt masked", "llama masked", "gpt dropout", "gpt two"):
        path, run = bench.base(name)
        sound = f"{bench.folder}/runs/sound"
        run.write(sound, bench.sound(name, run).run(*run.batch))
        said = bench.diff(sound, path)
        print(f"{'sound: ' + name:50} {said['verdict']:10} a factor of 1 +- {said.get('seen_median', 0):.2g} would "
              "be seen in half of the tensors")
        if said["verdict"] not in ("rounding", "identical"):
            sys.exit(f"a sound pair is {said}")
    print(f"\n{'error':50} {'in':16} {'place':22} {'verdict':10} {'first tensor':40} systematic, or why not seen")
    for error, places in planted.ERRORS.items():
        if words not in error:
            continue
        seen_as = dict(places=0, found=0, right=0, below=[])
        for base, unit, change, first in places:
            a = bench.run_error(base, unit, change, "error")
            said = bench.diff(a, bench.base(base)[0], *(["--a-dtype", "fp32"] if "16" not in base.split()[-1] else []))
            named, note = said["first"] or "", said["systematic"]
            where = change if unit == "mutation" else " ".join(change) if unit == "ours" else unit.rstrip(".") or "all"
            if said["verdict"] != ("cannot tell" if first.startswith("input") else "DIFFERENT"):
                ratio, e, seen, tensor = bench.below_power(base, a, first)
                note = f"{tensor}: error {e:.2g}, seen from {seen:.2g}" if tensor else "no bit of these differs"
                count["below" if ratio < 1 else "missed"] += 1
                seen_as["below"].append(note)
                note += "" if ratio < 1 else "  MISSED"
            else:
                fits = re.match(first, named) is not None
                for counter in (count, seen_as):
                    counter["found"] += 1
                    counter["right"] += fits
                note += "" if fits else f"  expected {first}"
            print(f"{error:50} {'ours' if unit in ('ours', 'mutation') else 'PyTorch'} {base:8} {where:22} "
                  f"{said['verdict']:10} {named:40} {note}", flush=True)
            seen_as["places"] += 1
        first = re.sub(r"layers\.\d", "layers.N", places[0][3].replace("\\", "").replace("..*", ".*").rstrip("$."))
        first = first.replace("|", "\\|")  # of a table
        fewest = min(fewest, seen_as["places"])
        table.append(f"| {error} | {seen_as['places']} | {seen_as['found']} | {seen_as['right']} | `{first}` | "
                     f"{'; '.join(seen_as['below'])} |")
    print("\n| error | places | found | named rightly | first tensor | not seen: below the power |\n"
          "|---|---:|---:|---:|---|---|")
    print("\n".join(table))
    print(f"\n{len(table)} errors, each in {fewest} places or more: {count['found']} found, of which {count['right']} name the right tensor first "
          f"({100 * count['right'] / max(count['found'], 1):.0f} %); {count['below']} below the printed power; "
          f"{count['missed']} missed (commit {COMMIT}, PyTorch {torch.__version__}, {machine()})")
    return count["missed"] == 0 and count["right"] >= 0.9 * count["found"] and fewest > 1


def check_honest(bench, n):
    made, alarms, seed = 0, 0, 0
    while made < n:
        seed += 1
        family = (GPT, LLAMA)[seed % 2]
        more = (f"--run.seed={seed}", f"--model.layers={1 + seed % 4}", f"--optim.lr={(1e-2, 1e-3, 1e-5)[seed % 3]}")
        if seed % 3 == 0:
            more += ("--model.layers=3", bench.started(family, ""))
        if seed % 5 == 0:
            more += ("--model.norm=rmsnorm", "--model.bias=true") if seed % 3 else ()
        ours = {kind: bench.train(kind, *family.split(), *more, f"--numerics.dtype={kind}")
                for kind in ("fp32", "bf16")}
        run = dump_torch.Run(ours["fp32"])
        for how, dtype, declared, others in (("float32", torch.float32, "fp32", ["fp32"]),
                                             ("float64", torch.float64, "fp32", ["fp32"]),
                                             ("tf32", torch.float32, "tf32", ["fp32"]),
                                             ("autocast", torch.float32, "bf16-autocast", ["fp32", "bf16"])):
            them = run.program(dtype=dtype, micros=1 + seed % 2)
            if how == "tf32":
                planted.swap("linear", planted.tf32)(them, "")
            out = f"{bench.folder}/runs/torch"
            run.write(out, them.run(*run.batch, autocast=torch.bfloat16 if how == "autocast" else None))
            for other in others:
                said, made = bench.diff(out, ours[other], "--a-dtype", declared), made + 1
                if said["verdict"] not in ("rounding", "identical"):
                    alarms += 1
                    print(f"not ok seed {seed}: PyTorch {how}, build/train {other}: first {said['first']} "
                          f"{said['systematic']}, {said['out']} of {said['compared']}: {' '.join(more)}", flush=True)
                    if os.environ.get("KEEP"):
                        for name, path in (("a", out), ("b", ours[other])):
                            kept = f"{os.environ['KEEP']}/{seed}_{how}_{other}/{name}"
                            shutil.copytree(path, kept, dirs_exist_ok=True)
    print(f"{made} honest pairs, {alarms} false alarms")
    return alarms == 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        if sys.argv[1:2] == ["--honest"]:
            good = check_honest(bench, int(sys.argv[2]))
        else:
            good = check_errors(bench, " ".join(sys.argv[1:]))
    sys.exit(0 if good else 1)
