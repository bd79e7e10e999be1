"""Fused and cache-blocked numerics, each with a benchmark that shows its gain."""
