"""The Temporal Map Challenge's own scores of the systems that were made for it."""
