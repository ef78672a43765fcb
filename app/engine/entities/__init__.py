"""Rows as entities: how many rows and distinct values each has, bought, and rows so grouped."""
