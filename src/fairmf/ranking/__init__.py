"""Turn scores into lists. These modules work on arrays and do not know models."""
