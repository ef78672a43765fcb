"""The synthesizers on offer and their forms."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["synthesizers"], route_class=ExactRoute)
