"""The report as a page: one small file that runs and loads nothing, and says what is known."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from release_world import World, wanted

from app.engine.grouping import Grouping
from app.engine.privacy.kernel import Kernel
from app.engine.privacy.library import LocalSession
from app.engine.privacy.loss import PrivacyLoss
from app.engine.privacy.queries import Count
from app.engine.privacy.source import ArraySource
from app.engine.schema import PrivacyUnit, Schema
from app.engine.statements import KeptRows, Pictures, Released, stated_and_pictured
from app.engine.statements.pictures import MOST_BARS, OTHERS, cramers_v
from app.engine.table import Table
from app.reports.page import Facts, heat, render
from app.sandbox.child import ChildHost

RULES = {"good": "", "usable": "", "weak": "", "not measured": ""}
HOSTILE = "</script><img src=//evil.example onerror=alert(1)>"


class Outline(HTMLParser):
    """The tags of a page, with what they load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href")]


def made(columns: int, cells: int, rows: int = 2000, rho: int = 10**12) -> Pictures:
    """Pictures of a table of uniform codes, all pairs of which were measured."""
    fields = [
        {
            "name": f"c{number}",
            "type": "string",
            "constraints": {
                "enum": [f"{HOSTILE if value == 0 else 'v'}{value}" for value in range(cells)]
            },
        }
        for number in range(columns)
    ]
    schema, unit = Schema.parse({"fields": fields}), PrivacyUnit("row")
    rng = np.random.default_rng(0)
    codes = {f"c{number}": rng.integers(0, cells, rows) for number in range(columns)}
    session = LocalSession(Kernel(ArraySource(schema, unit, codes), PrivacyLoss.zcdp(rho)))
    names = [column.name for column in schema.columns]
    counts = [Count((name,)) for name in names]
    counts += [Count((a, b)) for i, a in enumerate(names) for b in names[i + 1 :]]
    answers = session.count(counts, PrivacyLoss.zcdp(rho))
    kept = KeptRows(schema)
    kept.see(Table(codes, rows))
    return stated_and_pictured(Released(schema, unit, answers, kept.rows(entities=False)))[1]


def facts(pictures: Pictures | None, **changes: Any) -> Facts:
    stated: dict[str, Any] = {
        "release": "rl_aaaaaaaaaaaaaaaaaaaa",
        "dataset": HOSTILE,
        "synthesizer": "mst",
        "synthesizer_version": "1",
        "title": "MST",
        "reference": "McKenna, Miklau and Sheldon 2021",
        "made": "2030-01-31T12:00:00.000000Z",
        "rows": 2000,
        "guarantee": {"epsilon": "1", "delta": "0.000001"},
        "epsilon": "1",
        "delta": "0.000001",
        "unit": {"kind": "row"},
        "certificate": {
            "neighbours": "two tables that differ by one row",
            "assurance": "enforced",
            "mechanisms": [],
        },
        "statement": None,
        "pictures": pictures,
    }
    return Facts(**{**stated, **changes})


def test_a_page_of_twenty_columns_is_one_small_file():
    html = render(facts(made(20, 10)))
    assert len(html.encode()) < 500_000
    outline = Outline(html)
    assert not {"script", "link", "iframe"} & set(outline.tags)
    assert all(address.startswith("data:image/png") for address in outline.addresses)
    assert "evil.example onerror" in html, "it is shown as text"
    assert outline.tags.count("img") + outline.tags.count("svg") == 20 + 2 * 190 + 1
    # Behind each picture of a column, each pair and the associations.
    assert outline.tags.count("details") >= 20 + 190 + 1


def test_each_table_behind_a_picture_says_what_it_is_of_and_is_printed():
    html = render(facts(made(2, 3)))
    summaries = re.findall(r"<summary>([^<]*)</summary>", html)
    assert len(summaries) == len(set(summaries)) == 2 + 1 + 1
    assert html.count('<th scope="row">') >= 2 * 3
    # A browser hides the content of what is closed in this part, on paper too.
    printed = html.split("@media print {")[1].split("</style>")[0]
    assert "details::details-content { display: block; block-size: auto; content-visi" in printed


def test_correlations_stand_with_the_associations():
    known = {"statistic": "correlation", "q": None, "value": 0.25, "basis": "measured"}
    numbers = [
        {**known, "columns": ["c0", "c1"], "interval": [0.125, 0.375]},
        {**known, "columns": ["c0", "c2"], "interval": None, "basis": "implied by the model"},
    ]
    stated = {"columns": [], "pairs": [], "numbers": numbers, "notes": [], "rules": RULES}
    html = render(facts(made(3, 3), statement=stated))
    assert "<td>c0, c1</td><td>0.25</td><td>0.125 to 0.375</td>" in html
    assert "<td>c0, c2</td><td>0.25</td><td>implied by the model</td>" in html


