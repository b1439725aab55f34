"""The problems that training poses, and what evaluates them: one engine a file."""
