from __future__ import annotations

import math

from app.engine.privacy.class_labels import class_labels
from app.engine.synthesizers.class_resampling.entity_classes import EntityClasses
from app.engine.synthesizers.class_resampling.synthesizer import ClassResamplingParams


def above(cut: float) -> float:
    return math.nextafter(cut, math.inf)


def test_intervals_are_told_with_the_side_on_which_they_are_closed() -> None:
    assert class_labels(["rows"], [(2.0, 5.0)], (0, 1, 2)) == (
        "rows < 2",
        "rows in [2, 5)",
        "rows >= 5",
    )
    assert class_labels(["rows"], [(above(2.0), above(1e6))], (0, 1, 2)) == (
        "rows <= 2",
        "rows in (2, 1e+06]",
        "rows > 1e+06",
    )
    assert class_labels(["share"], [(1 / 3, above(1 / 2))], (0, 1, 2)) == (
        "share < 0.333333",
        "share in [0.333333, 0.5]",
        "share > 0.5",
    )
    assert class_labels(["share"], [(above(1 / 3),)], (0, 1)) == (
        "share <= 0.333333",
        "share > 0.333333",
    )


def test_a_feature_that_does_not_matter_to_a_class_is_left_out() -> None:
    assert class_labels(["a", "b"], [(1.0,), (2.0, 3.0)], (0, 0, 0, 1, 2, 1)) == (
        "a < 1",
        "a >= 1, b < 2 or >= 3",
        "a >= 1, b in [2, 3)",
    )
    assert class_labels(["a"], [(1.0,)], (0, 0)) == ("all",)


def test_a_class_that_is_no_product_is_numbered() -> None:
    assert class_labels(["a", "b"], [(1.0,), (1.0,)], (0, 1, 1, 0)) == ("class 0", "class 1")


def test_the_published_classes_read_as_the_document_puts_them() -> None:
    form = ClassResamplingParams.model_validate({"preset": "sprint3"})
    labels = EntityClasses.of(form.classes or (), {}).function.labels
    assert len(set(labels)) == 38
    assert labels[0] == "rows_per(shift) <= 5, std_per(shift) <= 2"
    assert (
        "rows_per(shift) in (5, 11], std_per(shift) in (3, 6], "
        "top_share(pickup_community_area, 1) > 0.5, "
        "share_count(pickup_community_area, 0.25) in [2, 3)"
    ) in labels
    assert not any(label.startswith("class") for label in labels)
