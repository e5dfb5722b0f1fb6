"""Write the server's log: one JSON object a line on stderr. Histories are in it only if that is asked for."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from datetime import datetime, timezone

import msgspec

_encoder = msgspec.json.Encoder(enc_hook=str)
_lock = threading.Lock()


def write(level: str, event: str, **fields: object) -> None:
    """Write one line."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    line = _encoder.encode({"time": now, "level": level, "event": event, **fields})
    with _lock:
        sys.stderr.write(line.decode("utf-8", "replace") + "\n")
        sys.stderr.flush()


def answered(request: str, method: str, path: str, status: int, seconds: float, body: bytes | None) -> None:
    """Write a line about a request; with its body if that is wanted."""
    more = {} if body is None else {"body": body.decode("utf-8", "replace")}
    write(
        "info", "request", request=request, method=method, path=path, status=status, ms=round(seconds * 1e3, 3), **more
    )


def failed(request: str, path: str, error: BaseException) -> None:
    """Write an unexpected error with its traceback, which the client does not see."""
    text = "".join(traceback.format_exception(error))
    write("error", "internal error", request=request, path=path, error=repr(error), traceback=text)


class JsonLines(logging.Handler):
    """Write records of Python's logging, such as uvicorn's and the library's, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        more = {} if record.exc_info is None else {"traceback": logging.Formatter().formatException(record.exc_info)}
        write(record.levelname.lower(), record.getMessage(), logger=record.name, **more)


def capture(*names: str, level: int = logging.WARNING) -> None:
    """Send the records of these loggers to our log."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [JsonLines()], False
        logger.setLevel(level)
