"""Samples: synthetic tables of a release."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["samples"], route_class=ExactRoute)
