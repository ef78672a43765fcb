"""what faults, attacks and reviews of the first version asked for

Leases of jobs are told by beats, not by moments: clocks are set, and differ between machines.
The parts that the store must hold are recorded, so that chunks that have gone are missed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from itertools import groupby

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("beats", sa.Integer(), nullable=False, server_default="0"))
        jobs.add_column(sa.Column("lease_s", sa.Float(), nullable=True))
        jobs.drop_column("lease_until")
    with op.batch_alter_table("jobs") as jobs:
        jobs.alter_column("beats", server_default=None)
    op.create_table(
        "stored_parts",
        sa.Column("collection", sa.String(length=64), nullable=False),
        sa.Column("part", sa.String(length=64), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("collection", "part", name=op.f("pk_stored_parts")),
    )
    _record_what_is_stored(op.get_bind())
    op.create_table(
        "comparisons",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("principal_id", sa.String(length=32), nullable=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.ForeignKeyConstraint(
            ["principal_id"],
            ["principals.id"],
            name=op.f("fk_comparisons_principal_id_principals"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparisons")),
    )
    with op.batch_alter_table("comparisons", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_comparisons_principal_id"), ["principal_id"], unique=False
        )
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_idempotency_resource_id"), ["resource_id"], unique=False
        )
    connection = op.get_bind()
    _key_request_hashes(connection)
    _tell_owners_apart(connection)
    _shorten_staged(connection)
    _keep_sums_of_stored_bytes()
    with op.batch_alter_table("samples") as samples:
        samples.drop_index("ix_samples_release_id")
        samples.create_index("ix_samples_release_id", ["release_id", "created_at", "id"])


def _key_request_hashes(connection: sa.Connection) -> None:
    """The hash of a request is keyed, and forgotten where what it made is erased.

    The key is in the clear here; the first start with a master key wraps it.
    """
    key = secrets.token_bytes(32)
    connection.execute(
        sa.text("INSERT INTO secrets (name, value) VALUES ('request-key', :key)"), {"key": key}
    )
    erased = "SELECT id FROM datasets WHERE state = 'erased'"
    rows = connection.execute(
        sa.text(
            "SELECT principal_id, operation, key, body_hash,"
            f" resource_id IN ({erased}) FROM idempotency"
        )
    ).all()
    for principal_id, operation, name, digest, is_erased in rows:
        keyed = hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()
        connection.execute(
            sa.text(
                "UPDATE idempotency SET body_hash = :hash WHERE principal_id = :principal"
                " AND operation = :operation AND key = :name"
            ),
            {
                "hash": "" if is_erased else keyed,
                "principal": principal_id,
                "operation": operation,
                "name": name,
            },
        )


def _tell_owners_apart(connection: sa.Connection) -> None:
    """The digest of a table's content is bound to its owner."""
    key = connection.execute(
        sa.text("SELECT value FROM secrets WHERE name = 'content-key'")
    ).scalar()
    if key is None:
        return
    rows = connection.execute(
        sa.text("SELECT id, owner_id, content_hmac FROM datasets WHERE content_hmac IS NOT NULL")
    ).all()
    for dataset_id, owner_id, digest in rows:
        message = owner_id.encode() + b"\0" + bytes.fromhex(digest)
        connection.execute(
            sa.text("UPDATE datasets SET content_hmac = :hmac WHERE id = :id"),
            {"hmac": hmac.new(key, message, hashlib.sha256).hexdigest(), "id": dataset_id},
        )


def _shorten_staged(connection: sa.Connection) -> None:
    """Of an upload that waits, only where it is: its name, size and hash depend on the rows."""
    rows = connection.execute(
        sa.text("SELECT id, staged FROM datasets WHERE state = 'ingesting' AND staged IS NOT NULL")
    ).all()
    for dataset_id, staged in rows:
        wire = json.loads(staged)
        if wire is not None:
            kept = {name: wire.get(name) for name in ("name", "media_type")}
            connection.execute(
                sa.text("UPDATE datasets SET staged = :staged WHERE id = :id"),
                {"staged": json.dumps(kept), "id": dataset_id},
            )


def _keep_sums_of_stored_bytes() -> None:
    op.create_table(
        "stored",
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_stored_size_bytes_not_negative")),
        sa.PrimaryKeyConstraint("owner_id", name=op.f("pk_stored")),
    )
    op.create_table(
        "collections",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["stored.owner_id"], name=op.f("fk_collections_owner_id_stored")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_collections")),
    )
    op.execute(
        "CREATE TEMPORARY TABLE owned AS"
        " SELECT id, owner_id FROM datasets"
        " UNION ALL SELECT id, principal_id FROM releases"
        " UNION ALL SELECT samples.id, releases.principal_id FROM samples"
        " JOIN releases ON releases.id = samples.release_id"
    )
    op.execute(
        "INSERT INTO stored (owner_id, size_bytes)"
        " SELECT owned.owner_id, coalesce(sum(chunks.size_bytes), 0)"
        " FROM owned LEFT JOIN chunks ON chunks.collection = owned.id GROUP BY owned.owner_id"
    )
    op.execute("INSERT INTO collections (id, owner_id) SELECT id, owner_id FROM owned")
    op.execute("DROP TABLE owned")


def _record_what_is_stored(connection: sa.Connection) -> None:
    """One row for each part: its chunks, their bytes, and a hash of their hashes in order."""
    chunks = sa.text(
        "SELECT collection, part, size_bytes, sha256 FROM chunks ORDER BY collection, part, sequence"
    )
    for (collection, part), rows in groupby(connection.execute(chunks), key=lambda row: row[:2]):
        found = [(size, sha256) for _, _, size, sha256 in rows]
        connection.execute(
            sa.text(
                "INSERT INTO stored_parts (collection, part, chunks, size_bytes, sha256)"
                " VALUES (:collection, :part, :chunks, :size_bytes, :sha256)"
            ),
            {
                "collection": collection,
                "part": part,
                "chunks": len(found),
                "size_bytes": sum(size for size, _ in found),
                "sha256": hashlib.sha256("".join(each for _, each in found).encode()).hexdigest(),
            },
        )


def downgrade() -> None:
    with op.batch_alter_table("samples") as samples:
        samples.drop_index("ix_samples_release_id")
        samples.create_index("ix_samples_release_id", ["release_id"])
    op.drop_table("collections")
    op.drop_table("stored")
    # Hashes that were keyed stay so: repeated requests are refused as if they had other bodies.
    op.execute("DELETE FROM secrets WHERE name = 'request-key'")
    with op.batch_alter_table("idempotency", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotency_resource_id"))
    op.drop_table("stored_parts")
    op.drop_table("comparisons")
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("lease_until", sa.Float(), nullable=True))
        jobs.drop_column("lease_s")
        jobs.drop_column("beats")
