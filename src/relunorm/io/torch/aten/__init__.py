"""What graphs of aten operations, PyTorch's own vocabulary, mean as networks."""
