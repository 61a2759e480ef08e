#!/usr/bin/env python3
"""Compares build/prepare tokenizer with other tokenizers' libraries on vocabularies that were made there, on strange texts.

Made with Hugging Face tokenizers: byte-level BPE with unknown tokens, partial alphabets, added tokens, a least frequency,
ignore_merges, form C; the vocabulary of Qwen, as a tokenizer.json of Qwen2's form, where the package dashscope is
installed; BPE on characters with byte_fallback and SentencePiece's spaces, as a normalizer and as Metaspace. Made
with sentencepiece: BPE models with all settings of spaces and with and without byte_fallback, read as tokenizer.model
and, after Transformers converted it, as tokenizer.json. Every text must have the same ids, also after our tokenizer
was written as tokenizer.json and read again, here and there; and where the library decodes it to the text, so must we.

Run: python3 dev/reference/check_tokenizer_kinds.py [--build build] [--texts 300] [--seed 1]
     (pip install tokenizers sentencepiece transformers protobuf; for Qwen's vocabulary tiktoken dashscope)
"""
import argparse
import importlib.util
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

args = argparse.ArgumentParser()
args.add_argument("--build", default="build")
args.add_argument("--texts", type=int, default=300)
args.add_argument("--seed", type=int, default=1)
args = args.parse_args()
random.seed(args.seed)
failures = 0
STRANGE = [" ", " ", " ", "  ", "   ", "\n", "\r\n", "\t", "the", "hat", " cat", "\u2581", "\u2581the", "'s", "7", "1234", "!",
           "\u00e9", "e\u0301", "\u4e00\u4e8c", "\u0627\u0644", "\U0001f600", "\u00a0", "\u3000", "\ufeff", "\u180e", "\x00",
           "\x01", "\x7f", "<s>", "</s>", "<unk>", "[UNK]", "[BOS]", "<0x41>", "<0x0A>", "<|endoftext|>", "<tool>", "<tool",
           "<tool>x", "ab", "aab", "abab", "\ud7ff", "\uffff", "\U0010ffff", "zzz", "Q", "&", "\u0416\u0443\u043a"]
# What form C changes or might change: marks, one character for another, excluded from composition, Korean, two letters.
STRANGE += ["e", "\u0301", "\u0323", "\u0307", "\u1e0b", "\u212b", "\u2126", "\u0958", "\u0344", "\ufb1d", "\u1100",
            "\u1161", "\u11a8", "\uac00", "\u11a7", "\u09c7", "\u09be", "\uf900", "\U0001d15e", "\u034f", "\ufb01"]
WORDS = ("the cat sat on the hat and the rat ran at that fat bat with a mat in its hand while ten tents lent their "
         "aabb abab aaaa bbbb baba caf\u00e9 na\u00efve \u4e00\u4e8c\u4e09 \u0436\u0443\u043a \u0434\u043e\u043c 12 345 6789 x=y; "
         "print('hi') \u00fcber").split()


def corpus(n):
    lines = []
    for _ in range(n):
        line = "".join(random.choice(["", " ", " ", "  ", "\t"]) * (k > 0) + random.choice(WORDS) for k in range(12))
        lines.append(line)
    return lines


CORPUS = corpus(400)
TEXTS = ["", " ", "  ", "\u2581", "\n", "a", " a", "a ", "the", " the  cat "] + [
    "".join(random.choice(STRANGE + WORDS) for _ in range(random.randrange(1, 14))) for _ in range(args.texts)]


def verdict(what, same):
    global failures
    failures += not same
    print(f"{'same' if same else 'DIFFERENT':<10}{what}", flush=True)


def tokenize(*arguments):
    done = subprocess.run([os.path.join(args.build, "prepare"), "tokenizer", *map(str, arguments)], capture_output=True)
    if done.returncode:
        raise SystemExit(f"tokenize {' '.join(map(str, arguments[:3]))}: {done.stderr.decode()}")
    return done.stdout


def our_ids(tokenizer):
    """The ids of every text: a file each, one call; ends are found by a call a text where the sum differs."""
    files = [os.path.join(folder, f"text{i}") for i in range(len(TEXTS))]
    return [int(x) for x in tokenize("encode", "--tokenizer", tokenizer, "--threads", 1, *files).split()]


