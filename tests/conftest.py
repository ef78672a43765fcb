"""What holds for every test."""

from __future__ import annotations

import gc
import os
import sys

import pytest
from hypothesis import settings
from shared_statements import share_compiled_statements

# How long an example takes is the machine's business: a busy one fails no property.
settings.register_profile("halftone", deadline=None)
settings.load_profile("halftone")

# Tests start hundreds of processes. Each would compile the service anew, for seconds, where the
# environment forbids bytecode to be kept; a confined child may not write its own.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

share_compiled_statements()

# The modules and tests that are collected stay until the end. A search of them for garbage finds
# none and takes half a second, over and over.
gc.disable()

# Folders with files that run for ten seconds and more.
LONGEST = (
    "contract",
    "packaging",
    "faults",
    "e2e",
    "hostile",
    "statistical",
    "reports",
    "client",
    "browser",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fault-rounds",
        type=int,
        default=1,
        help="how often to repeat the random kills, full disks and damaged bytes of tests/faults",
    )


@pytest.fixture(scope="session")
def fault_rounds(request: pytest.FixtureRequest) -> int:
    rounds: int = request.config.getoption("--fault-rounds")
    return rounds


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: the last file to end keeps the other processes waiting least.

    It takes effect with `--no-loadscope-reorder`; xdist would else begin with files of many tests.
    """

    def place(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)

    items.sort(key=place)
