"""Questions people bring: is it robust here, does the property hold, which way does it slope?"""
