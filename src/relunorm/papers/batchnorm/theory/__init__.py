"""What seed 004 proves, computed: tree, cells of weights, ranks, fixed points."""
