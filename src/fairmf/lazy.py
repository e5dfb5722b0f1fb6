"""A `functools.cached_property` without a lock, as Python 3.12 has it.

Before, one lock served all objects of a class and was held while a value was computed. A process that forked at that
moment left its child a lock that nobody would ever release. Two threads may now compute the same value; either will do.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - named as what it stands for
        """A property that is computed when first asked for, and kept with the object."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            kept = vars(instance)
            if self.attrname not in kept:
                kept[self.attrname] = self.func(instance)
            return kept[self.attrname]
