"""Liveness, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.wire import ExactRoute

router = APIRouter(prefix="", tags=["health"], route_class=ExactRoute)
