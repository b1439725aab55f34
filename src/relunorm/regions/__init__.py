"""Linear regions of piecewise affine networks."""
