"""Entities of synthetic taxi trips compared with the real ones: `python -m bench.entities`."""
