"""What seed 002 proves of one unit, computed: loss and gradient, descent, momentum, rescaling."""
