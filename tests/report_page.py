"""Reads report.html strictly: every element closed in order, nothing fetched from elsewhere, curves bounded.

Prints what a test asks for: report_page.py FILE [points NAME | text].
"""
import re
import sys
from html.parser import HTMLParser

FETCHING = {"src", "href", "xlink:href", "data", "srcset", "action", "background", "poster"}
ELSEWHERE = {"link", "iframe", "object", "embed", "img", "image", "use", "base", "form", "audio", "video"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.curves, self.words, self.ids = [], [], [], []

    def look(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names), f"{tag}: an attribute twice"
        assert tag not in ELSEWHERE, f"<{tag}>"
        for name, value in attributes:
            assert value is not None, f"{tag} {name}: no value"
            assert name not in FETCHING, f"{tag} {name}={value}"
            assert not name.startswith("on"), f"{tag} {name}={value}"
            assert "url(" not in value and "nan" not in value.lower() and "inf" not in value.lower().split(), f"{tag} {name}={value}"
        if tag == "polyline":
            found = dict(attributes)
            points = [tuple(map(float, p.split(","))) for p in found["points"].split()]
            self.curves.append((found.get("data-name"), points))

    def handle_starttag(self, tag, attributes):
        self.look(tag, attributes)
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.look(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if "style" in self.open:
            assert not re.search(r"url\(|@import|expression", data), "the style fetches something"
        elif "script" in self.open:
            assert not re.search(r"fetch\(|XMLHttp|import|eval|innerHTML|document\.write", data), "the script fetches something"
        else:
            self.words.append(data)


text = open(sys.argv[1], encoding="utf-8", errors="strict").read()
assert text.startswith("<!DOCTYPE html>")
assert not re.search(r"(?i)https?:|//[a-z]+\.[a-z]", re.sub(r"(?s)<dd>.*?</dd>", "", text)), "an address"
page = Page()
page.feed(text)
page.close()
assert not page.open, f"left open: {page.open}"
assert all(len(points) <= 400 for _, points in page.curves), "a curve of more than 400 points"
if sys.argv[2:3] == ["points"]:
    for name, points in page.curves:
        if name == sys.argv[3]:
            print(len(points), min(y for _, y in points), max(y for _, y in points))
            break
elif sys.argv[2:3] == ["text"]:
    print(" ".join(" ".join(page.words).split()))