def compare(what, tokenizer, theirs):
    ours = our_ids(tokenizer)
    same = ours == [i for ids in theirs for i in ids]
    verdict(f"{what}: {len(ours)} ids", same)
    for i, want in enumerate(theirs if not same else []):
        got = [int(x) for x in tokenize("encode", "--tokenizer", tokenizer, os.path.join(folder, f"text{i}")).split()]
        if got != want:
            print("  ", repr(TEXTS[i]), "ours", got, "theirs", want)
            break


def check_decoding(what, tokenizer, theirs, decode):
    n = bad = 0
    for i, ids in enumerate(theirs[:60]):
        with open(os.path.join(folder, "ids"), "w") as out:
            out.write(" ".join(map(str, ids)))
        want = decode(ids)
        # Bytes that are no characters are replaced there and kept here; of U+2581 that was in the text sentencepiece
        # removes as many as begin it.
        if not ids or "\ufffd" in want or TEXTS[i].lstrip(" ").startswith("\u2581"):
            continue
        got = tokenize("decode", "--tokenizer", tokenizer, os.path.join(folder, "ids"))
        n += 1
        if got != want.encode():
            bad += 1
            if bad == 1:
                print("  ", repr(TEXTS[i]), "ours", got, "theirs", want.encode())
    verdict(f"{what}: {n} texts decoded", bad == 0)


def check_hf(what, tok, decoding=True):
    """tok as tokenizer.json; then ours again after writing it, here and in tokenizers."""
    tok.encode_special_tokens = True
    path = os.path.join(folder, "hf")
    os.makedirs(path, exist_ok=True)
    tok.save(path + "/tokenizer.json")
    theirs = [tok.encode(t, add_special_tokens=False).ids for t in TEXTS]
    compare(what, path, theirs)
    if decoding:
        check_decoding(what, path, theirs, lambda ids: tok.decode(ids, skip_special_tokens=False))
    check_written(what, path, theirs)


def check_written(what, path, theirs):
    again = os.path.join(folder, "again")
    tokenize("convert", "--tokenizer", path, "--to", "json", "--out", again)
    compare(what + ", written", again, theirs)
    tok = tokenizers.Tokenizer.from_file(again + "/tokenizer.json")
    tok.encode_special_tokens = True
    got = [tok.encode(t, add_special_tokens=False).ids for t in TEXTS]
    verdict(what + ", written, read by tokenizers", got == theirs)
    for i, (a, b) in enumerate(zip(got, theirs)):
        if a != b:
            print("  ", repr(TEXTS[i]), "written", a, "theirs", b)
            break


# ---- byte-level
SPECIALS = ["[UNK]", "[BOS]", "[EOS]", "[PAD]"]


def byte_level(unk=None, alphabet=False, least=0, specials=SPECIALS, **model):
    tok = tokenizers.Tokenizer(models.BPE(unk_token=unk, **model))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, min_frequency=least, special_tokens=specials,
                                                        initial_alphabet=letters, show_progress=False))
    return tok


def check_byte_level():
    check_hf("byte-level, [UNK]", byte_level("[UNK]"), False)
    check_hf("byte-level, [UNK] fused", byte_level("[UNK]", fuse_unk=True), False)
    check_hf("byte-level, all bytes", byte_level("[UNK]", True))
    check_hf("byte-level, no unknown token", byte_level(None, True))
    tok = byte_level("[UNK]", True)
    tok.post_processor = processors.TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 1), ("[EOS]", 2)])
    check_hf("byte-level, template", tok)
    written = json.load(open(folder + "/again/tokenizer.json"))["post_processor"]
    verdict("the template's first token is kept", written["single"][0]["SpecialToken"]["id"] == "[BOS]")
    tok.add_special_tokens(["<|endoftext|>", "<s>"])
    tok.add_tokens([AddedToken(t, normalized=n, special=False) for t, n in
                    [("<tool>", False), ("<tool>x", True), ("   ", False), ("\u4e00\u4e8c", True), ("the  c", True)]])
    check_hf("byte-level, added tokens", tok, False)
    tok = byte_level(None, True)
    state = json.loads(tok.to_str())
    state["model"]["merges"] = state["model"]["merges"][:60]
    check_hf("byte-level, tokens without merges", tokenizers.Tokenizer.from_str(json.dumps(state)))
    state["model"]["ignore_merges"] = True
    check_hf("byte-level, ignore_merges", tokenizers.Tokenizer.from_str(json.dumps(state)))
    for least in 2, 9, 40:
        tok = byte_level(None, True, least, [])
        with open(folder + "/corpus", "w", newline="") as out:
            out.write("<|endoftext|>".join(CORPUS))
        tokenize("train", "--special", "--vocab", 601, "--min-frequency", least, "--out", folder + "/least", folder + "/corpus")
        ours = json.load(open(folder + "/least/tokenizer.json"))["model"]["merges"]
        theirs = json.loads(tok.to_str())["model"]["merges"]
        verdict(f"{len(ours)} merges seen {least} times", [list(m) for m in ours] == [list(m) for m in theirs])


