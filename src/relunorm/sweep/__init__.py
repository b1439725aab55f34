"""Sweeps: one function over many parameters, on any joblib backend, kept in one small store."""
