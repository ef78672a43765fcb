"""Importers of other data dictionaries: two of NIST and that of Private-PGM.

Each importer takes the parsed JSON and returns the JSON form of a schema. It raises `SchemaError`
for parts that it cannot read, with pointers into the imported document.
"""

from app.engine.importers.challenge import import_nist, import_nist_unit
from app.engine.importers.excerpts import import_nist_dictionary
from app.engine.importers.private_pgm import import_domain

__all__ = ["import_domain", "import_nist", "import_nist_dictionary", "import_nist_unit"]
