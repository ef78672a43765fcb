"""Client of a Halftone service: upload tables, ask for releases, download synthetic rows.

>>> from halftone_client import Halftone
>>> with Halftone("http://127.0.0.1:8000", key="hk_...") as service:
...     dataset = service.upload(spec, "taxi.csv")
...     release = service.release(dataset, "mst", {"epsilon": 1, "delta": 1e-6})
...     synthetic = service.download(release)
"""

from halftone_client.asynchronous import AsyncHalftone
from halftone_client.blocking import Halftone
from halftone_client.errors import (
    BudgetExceeded,
    Conflict,
    FieldError,
    HalftoneError,
    JobFailed,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    RequestRefused,
    ServiceFailed,
    ServiceUnavailable,
    ServiceUnreachable,
    Timeout,
    TooLarge,
    TooManyRequests,
    UploadRejected,
    ValidationFailed,
    Withdrawn,
)
from halftone_client.protocol import Retry
from halftone_client.records import Dataset, Preflight, QualityReport, Record, Release, Sample

__all__ = [
    "AsyncHalftone",
    "BudgetExceeded",
    "Conflict",
    "Dataset",
    "FieldError",
    "Halftone",
    "HalftoneError",
    "JobFailed",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "Preflight",
    "QualityReport",
    "Record",
    "Release",
    "RequestRefused",
    "Retry",
    "Sample",
    "ServiceFailed",
    "ServiceUnavailable",
    "ServiceUnreachable",
    "Timeout",
    "TooLarge",
    "TooManyRequests",
    "UploadRejected",
    "ValidationFailed",
    "Withdrawn",
]
