"""Measure lists: accuracy for users, exposure for items and groups, with intervals."""
