"""The public halves of the service's signing keys, for everyone."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.dependencies import ReadSession
from app.routers.wire import ExactRoute
from app.signing import keys
from app.signing.schemas import SigningKeyOut, SigningKeysOut

router = APIRouter(prefix="/v1", tags=["signing"], route_class=ExactRoute)


@router.get(
    "/keys/signing", operation_id="list_signing_keys", summary="Public halves of the signing keys"
)
def list_signing_keys(session: ReadSession) -> SigningKeysOut:
    """What bundles and certificates are verified with; no API key is needed.

    Retired keys are kept, for what they signed. `halftone rotate-signing-key` retires a key.
    """
    return SigningKeysOut(keys=[SigningKeyOut.of(row) for row in keys.all_keys(session)])
