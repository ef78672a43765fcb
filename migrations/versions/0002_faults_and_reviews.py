"""what faults, attacks and reviews of the first version asked for

Leases of jobs are told by beats, not by moments: clocks are set, and differ between machines.
"""

from __future__ import annotations

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


def downgrade() -> None:
    op.drop_table("comparisons")
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("lease_until", sa.Float(), nullable=True))
        jobs.drop_column("lease_s")
        jobs.drop_column("beats")
