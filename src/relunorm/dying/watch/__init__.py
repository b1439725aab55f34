"""Watching a model train: its rectifiers, what passes through them, and the report."""
