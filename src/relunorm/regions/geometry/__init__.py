"""Regions as polytopes: walls, corners, volumes, neighbours, boundaries of classes."""
