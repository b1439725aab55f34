"""Exact extrema of outputs over a domain, and the bounds behind them."""
