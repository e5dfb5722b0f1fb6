"""Forward log records and warnings to the CLI session."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairmf.cli.terminal import marked

if TYPE_CHECKING:
    from fairmf.cli.session import Session


# Kinds of log records that are not shown. The command line has its own message for an interruption. "compiling" is
# logged whenever this process loads a kernel for the first time, but the kernel is usually in the cache.
_HIDDEN = ("interrupted", "compiling")


class _Notes(logging.Handler):
    """Print log records as notes and warnings of the session."""

    def __init__(self, session: Session):
        super().__init__(logging.INFO)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "kind", None) in _HIDDEN:
            return
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            self._session.warn(text)
        else:
            self._session.note(marked(text))


@contextlib.contextmanager
def forwarded(session: Session) -> Iterator[None]:
    """Send warnings and the library's log to the session while a verb runs."""
    log = logging.getLogger("fairmf")
    level, spreads, notes = log.level, log.propagate, _Notes(session)
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(notes)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: session.warn(str(message))
            yield
    finally:
        log.removeHandler(notes)
        log.setLevel(level)
        log.propagate = spreads
