"""Helpers for modules and their parameters."""

__all__: list[str] = []
