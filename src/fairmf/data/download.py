"""Download a data set over HTTP, resume broken downloads, verify checksums, and keep the file in a cache."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import http.client
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeAlias
from urllib.request import Request

from fairmf.data.datasets import DataSet
from fairmf.errors import DownloadFailed, LicenceNotAccepted
from fairmf.io.atomic import locked
from fairmf.types import Record, Settings

_VARIABLE = "FAIRMF_DATA_CACHE"


def cache_folder() -> Path:
    """Return the folder that `FAIRMF_DATA_CACHE` names, or else one in the platform's cache folder."""
    if given := os.environ.get(_VARIABLE):
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fairmf" / "datasets"


def folder_of(entry: DataSet) -> Path:
    """Return the data set's folder in the cache, and create it if needed."""
    folder = cache_folder() / entry.name
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError while writing `path` into DownloadFailed with a hint."""
    try:
        yield
    except DownloadFailed:
        raise
    except OSError as error:
        raise DownloadFailed(
            f"{path} cannot be written ({error.strerror or error}).",
            hint=f"free disk space, check permissions, or name another folder in the environment variable {_VARIABLE}",
        ) from error


def require_licence(entry: DataSet, accept: bool) -> None:
    """Record that the terms are accepted, or raise LicenceNotAccepted, whose message shows them."""
    if licence_accepted(entry):
        return
    if not accept:
        raise LicenceNotAccepted(
            f"The data set {entry.name} comes under terms that you have to accept once. {entry.licence} "
            f"See {entry.home}.",
            dataset=entry.name,
            hint="to accept them, pass {parameter}=True",
            parameter="accept_licence",
        )
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    write_json(folder_of(entry) / "accepted.json", {"licence": entry.licence, "accepted": now})


def licence_accepted(entry: DataSet) -> bool:
    """Return whether exactly these terms were accepted before."""
    return read_json(cache_folder() / entry.name / "accepted.json").get("licence") == entry.licence


def use_copy(entry: DataSet, path: Path) -> None:
    """Record that the data set is to be read from this copy, which stays where it is."""
    write_json(folder_of(entry) / "copy.json", {"path": str(path.resolve())})


def registered_copy(entry: DataSet) -> Path | None:
    """Return the copy that `use_copy` recorded, if it is still there."""
    noted = read_json(cache_folder() / entry.name / "copy.json").get("path")
    return Path(noted) if isinstance(noted, str) and Path(noted).exists() else None


def write_json(path: Path, content: Settings) -> None:
    """Write a small JSON file in one atomic step."""
    with writing(path):
        # Another process may write the same file at the same time.
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
        partial.replace(path)


def read_json(path: Path) -> Record:
    """Read a small JSON file; return an empty dict if it is missing or cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


Progress: TypeAlias = Callable[[int, "int | None"], None]
"""Called with the bytes that have arrived and the bytes in all (None where the server does not say)."""

MOST_BYTES = 10_000_000_000
_CHUNK = 1 << 18
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.5
_TIMEOUT_SECONDS = 30.0
_BROKEN = (http.client.HTTPException, OSError)  # URLError, TimeoutError and what TLS raises are OSErrors
_BY_HAND = "if it still fails, download the file by other means and pass it as {parameter}"


