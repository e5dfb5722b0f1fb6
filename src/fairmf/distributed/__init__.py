"""Fit, rank and evaluate on several machines: a Ray cluster whose workers own shards of users."""
