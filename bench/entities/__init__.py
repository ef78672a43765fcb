"""Entities of synthetic taxi trips beside the real ones: `python -m bench.entities`."""
