"""the first tables"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "accounts",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("accountant", sa.String(length=16), nullable=False),
        sa.Column("unit_kind", sa.String(length=16), nullable=False),
        sa.Column("budget_epsilon", sa.BigInteger(), nullable=False),
        sa.Column("budget_delta", sa.BigInteger(), nullable=False),
        sa.Column("delta_for_approximate", sa.BigInteger(), nullable=False),
        sa.Column("cap_primary", sa.BigInteger(), nullable=False),
        sa.Column("cap_delta", sa.BigInteger(), nullable=False),
        sa.Column("spent_primary", sa.BigInteger(), nullable=False),
        sa.Column("spent_delta", sa.BigInteger(), nullable=False),
        sa.Column("highest_primary", sa.BigInteger(), nullable=False),
        sa.Column("highest_delta", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.BigInteger(), nullable=False),
        sa.Column("suspended", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.CheckConstraint(
            '(typeof("budget_delta") = \'integer\' AND "budget_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_budget_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("budget_epsilon") = \'integer\' AND "budget_epsilon" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_budget_epsilon_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("cap_delta") = \'integer\' AND "cap_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_cap_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("cap_primary") = \'integer\' AND "cap_primary" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_cap_primary_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("delta_for_approximate") = \'integer\' AND "delta_for_approximate" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_delta_for_approximate_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("highest_delta") = \'integer\' AND "highest_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_highest_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("highest_primary") = \'integer\' AND "highest_primary" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_highest_primary_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("spent_delta") = \'integer\' AND "spent_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_spent_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("spent_primary") = \'integer\' AND "spent_primary" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_accounts_spent_primary_is_amount"),
        ),
        sa.CheckConstraint("spent_delta <= cap_delta", name=op.f("ck_accounts_delta_within_cap")),
        sa.CheckConstraint(
            "spent_primary <= cap_primary", name=op.f("ck_accounts_primary_within_cap")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.Column("principal_id", sa.String(length=32), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index("ix_audit_subject", ["subject"], unique=False)

    op.create_table(
        "chunks",
        sa.Column("collection", sa.String(length=64), nullable=False),
        sa.Column("part", sa.String(length=64), nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("collection", "part", "sequence", name=op.f("pk_chunks")),
    )
    op.create_table(
        "idempotency",
        sa.Column("principal_id", sa.String(length=32), nullable=False),
        sa.Column("operation", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("body_hash", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("resource_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("principal_id", "operation", "key", name=op.f("pk_idempotency")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("subject_id", sa.String(length=32), nullable=False),
        sa.Column("dataset_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=128), nullable=True),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("time_limit_s", sa.Float(), nullable=False),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("private_detail", sa.Text(), nullable=True),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("started_at", sa.String(27), nullable=True),
        sa.Column("finished_at", sa.String(27), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_dataset_id"), ["dataset_id"], unique=False)
        batch_op.create_index("ix_jobs_queue", ["state", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_subject_id"), ["subject_id"], unique=False)
        batch_op.create_index("ix_jobs_turns", ["kind", "started_at"], unique=False)

    op.create_table(
        "principals",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("is_custodian", sa.Boolean(), nullable=False),
        sa.Column("is_analyst", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_principals")),
        sa.UniqueConstraint("name", name=op.f("uq_principals_name")),
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secrets")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("principal_id", sa.String(length=32), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("expires_at", sa.String(27), nullable=True),
        sa.Column("revoked_at", sa.String(27), nullable=True),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_api_keys_principal_id_principals")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_api_keys_principal_id"), ["principal_id"], unique=False
        )

    op.create_table(
        "datasets",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("account_id", sa.String(length=32), nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("schema", sa.JSON(), nullable=False),
        sa.Column("unit", sa.JSON(), nullable=False),
        sa.Column("max_total_rows", sa.BigInteger(), nullable=False),
        sa.Column("file_options", sa.JSON(), nullable=False),
        sa.Column("new_population", sa.String(length=2000), nullable=True),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("ready_at", sa.String(27), nullable=True),
        sa.Column("erased_at", sa.String(27), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("content_hmac", sa.String(length=64), nullable=True),
        sa.Column("ingest_report", sa.JSON(), nullable=True),
        sa.Column("staged", sa.JSON(), nullable=True),
        sa.Column("wrapped_key", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_datasets_account_id_accounts")
        ),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["principals.id"], name=op.f("fk_datasets_owner_id_principals")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
    )
    with op.batch_alter_table("datasets", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_datasets_account_id"), ["account_id"], unique=False)
        batch_op.create_index("ix_datasets_content_hmac", ["content_hmac"], unique=False)
        batch_op.create_index(batch_op.f("ix_datasets_owner_id"), ["owner_id"], unique=False)

    op.create_table(
        "ledger",
        sa.Column("account_id", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("dataset_id", sa.String(length=32), nullable=False),
        sa.Column("release_id", sa.String(length=32), nullable=True),
        sa.Column("principal_id", sa.String(length=32), nullable=False),
        sa.Column("primary", sa.BigInteger(), nullable=False),
        sa.Column("delta", sa.BigInteger(), nullable=False),
        sa.Column("spent_primary", sa.BigInteger(), nullable=False),
        sa.Column("spent_delta", sa.BigInteger(), nullable=False),
        sa.Column("grant_id", sa.String(length=32), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.Column("previous_hash", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.CheckConstraint(
            '(typeof("delta") = \'integer\' AND "delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_ledger_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("primary") = \'integer\' AND "primary" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_ledger_primary_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("spent_delta") = \'integer\' AND "spent_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_ledger_spent_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("spent_primary") = \'integer\' AND "spent_primary" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_ledger_spent_primary_is_amount"),
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_ledger_account_id_accounts")
        ),
        sa.PrimaryKeyConstraint("account_id", "sequence", name=op.f("pk_ledger")),
        sa.UniqueConstraint("hash", name=op.f("uq_ledger_hash")),
        sa.UniqueConstraint("release_id", "kind", name=op.f("uq_ledger_release_id_kind")),
    )
    op.create_table(
        "grants",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("dataset_id", sa.String(length=32), nullable=False),
        sa.Column("principal_id", sa.String(length=32), nullable=False),
        sa.Column("show_budget", sa.Boolean(), nullable=False),
        sa.Column("cap_primary", sa.BigInteger(), nullable=True),
        sa.Column("cap_delta", sa.BigInteger(), nullable=True),
        sa.Column("spent_primary", sa.BigInteger(), nullable=False),
        sa.Column("spent_delta", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.CheckConstraint(
            '"cap_delta" IS NULL OR (typeof("cap_delta") = \'integer\' AND "cap_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_grants_cap_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '"cap_primary" IS NULL OR (typeof("cap_primary") = \'integer\' AND "cap_primary" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_grants_cap_primary_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("spent_delta") = \'integer\' AND "spent_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_grants_spent_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("spent_primary") = \'integer\' AND "spent_primary" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_grants_spent_primary_is_amount"),
        ),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_grants_dataset_id_datasets")
        ),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_grants_principal_id_principals")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
        sa.UniqueConstraint(
            "dataset_id", "principal_id", name=op.f("uq_grants_dataset_id_principal_id")
        ),
    )
    with op.batch_alter_table("grants", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_grants_principal_id"), ["principal_id"], unique=False)

    op.create_table(
        "releases",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("dataset_id", sa.String(length=32), nullable=False),
        sa.Column("account_id", sa.String(length=32), nullable=False),
        sa.Column("principal_id", sa.String(length=32), nullable=False),
        sa.Column("grant_id", sa.String(length=32), nullable=True),
        sa.Column("synthesizer", sa.String(length=200), nullable=False),
        sa.Column("synthesizer_version", sa.String(length=100), nullable=False),
        sa.Column("assurance", sa.String(length=16), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("guarantee", sa.JSON(), nullable=False),
        sa.Column("charge_primary", sa.BigInteger(), nullable=False),
        sa.Column("charge_delta", sa.BigInteger(), nullable=False),
        sa.Column("loss_kind", sa.String(length=8), nullable=False),
        sa.Column("loss_amount", sa.BigInteger(), nullable=False),
        sa.Column("loss_delta", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("public_dataset_id", sa.String(length=32), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("refunded", sa.Boolean(), nullable=False),
        sa.Column("ledger_sequence", sa.Integer(), nullable=False),
        sa.Column("certificate", sa.JSON(), nullable=True),
        sa.Column("expected_errors", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("started_at", sa.String(27), nullable=True),
        sa.Column("finished_at", sa.String(27), nullable=True),
        sa.CheckConstraint(
            '(typeof("charge_delta") = \'integer\' AND "charge_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_releases_charge_delta_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("charge_primary") = \'integer\' AND "charge_primary" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_releases_charge_primary_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("loss_amount") = \'integer\' AND "loss_amount" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_releases_loss_amount_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("loss_delta") = \'integer\' AND "loss_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_releases_loss_delta_is_amount"),
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_releases_account_id_accounts")
        ),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_releases_dataset_id_datasets")
        ),
        sa.ForeignKeyConstraint(
            ["grant_id"], ["grants.id"], name=op.f("fk_releases_grant_id_grants")
        ),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_releases_principal_id_principals")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_releases")),
    )
    with op.batch_alter_table("releases", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_releases_dataset_id"), ["dataset_id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_releases_principal_id"), ["principal_id"], unique=False
        )

    op.create_table(
        "events",
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["release_id"], ["releases.id"], name=op.f("fk_events_release_id_releases")
        ),
        sa.PrimaryKeyConstraint("release_id", "sequence", name=op.f("pk_events")),
    )
    op.create_table(
        "journal",
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("question_hash", sa.String(length=64), nullable=False),
        sa.Column("question", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("loss_amount", sa.BigInteger(), nullable=False),
        sa.Column("loss_delta", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.CheckConstraint(
            '(typeof("loss_amount") = \'integer\' AND "loss_amount" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_journal_loss_amount_is_amount"),
        ),
        sa.CheckConstraint(
            '(typeof("loss_delta") = \'integer\' AND "loss_delta" BETWEEN 0 AND 2305843009213693952)',
            name=op.f("ck_journal_loss_delta_is_amount"),
        ),
        sa.ForeignKeyConstraint(
            ["release_id"], ["releases.id"], name=op.f("fk_journal_release_id_releases")
        ),
        sa.PrimaryKeyConstraint("release_id", "number", name=op.f("pk_journal")),
    )
    op.create_table(
        "reports",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("dataset_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("finished_at", sa.String(27), nullable=True),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_reports_dataset_id_datasets")
        ),
        sa.ForeignKeyConstraint(
            ["release_id"], ["releases.id"], name=op.f("fk_reports_release_id_releases")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reports")),
        sa.UniqueConstraint("release_id", name=op.f("uq_reports_release_id")),
    )
    with op.batch_alter_table("reports", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_reports_dataset_id"), ["dataset_id"], unique=False)

    op.create_table(
        "samples",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("release_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("content_sha256", sa.String(length=64), nullable=True),
        sa.Column("dropped", sa.Boolean(), nullable=False),
        sa.Column("repairs", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("finished_at", sa.String(27), nullable=True),
        sa.ForeignKeyConstraint(
            ["release_id"], ["releases.id"], name=op.f("fk_samples_release_id_releases")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_samples")),
    )
    with op.batch_alter_table("samples", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_samples_release_id"), ["release_id"], unique=False)
        batch_op.create_index("ix_samples_state", ["state"], unique=False)


def downgrade() -> None:

    with op.batch_alter_table("samples", schema=None) as batch_op:
        batch_op.drop_index("ix_samples_state")
        batch_op.drop_index(batch_op.f("ix_samples_release_id"))

    op.drop_table("samples")
    with op.batch_alter_table("reports", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_reports_dataset_id"))

    op.drop_table("reports")
    op.drop_table("journal")
    op.drop_table("events")
    with op.batch_alter_table("releases", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_releases_principal_id"))
        batch_op.drop_index(batch_op.f("ix_releases_dataset_id"))

    op.drop_table("releases")
    with op.batch_alter_table("grants", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_grants_principal_id"))

    op.drop_table("grants")
    op.drop_table("ledger")
    with op.batch_alter_table("datasets", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_datasets_owner_id"))
        batch_op.drop_index("ix_datasets_content_hmac")
        batch_op.drop_index(batch_op.f("ix_datasets_account_id"))

    op.drop_table("datasets")
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_api_keys_principal_id"))

    op.drop_table("api_keys")
    op.drop_table("secrets")
    op.drop_table("principals")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("ix_jobs_turns")
        batch_op.drop_index(batch_op.f("ix_jobs_subject_id"))
        batch_op.drop_index("ix_jobs_queue")
        batch_op.drop_index(batch_op.f("ix_jobs_dataset_id"))

    op.drop_table("jobs")
    op.drop_table("idempotency")
    op.drop_table("chunks")
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.drop_index("ix_audit_subject")

    op.drop_table("audit")
    op.drop_table("accounts")
