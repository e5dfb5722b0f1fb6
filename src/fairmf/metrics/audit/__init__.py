"""The audit: what changes for items, groups and users when one way of recommending replaces another."""

from fairmf.metrics.audit.auditing import audit
from fairmf.metrics.audit.result import Audit, Change, Estimate, GroupChange, ItemChange
from fairmf.metrics.audit.users import UserChange

__all__ = ["audit", "Audit", "Change", "Estimate", "GroupChange", "ItemChange", "UserChange"]
