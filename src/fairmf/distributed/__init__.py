"""Fit, rank and evaluate on several machines: a Ray cluster whose workers each hold a shard of the users."""
