#!/usr/bin/env python3
"""Does `build/prepare filter --rules guide` keep what the guides' DocumentFilter keeps?

3,000 documents: pieces of this repository's own text and code, of any length, some with their spaces, letters or lines
changed so that they lie near a threshold; Hindi, Thai and Chinese among them. The rule is written here from the guide's
description: 50 to 100,000 words between white space, 3 characters a word in the mean, 70 % letters. One thing is ours:
marks (the vowel signs of Hindi and Thai) count as letters.

Run: python3 dev/reference/check_filter.py [BUILD]   (BUILD: build; nothing to install)
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

PREPARE = os.path.join(sys.argv[1] if len(sys.argv) > 1 else "build", "prepare")
FOREIGN = ["हिन्दी में लिखा हुआ पाठ ", "ข้อความภาษาไทย ", "一段很长的中文文本 ", "naïve Überlänge "]


def keeps(text):
    words = text.split()
    if not 50 <= len(words) <= 100000:
        return False
    letters = sum(unicodedata.category(c)[0] in "LM" for c in text)
    return sum(map(len, words)) / len(words) >= 3 and letters / len(text) >= 0.7


def documents(rng):
    names = subprocess.run(["git", "ls-files", "doc", "src", "scripts"], check=True, capture_output=True, text=True)
    texts = [open(n, encoding="utf-8").read() for n in names.stdout.split() if not n.endswith(".svg")]
    for i in range(3000):
        text = rng.choice(texts)
        at = rng.randrange(len(text))
        text = text[at:at + rng.choice([200, 400, 800, 3000])]
        if i % 3 == 0:  # fewer signs: nearer to the threshold of letters
            text = "".join(c for c in text if c.isalpha() or c.isspace() or rng.random() < 0.5)
        if i % 5 == 0:
            text = text.replace(" ", rng.choice([" a ", "", "\u00a0", "  "]))
        if i % 7 == 0:
            text += rng.choice(FOREIGN) * rng.randrange(40)
        yield text.strip() or "-"


def main():
    texts = list(documents(random.Random(1)))
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(source, "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"text": t}) + "\n" for t in texts)
        subprocess.run([PREPARE, "filter", source, "--rules", "guide", "--out", out], check=True, capture_output=True)
        ours = [json.loads(line)["text"] for line in open(out, encoding="utf-8")]
    theirs = [t for t in texts if keeps(t)]
    print(f"{len(texts)} documents: the guide keeps {len(theirs)}, build/prepare {len(ours)}; "
          f"{'the same' if ours == theirs else 'NOT the same'}")
    sys.exit(ours != theirs)


main()
