"""Make the tokenizers and golden ids under tests/golden/text/. Run by hand from the top of the tree:

  python3 tests/golden/make_text_golden.py [FOLDER_WITH_REAL_TOKENIZERS]

needs `pip install tokenizers`. Each folder NAME holds a small tokenizer.json (byte-level BPEs trained on this project's
own sentences, in the variants of well-known models, and one folder per part that those do not use) and golden.jsonl: texts
with the ids that Hugging Face tokenizers gives. real.jsonl has ids of the same texts by real tokenizers, which are not
part of the tree: lines {"tokenizer": folder name, "text": ..., "ids": [...]}.
"""
import copy, json, os, sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "text")

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = """
The harbour wakes before the sun does. Two cranes turn, a ship comes in from the north, and the crew counts the crates.
How many crates are on the quay if each of the 12 trucks brings 35? There are 12 * 35 = 420 crates on the quay.
She didn't know that it'd rain, so they've left the sails up; we'll see what he's done, I'm sure, you're welcome.
def total(prices, tax=0.19):\n    \"\"\"Sum of prices with tax.\"\"\"\n    return sum(p * (1 + tax) for p in prices)\n
for (int i = 0; i < n; i++) {\n\tprintf("%d: %s\\n", i, name[i]);\n}\nif (x != y && !done) { return -1; }\n
Der Hafen schläft nie: Größe, Straße, Übergänge. Le café est fermé à midi, où allez-vous ? El niño comió piñas.
Корабль стоит у причала. Сколько ящиков на складе? 港の朝は早い。船が来ました。 港口醒得很早，船来了。 부두에 배가 왔다.
The answer is 1,024.50 and the year was 1987; 3.14159, 2^10, 50% of 80 is 40. #### 42
User: What is a dock?\nAssistant: A dock is a place where ships are loaded, repaired and built.\n\n
"""

TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\t\tx", "a", "The dock", "  two spaces  in  the middle  ",
    "Tabs\tand\nnew\n\n\nlines\r\n\r\n  end  ", "I'm sure they've said it's what we'd do; YOU'LL SEE, HE'S, it'ſ",
    "12 + 345 = 357, 1234567 and 3.14 or ½ Ⅷ ² ٣٤٥ ४५ 𝟙𝟚", "naïve café, cafe\u0301, Å \u212b \u0041\u030a, ﬁ ﬃ ①",
    "한국어 \u1112\u1161\u11ab 각", "\u0344 \u0958 \u0f73 a\u0345\u0301\u0323 \u1e9b\u0323", "港の朝は早い。船が来ました。 港口醒得很早，船来了。",
    "Корабль стоит у причала. عربى ١٢٣ עברית हिन्दी ไทย", "👍🏽 👩‍👩‍👧‍👦 🇩🇪 ☃️ 🛳", "a\u200bb\ufeffc\u00a0d\u2028e\u3000f\u180eg\x85h",
    "\x00\x01\x1f\x7f\x80\x9f", "if (x != y && !done) { return -1; } // \\n \"quoted\" `code` ~/path_to/file.c",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>", "<|im_end|><|im_end|> <|im_end|>x<|im_en", "a <tool> b  <tool>  c<tool>d",
    "word <mask>  next", "keep <w> xw wx w <one>", "aaaa" * 30, "  " * 40 + "x", "-" * 70 + "\n" + "=" * 33,
    "Supercalifragilisticexpialidocious antidisestablishmentarianism", "ÀÉÎÕÜ ǅ ǈ ʰ ᵃ İstanbul ΑΣ ΣΑΣ ẞ",
    "\u0897 \ua7da \U00010d4e\U000105d2\u0307 \U00011383 \U0002ebf0 \U00031350", "\U00011935\U00011930 \u1ac1\u0301 a\u1ac1\u0323 \u32ff",
    "▁a▁▁b ▁", "<0x41> ĠĠ Ċ", "x" * 200 + " " + "xyz" * 50,
]


def bytelevel(pre, special, size=700, **model):
    tok = Tokenizer(models.BPE(**model))
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator([CORPUS] + CORPUS.split("\n"), trainer)
    tok.add_special_tokens(special)
    return tok


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(regex=False, space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=regex)


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = byte_level()


def models_of_note():
    yield "smollm", bytelevel(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]), SPECIAL)
    qwen = bytelevel(pre_tokenizers.Sequence([split(QWEN), BYTES]), SPECIAL)
    qwen.normalizer = normalizers.NFC()
    qwen.post_processor = processors.ByteLevel(trim_offsets=False)
    qwen.add_tokens([AddedToken("<tool>", normalized=False, special=False)])
    yield "qwen", qwen
    llama = bytelevel(pre_tokenizers.Sequence([split(LLAMA3), BYTES]), ["<|begin_of_text|>"] + SPECIAL)
    llama = Tokenizer.from_str(json.dumps({**json.loads(llama.to_str()), "model": {**json.loads(llama.to_str())["model"],
                                          "ignore_merges": True, "continuing_subword_prefix": None, "end_of_word_suffix": None}}))
    llama.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair=None, special_tokens=[("<|begin_of_text|>", llama.token_to_id("<|begin_of_text|>"))])])
    yield "llama3", llama
    gpt2 = bytelevel(byte_level(True), ["<|endoftext|>"])
    gpt2.post_processor = processors.ByteLevel()
    yield "gpt2", gpt2


def legacy(tok):
    """Merges as "a b", no new keys, and a merge set that ignore_merges overrules."""
    d = json.loads(tok.to_str())
    d["model"]["merges"] = [" ".join(m) for m in d["model"]["merges"]]
    d["model"].pop("ignore_merges", None)
    return d


