"""4. Ranking: from scores to lists. Works on arrays and knows no model."""

from fairmf.ranking.exclusions import merged, restricted
from fairmf.ranking.top_n import list_length, popular_n, top_n

__all__ = ["list_length", "merged", "popular_n", "restricted", "top_n"]
