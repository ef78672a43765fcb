"""What is drawn of a unit depends on its own elements and keys alone, also where keys are equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.engine.privacy.units import shuffled_within

OWN = 40


def drawn_of_the_last(others: int) -> NDArray[np.int64]:
    """The order of one entity's elements, of which many have equal keys, after those of others."""
    entity = np.repeat(np.arange(others + 1), OWN)
    # The lowest 18 bits of a key are dropped, so only two keys differ here.
    keys = np.tile(np.arange(OWN, dtype=np.uint64) % 2 << np.uint64(18), others + 1)
    order = shuffled_within(entity, lambda count: keys[:count])
    return order[others * OWN :] - others * OWN


def test_equal_keys_keep_their_order_whoever_else_is_there() -> None:
    own = [*range(0, OWN, 2), *range(1, OWN, 2)]
    for others in (0, 1, 7, 300):
        assert drawn_of_the_last(others).tolist() == own
