"""2. Splitting: training data and held-out users, with their invariants checked once."""

from fairmf.splitting.by_interaction import split_by_interaction
from fairmf.splitting.by_time import split_by_time
from fairmf.splitting.by_user import split_by_user
from fairmf.splitting.split import HeldOut, Split

__all__ = ["HeldOut", "Split", "split_by_user", "split_by_interaction", "split_by_time"]
