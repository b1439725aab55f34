"""Whether two networks are the same function over a domain, and where they differ."""
