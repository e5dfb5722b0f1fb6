"""1. Interactions: read from anywhere, held once, in both orientations."""

from fairmf.interactions.ids import Ids
from fairmf.interactions.interactions import Interactions
from fairmf.interactions.rows import Rows

__all__ = ["Ids", "Interactions", "Rows"]
