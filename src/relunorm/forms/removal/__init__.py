"""What does nothing, or can be done by fewer units, is taken out."""
