"""What every reader and writer shares: tensors lowered to networks, heads, structures, windows."""
