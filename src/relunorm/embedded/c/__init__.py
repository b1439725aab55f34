"""The C files: their frame, the layers, and their tables read back."""
