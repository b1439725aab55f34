"""Float64 arithmetic that a proof may rest on: what it can lose, and how to do without it."""
