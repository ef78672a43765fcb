"""Settings: environment variables `HALFTONE_*`, as docs/reference/settings.md describes them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

GIB = 1024**3


def _names(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]


class Settings(BaseSettings):
    """All that an operator can set; every field has a default that is safe on one machine."""

    model_config = SettingsConfigDict(env_prefix="HALFTONE_", extra="ignore")

    data: Path = Field(Path("halftone-data"), description="Folder of the store and staged uploads.")
    database_url: str | None = Field(
        None, description="SQLAlchemy URL of the store; default: `halftone.sqlite` in the folder."
    )
    admin_key: SecretStr | None = Field(
        None, description="The first admin key, if preset: `hk_` and 32 to 128 of [A-Za-z0-9_-]."
    )
    master_key: SecretStr | None = Field(
        None, description="Base64 of 32 bytes; turns on encryption at rest of private tables."
    )
    host: str = Field("127.0.0.1", description="Address that `halftone serve` binds.")
    port: int = Field(8000, ge=0, le=65535, description="Port that `halftone serve` binds.")
    root_path: str = Field("", description="Path prefix under which a proxy serves Halftone.")
    trusted_proxies: Names = Field(
        (), description="Addresses whose X-Forwarded-* headers are trusted, separated by commas."
    )
    workers: int = Field(1, ge=0, le=64, description="Worker processes that `serve` supervises.")
    declared: Names = Field(
        (), description="Third-party synthesizers that may read the bounded table themselves."
    )
    adapters: Path = Field(
        Path("halftone-adapters"),
        description="Folder, outside the store's, of what `halftone adapters install` makes.",
    )
    max_total_rows: int = Field(
        2_000_000, ge=1, description="Bound on rows of a dataset that declares none."
    )
    max_body_bytes: int = Field(1024**2, ge=1024, description="Largest JSON request body.")
    body_idle_s: float = Field(
        30, gt=0, description="Longest pause in which nothing of a request's body arrives."
    )
    body_bytes_per_s: float = Field(
        4096, gt=0, description="Slowest average at which a body may arrive, after that pause."
    )
    body_limit_s: float = Field(
        24 * 3600, gt=0, description="Longest time in which a whole body may arrive."
    )
    max_upload_bytes: int = Field(8 * GIB, ge=1, description="Largest table file, decompressed.")
    max_sample_rows: int = Field(
        20_000_000,
        ge=1,
        description="Most rows of one sample; fewer where a job's memory would not hold them.",
    )
    max_stored_bytes: int = Field(
        64 * GIB, ge=1, description="Most bytes that one principal's tables and samples may take."
    )
    compared_uploads: int = Field(
        20,
        ge=1,
        description="Uploads of one custodian in 24 hours that are compared with tables they"
        " erased; further ones are rejected.",
    )
    sample_ttl_s: float | None = Field(
        None, gt=0, description="Age after which a sample's rows are dropped; made again on demand."
    )
    job_time_limit_s: float = Field(3600, gt=0, description="Longest run of one job.")
    job_memory_bytes: int = Field(4 * GIB, ge=1, description="Most memory of one job's processes.")
    check_time_limit_s: float = Field(
        10, gt=0, description="Longest parameter check of a synthesizer that is not built in."
    )
    lease_s: float = Field(30, gt=0, description="Silence after which a worker counts as lost.")
    heartbeat_s: float = Field(5, gt=0, description="Interval at which workers extend leases.")
    drain_s: float = Field(10, ge=0, description="How long a shutdown waits for running jobs.")
    publish_interval_s: float = Field(
        0, ge=0, description="Results appear only at multiples of this, to hide durations; 0: off."
    )
    busy_timeout_s: float = Field(30, gt=0, description="Wait for the store before a 503.")
    auth_failures: int = Field(
        20, ge=1, description="Failed authentications per client and key prefix in a window."
    )
    auth_window_s: float = Field(60, gt=0, description="Length of that window.")
    public_catalogue: bool = Field(
        False, description="Whether publications are read without a key."
    )
    catalogue_title: str = Field(
        "Synthetic data", min_length=1, description="Title of the catalogue of publications."
    )
    catalogue_publisher: str = Field(
        "Halftone", min_length=1, description="Who publishes it, as catalogues elsewhere name them."
    )
    anonymous_requests: int = Field(
        120, ge=1, description="Requests without a key that one address may send in a minute."
    )
    anonymous_at_once: int = Field(
        1, ge=1, description="Requests without a key that are answered at the same time."
    )
    log_level: str = Field("INFO", description="Level of the server's log.")

    @property
    def url(self) -> str:
        return self.database_url or f"sqlite:///{self.data / 'halftone.sqlite'}"


@lru_cache
def get_settings() -> Settings:
    return Settings()
