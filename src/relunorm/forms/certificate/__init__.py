"""Proofs of a relation as documents, and replaying them."""
