"""The solvers, one a file: a task in normalized units goes in, the best network found comes out."""
