"""Turn scores into lists. Works on arrays and knows no model."""
