"""Linear regions of piecewise affine networks: listed, located, measured, drawn."""
