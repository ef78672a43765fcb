"""Principals, API keys and the audit log as the API sends and receives them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from app.database import format_time, now
from app.names import expect_distinct_form, expect_visible
from app.problems import Invalid
from app.security.authentication import is_usable
from app.security.models import ApiKeyRow, AuditRow, PrincipalRow
from app.security.service import Role, roles_of

_TIME = "2030-01-31T12:00:00.000000Z"

Line = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"
    ),
    AfterValidator(expect_visible),
]
PrincipalName = Annotated[Line, AfterValidator(expect_distinct_form)]
Roles = Annotated[
    list[Role],
    Field(
        min_length=1,
        max_length=4,
        description="admin (principals, settings; sees no data), custodian (own datasets),"
        " analyst (granted datasets), auditor (ledgers of granted datasets; sees no data). Roles"
        " add up.",
    ),
]


def _written(value: object) -> object:
    # Otherwise pydantic would accept a bare number as seconds, and a date as midnight.
    if not isinstance(value, str) or "T" not in value:
        raise ValueError(f"a moment is text with an offset from UTC, such as {_TIME}")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_written)]


class PrincipalIn(BaseModel):
    """A principal to create; give it a key afterwards."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "Ada", "roles": ["analyst"]}]}
    )

    name: PrincipalName = Field(
        description="No other principal has it or one that looks like it. Letters are of one"
        " script, and every character can be seen."
    )
    roles: Roles


class PrincipalChangeIn(BaseModel):
    """Changes to a principal; what is omitted stays as it is."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"state": "disabled"}]}
    )

    name: PrincipalName | None = Field(None, description="A new name, as for a new principal.")
    roles: Roles | None = Field(None, description="All roles from now on.")
    state: Literal["active", "disabled"] | None = Field(
        None, description="A disabled principal's keys do not work."
    )


class PrincipalOut(BaseModel):
    """Who owns datasets, grants, releases and keys."""

    id: str = Field(description="Id of the principal.", examples=["pr_abcdefghijkmnpqrstuv"])
    name: str = Field(description="Unique among principals.", examples=["Ada"])
    roles: list[Role] = Field(
        description="admin (principals, settings; sees no data), custodian (own datasets),"
        " analyst (granted datasets), auditor (ledgers of granted datasets; sees no data)."
    )
    state: Literal["active", "disabled"] = Field(
        description="The keys of a disabled principal do not work."
    )
    created_at: str = Field(description="When it was made (UTC).", examples=[_TIME])

    @classmethod
    def of(cls, row: PrincipalRow) -> PrincipalOut:
        return cls.model_validate(
            {
                "id": row.id,
                "name": row.name,
                "roles": roles_of(row),
                "state": row.state,
                "created_at": format_time(row.created_at),
            }
        )


class KeyIn(BaseModel):
    """An API key to make. Without an expiry it works until it is revoked."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"label": "notebook", "expires_in_days": 90}]},
    )

    label: Line | None = Field(None, description="What the key is for.")
    expires_at: Moment | None = Field(
        None, description="Moment with an offset, after which the key does not work."
    )
    expires_in_days: int | None = Field(
        None, ge=1, le=36500, description="In place of `expires_at`."
    )

    def expiry(self) -> datetime | None:
        """Raises `Invalid` if both forms were sent."""
        if self.expires_in_days is None:
            return self.expires_at
        if self.expires_at is not None:
            raise Invalid.at(
                "/expires_in_days", "The expiry is given twice.", "Send one of the two forms."
            )
        return now() + timedelta(days=self.expires_in_days)


class KeyOut(BaseModel):
    """An API key without its secret, of which only a hash is stored."""

    id: str = Field(description="Id of the key.", examples=["ky_abcdefghijkmnpqrstuv"])
    principal_id: str = Field(description="Whose key it is.")
    label: str = Field(description="What the key is for; may be empty.")
    prefix: str = Field(description="How the key starts.", examples=["hk_AbCd1234"])
    state: Literal["active", "expired", "revoked"] = Field(
        description="Only an active key authenticates."
    )
    created_at: str = Field(description="When it was made (UTC).", examples=[_TIME])
    expires_at: str | None = Field(
        description="Moment after which it does not work (UTC); null: it does not expire."
    )
    revoked_at: str | None = Field(description="When it was revoked (UTC).")

    @classmethod
    def of(cls, row: ApiKeyRow) -> KeyOut:
        return cls.model_validate(_key(row))


class KeyMade(KeyOut):
    """An API key just made; its secret is shown only once."""

    key: str | None = Field(
        description="The secret. Null when a request is repeated with its Idempotency-Key: it is"
        " not stored, so it cannot be shown again; if the first answer is lost, revoke the key"
        " and make another.",
        examples=["hk_" + "a" * 43],
    )

    @classmethod
    def showing(cls, row: ApiKeyRow, secret: str | None) -> KeyMade:
        return cls.model_validate({**_key(row), "key": secret})


def _key(row: ApiKeyRow) -> dict[str, Any]:
    ended = "expired" if row.revoked_at is None else "revoked"
    return {
        "id": row.id,
        "principal_id": row.principal_id,
        "label": row.label,
        "prefix": row.prefix,
        "state": "active" if is_usable(row, now()) else ended,
        "created_at": format_time(row.created_at),
        "expires_at": None if row.expires_at is None else format_time(row.expires_at),
        "revoked_at": None if row.revoked_at is None else format_time(row.revoked_at),
    }


class MeOut(PrincipalOut):
    """The principal that the request's key belongs to."""

    key: KeyOut = Field(description="The key that the request came with.")

    @classmethod
    def holding(cls, row: PrincipalRow, key: ApiKeyRow) -> MeOut:
        return cls(**PrincipalOut.of(row).model_dump(), key=KeyOut.of(key))


class AuditEntry(BaseModel):
    """Who changed what."""

    id: int = Field(description="Counts up.")
    at: str = Field(description="When it was done (UTC).", examples=[_TIME])
    principal_id: str | None = Field(description="Null for the service or its operator.")
    action: str = Field(description="What was done.", examples=["grant.created"])
    subject: str | None = Field(description="What it was done to.")
    detail: dict[str, Any] = Field(description="More about it; never a secret, never data.")

    @classmethod
    def of(cls, row: AuditRow) -> AuditEntry:
        return cls(
            id=row.id,
            at=format_time(row.at),
            principal_id=row.principal_id,
            action=row.action,
            subject=row.subject,
            detail=row.detail,
        )
