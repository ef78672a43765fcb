"""Reading how values are written: decimal and group characters, truth values, date formats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.engine.schema.column import TextFormat
from app.engine.schema.problems import ProblemLog
from app.engine.schema.scalars import LONGEST_NAME, read_spellings
from app.engine.schema.values import TypeName

MOST_FORMATS = 20

_DIRECTIVES = {
    "date": set("dmyYbB%"),
    "datetime": set("dmyYbBHIpMS%"),
    "time": set("HIpMS%"),
}


@dataclass(frozen=True)
class SpellingReader:
    """Reads the spelling keys of a field. A wrong key is logged and keeps its default."""

    wire: Mapping[str, Any]
    kind: TypeName
    log: ProblemLog

    def read(self) -> TextFormat:
        plain = TextFormat()
        trues, falses = (
            read_spellings(self.wire, key, self.log) for key in ("trueValues", "falseValues")
        )
        for key, spellings in (("trueValues", trues), ("falseValues", falses)):
            if spellings == ():
                self.log.add("a truth value needs a spelling", "list at least one", key)
        if trues and falses and set(trues) & set(falses):
            self.log.add("a spelling is both true and false", "remove one", "falseValues")
        group = self._mark("groupChar", None)
        decimal = self._mark("decimalChar", plain.decimal_char)
        if self.kind == "number" and group is not None and group == decimal:
            self.log.add("decimalChar and groupChar must differ", "declare both", "groupChar")
        bare = self.wire.get("bareNumber", True)
        if not isinstance(bare, bool):
            self.log.add("`bareNumber` is true or false", "choose one", "bareNumber")
        return TextFormat(
            formats=self._formats(),
            decimal_char=decimal or plain.decimal_char,
            group_char=group,
            bare_number=bare is True,
            true_values=plain.true_values if trues is None else trues,
            false_values=plain.false_values if falses is None else falses,
            missing=read_spellings(self.wire, "missingValues", self.log),
        )

    def _mark(self, key: str, default: str | None) -> str | None:
        mark = self.wire.get(key)
        if mark is None:
            return default
        if not isinstance(mark, str) or len(mark) != 1 or mark.isdigit() or mark in "+-":
            self.log.add("expected a single character", 'such as "." or ","', key)
            return default
        if self.kind not in ("integer", "number"):
            self.log.add(
                "only numbers have decimal and group characters", f"leave `{key}` out", key
            )
        return mark

    def _formats(self) -> tuple[str, ...]:
        raw = self.wire.get("format", "default")
        listed = raw if isinstance(raw, list) else [raw]
        if raw in ("default", "any") or (self.kind == "string" and isinstance(raw, str)):
            return ()
        if self.kind not in _DIRECTIVES:
            self.log.add(f"a {self.kind} has no format", "leave `format` out", "format")
            return ()
        if not 1 <= len(listed) <= MOST_FORMATS:
            self.log.add(f"expected 1 to {MOST_FORMATS} formats", "list them", "format")
            return ()
        for index, form in enumerate(listed):
            steps = ("format", index) if isinstance(raw, list) else ("format",)
            if not isinstance(form, str) or not _format_is_known(self.kind, form):
                allowed = " ".join(f"%{mark}" for mark in sorted(_DIRECTIVES[self.kind]))
                self.log.add("unknown format", f"use strptime directives among {allowed}", *steps)
                return ()
        return tuple(listed)


def _format_is_known(kind: str, form: str) -> bool:
    """Whether all directives are known, each part at most once (%b and %B are the same part)."""
    marks = [mark.replace("B", "b") for mark in re.findall(r"%(.?)", form)]
    parts = [mark for mark in marks if mark != "%"]
    return (
        0 < len(form) <= LONGEST_NAME
        and form.isprintable()
        and bool(parts)
        and len(set(parts)) == len(parts)
        and set(marks) <= _DIRECTIVES[kind]
    )
