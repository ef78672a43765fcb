"""Wire form of signing keys."""

from __future__ import annotations

import base64

from pydantic import BaseModel, Field

from app.database import format_time
from app.signing.keys import ALGORITHM
from app.signing.models import SigningKeyRow


class SigningKeyOut(BaseModel):
    """The public half of a key that signs bundles and certificates, or signed them once."""

    id: str = Field(
        description="Made of the public half: `sg_` and the first 20 characters of its SHA-256 in"
        " lower-case base32."
    )
    algorithm: str = Field(description="Always `Ed25519`.")
    public_key: str = Field(description="The public half, 32 bytes in base64.")
    state: str = Field(description="`current`, or `retired`: signs no more, and stays valid.")
    created_at: str = Field(description="When it was made (UTC).")
    retired_at: str | None = Field(description="When another key took its place (UTC).")

    @classmethod
    def of(cls, row: SigningKeyRow) -> SigningKeyOut:
        return cls(
            id=row.id,
            algorithm=ALGORITHM,
            public_key=base64.b64encode(row.public).decode(),
            state="current" if row.retired_at is None else "retired",
            created_at=format_time(row.created_at),
            retired_at=None if row.retired_at is None else format_time(row.retired_at),
        )


class SigningKeysOut(BaseModel):
    """The public halves of the service's signing keys."""

    keys: list[SigningKeyOut] = Field(description="The current one first.")
