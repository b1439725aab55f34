"""Lipschitz constants: one method per file, `front.lipschitz` in front of them."""
