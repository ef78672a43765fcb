"""Check that the built documentation needs no network: no page loads anything from elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# Of these elements an address is fetched as the page opens; `a` waits for a click.
_LOADED = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "link": "href",
    "object": "data", "script": "src", "source": "src", "video": "src",
}  # fmt: skip
_ELSEWHERE = re.compile(r"^(?:[a-z]+:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


class _Loaded(HTMLParser):
    """The addresses that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(_LOADED.get(tag, ""))
        if address is not None:
            self.addresses.append(address)


def from_elsewhere(file: Path) -> Iterator[str]:
    """What one file of the site would fetch over the network."""
    text = file.read_text(encoding="utf-8")
    yield from _IN_STYLE.findall(text)
    if file.suffix == ".html":
        page = _Loaded()
        page.feed(text)
        yield from filter(_ELSEWHERE.match, page.addresses)


def main(site: Path) -> int:
    if not (site / "index.html").exists():
        print(f"{site} holds no site: run `make docs`.", file=sys.stderr)
        return 1
    files = sorted(each for each in site.rglob("*") if each.suffix in {".html", ".css"})
    found = [f"{file}: {address}" for file in files for address in from_elsewhere(file)]
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
