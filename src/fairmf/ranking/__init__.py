"""4. Ranking: from scores to lists. Works on arrays and knows no model."""
