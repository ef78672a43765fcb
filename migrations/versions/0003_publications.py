"""from releases to publications: who sees a release, statements, auditors, signing keys

A release of the earlier schema stays visible to its requester and its custodian alone, and every
grant was an analyst's.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# An allowance in rho that was stated as epsilon at a delta.
_STATED = ("stated_epsilon", "stated_delta")


def upgrade() -> None:
    # Columns are added in place: rebuilding tables that others refer to would need more than a
    # default.
    op.add_column(
        "releases",
        sa.Column("visibility", sa.String(length=16), nullable=False, server_default="requester"),
    )
    op.add_column("releases", sa.Column("visibility_requested", sa.String(length=16)))
    op.add_column("releases", sa.Column("statement", sa.JSON()))
    op.add_column("samples", sa.Column("principal_id", sa.String(length=32)))
    # So far every sample counted as the requester's of its release, whoever had asked for it.
    op.execute(
        "UPDATE samples SET principal_id = (SELECT releases.principal_id FROM releases"
        " WHERE releases.id = samples.release_id)"
    )
    with op.batch_alter_table("samples") as samples:
        samples.alter_column("principal_id", existing_type=sa.String(length=32), nullable=False)
        samples.create_foreign_key(
            op.f("fk_samples_principal_id_principals"), "principals", ["principal_id"], ["id"]
        )
    op.add_column("releases", sa.Column("ledger_head", sa.Integer()))
    # An evaluation is a release that measures how far another one is from the private table.
    op.add_column("releases", sa.Column("evaluates", sa.JSON()))
    # What a custodian chose to evaluate.
    op.add_column("reports", sa.Column("choices", sa.JSON()))
    op.add_column(
        "grants",
        sa.Column("role", sa.String(length=16), nullable=False, server_default="analyst"),
    )
    for name in _STATED:
        op.execute(
            f"ALTER TABLE grants ADD COLUMN {name} BIGINT"
            f" CONSTRAINT ck_grants_{name}_is_amount CHECK ("
            f'"{name}" IS NULL OR (typeof("{name}") = \'integer\''
            f' AND "{name}" BETWEEN 0 AND 2305843009213693952))'
        )
    op.add_column(
        "principals",
        sa.Column("is_auditor", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("public", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("retired_at", sa.String(27), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "publications",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("series_id", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("principal_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("citation", sa.JSON(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("samples", sa.JSON(), nullable=False),
        sa.Column("listing", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("withdrawn_at", sa.String(27), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["release_id"], ["releases.id"], name=op.f("fk_publications_release_id_releases")
        ),
        sa.ForeignKeyConstraint(
            ["principal_id"],
            ["principals.id"],
            name=op.f("fk_publications_principal_id_principals"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_publications")),
        sa.UniqueConstraint("series_id", "version", name=op.f("uq_publications_series_id_version")),
    )
    op.create_index(op.f("ix_publications_release_id"), "publications", ["release_id"])
    op.create_index("ix_publications_state", "publications", ["state", "created_at", "id"])


def downgrade() -> None:
    op.drop_table("publications")
    op.drop_table("signing_keys")
    op.drop_column("principals", "is_auditor")
    # A grant of an auditor would become one of an analyst.
    op.execute("DELETE FROM grants WHERE role = 'auditor'")
    op.drop_column("grants", "role")
    for name in _STATED:
        op.drop_column("grants", name)
    with op.batch_alter_table("samples") as samples:
        samples.drop_constraint(op.f("fk_samples_principal_id_principals"), type_="foreignkey")
        samples.drop_column("principal_id")
    op.drop_column("releases", "ledger_head")
    op.drop_column("reports", "choices")
    op.drop_column("releases", "evaluates")
    op.drop_column("releases", "statement")
    op.drop_column("releases", "visibility_requested")
    op.drop_column("releases", "visibility")
