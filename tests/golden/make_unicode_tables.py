"""Print the tables of src/text/unicode.c: where Hugging Face tokenizers differs from an older Unicode. Run by hand:

  python3 tests/golden/make_unicode_tables.py

needs `pip install tokenizers unicodedata2` (the newest unicodedata2 there is) and a Python whose own unicodedata is
Unicode 14 (Python 3.11), which stands for the oldest PCRE2 that drydock builds with.
"""
import unicodedata

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, CODES))
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cf".split()
FORMS = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD()}


def matched(pattern):
    pieces = pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(ALL)
    return {ord(ch) for _, (begin, end) in pieces for ch in ALL[begin:end]}


def ranges(values):
    """[first, last, value] of neighbouring code points with the same value."""
    found = []
    for code in sorted(values):
        if found and found[-1][1] == code - 1 and found[-1][2] == values[code]:
            found[-1][1] = code
        else:
            found.append([code, code, values[code]])
    return found


def show(title, items):
    print(f"\n/* {title}: {len(items)} */")
    line = "   "
    for item in items:
        if len(line) + len(item) > 108:
            print(line)
            line = "   "
        line += " " + item + ","
    print(line)


def assigned():
    return {c: k for k in CATEGORIES for c in matched(rf"\p{{{k}}}") if unicodedata.category(chr(c)) == "Cn"}


def inert():
    """Code points that the newest Unicode decomposes, reorders or composes, and the normalizers do not."""
    found = set()
    for c in CODES:
        ch = chr(c)
        if any(n.normalize_str(ch) != unicodedata2.normalize(f, ch) for f, n in FORMS.items()):
            assert all(n.normalize_str(ch) == ch for n in FORMS.values()), hex(c)
            found.add(c)
        behind = "a\u0345" + ch  # the mark with the highest class: any other moves before it
        if 0 < unicodedata2.combining(ch) < 240 and FORMS["NFD"].normalize_str(behind) == behind:
            found.add(c)
        parts = unicodedata2.decomposition(ch).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(x, 16)) for x in parts)
            if unicodedata2.normalize("NFC", pair) == ch != FORMS["NFC"].normalize_str(pair):
                found.update(ord(x) for x in pair + ch if ord(x) != 0x307)
    return {c: None for c in found}


def main():
    print(f"/* unicodedata {unicodedata.unidata_version}, unicodedata2 {unicodedata2.unidata_version} */")
    show("assigned", ['{0x%x, 0x%x, "%s"}' % tuple(r) for r in ranges(assigned())])
    show("inert", ["{0x%x, 0x%x}" % tuple(r[:2]) for r in ranges(inert())])
    lower = normalizers.Lowercase()
    younger = {c: ord(low) - c for c in CODES for low in [lower.normalize_str(chr(c))]
               if len(low) == 1 and low != chr(c).lower()}
    show("lowered", ["{0x%x, 0x%x, 0x%x}" % (a, b, a + d) for a, b, d in ranges(younger)])


if __name__ == "__main__":
    main()
