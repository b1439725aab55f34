"""Bringing units back: which layers make and read them, and what replacing one takes."""
