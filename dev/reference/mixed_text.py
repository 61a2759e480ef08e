#!/usr/bin/env python3
"""Text of many scripts, for check_tokenizer.py and bench_tokenizer.py: the same for the same seed and size.

Run: python3 dev/reference/mixed_text.py MB SEED FILE

Each document is of one kind: words made up of the letters of a script (frequencies as in Zipf's law, 1 / rank), lines
of code, tables of numbers, emoji. Only characters that Unicode has had for ten years: libraries differ on newer ones.
"""
import itertools
import random
import sys

SEPARATOR = "<|endoftext|>"
SCRIPTS = {  # ranges of letters (marks too, where words need them), letters a word, what stands between words
    "latin": ("az az az àö øÿ", (1, 11), " "), "cyrillic": ("ая ая АЯ", (1, 12), " "), "greek": ("αω άώ", (1, 11), " "),
    "arabic": ("ءغ في ًْ", (1, 8), " "), "hebrew": ("את", (1, 7), " "), "devanagari": ("कह ाौ", (2, 9), " "),
    "thai": ("กฮ ะู เไ", (2, 9), ""), "hangul": ("가힣", (1, 5), " "), "han": ("一鿋", (1, 3), ""),
    "kana": ("ぁん ァヶ", (1, 6), ""),
}
EMOJI = ["😀", "🎉", "👩‍🔬", "👍🏽", "🇪🇺", "❤️", "☃", "🚀"]
MARKS = [". ", ", ", "! ", "? ", "; ", ": ", "\n", "\n\n", "  ", " – ", "… ", "’s ", "'ll "]


def words_of(rng, ranges, sizes, n=20000):
    letters = [chr(c) for r in ranges.split() for c in range(ord(r[0]), ord(r[1]) + 1)]
    return ["".join(rng.choices(letters, k=rng.randint(*sizes))) for _ in range(n)]


def code(rng, names):
    lines = []
    for _ in range(rng.randint(5, 60)):
        pad = "    " * rng.randint(0, 4) if rng.random() < 0.8 else "\t" * rng.randint(1, 3)
        a, b, c = rng.choices(names, k=3)
        lines.append(pad + rng.choice([f"if ({a}->{b} != {rng.randint(0, 999)}) return {c};", f"def {a}_{b}({c}=None):",
                                       f"{a}[{b}] += {c} * 0x{rng.getrandbits(20):x};", f"// {a} {b}: {c}", "}", ""]))
    return "\n".join(lines)


def documents(n_bytes, seed=1):
    rng, done = random.Random(seed), 0
    words = {name: words_of(rng, *row[:2]) for name, row in SCRIPTS.items()}
    weights = list(itertools.accumulate(1 / (k + 1) for k in range(20000)))
    kinds = list(SCRIPTS) + ["latin", "latin", "code", "numbers", "emoji"]
    while done < n_bytes:
        kind = rng.choice(kinds)
        if kind == "code":
            text = code(rng, words["latin"][:500])
        elif kind == "numbers":
            text = "\n".join(f"{rng.random():.6f}\t{rng.getrandbits(rng.randint(1, 60))} {rng.randint(-99, 99)}%"
                             for _ in range(40))
        elif kind == "emoji":
            text = " ".join(rng.choices(EMOJI + words["latin"][:50], k=100))
        else:
            between = SCRIPTS[kind][2]
            some = rng.choices(words[kind], cum_weights=weights, k=rng.randint(20, 2000))
            ends = rng.choices(MARKS, k=len(some) // 8 + 1)
            text = "".join(w + (ends[i // 8] if i % 8 == 7 else between) for i, w in enumerate(some))
        done += len(text.encode())
        yield text


if __name__ == "__main__":
    with open(sys.argv[3], "w", newline="") as out:
        for k, text in enumerate(documents(float(sys.argv[1]) * 1e6, int(sys.argv[2]))):
            out.write(SEPARATOR * (k > 0) + text)
