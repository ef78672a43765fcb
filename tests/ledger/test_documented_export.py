"""The recipe in docs/reference/ledger-export.md checks an export without Halftone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bookkeeping import guarantee, make_store, open_books

from app.ledger.export import export_lines

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "ledger-export.md"


def recipe() -> str:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def outcome(folder: Path, lines: list[str]) -> int:
    (folder / "ledger.jsonl").write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-I", "-c", recipe()]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


def test_the_documented_recipe_accepts_a_ledger_and_rejects_a_changed_one(tmp_path: Path) -> None:
    database = make_store(tmp_path)
    lines: list[str] = []
    for _ in range(2):
        books = open_books(database, "1")
        with database.write() as session:
            books.admit(session, guarantee(epsilon="0.25"), detail={"note": "a\u00e9"})
        with database.read() as session:
            lines += export_lines(session, books.account_id)
    database.close()
    assert outcome(tmp_path, lines) == 0
    changed = [line.replace('"primary": 250000000000', '"primary": 1') for line in lines]
    assert changed != lines
    assert outcome(tmp_path, changed) == 1
