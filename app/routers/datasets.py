"""Datasets: declaring, uploading, reading, erasing."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["datasets"], route_class=ExactRoute)
