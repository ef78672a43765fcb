"""`README.md` and `LICENSE.txt`: a bundle in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.bundles.citation import Citation
from app.bundles.files import Table

_FILES = {
    "dictionary.json": "what the custodian declared of the columns",
    "measurements.json": "every noisy answer that the rows were made from, with its error",
    "statement.json": "how good each column, pair and number is",
    "report.html": "the same as pictures, with the limits of use; open it in a browser",
    "certificate.json": "the guarantee, mechanism by mechanism, signed by the service",
    "ledger-proof.json": "the ledger entry of the charge, and the chain around it",
    "datapackage.json": "the tables as a Data Package, with a Table Schema",
    "croissant.json": "the tables for machine learning, in Croissant",
    "datacite.json": "what a DOI would be registered with",
    "LICENSE.txt": "the terms of use",
    "SHA256SUMS": "hashes of all files, and of the archive itself",
    "SHA256SUMS.sig": "the service's signature of these hashes",
}


def readme(
    citation: Citation,
    certificate: Mapping[str, Any],
    tables: Sequence[Table],
    names: Sequence[str],
) -> str:
    """`names`: of the files that the bundle has, in order."""
    method = certificate["synthesizer"]
    lines = [
        f"# {_line(citation.title)}",
        "",
        citation.abstract,
        "",
        f"- Release: {certificate['release']['id']}, made {certificate['release']['made_at']}",
        f"- Dataset: {_line(certificate['dataset']['name'])} ({certificate['dataset']['id']})",
        f"- Version: {citation.version}",
        f"- Method: `{method['name']}` {method['version']},"
        f" Halftone {certificate['versions']['halftone']}",
        "",
        "## Tables",
        "",
    ]
    lines += [
        f"- `{table.csv.name}` and `{table.parquet.name}`: the same {table.rows}"
        f" {'rows' if table.kind == 'rows' else 'counts'}, in {len(table.types)} columns"
        for table in tables
    ]
    lines += [
        "",
        "## What is guaranteed",
        "",
        certificate["in_words"],
        "",
        "The rows are synthetic: none is the record of a person. Some statistics are kept well,"
        " others are not; see `statement.json` before you rely on a number.",
        "",
        "## Files",
        "",
    ]
    lines += [f"- `{name}`: {_FILES[name]}" for name in names if name in _FILES]
    lines += [
        "",
        "## Verify",
        "",
        "`halftone-client verify BUNDLE --key KEYS` checks every byte of this archive, offline;"
        " get KEYS from `/v1/keys/signing` of the service that you trust. By hand:"
        " `sha256sum -c SHA256SUMS`.",
        "",
    ]
    return "\n".join(lines)


def licence(citation: Citation) -> str:
    """The terms by their SPDX identifier, and where their text is."""
    if citation.licence is None:
        return "No licence was stated. Ask whoever gave you this bundle for the terms of use.\n"
    return f"SPDX-License-Identifier: {citation.licence.spdx}\n\n{citation.licence.url}\n"


def _line(text: str) -> str:
    return " ".join(text.split())
