"""Results in a notebook, as a table and as a picture."""
