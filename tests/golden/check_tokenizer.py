"""Compare `drydock tokenize` with Hugging Face tokenizers, id by id. Run by hand; needs `pip install tokenizers`.

  python3 tests/golden/check_tokenizer.py --drydock ./drydock FOLDER DATA... [--random N] [--seed S]

FOLDER holds tokenizer.json (a base will do). DATA: JSON lines, or one JSON array; every string anywhere in a record is a
text. --random N adds N made-up texts of random Unicode, which mix all planes, rare white space, combining marks, digits
of many scripts, long runs and the texts of added tokens. Each text is encoded with special tokens recognised, without,
and with the post-processor's tokens.

With --code-points every code point is a text alone, between letters, behind spaces, and among combining marks.
"""
import argparse, json, random, subprocess, sys, tempfile

from tokenizers import Tokenizer


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)


def records(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def code_points():
    """Planes 0 to 3 and 14 to 16 without surrogates; the others hold nothing."""
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and not 0x33480 <= c < 0xE0000]


def random_text(rng, added):
    pools = [
        lambda: chr(rng.randrange(0x20, 0x7F)),
        lambda: chr(rng.randrange(0x00, 0x250)),
        lambda: rng.choice(" \t\n\r\v\f\x85\xa0\u1680\u180e\u2000\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"),
        lambda: rng.choice("  \n\n\r\n"),
        lambda: chr(rng.randrange(0x300, 0x370)),
        lambda: rng.choice("'s 't 're 've 'm 'll 'd 'S 'LL 'ſ 'K".split()),
        lambda: rng.choice("0123456789٣४৫②Ⅷ½⁴𝟙"),
        lambda: chr(rng.randrange(0x4E00, 0x9FFF)),
        lambda: chr(rng.randrange(0xAC00, 0xD7A4)),
        lambda: chr(rng.randrange(0x1100, 0x1200)),
        lambda: chr(rng.randrange(0x1F300, 0x1FB00)),
        lambda: chr(rng.randrange(0x370, 0x2000)),
        lambda: chr(rng.choice(code_points_list)),
        lambda: rng.choice(added) if added else "x",
        lambda: rng.choice("abcXYZ .,;!?()[]{}<|>_-'\"\\/▁Ġ") * rng.randrange(1, 40),
    ]
    few = rng.sample(pools, rng.randrange(1, 6))
    return "".join(rng.choice(few)() for _ in range(rng.randrange(1, 60)))


code_points_list = code_points()


def cases(args, hf):
    for path in args.data:
        for record in records(path):
            yield from strings(record)
    added = [token.content for token in hf.get_added_tokens_decoder().values()]
    rng = random.Random(args.seed)
    for _ in range(args.random):
        yield random_text(rng, added)
    if args.code_points:
        for c in code_points_list:
            yield chr(c)
            yield "a" + chr(c) + "b  " + chr(c) + " " + chr(c) + chr(c) + "'s\n " + chr(c)
            yield "e" + chr(c) + "\u0301\u0323"


def batches(items, size):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def ours(command, lines):
    with tempfile.TemporaryFile("w+b") as file:
        for line in lines:
            file.write(json.dumps(line).encode() + b"\n")
        file.seek(0)
        done = subprocess.run(command, stdin=file, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{command[0]} ended with status {done.returncode}")
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drydock", default="drydock", help="the program")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--code-points", action="store_true")
    parser.add_argument("folder")
    parser.add_argument("data", nargs="*")
    args = parser.parse_args()

    hf = Tokenizer.from_file(args.folder + "/tokenizer.json")
    hf.no_truncation()
    hf.no_padding()
    command = [args.drydock, "tokenize", "--base", args.folder]
    texts = tokens = differ = size = 0
    for batch in batches(cases(args, hf), 200000):
        lines, want = [], []
        for special, post in ((True, False), (False, False), (True, True)):
            hf.encode_special_tokens = not special
            lines += [{"text": text, "special": special, "post": post} for text in batch]
            want += [e.ids for e in hf.encode_batch(batch, add_special_tokens=post)]
        got = ours(command, lines)
        if len(got) != len(want):
            sys.exit(f"{len(want)} lines in, {len(got)} lines out")
        for line, a, b in zip(lines, got, want):
            if a["ids"] != b:
                differ += 1
                if differ <= 10:
                    print(f"differs: {json.dumps(line)}\n  drydock {a['ids']}\n  HF      {b}")
        texts += len(batch)
        size += sum(len(text.encode()) for text in batch)
        tokens += sum(map(len, want)) // 3
    print(f"{args.folder}: {texts} texts, {size / 1e6:.2f} MB, {tokens} tokens, each encoded in 3 ways: {differ} differ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
