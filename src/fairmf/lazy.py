"""Load modules on first use, and cache properties on first use."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property", "lazy_module"]


class _LazyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        # Nothing is kept: later calls only look the module up, and see what tests have replaced in it.
        found = sys.modules.get(self.__name__)
        if found is None or getattr(found.__spec__, "_initializing", False):
            found = importlib.import_module(self.__name__)  # waits where another thread is importing it
        return getattr(found, name)


def lazy_module(name: str) -> types.ModuleType:
    """Return a stand-in for a module that is imported when one of its attributes is first read.

    Use it for modules that are slow to import and that many callers never need, such as PyArrow:

        if TYPE_CHECKING:
            import pyarrow as pa
        else:
            pa = lazy_module("pyarrow")

    Type checkers then see the module itself. Reading an attribute costs about a microsecond more than on the module, so
    keep stand-ins out of loops over rows.
    """
    return _LazyModule(name)


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - named like the class it replaces
        """A `functools.cached_property` without a lock, as Python 3.12 has it.

        In older versions one lock serves all objects of a class and is held while a value is computed. A process that
        forks at that moment leaves its child a lock that is never released. Without the lock two threads may compute
        the same value, which is harmless.
        """

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            if instance is None:
                return self
            kept = vars(instance)
            if self.attrname not in kept:
                kept[self.attrname] = self.func(instance)
            return kept[self.attrname]
