"""Listing regions: the window on a domain, which engine runs, threads and processes."""
