"""Commands that train networks, or look at how they train."""
