"""A request of a release, as the API description shows it beside a method's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """`params` fit the form; `rows` None asks for the noisy count of rows."""

    params: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Mapping[str, Any] = field(default_factory=lambda: {"epsilon": 1, "delta": 1e-6})
    rows: int | None = None

    def request(self, synthesizer: str, public_dataset: str | None = None) -> dict[str, Any]:
        """The body of the request, without what is left out."""
        body = {
            "synthesizer": synthesizer,
            "params": dict(self.params),
            "guarantee": dict(self.guarantee),
            "rows": self.rows,
            "public_dataset": public_dataset,
        }
        return {name: value for name, value in body.items() if value is not None}
