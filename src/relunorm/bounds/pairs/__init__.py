"""Bounds of two networks side by side, or of a network and a program that rounds."""
