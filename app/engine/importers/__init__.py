"""Dictionaries of others, turned into ours: NIST's two and Private-PGM's.

Each importer takes the parsed JSON and gives the wire form of a schema; `SchemaError` names
what it cannot read, with pointers into the document that was imported.
"""

from app.engine.importers.challenge import import_nist, import_nist_unit
from app.engine.importers.excerpts import import_nist_dictionary
from app.engine.importers.private_pgm import import_domain

__all__ = ["import_domain", "import_nist", "import_nist_dictionary", "import_nist_unit"]
