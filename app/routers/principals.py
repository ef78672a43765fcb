"""Principals, API keys, grants and the audit log."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["principals"], route_class=ExactRoute)