def fetch(
    address: str,
    target: Path,
    md5: str | None = None,
    md5_beside: bool = False,
    progress: Progress | None = None,
    most_bytes: int = MOST_BYTES,
) -> Record:
    """Download `address` to the file `target`; return its record (address, bytes, sha256, checked_against).

    A file that is complete is not fetched again. One process downloads while others wait. If the server announces or
    sends more than `most_bytes`, the download stops and the partial file is deleted.
    """
    _check_address(address)
    record = target.with_name(target.name + ".json")
    with contextlib.ExitStack() as held:
        lock = target.with_name(target.name + ".lock")
        with writing(lock):
            held.enter_context(locked(lock, wait=True))
        # Checked only now: another process may have fetched the file while we waited for the lock.
        if target.exists() and read_json(record).get("bytes") == target.stat().st_size:
            return read_json(record)
        part = target.with_name(target.name + ".part")
        # Fetch the checksum before the file, which may take long.
        published, missing = _published_md5(address) if md5_beside else (None, "no published checksum was found")
        expected = [x for x in (md5, published) if x is not None]
        try:
            _complete(address, part, progress, most_bytes)
        except _TooLarge:
            _discard(part)
            raise
        found = _verified(address, part, expected, missing)
        if md5_beside and not expected:
            warnings.warn(
                f"{target.name} was not checked: {missing}. Compare its MD5 {found.pop('md5')} with what is published, "
                f"or delete {target} and fetch it again later.",
                stacklevel=2,
            )
        found.pop("md5", None)
        with writing(target):
            part.replace(target)
        _notes(part).unlink(missing_ok=True)
        write_json(record, found)
        return found


def _failed(message: str) -> DownloadFailed:
    return DownloadFailed(message, hint=_BY_HAND, parameter="from_path")


class _TooLarge(DownloadFailed):
    """The server announced or sent more bytes than the file can have."""


def _check_size(address: str, size: int | None, most_bytes: int) -> None:
    if size is not None and size > most_bytes:
        raise _TooLarge(
            f"{address} holds more than the {most_bytes / 1e6:,.0f} MB that the file can have: it was replaced. "
            f"The partial file has been deleted.",
            hint=_BY_HAND,
            parameter="from_path",
        )


def _complete(address: str, part: Path, progress: Progress | None, most_bytes: int) -> None:
    """Retry until the file is complete. Give up after several attempts in a row without progress."""
    failures, most = 0, _size(part)
    while True:
        try:
            if _attempt(address, part, progress, most_bytes):
                return
            reason = "the connection broke off"
        except DownloadFailed:
            raise
        except urllib.error.HTTPError as error:
            error.close()
            # Timeout, too early, too many requests: worth another attempt, as are a server's own errors.
            if error.code < 500 and error.code not in (408, 425, 429):
                raise _failed(f"{address} answers {error.code} {error.reason}.") from error
            reason = f"the server answers {error.code} {error.reason}"
        except _BROKEN as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        # Only a larger file than after all earlier attempts is progress. Otherwise a server that cannot resume, and
        # breaks off each time, would be tried for ever.
        failures, most = (0, _size(part)) if _size(part) > most else (failures + 1, most)
        if failures == _ATTEMPTS:
            raise _failed(
                f"{address} could not be downloaded in {_ATTEMPTS} attempts ({reason}); the partial file is kept and "
                f"the next call resumes it."
            )
        # Double the pause with every failure in a row.
        time.sleep(_PAUSE_SECONDS * 2 ** max(failures - 1, 0))


