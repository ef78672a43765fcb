"""Releases: preflight, request, follow, cancel, results."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["releases"], route_class=ExactRoute)
