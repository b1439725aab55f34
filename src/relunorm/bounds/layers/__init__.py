"""Bounds layer by layer over a whole domain, on arrays."""
