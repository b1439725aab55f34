"""Normal forms: the same function, smaller and in a standard shape, with a proof."""
