"""Rows as entities: how many rows and distinct values each has, and rows grouped by that."""
