"""Budgets and ledgers of datasets."""

from __future__ import annotations

from fastapi import APIRouter

from app.routers.wire import ExactRoute

router = APIRouter(prefix="/v1", tags=["ledger"], route_class=ExactRoute)
