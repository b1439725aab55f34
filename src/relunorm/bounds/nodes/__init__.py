"""Networks as triangular forms, and nodes of a search over them: bounded, tuned, cut; compiled."""
