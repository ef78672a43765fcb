"""The bench's releases over HTTP, on a server of their own."""

import numpy as np
import pytest

from bench.synthesizers import served
from bench.synthesizers.measures import one_way
from bench.synthesizers.tables import CodedTable

pytestmark = pytest.mark.e2e

MEGABYTE = 10**6
FIELDS = [
    {"name": "n", "type": "integer", "constraints": {"required": True, "minimum": 0, "maximum": 4}},
    {"name": "t", "type": "string", "constraints": {"required": True, "enum": ["1", "2", "N"]}},
]


def test_a_release_is_made_on_a_server_of_its_own_and_measured(tmp_path):
    rng = np.random.default_rng(0)
    used = {"n": rng.integers(0, 5, 2000), "t": rng.integers(0, 3, 2000)}
    table = CodedTable("small_one", {"fields": FIELDS}, used, None, (), None)

    made = served.Served("independent", tmp_path, 0, 60).make(table, "10", 0)
    assert one_way(used, made.codes) < 0.05
    assert 0 < made.seconds < 60
    assert 50 * MEGABYTE < made.child_bytes < made.peak_bytes
