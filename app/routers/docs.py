"""The API page, its assets, and the pages of problem types."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.wire import ExactRoute

router = APIRouter(prefix="", tags=["docs"], route_class=ExactRoute)
