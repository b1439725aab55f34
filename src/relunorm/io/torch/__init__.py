"""PyTorch: modules, exported programs and state dicts."""
