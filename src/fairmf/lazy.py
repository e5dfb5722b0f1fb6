"""A `functools.cached_property` without a lock, as Python 3.12 has it.

In older versions one lock serves all objects of a class and is held while a value is computed. A process that forks at
that moment leaves its child a lock that is never released. Without the lock two threads may compute the same value,
which is harmless.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - named like the class it replaces
        """A property that is computed on first use and stored in the object."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            kept = vars(instance)
            if self.attrname not in kept:
                kept[self.attrname] = self.func(instance)
            return kept[self.attrname]
