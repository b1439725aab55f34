"""Both proofs: what every sum can reach, and how far a program can be from its network."""