def small(pre, normalizer=None, added=(), post=None, **model):
    """A small alphabet of bytes with a few merges, for parts that the others do not use."""
    base = json.loads(bytelevel(byte_level(True), [], size=330).to_str())
    vocab, merges = base["model"]["vocab"], [tuple(m) for m in base["model"]["merges"]]
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, **model))
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    for token in added:
        tok.add_tokens([token])
    if post:
        tok.post_processor = post
    return tok


def sentencepiece():
    """Characters, byte fallback and fused unknowns as Llama 2 has them; two bytes have no token, so unknowns occur."""
    letters = sorted(set("▁abcdefghijklmnopqrstuvwxyzTHWS.,'é港\n"))
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for b in range(256):
        if b not in (0xF0, 0xE2):
            vocab[f"<0x{b:02X}>"] = len(vocab)
    for c in letters:
        vocab[c] = len(vocab)
    merges = []
    for pair in ["▁ t", "h e", "▁t he", "i n", "▁ ▁", "▁▁ ▁▁", "o r", "t h", "th e", "▁ the", "e r"]:
        a, b = pair.split(" ")
        vocab.setdefault(a + b, len(vocab))
        merges.append((a, b))
    return vocab, merges


def parts():
    seq, sub = pre_tokenizers.Sequence, pre_tokenizers
    yield "o200k", small(seq([split(O200K), BYTES]))
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
        yield "split-" + behavior, small(seq([split(r"[aeiou\s]", behavior), sub.Split("n", behavior), BYTES]))
        yield "invert-" + behavior, small(seq([split(r"\w+|[^\w\s]+", behavior, True), BYTES]))
    yield "lines", small(seq([split(r"^\s*\S+|[.!?]$|\b[a-z]{2,3}\b|\p{N}{2}+|\h+x"), BYTES]))
    yield "scripts", small(seq([split(r"\p{Han}+|\p{Hiragana}+|\p{^L}|(?<=a)b|(?>x+)"), BYTES]))
    yield "digits", small(seq([sub.Digits(individual_digits=False), byte_level(True, True)]))
    yield "whitespace", small(seq([sub.Whitespace(), BYTES]))
    yield "whitespace-split", small(seq([sub.WhitespaceSplit(), BYTES]))
    yield "bytes-first", small(seq([byte_level(True), sub.Digits(individual_digits=True), split("Ġ+", "merged_with_next")]))
    for form in ["NFD", "NFKC", "NFKD"]:
        yield form.lower(), small(byte_level(True), getattr(normalizers, form)())
    yield "rewrite", small(byte_level(True), normalizers.Sequence([
        normalizers.Lowercase(), normalizers.Replace("ab", "B"), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(),
        normalizers.Replace(Regex("q+|x(?=x)"), "_")]))
    added = [AddedToken("<|im_end|>", special=True, normalized=False), AddedToken("<tool>", lstrip=True, rstrip=True),
             AddedToken("<mask>", lstrip=True, special=True), AddedToken("<one>", rstrip=True, normalized=False), AddedToken("w", single_word=True),
             AddedToken("  ", normalized=False), AddedToken("<|im", normalized=False), AddedToken("Supercali"), AddedToken("cafe\u0301")]
    yield "added", small(byte_level(True), normalizers.NFC(), added)
    lower = [AddedToken("HELLO the Dock"), AddedToken("The dock", normalized=False), AddedToken("<|IM_START|>", special=True)]
    yield "added-lower", small(byte_level(True), normalizers.Lowercase(), lower)
    post = processors.TemplateProcessing(single="c a $A d e", pair=None, special_tokens=[
        ("a", 64), ("c", 66), ("d", 67), ("e", 68)])
    yield "post", small(byte_level(True), post=post)
    vocab, merges = sentencepiece()
    llama2 = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama2.add_special_tokens(["<unk>", "<s>", "</s>", "<|im_end|>"])
    llama2.post_processor = processors.TemplateProcessing(single="<s> $A", pair=None, special_tokens=[("<s>", 1)])
    yield "llama2", llama2
    for scheme in ["first", "always", "never"]:
        for cut in [False, True]:
            tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=False, byte_fallback=cut))
            tok.pre_tokenizer = sub.Metaspace(replacement="▁", prepend_scheme=scheme, split=cut)
            tok.add_special_tokens(["<s>", "<|im_end|>"])
            yield f"metaspace-{scheme}-{'cut' if cut else 'whole'}", tok


def golden(tok):
    for text in TEXTS:
        for special, post in ((True, True), (False, False)):
            tok.encode_special_tokens = not special
            try:
                ids = tok.encode(text, add_special_tokens=post).ids
            except BaseException as error:  # some parts of the library panic on some texts: those have no golden ids
                if type(error).__name__ != "PanicException":
                    raise
                continue
            yield {"text": text, "special": special, "post": post, "ids": ids}


def write(name, tok, document=None):
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    tok = Tokenizer.from_str(json.dumps(document)) if document else tok
    tok.encode_special_tokens = False
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(document or json.loads(tok.to_str()), file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    lines, last = list(golden(tok)), None
    with open(os.path.join(folder, "golden.jsonl"), "w") as file:
        for line in lines:
            if line["special"] or not last or line["ids"] != last["ids"]:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            last = line


def main():
    for name, tok in models_of_note():
        write(name, tok, legacy(tok) if name == "gpt2" else None)
    for name, tok in parts():
        write(name, tok)
    if len(sys.argv) > 1:
        with open(os.path.join(OUT, "real.jsonl"), "w") as file:
            for name in sorted(os.listdir(sys.argv[1])):
                tok = Tokenizer.from_file(os.path.join(sys.argv[1], name, "tokenizer.json"))
                for text in TEXTS:
                    line = {"tokenizer": name, "text": text, "special": True, "post": True, "ids": tok.encode(text).ids}
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
