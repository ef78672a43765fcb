"""One unit's own values among those found: told as seldom as stated, at any place and number."""

from __future__ import annotations

import numpy as np
import pytest
from acceptance import accepts_probability

from app.engine.privacy.discovery import gaussian_tail, key_threshold
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import FoundValues, Values
from app.engine.privacy.questions import ValuesQuestion
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema

DRAWS = 1200
SCHEMA = Schema.parse(
    {"fields": [{"name": "town", "type": "string", "values": "discover", "other": "Other"}]}
)


def found(towns: list[str], loss: PrivacyLoss) -> list[FoundValues]:
    codes = {"town": np.zeros(len(towns), dtype=np.int64)}
    source = ArraySource(SCHEMA, PrivacyUnit("row"), codes, texts={"town": towns})
    question = ValuesQuestion(Values("town"), loss)
    admitted = Kernel(source, loss).admit(question)
    answers = [Kernel(source, loss).answer(admitted) for _ in range(DRAWS)]
    assert all(isinstance(each, FoundValues) for each in answers)
    return answers  # type: ignore[return-value]


@pytest.mark.parametrize("unseen", ["Aa", "Zz"])
def test_a_neighbour_with_one_unseen_value_gives_no_sign_of_it(unseen: str) -> None:
    """Told with no more than delta (5 %), and what else is told keeps its law: each test
    rejects a true kernel once in a million runs."""
    delta = 5 * 10**16
    loss = PrivacyLoss.zcdp(10**12 // 8, delta)  # sigma 2
    threshold = key_threshold(2.0, 1, delta)
    tail = gaussian_tail(2.0, threshold - 1)
    assert tail <= 0.05
    towns = ["Mari"] * (threshold - 1) + ["Ur"] * 40
    with_it, without = (found(rows, loss) for rows in ([*towns, unseen], towns))
    assert accepts_probability(sum(unseen in each.texts for each in with_it), DRAWS, tail)
    assert not any(unseen in each.texts for each in without)
    for answers in (with_it, without):
        told = sum("Mari" in each.texts for each in answers)
        assert accepts_probability(told, DRAWS, gaussian_tail(2.0, 1))
        assert all("Ur" in each.texts for each in answers)
        assert all(list(each.texts) == sorted(each.texts) for each in answers)