# ---- form C
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


# Marks of Unicode 10 and 15, which the tables of tokenizers and of Python 3.11 do not know.
NEW_MARKS = {0x1DF6, 0x1E4EC, 0x1E4ED}


def as_qwen2(tok):
    """The normalizer, the expression and the tokens beside the vocabulary that Qwen2's tokenizer.json has."""
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True)
                            for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return tok


def check_form_c():
    tok = as_qwen2(byte_level(None, True))
    check_hf("form C", tok, False)
    check_every_character(tok)
    tok.add_tokens([AddedToken(t, normalized=n, special=False) for t, n in
                    [("<tool>", False), ("e\u0301", False), ("caf\u00e9", True), ("\u00e9\u00e9", True)]])
    check_hf("form C, added tokens", tok, False)
    check_qwen()


def check_every_character(tok):
    """Each character alone, after a letter, and before an accent, through ours and through theirs."""
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and chr(c) not in "\n\r"]
    tok.save(folder + "/every.json")
    for what, line in ("every character", "{}"), ("every character after a", "a{}"), ("every character and an accent", "{}\u0301"):
        with open(folder + "/every", "w", newline="", encoding="utf-8") as out:
            out.write("\n".join(line.format(c) for c in every))
        with open(folder + "/every.ids", "wb") as out:
            out.write(tokenize("encode", "--tokenizer", folder + "/every.json", folder + "/every"))
        ours = tokenize("decode", "--tokenizer", folder + "/every.json", folder + "/every.ids").decode().split("\n")
        theirs = [tok.normalizer.normalize_str(line.format(c)) for c in every]
        python = [unicodedata.normalize("NFC", line.format(c)) for c in every]
        for whose, want in ("tokenizers", theirs), (f"Python's Unicode {unicodedata.unidata_version}", python):
            wrong = [ord(c) for c, a, b in zip(every, ours, want) if a != b and ord(c) not in NEW_MARKS]
            verdict(f"{what}: {len(every)}, {whose}", not wrong and len(ours) == len(every))
            if wrong:
                print(f"   {len(wrong)}: " + " ".join(f"{c:04X}" for c in wrong[:40]))


def check_qwen():
    found = importlib.util.find_spec("dashscope")
    ranks = found and os.path.join(os.path.dirname(found.origin), "resources", "qwen.tiktoken")
    if not ranks or not os.path.exists(ranks):
        print("absent    Qwen's vocabulary (pip install tiktoken; pip install --no-deps dashscope)")
        return
    import transformers.convert_slow_tokenizer as convert
    vocab, merges = convert.TikTokenConverter(vocab_file=ranks).extract_vocab_merges_from_model(ranks)
    tok = as_qwen2(tokenizers.Tokenizer(models.BPE(vocab, merges)))
    check_hf(f"Qwen2's form, {tok.get_vocab_size()} tokens", tok, False)


# ---- characters
def characters(bytes_too, unk="<unk>", fuse=True, metaspace=None, prepend=True, split=False):
    tok = tokenizers.Tokenizer(models.BPE(unk_token=unk, fuse_unk=fuse, byte_fallback=bytes_too))
    if metaspace:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=split)
    else:
        steps = [normalizers.Prepend("\u2581")] if prepend else []
        tok.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "\u2581")])
    named = [f"<0x{b:02X}>" for b in range(256)] if bytes_too else []
    first = [unk or "<pad>", "<s>", "</s>"]
    words = [w for line in CORPUS for w in line.replace("\t", " ").split(" ")]
    tok.train_from_iterator([" " + w for w in words] if not metaspace else words,
                            trainers.BpeTrainer(vocab_size=900, special_tokens=first + named, show_progress=False))
    state = json.loads(tok.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] not in named]
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tok = tokenizers.Tokenizer.from_str(json.dumps(state))
    prefixed = prepend if not metaspace else metaspace != "never"
    tok.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefixed else []))
    return tok


