"""Bounds on Lipschitz constants, one method per file."""
