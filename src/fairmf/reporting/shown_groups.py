"""Which groups a page lists: all of a few, of many those whose share changes most anywhere on the dial."""

from __future__ import annotations

from fairmf.metrics.audit.numbers import finite
from fairmf.reporting.content import Content

MOST = 200


def shown_groups(content: Content, most: int = MOST) -> list[int]:
    """Positions of the groups in the page, the largest share at the first stop first."""
    compared = [position.groups for position in content.positions if position.groups]
    if not compared:
        return []
    count = len(compared[0])
    change = [max(abs(finite(groups[g].share.difference) or 0.0) for groups in compared) for g in range(count)]
    chosen = sorted(range(count), key=lambda g: (-change[g], g))[:most]
    return sorted(chosen, key=lambda g: (-(finite(compared[0][g].share.before) or 0.0), g))