def check_characters():
    check_hf("characters, bytes", characters(True))
    check_hf("characters, bytes, no prefix", characters(True, prepend=False))
    check_hf("characters, unknown", characters(False), False)
    check_hf("characters, unknown, not fused", characters(False, fuse=False), False)
    for scheme in "always", "first", "never":
        for split in False, True:
            check_hf(f"Metaspace, {scheme}, {'split' if split else 'whole'}", characters(True, metaspace=scheme, split=split))
    for scheme in "always", "first":
        tok = characters(True, metaspace=scheme)
        tok.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("abab", normalized=False)])
        check_hf(f"Metaspace, {scheme}, added tokens", tok, False)
        tok.normalizer = normalizers.NFC()
        check_hf(f"Metaspace, {scheme}, added tokens, form C", tok, False)
    tok = characters(True)
    tok.add_tokens([AddedToken("<tool>", normalized=False)])
    check_hf("characters, added tokens", tok, False)
    tok = characters(True)
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    check_hf("characters, template", tok)


# ---- sentencepiece
def check_sentencepiece():
    for squeeze in False, True:
        for prefix in True, False:
            for bytes_too in True, False:
                out = io.BytesIO()
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter(CORPUS), model_writer=out, model_type="bpe", vocab_size=700 if bytes_too else 400,
                    byte_fallback=bytes_too, normalization_rule_name="identity", add_dummy_prefix=prefix,
                    remove_extra_whitespaces=squeeze, hard_vocab_limit=False, minloglevel=9,
                    allow_whitespace_only_pieces=not squeeze, character_coverage=1.0 if bytes_too else 0.99)
                path = os.path.join(folder, "sp")
                os.makedirs(path, exist_ok=True)
                with open(path + "/tokenizer.model", "wb") as f:
                    f.write(out.getvalue())
                sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
                theirs = [sp.encode(t) for t in TEXTS]
                what = f"sentencepiece{', squeezed' * squeeze}{', prefix' * prefix}{', bytes' * bytes_too}"
                compare(what, path, theirs)
                if bytes_too:
                    check_decoding(what, path, theirs, sp.decode)
                check_written(what, path, theirs)
                if bytes_too and prefix and not squeeze:
                    check_transformers(path)


def check_user_defined():
    """User-defined pieces, where they are taken, and the line that refuses them elsewhere."""
    for prefix, squeeze in (False, False), (True, False), (False, True):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=out, model_type="bpe", vocab_size=700, byte_fallback=True,
            normalization_rule_name="identity", add_dummy_prefix=prefix, remove_extra_whitespaces=squeeze,
            hard_vocab_limit=False, minloglevel=9, user_defined_symbols=["<tool>", "<tool>x", "ab", "aab", "the", "\n", "\u00e9"])
        path = os.path.join(folder, "user")
        os.makedirs(path, exist_ok=True)
        with open(path + "/tokenizer.model", "wb") as f:
            f.write(out.getvalue())
        sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
        theirs = [sp.encode(t) for t in TEXTS]
        what = f"sentencepiece, user-defined{', squeezed' * squeeze}{', prefix' * prefix}"
        if prefix or squeeze:
            done = subprocess.run([os.path.join(args.build, "prepare"), "tokenizer", "encode", "--tokenizer", path, folder + "/text1"],
                                  capture_output=True, text=True)
            verdict(f"{what}: refused", done.returncode == 1 and "user-defined" in done.stderr and done.stderr.count("\n") == 1)
            continue
        compare(what, path, theirs)
        check_decoding(what, path, theirs, sp.decode)
        check_written(what, path, theirs)


def check_transformers(path):
    import transformers
    tok = transformers.LlamaTokenizer.from_pretrained(path)._tokenizer
    check_hf("sentencepiece, by Transformers", tok)
    written = json.load(open(folder + "/again/tokenizer.json"))["model"]
    tokenize("convert", "--tokenizer", path, "--to", "json", "--out", folder + "/again")
    ours = json.load(open(folder + "/again/tokenizer.json"))
    verdict("sentencepiece, the merges of Transformers", ours["model"]["merges"] == written["merges"])
    verdict("sentencepiece, <s> begins a text", ours["post_processor"]["single"][0]["SpecialToken"]["id"] == "<s>")


with tempfile.TemporaryDirectory() as folder:
    for i, text in enumerate(TEXTS):
        with open(os.path.join(folder, f"text{i}"), "w", newline="", encoding="utf-8") as out:
            out.write(text)
    check_byte_level()
    check_form_c()
    check_characters()
    check_sentencepiece()
    check_user_defined()
sys.exit(failures > 0)
