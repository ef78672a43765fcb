"""Which runs were asked for: implementations by name or group, seeds and epsilons of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Generic, TypeVar

from app.engine.catalog import registry
from bench.synthesizers.implementations import Implementation
from bench.synthesizers.library import InProcess
from bench.synthesizers.peers.packages import METHODS, Peer
from bench.synthesizers.references import REFERENCES
from bench.synthesizers.served import Served

T = TypeVar("T")

COMPARED = ("mst", "swift", "aim")
"""Of Halftone's synthesizers those that the group `halftone` holds, where the registry has them."""
GROUPS = ("references", "halftone", "peers")
SEEDS = 5
EPSILONS = ("0.1", "1", "10")


class NotUnderstood(ValueError):
    """An option that names something that there is not."""


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """A value for every implementation, but for those that have one of their own."""

    usual: T
    own: Mapping[str, T]

    def of(self, implementation: str) -> T:
        return self.own.get(implementation, self.usual)


@dataclass(frozen=True, slots=True)
class Places:
    """Where stores and virtualenvs lie, how long a run may take, and whether a server runs ours.

    `settle_s` is the time from a server's first answer to the request for a release, `is_capped`
    whether the server's limits are the least that preflight lets it be made with.
    """

    stores: Path
    virtualenvs: Path
    time_limit_s: float
    settle_s: float
    in_process: bool
    is_capped: bool = False


def implementations(names: Sequence[str], places: Places) -> dict[str, Implementation]:
    """Those named, or in a group named (all groups where none is): references, ours, peers.

    Other built-in synthesizers are there by name alone. Raises `NotUnderstood` for a name that
    nothing has.
    """
    known = _known(places)
    asked = names or GROUPS
    for name in asked:
        if name not in GROUPS and name not in known:
            there = ", ".join((*GROUPS, *known))
            raise NotUnderstood(f"there is no implementation {name!r}; there are {there}")
    return {
        name: each
        for name, each in known.items()
        if name in asked or (each.group in asked and (each.group != "halftone" or name in COMPARED))
    }


def seeds(words: Sequence[str]) -> Setting[int]:
    """How many runs: `5 dpmm-aim=1`."""
    common, own = _own(words)
    if len(common) > 1:
        raise NotUnderstood(f"one number of seeds for all is asked, not {' '.join(common)}")
    return Setting(
        _count(common[0]) if common else SEEDS,
        {name: _count(value) for name, value in own.items()},
    )


def epsilons(words: Sequence[str]) -> Setting[tuple[str, ...]]:
    """`0.1 1 10 dpmm-aim=1 dpmm-mst=0.1,1`."""
    common, own = _own(words)
    return Setting(
        tuple(_amount(word) for word in common) or EPSILONS,
        {name: tuple(_amount(each) for each in value.split(",")) for name, value in own.items()},
    )


def _known(places: Places) -> dict[str, Implementation]:
    ours = {
        name: InProcess(name)
        if places.in_process
        else Served(name, places.stores, places.settle_s, places.time_limit_s, places.is_capped)
        for name in dict.fromkeys((*COMPARED, *_built_in()))
    }
    peers = [
        Peer(package, method, places.virtualenvs, places.time_limit_s)
        for package, methods in METHODS.items()
        for method in methods
    ]
    return {
        **{reference.name: reference for reference in REFERENCES},
        **ours,
        **{peer.name: peer for peer in peers},
    }


def _built_in() -> list[str]:
    return [entry.name for entry in registry.entries() if entry.builtin]


def _own(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Words for all, and those of the form NAME=VALUE."""
    common = [word for word in words if "=" not in word]
    pairs = (word.partition("=") for word in words if "=" in word)
    return common, {name: value for name, _, value in pairs}


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise NotUnderstood(f"a number of seeds is a whole number from 1, not {word!r}")
    return int(word)


def _amount(word: str) -> str:
    """Decimal text in one spelling, so that a run is known again."""
    try:
        amount = Decimal(word)
    except InvalidOperation:
        raise NotUnderstood(f"epsilon is a number, not {word!r}") from None
    if not amount.is_finite() or amount <= 0:
        raise NotUnderstood(f"epsilon is above 0, not {word!r}")
    return f"{amount.normalize():f}"
