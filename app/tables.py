"""Every table of the store, gathered for migrations and for the check against drift."""

from __future__ import annotations

from app.database import Base
from app.datasets import models as _datasets
from app.idempotency import IdempotencyRow as _IdempotencyRow
from app.ledger import models as _ledger
from app.publications import models as _publications
from app.queue import models as _jobs
from app.releases import models as _releases
from app.reports import models as _reports
from app.security import models as _security
from app.signing import models as _signing
from app.storage import models as _storage

metadata = Base.metadata

__all__ = [
    "_IdempotencyRow",
    "_datasets",
    "_jobs",
    "_ledger",
    "_publications",
    "_releases",
    "_reports",
    "_security",
    "_signing",
    "_storage",
    "metadata",
]
