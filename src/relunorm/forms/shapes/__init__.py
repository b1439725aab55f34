"""The normal forms: which of all equivalent networks is chosen."""
