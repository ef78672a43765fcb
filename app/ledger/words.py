"""Amounts of a ledger in words, for refusals and statements."""

from __future__ import annotations

from collections.abc import Mapping


def told(amounts: Mapping[str, str], in_epsilon: Mapping[str, str] | None = None) -> str:
    """Amounts in words, without a delta of 0: `rho 0.02 (epsilon 1 at delta 0.000001)`."""
    shown = {name: amount for name, amount in amounts.items() if (name, amount) != ("delta", "0")}
    own = " and ".join(f"{name} {amount}" for name, amount in shown.items())
    if in_epsilon is None:
        return own
    at = f" at delta {in_epsilon['delta']}" if in_epsilon["delta"] != "0" else ""
    return f"{own} (epsilon {in_epsilon['epsilon']}{at})"
