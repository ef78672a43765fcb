"""The documentation as a site, read from disk without network: `make docs`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

project = "Halftone"
author = copyright = "Halftone contributors"

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Halftone"
# The pages stand in the repository already.
html_copy_source = False
html_show_sphinx = False
# A search would fetch each page it found, which a browser forbids of pages from disk.
html_show_search_summary = False
nitpicky = True
# Anchors as GitHub makes them, so that one link serves both.
myst_heading_anchors = 4

PAGES = Path(__file__).parent
ROOT = PAGES.parent
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(?:#[^)]*)?\)")


def name_files_of_the_repository(_app: Any, docname: str, source: list[str]) -> None:
    """Write links to files outside of `docs/`, which the site does not hold, as their paths."""
    folder = (PAGES / docname).parent

    def named(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = Path(os.path.normpath(folder / target))
        if "://" in target or path.is_relative_to(PAGES):
            return link[0]
        name = f"`{path.relative_to(ROOT)}`"
        return text if text.startswith("`") else f"{text} ({name})"

    # Every second part is a fenced block, whose text stays as it is.
    parts = _FENCED.split(source[0])
    parts[::2] = [_LINK.sub(named, part) for part in parts[::2]]
    source[0] = "".join(parts)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", name_files_of_the_repository)
