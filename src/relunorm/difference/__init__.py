"""How far apart two similar networks can be: their difference bounded unit by unit, then searched."""
