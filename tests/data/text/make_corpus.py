"""Make tests/data/text/corpus/: malformed tokenizer.json files and JSON lines, with the message that each must give.

  python3 tests/data/text/make_corpus.py

expect.txt has a line for each file: name, tab, part of the message ("" when the file must be read).
"""
import copy, json, os

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
GOOD = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": 6, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                                                                {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [], "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [6], "tokens": ["<|end|>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "Ġab": 5}, "merges": [["a", "b"], "Ġ ab"]},
}
expect = {}


def put(name, text, message):
    with open(os.path.join(OUT, name), "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    expect[name] = message


def change(name, message, *path_and_value):
    *path, last, value = path_and_value
    document = copy.deepcopy(GOOD)
    at = document
    for key in path:
        at = at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    put(name + ".json", json.dumps(document, ensure_ascii=False), message)


def regex(name, pattern, message):
    change("regex-" + name, message, "pre_tokenizer",
           {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False})


def pre(name, value, message):
    change("pre-" + name, message, "pre_tokenizer", value)


def nested(kind, key, depth, inner):
    for _ in range(depth):
        inner = {"type": kind, key: [inner]}
    return inner


def main():
    os.makedirs(OUT, exist_ok=True)
    text = json.dumps(GOOD, ensure_ascii=False)
    put("good.json", text, "")
    put("empty.json", "", "not valid JSON")
    put("cut.json", text[: len(text) // 2], "not valid JSON")
    put("array.json", "[]", "must hold an object")
    put("number.json", "3", "not valid JSON")
    put("twice.json", text[:-1] + ', "model": {}}', "duplicate")
    put("latin1.json", text.replace("Ġ", "é").encode("latin-1"), "not valid JSON")
    put("deep.json", "[" * 5000, "not valid JSON")
    put("nul-key.json", '{"model": {"vocab": {"a\\u0000": 1}}}', "not valid JSON")
    change("version", 'version "2.0" is not known', "version", "2.0")
    change("no-model", '"model" must be an object', "model", None)
    change("model-type", 'model type "Unigram" is not known to drydock (known: BPE)', "model", "type", "Unigram")
    change("no-vocab", "not empty", "model", "vocab", None)
    change("vocab-array", "not empty", "model", "vocab", ["a"])
    change("vocab-empty", "not empty", "model", "vocab", {})
    change("vocab-negative", 'token "a" must be an integer', "model", "vocab", {"a": -1})
    change("vocab-huge", 'token "a" must be an integer', "model", "vocab", {"a": 2147483647})
    change("vocab-text", 'token "a" must be an integer', "model", "vocab", {"a": "0"})
    change("vocab-same", "have the same id 0", "model", "vocab", {"a": 0, "b": 0})
    change("no-merges", '"merges" must be an array', "model", "merges", None)
    change("merge-three", "merge 0 must be", "model", "merges", ["a b c"])
    change("merge-one", "merge 0 must be", "model", "merges", ["ab"])
    change("merge-triple", "merge 0 must be", "model", "merges", [["a", "b", "c"]])
    change("merge-number", "merge 0 must be", "model", "merges", [["a", 1]])
    change("merge-object", "merge 0 must be", "model", "merges", [{}])
    change("merge-left", 'needs token "x"', "model", "merges", [["x", "b"]])
    change("merge-right", 'needs token "x"', "model", "merges", [["a", "x"]])
    change("merge-result", 'needs token "ba"', "model", "merges", [["b", "a"]])
    change("dropout", "BPE dropout 0.1 is not known", "model", "dropout", 0.1)
    change("prefix", 'continuing_subword_prefix "##" is not known', "model", "continuing_subword_prefix", "##")
    change("suffix", 'end_of_word_suffix "</w>" is not known', "model", "end_of_word_suffix", "</w>")
    change("bad-bool", 'key "byte_fallback" is a string', "model", "byte_fallback", "yes")
    change("unk-missing", "", "model", "unk_token", "<unk>")
    change("norm-type", 'normalizer type "Precompiled" is not known to drydock (known: NFC', "normalizer", {"type": "Precompiled"})
    change("norm-no-type", 'key "type" is missing', "normalizer", {})
    change("norm-text", "must be an object", "normalizer", "NFC")
    change("norm-replace", "neither", "normalizer", {"type": "Replace", "pattern": {"Glob": "*"}, "content": ""})
    change("norm-replace-empty", "neither", "normalizer", {"type": "Replace", "pattern": {"String": ""}, "content": ""})
    change("norm-prepend", 'key "prepend" is missing', "normalizer", {"type": "Prepend"})
    change("norm-deep", "nested at most", "normalizer", nested("Sequence", "normalizers", 40, {"type": "NFC"}))
    change("norm-list", "needs an array", "normalizer", {"type": "Sequence", "normalizers": {}})
    pre("type", {"type": "UnicodeScripts"}, 'pre_tokenizer type "UnicodeScripts" is not known to drydock (known: Sequence')
    pre("deep", nested("Sequence", "pretokenizers", 40, {"type": "WhitespaceSplit"}), "nested at most")
    pre("behavior", {"type": "Split", "pattern": {"String": "a"}, "behavior": "Kept", "invert": False}, 'behavior "Kept" is not known')
    pre("pattern", {"type": "Split", "pattern": "a", "behavior": "Isolated", "invert": False}, '"pattern" must be')
    pre("both", {"type": "Split", "pattern": {"String": "a", "Regex": "b"}, "behavior": "Isolated", "invert": False}, '"pattern" must be')
    pre("metaspace", {"type": "Metaspace", "replacement": "__", "prepend_scheme": "first"}, "Metaspace with replacement")
    pre("scheme", {"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}, 'prepend_scheme "last"')
    pre("bytes", {"type": "ByteLevel", "use_regex": True}, 'key "add_prefix_space" is missing')
    regex("open", "(a", "not closed")
    regex("close", "a)", "closes nothing")
    regex("bracket", "[a", "not closed")
    regex("star", "*a", "regular expression")
    regex("posix", "[[:alpha:]]", "not known to drydock")
    regex("and", "[a&&b]", "intersection")
    regex("property", "\\p{Emoji}", '\\p{Emoji}" at byte 0 is not known to drydock')
    regex("property-open", "\\p{L", "no property")
    regex("property-bare", "\\pL", "needs a property in braces")
    regex("not-in", "[\\P{L}]", "inside brackets is not known")
    regex("back", "(a)\\1", "back reference")
    regex("keep", "a\\Kb", "not known to drydock")
    regex("option", "a(?i)b", "away from the beginning")
    regex("extended", "(?x)a b", "not known to drydock")
    regex("condition", "(?(1)a|b)", "not known to drydock")
    regex("name", "(?<n>a)\\k<n>", "not known to drydock")
    regex("case", "(?i:\\p{Lu})", "inside (?i) is not known")
    regex("code", "\\x{110000}", "no character code")
    regex("surrogate", "\\ud800", "no character code")
    regex("byte", "\\xff", "no character code")
    regex("end", "a\\", "escapes nothing")
    regex("exact", "a{2}?", "not known to drydock")
    regex("nest", "(" * 100 + ")" * 100, "nested too deeply")
    regex("range", "[z-a]", "regular expression")
    regex("huge", "a{70000}", "regular expression")
    regex("slow", "(?:a+)+b", "")
    regex("empty-match", "x*", "")
    change("post-type", 'post_processor type "BertProcessing" is not known to drydock (known: Template', "post_processor", {"type": "BertProcessing"})
    change("post-no-a", "one Sequence", "post_processor", "single", [])
    change("post-b", "one Sequence", "post_processor", "single", [{"Sequence": {"id": "B"}}])
    change("post-two", "one Sequence", "post_processor", "single", [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}])
    change("post-piece", "one Sequence", "post_processor", "single", [{"Word": {}}])
    change("post-table", 'special token "<|end|>" has no "ids"', "post_processor", "special_tokens", {})
    change("post-id", "token id 99, which is no token", "post_processor", "special_tokens", "<|end|>", "ids", [99])
    change("post-negative", "must be integers", "post_processor", "special_tokens", "<|end|>", "ids", [-1])
    change("added-object", "must be an array", "added_tokens", {})
    change("added-empty", "not empty", "added_tokens", 0, "content", "")
    change("added-id", 'token "<|end|>" has id 9, but Hugging Face tokenizers would give it 6', "added_tokens", 0, "id", 9)
    change("added-no-id", 'key "id" is missing', "added_tokens", 0, "id", None)
    change("added-twice", "listed twice", "added_tokens", GOOD["added_tokens"] * 2)
    change("added-text", "found a string", "added_tokens", ["<|end|>"])
    lines = [b'{"prompt": "a", "completion": "b"}', b"", b"{", b'{"prompt": "a"}', b"\xff\xfe\x00", b'{"prompt": "\\ud800", "completion": "b"}',
             b'{"prompt": {}, "completion": 1e999}', b"[" * 3000, b'{"prompt": "a", "completion": ""}', b"nul \x00 byte",
             b'{"prompt": "\x00", "completion": "b"}', b'{"prompt": "' + b"a" * 3000 + b'", "completion": "b"}', b"\xed\xa0\x80", b"{}{}", b'"', b"-"]
    put("lines.jsonl", b"\n".join(lines), "")
    put("lines-cr.jsonl", b"\r\n".join(lines) + b"\r", "")
    put("array.jsonl", b'[\n{"prompt": "a"}\n]\n', "is a JSON array")
    put("empty.jsonl", b"", "is empty")
    put("blank.jsonl", b"\n \n\t\r\n", "is empty")
    put("mark.jsonl", b"\xef\xbb\xbf", "is empty")
    put("utf16.jsonl", '{"a": 1}'.encode("utf-16"), "is UTF-16")
    with open(os.path.join(OUT, "expect.txt"), "w") as file:
        for name in sorted(expect):
            file.write(f"{name}\t{expect[name]}\n")


if __name__ == "__main__":
    main()
