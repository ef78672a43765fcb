"""`halftone serve` with one more route: an authenticated POST that does nothing."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from app import cli
from app.routers import health
from app.routers.dependencies import Caller
from app.routers.wire import ExactRoute

router = APIRouter(route_class=ExactRoute)


@router.post("/bench/noop")
def noop(caller: Caller, body: dict[str, Any]) -> dict[str, str]:
    del body
    return {"caller": caller.id}


health.router.include_router(router)

if __name__ == "__main__":
    raise SystemExit(cli.main())
