"""Compile kernels with Numba, and cache the machine code on disk.

`kernel` makes every compiled function of the package and lists it in `KERNELS`. Kernels release the GIL and use one
thread; `threads.py` runs them on several threads.

Numba's own cache raises if it finds no writable folder, or if a file in it is damaged. Here a missing folder leads to
one warning and no cache, and a damaged file to a new compilation (docs/serving.md).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, NullCache

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.caching import _CacheLocator
    from numba.core.compiler import CompileResult
    from numba.core.typing.templates import Signature

log = logging.getLogger("fairmf")

KERNELS: list[Any] = []
"""Every kernel of the modules imported so far."""


def kernel(function: Callable[..., object] | None = None, inner: bool = False, **options: Any) -> Any:
    """Decorate a function so that Numba compiles it when it is first called; `options` are those of `numba.njit`.

    `inner` is for functions that only kernels call: what Python would need to call them is not compiled, which takes
    about a tenth of a second each.
    """
    if function is None:
        return functools.partial(kernel, inner=inner, **options)
    if inner:
        options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    made = numba.njit(nogil=True, **options)(function)
    made._cache = _cache_of(function)  # what njit(cache=True) would set, with our cache
    KERNELS.append(made)
    return made


def compiled_here() -> int:
    """Count how often this process compiled a kernel because no stored code was found."""
    return sum(sum(made.stats.cache_misses.values()) for made in KERNELS)


def is_compiled(made: Any) -> bool:
    """Return whether a kernel was compiled in this process, or its code is stored for any types of arguments."""
    if made.signatures or isinstance(made._cache, NullCache):
        return bool(made.signatures)
    return bool(made._cache._cache_file._load_index())


def keep_in(folder: Path) -> None:
    """Cache all kernels, those compiled so far and later ones, in this folder, as if NUMBA_CACHE_DIR named it."""
    numba.config.CACHE_DIR = str(folder)
    for made in KERNELS:
        made._cache = _cache_of(made.py_func)
        for signature, code in made.overloads.items():
            made._cache.save_overload(signature, code)


def _cache_of(function: Callable[..., object]) -> _KernelCache | NullCache:
    try:
        return _KernelCache(function)
    except (RuntimeError, OSError) as error:
        # Numba raises RuntimeError where it finds no writable folder.
        _say_once(f"no writable folder for compiled kernels was found ({error})")
        return NullCache()


_said: list[str] = []


def _say_once(cause: str) -> None:
    """Log why kernels are not stored, once per process: the cause is the same for all kernels."""
    if not _said:
        _said.append(cause)
        log.warning(
            "Compiled kernels are not stored, so every process compiles them again: %s. Set NUMBA_CACHE_DIR to a "
            "writable folder, or to one that 'fairmf warmup' has filled.",
            cause,
        )


def _read_only(locator: type[_CacheLocator]) -> type[_CacheLocator]:
    """Derive a cache locator that also accepts a read-only folder, such as one in a container image."""

    def ensure_cache_path(self: _CacheLocator) -> None:
        if not Path(self.get_cache_path()).is_dir():
            raise OSError

    return type(f"ReadOnly{locator.__name__}", (locator,), {"ensure_cache_path": ensure_cache_path})


_given, *_others = CompileResultCacheImpl._locator_classes  # the first one is NUMBA_CACHE_DIR


class _Places(CompileResultCacheImpl):
    """Look for a function's files in NUMBA_CACHE_DIR, then in writable folders, then in read-only ones."""

    _locator_classes: ClassVar = [_given, _read_only(_given), *_others, *map(_read_only, _others)]


class _KernelCache(FunctionCache):
    """Cache one function like Numba; compile it if anything is wrong with its files."""

    _impl_class = _Places

    def __init__(self, function: Callable[..., object]):
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), _sources(str(Path(inspect.getfile(function)).parent))
        # Not Numba's file name: an older fairmf that shares the folder would take these files for damaged ones.
        self._cache_file = _CheckedFile(self._cache_path, f"{self._impl.filename_base}.checked", stamp)

    def load_overload(self, sig: Signature, target_context: BaseContext) -> CompileResult | None:
        """Return the stored code for this signature, or None if there is none or it cannot be used."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a file can be damaged in any way
            log.info("Compiling %s again: its stored code cannot be used (%r).", self._py_func.__name__, error)
            return None

    def save_overload(self, sig: Signature, data: CompileResult) -> None:
        """Store the code; warn once if the disk is full or read-only."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say_once(str(error))


class _CheckedFile(IndexDataCacheFile):
    """Numba's pair of files, index and code, with a checksum before each and the key stored beside the code.

    A damaged file counts as missing. The key is compared because two processes that compile at the same time may give
    their code the same file name; the index of one then points to the code of the other.
    """

    def save(self, key: object, data: object) -> None:
        """Store code under its key."""
        super().save(key, (key, data))

    def load(self, key: object) -> Any:
        """Return the code that was stored under this key, or None."""
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def _dump(self, obj: object) -> bytes:
        content: bytes = super()._dump(obj)
        return hashlib.sha256(content).digest() + content

    def _load_index(self) -> dict[object, str]:
        try:
            with Path(self._index_path).open("rb") as file:
                # As Numba writes the file: its own version, then the rest, here with a checksum.
                version = pickle.load(file)
                found = _checked(file.read()) if version == self._version else None
        except (OSError, ValueError, EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError):
            return {}
        stamp, overloads = found or (None, {})
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return _checked(Path(self._data_path(name)).read_bytes())


def _checked(stored: bytes) -> Any:
    """Return the stored object; if the checksum is wrong raise OSError, which Numba takes for a missing file."""
    if hashlib.sha256(stored[32:]).digest() != stored[:32]:
        raise OSError("the checksum is wrong")
    return pickle.loads(stored[32:])


@functools.cache
def _sources(folder: str) -> str:
    """Return a digest of the kernels' sources in a folder and of the modules that are compiled into them.

    Numba compares only the file of the kernel itself, so a change in a kernel that it calls would go unnoticed.
    """
    digest, root = hashlib.sha256(), Path(__file__).parent.parent
    for path in sorted(Path(folder).glob("*.py")):
        source = path.read_bytes()
        if b"import kernel" in source or b"from numba import" in source:
            modules = re.findall(rb"^from (fairmf[\w.]+) import", source, flags=re.MULTILINE)
            used = [root.joinpath(*module.decode().split(".")).with_suffix(".py") for module in modules]
            for part in (source, *(file.read_bytes() for file in used if file.is_file())):
                digest.update(part)
    return digest.hexdigest()