def test_a_large_pair_is_a_png_of_its_cells():
    pictures = made(2, 60)
    pair = pictures.pairs[0]
    html = render(facts(pictures))
    (first, _) = re.findall(r'src="(data:image/png;base64,[^"]+)"', html)
    data = base64.b64decode(first.split(",")[1])
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (len(pair.across), len(pair.rows))
    (compressed,) = re.findall(rb"IDAT(.*)....\0\0\0\0IEND", data, re.S)
    lines = np.frombuffer(zlib.decompress(compressed), np.uint8).reshape(height, 1 + width)[:, 1:]
    most = max(max(map(max, pair.synthetic)), max(map(max, pair.measured)))
    assert np.array_equal(lines, heat.levels(pair.synthetic, most))


def test_paths_cover_each_shaded_cell_once():
    shades = np.array([[0, 2, 2], [1, 0, 2]], dtype=np.uint8)
    found = dict(heat.paths(shades))
    assert found == {1: "M0 1h1v1h-1z", 2: "M1 0h2v1h-2zM2 1h1v1h-1z"}


def test_shares_add_up_and_small_cells_of_many_are_put_together():
    (picture, _) = made(2, 100).columns
    assert len(picture.cells) == MOST_BARS
    assert picture.cells[-1] == OTHERS
    assert sum(picture.synthetic) == pytest.approx(1, abs=1e-3)
    assert picture.measured is not None
    assert sum(picture.measured) == pytest.approx(1, abs=0.2)


def test_neighbours_on_a_line_are_put_together_and_special_values_are_not():
    from app.engine.statements.pictures import _parts

    schema = Schema.parse(
        {
            "fields": [
                {
                    "name": "fare",
                    "type": "integer",
                    "constraints": {"minimum": 1, "maximum": 1000, "required": False},
                    "special": [0],
                }
            ]
        }
    )
    (column,) = schema.columns
    grouping = Grouping.equal(column.regular, column.tail, 500)
    counts = np.arange(grouping.cells, dtype=float)
    parts = _parts(column, grouping, counts, MOST_BARS)
    assert len(parts.labels) <= MOST_BARS
    assert parts.labels[-column.tail :] == column.labels(grouping)[-column.tail :]
    assert parts.sums(counts).sum() == counts.sum()
    assert (np.diff(parts.part) >= 0).all()


def test_pictures_are_read_as_they_were_stored():
    pictures = made(3, 4)
    again = Pictures.from_bytes(pictures.to_bytes())
    assert again.to_bytes() == pictures.to_bytes()
    assert render(facts(again)) == render(facts(pictures))


@pytest.mark.parametrize(
    ("joint", "v"),
    [([[10, 0], [0, 10]], 1), ([[5, 5], [5, 5]], 0), ([[3, 4]], 0), ([[0, 0], [0, 0]], 0)],
)
def test_cramers_v_of_tables_that_are_known(joint: list[list[int]], v: float):
    assert cramers_v(np.array(joint, dtype=float)) == pytest.approx(v)


def test_the_odds_are_those_of_bayes():
    last = facts(None, epsilon="1").odds[-1]
    assert (last.before, last.after) == (0.5, pytest.approx(np.e / (1 + np.e)))
    assert facts(None, epsilon=None).odds == []
    assert facts(None, epsilon="2000").odds[0].after == pytest.approx(1)


def test_a_release_of_an_earlier_version_says_that_it_kept_no_statement():
    assert "kept no statement" in render(facts(None))


def test_whoever_sees_a_release_reads_its_page(service: World, host: ChildHost) -> None:
    dataset = uploaded(service, host)
    release = service.custodian.release(dataset, **wanted(rows=50)).json()["id"]
    assert service.custodian.get(f"/v1/releases/{release}/report?format=html").status_code == 409
    service.work(host)
    page = service.custodian.get(f"/v1/releases/{release}/report?format=html")
    assert page.status_code == 200
    assert page.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert release in page.text
    assert "<svg" in page.text
    ana = service.add_analyst("ana")
    assert ana.get(f"/v1/releases/{release}/report?format=html").status_code == 404


def uploaded(service: World, host: ChildHost) -> str:
    spec = {
        "name": "colours",
        "schema": {
            "fields": [
                {"name": "colour", "type": "string", "constraints": {"enum": ["red", "blue"]}},
                {
                    "name": "size",
                    "type": "integer",
                    "constraints": {"minimum": 0, "maximum": 4},
                },
            ]
        },
        "visibility": "private",
        "unit": {"kind": "row"},
        "budget": {"epsilon": 5},
    }
    dataset = str(service.custodian.post("/v1/datasets", spec).json()["id"])
    service.custodian.request(
        "PUT",
        f"/v1/datasets/{dataset}/data",
        content="colour,size\n" + "red,1\nblue,3\n" * 50,
        headers={"Content-Type": "text/csv"},
    )
    service.work(host)
    return dataset