def _attempt(address: str, part: Path, progress: Progress | None, most_bytes: int) -> bool:
    """Make one request, from where the last one broke off; return whether the file is complete."""
    notes = read_json(_notes(part))
    # Without a validator the server could not tell us that the file has changed: then start over.
    validator = notes.get("validator") if notes.get("address") == address else None
    have = _size(part) if validator else 0
    # "identity": sizes and checksums are of the file as it is, not as it would be packed for the way.
    headers = {"User-Agent": "fairmf", "Accept-Encoding": "identity"}
    if have:
        # If-Range: a server whose file has changed since then sends the whole new file.
        headers |= {"Range": f"bytes={have}-", "If-Range": str(validator)}
    try:
        response = _opener().open(Request(address, headers=headers), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # we have the whole file, or it has changed: then start over
            error.close()
            if notes.get("total") == have:
                return True
            part.unlink(missing_ok=True)
            return False
        raise
    with response:
        continued = response.status == 206 and _starts_at(response) == have
        if response.status == 206 and not continued:
            raise _failed(f"{address} sends another part of the file than requested.")
        start = have if continued else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and re.fullmatch("[0-9]{1,18}", length) else None
        _check_size(address, total, most_bytes)
        # Before the first byte, so that a process that is killed meanwhile can be resumed.
        write_json(_notes(part), {"address": address, "validator": _validator(response), "total": total})
        _check_room(part, None if total is None else total - start)
        arrived = 0
        for arrived in _copied(response, part, start):
            _check_size(address, arrived, most_bytes)
            if progress is not None:
                progress(arrived, total)
    # Without an announced length, the end of the stream is all there is to go by.
    return total is None or arrived == total


def _copied(response: http.client.HTTPResponse, part: Path, start: int) -> Iterator[int]:
    """Append the response to the file; yield the size of the file at the start and after every chunk."""
    with writing(part):
        file = part.open("r+b" if start else "wb")
    with file:
        file.truncate(start)
        file.seek(start)
        yield start
        while chunk := response.read1(_CHUNK):  # read1 returns what has arrived: less is lost if the connection breaks
            with writing(part):
                file.write(chunk)
                file.flush()
            yield file.tell()


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def _verified(address: str, part: Path, expected: list[str], missing: str) -> Record:
    """Return the record of the file if its checksum is the published one; else delete the file and raise."""
    # MD5 is what publishers publish. It shows damage, not malice.
    digests = {"md5": hashlib.md5(usedforsecurity=False), "sha256": hashlib.sha256()}
    with part.open("rb") as file:
        while chunk := file.read(1 << 20):
            for digest in digests.values():
                digest.update(chunk)
    size, md5, sha256 = _size(part), digests["md5"].hexdigest(), digests["sha256"].hexdigest()
    for wanted in expected:
        if wanted != md5:
            _discard(part)
            raise _failed(
                f"The file from {address} ({size:,} bytes) has MD5 {md5}, but {wanted} is published: it is damaged or "
                f"was replaced, and has been deleted."
            )
    checked = f"MD5 {md5} as published" if expected else f"nothing: {missing}"
    return {"address": address, "bytes": size, "sha256": sha256, "md5": md5, "checked_against": checked}


def _published_md5(address: str) -> tuple[str | None, str]:
    """Fetch the checksum in the file beside the archive; return it, or None and the reason."""
    try:
        request = Request(f"{address}.md5", headers={"User-Agent": "fairmf"})
        with _opener().open(request, timeout=_TIMEOUT_SECONDS) as response:
            text = response.read(4096).decode("ascii", errors="replace").lower()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            return None, f"no published checksum was found ({address}.md5 answers {error.code})"
        return None, f"its published checksum could not be fetched ({address}.md5 answers {error.code} {error.reason})"
    except _BROKEN as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        return None, f"its published checksum could not be fetched ({address}.md5: {reason})"
    found = re.search(r"\b[0-9a-f]{32}\b", text)
    return (found[0], "") if found else (None, f"{address}.md5 holds no checksum")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirections to http and https only, and never from https back to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        before, after = (urllib.parse.urlsplit(x).scheme for x in (req.full_url, newurl))
        if after not in ("http", "https") or (before == "https" and after == "http"):
            raise DownloadFailed(f"{req.full_url} points to {newurl}, which is not followed, because it is less safe.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_SafeRedirects)


def _check_address(address: str) -> None:
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise DownloadFailed(f"{address} is not an http or https address; only those are fetched.")


def _validator(response: http.client.HTTPResponse) -> str | None:
    """Return what identifies this version of the file on the server: a strong ETag, or the date of its last change."""
    # A weak tag (W/) only promises an equivalent file, so parts of two versions could be joined.
    tag = response.headers.get("ETag")
    date = response.headers.get("Last-Modified")
    return tag if tag and not tag.startswith("W/") else date


def _starts_at(response: http.client.HTTPResponse) -> int:
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
    return int(found[1]) if found else -1


def _check_room(part: Path, needed: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed is not None and needed > free:
        raise DownloadFailed(
            f"{part.parent} has {free / 1e6:,.0f} MB of free space, but {needed / 1e6:,.0f} MB are needed.",
            hint=f"free disk space, or name another folder in the environment variable {_VARIABLE}",
        )


def _notes(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return os.path.getsize(part) if part.exists() else 0  # noqa: PTH202
