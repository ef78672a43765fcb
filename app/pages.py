"""Where a page of a list in order of creation starts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, or_

# Creation time and id of the last row of the page before; times alone may be equal.
Place = tuple[datetime, str]


def created_after(row: Any, place: Place) -> ColumnElement[bool]:
    """Rows of a table that follow the place, oldest first and then by id."""
    moment, last_id = place
    return or_(row.created_at > moment, and_(row.created_at == moment, row.id > last_id))
