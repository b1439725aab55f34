"""Commands that read, rewrite and compare models."""
