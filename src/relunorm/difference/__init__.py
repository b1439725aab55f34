"""How far apart two similar networks can be: the difference bounded unit by unit, then searched."""
