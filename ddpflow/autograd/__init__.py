"""Automatic differentiation: ops, graph, engine, tensors."""
