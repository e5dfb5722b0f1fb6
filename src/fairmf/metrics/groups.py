"""Groups of items, as metrics know them: read where the other facts about items are read."""

from fairmf.interactions.groups import GroupLabels, Groups, read_groups

__all__ = ["GroupLabels", "Groups", "read_groups"]
