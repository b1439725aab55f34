"""`--style pieces`: programs that look up the affine piece of their input."""
