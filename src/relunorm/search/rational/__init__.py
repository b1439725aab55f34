"""Maxima of small networks without any rounding."""
