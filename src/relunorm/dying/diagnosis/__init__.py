"""Which units of a network do nothing, and why."""
