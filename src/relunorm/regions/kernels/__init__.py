"""Compiled searches of the regions of a network, and the flat arrays they read."""
