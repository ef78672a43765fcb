"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes is the machine's business: a busy one fails no property.
settings.register_profile("halftone", deadline=None)
settings.load_profile("halftone")
