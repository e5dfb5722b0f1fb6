"""Downloads against a real server on the loopback interface that breaks off, changes its file, or lies."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
from loopback import Served

from fairmf.data import download
from fairmf.data.download import fetch
from fairmf.errors import DownloadFailed

pytestmark = pytest.mark.usefixtures("cache")
CONTENT = np.random.default_rng(0).bytes(200_000)
OTHER = np.random.default_rng(1).bytes(150_000)
FETCH = """
import sys
from pathlib import Path
from fairmf.data.download import fetch
print("ready", flush=True)
print(fetch(sys.argv[1], Path(sys.argv[2]))["sha256"])
"""


def left(folder):
    """The files that are there, without locks."""
    return sorted(file.name for file in folder.iterdir() if file.suffix != ".lock")


def test_a_complete_download(server, tmp_path):
    server.files["/a.zip"] = Served(CONTENT, etag='"1"')
    seen = []
    record = fetch(f"{server.address}/a.zip", tmp_path / "a.zip", progress=lambda *how: seen.append(how))
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert record["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert record["bytes"] == len(CONTENT)
    assert "no published checksum" in record["checked_against"]
    assert left(tmp_path) == ["a.zip", "a.zip.json"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [a for a, _ in seen] == sorted(a for a, _ in seen)


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    server.files["/a.zip"] = Served(CONTENT)
    first = fetch(f"{server.address}/a.zip", tmp_path / "a.zip")
    assert fetch(f"{server.address}/a.zip", tmp_path / "a.zip") == first
    assert len(server.requests) == 1


@pytest.mark.parametrize("how", [{"etag": '"1"'}, {"modified": "Sun, 06 Nov 1994 08:49:37 GMT"}], ids=["tag", "date"])
def test_a_broken_connection_is_resumed_where_it_broke(how, server, tmp_path):
    server.files["/a"] = Served(CONTENT, breaks=[70_000, 50_000, 0], **how)
    fetch(f"{server.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT
    asked = server.asked_for("/a")
    assert asked[0] is None
    # A reset may take back the last bytes that were on their way, never those before.
    starts = [int(wanted[6:-1]) for wanted in asked[1:]]
    assert starts == sorted(starts)
    assert 0 < starts[0] <= 70_000
    assert starts[-1] <= 120_000


@pytest.mark.parametrize(
    "how", [{"etag": '"1"', "ranges": False}, {}, {"etag": 'W/"weak"'}], ids=["no ranges", "none", "weak"]
)
def test_without_a_way_to_resume_it_starts_over(how, server, tmp_path):
    server.files["/a"] = Served(CONTENT, breaks=[70_000, 150_000], **how)
    fetch(f"{server.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT
    if how.get("etag") != '"1"':
        assert server.asked_for("/a") == [None] * 3


def test_a_file_that_has_changed_is_not_glued_to_the_old_half(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_ATTEMPTS", 1)
    server.files["/a"] = Served(CONTENT, etag='"1"', breaks=[70_000, 0, 0])
    with pytest.raises(DownloadFailed, match="the partial file is kept"):
        fetch(f"{server.address}/a", tmp_path / "a")
    assert "a.part" in left(tmp_path)
    server.files["/a"] = Served(OTHER, etag='"2"')
    fetch(f"{server.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == OTHER
    assert server.asked_for("/a")[-1] is not None


def test_the_wrong_part_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_starts_at", lambda _: 17)
    server.files["/a"] = Served(CONTENT, etag='"1"', breaks=[70_000])
    with pytest.raises(DownloadFailed, match="another part"):
        fetch(f"{server.address}/a", tmp_path / "a")


def test_all_had_arrived_before_the_end(server, tmp_path):
    """Killed between the last byte and the renaming: the server has nothing more to give."""
    server.files["/a"] = Served(CONTENT, etag='"1"')
    (tmp_path / "a.part").write_bytes(CONTENT)
    notes = '{"address": "%s/a", "validator": "\\"1\\"", "total": %d}'
    (tmp_path / "a.part.json").write_text(notes % (server.address, len(CONTENT)))
    fetch(f"{server.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT
    (tmp_path / "b.part").write_bytes(CONTENT + b"too much")
    (tmp_path / "b.part.json").write_text(notes % (server.address, len(CONTENT)))
    fetch(f"{server.address}/a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == CONTENT


def test_it_gives_up_when_nothing_more_arrives(server, tmp_path):
    server.files["/a"] = Served(CONTENT, etag='"1"', breaks=[1000] + [0] * 50)
    with pytest.raises(DownloadFailed, match="in 5 attempts"):
        fetch(f"{server.address}/a", tmp_path / "a")
    assert 6 <= len(server.requests) <= 7
    assert not (tmp_path / "a").exists()


def test_a_server_that_breaks_off_for_ever_is_left(server, tmp_path):
    server.files["/a"] = Served(CONTENT, ranges=False, breaks=[1000, 900] * 100)
    with pytest.raises(DownloadFailed, match="attempts"):
        fetch(f"{server.address}/a", tmp_path / "a")
    assert len(server.requests) < 20


@pytest.mark.parametrize("marker", ["MD5 (a.zip) = {}", "{}  a.zip\n"])
def test_checksums_beside_the_archive(marker, server, tmp_path):
    server.files["/a.zip"] = Served(CONTENT)
    server.files["/a.zip.md5"] = Served(marker.format(hashlib.md5(CONTENT).hexdigest()).encode())
    record = fetch(f"{server.address}/a.zip", tmp_path / "a.zip", md5_beside=True)
    assert hashlib.md5(CONTENT).hexdigest() in record["checked_against"]
    server.files["/b.zip"] = Served(OTHER)
    server.files["/b.zip.md5"] = server.files["/a.zip.md5"]
    with pytest.raises(DownloadFailed, match="is published: it is damaged or was replaced, and has been deleted"):
        fetch(f"{server.address}/b.zip", tmp_path / "b.zip", md5_beside=True)
    assert left(tmp_path) == ["a.zip", "a.zip.json"]


def test_recorded_checksums_and_no_file_beside(server, tmp_path):
    server.files["/a"] = Served(CONTENT)
    with pytest.raises(DownloadFailed, match="MD5"):
        fetch(f"{server.address}/a", tmp_path / "a", md5="0" * 32)
    fetch(f"{server.address}/a", tmp_path / "a", md5=hashlib.md5(CONTENT).hexdigest())


@pytest.mark.parametrize("status", [404, 500, 200], ids=["none", "server's error", "rubbish"])
def test_a_checksum_that_cannot_be_fetched_is_said(status, server, tmp_path):
    server.files["/b"] = Served(CONTENT)
    server.files["/b.md5"] = Served(b"<html>no checksum here</html>", status=status)
    md5 = hashlib.md5(CONTENT).hexdigest()
    with pytest.warns(
        UserWarning, match=rf"b was not checked: .*b\.md5.* Compare its MD5 {md5} with what is published"
    ):
        record = fetch(f"{server.address}/b", tmp_path / "b", md5_beside=True)
    assert record["checked_against"].startswith("nothing: ")
    assert (str(status) in record["checked_against"]) == (status != 200)
    # Where a checksum is recorded as well, the file is checked, and there is nothing to say.
    server.files["/c"], server.files["/c.md5"] = server.files["/b"], server.files["/b.md5"]
    assert "as published" in fetch(f"{server.address}/c", tmp_path / "c", md5=md5, md5_beside=True)["checked_against"]


@pytest.mark.parametrize("how", [{}, {"length": False}], ids=["announced", "not announced"])
def test_more_than_the_file_can_have_is_left(how, server, tmp_path):
    server.files["/a"] = Served(CONTENT, etag='"1"', **how)
    with pytest.raises(DownloadFailed, match=r"holds more than the 0 MB that the file can have.*from_path"):
        fetch(f"{server.address}/a", tmp_path / "a", most_bytes=len(CONTENT) - 1)
    assert left(tmp_path) == []
    fetch(f"{server.address}/a", tmp_path / "a", most_bytes=len(CONTENT))
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_an_announced_length_that_no_file_has_counts_for_nothing(server, tmp_path):
    server.files["/a"] = served = Served(CONTENT)
    served.etag = '"1"\r\nContent-Length: ' + "9" * 5000
    fetch(f"{server.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_a_file_that_is_shorter_than_announced(server, tmp_path, monkeypatch):
    """The connection is closed in good order, but too early."""
    monkeypatch.setattr(download, "_ATTEMPTS", 2)
    server.files["/a"] = served = Served(CONTENT)
    monkeypatch.setattr(served, "content", Short(CONTENT))
    with pytest.raises(DownloadFailed, match="2 attempts"):
        fetch(f"{server.address}/a", tmp_path / "a")
    assert not (tmp_path / "a").exists()


class Short(bytes):
    """Says it has a thousand bytes more than it gives."""

    def __len__(self):
        return super().__len__() + 1000

    def __getitem__(self, key):
        return Short(super().__getitem__(key))


def test_without_a_length_the_end_is_the_end(server, tmp_path):
    server.files["/a"] = Served(CONTENT, length=False)
    seen = []
    fetch(f"{server.address}/a", tmp_path / "a", progress=lambda *how: seen.append(how))
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), None)


def test_not_found_is_said_at_once(server, tmp_path):
    with pytest.raises(DownloadFailed, match=r"answers 404 Not Found.*from_path"):
        fetch(f"{server.address}/nowhere", tmp_path / "a")
    assert len(server.requests) == 1


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.files["/a"] = Served(b"", status=503)
    with pytest.raises(DownloadFailed, match="503"):
        fetch(f"{server.address}/a", tmp_path / "a")
    assert len(server.requests) == 5


def test_nobody_listens(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/a"
    with pytest.raises(DownloadFailed, match="refused"):
        fetch(address, tmp_path / "a")


def test_redirections(server, tmp_path):
    server.files["/old"] = Served(b"", status=302, to="/new")
    server.files["/new"] = Served(CONTENT, etag='"1"', breaks=[50_000])
    fetch(f"{server.address}/old", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT
    for place in ("file:///etc/passwd", "ftp://127.0.0.1/a"):
        server.files["/bad"] = Served(b"", status=302, to=place)
        with pytest.raises(DownloadFailed, match=r"not followed|not allowed"):
            fetch(f"{server.address}/bad", tmp_path / "b")
    server.files["/round"] = Served(b"", status=302, to="/round")
    with pytest.raises(DownloadFailed):
        fetch(f"{server.address}/round", tmp_path / "c")


def test_redirections_never_leave_https():
    request = urllib.request.Request("https://example.org/a")
    follow = download._SafeRedirects().redirect_request
    with pytest.raises(DownloadFailed, match="less safe"):
        follow(request, None, 302, "Found", {}, "http://example.org/a")
    assert follow(request, None, 302, "Found", {}, "https://example.org/b").full_url == "https://example.org/b"


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://example.org/a", "a.zip", "http:///a"])
def test_only_web_addresses(address, tmp_path):
    with pytest.raises(DownloadFailed, match="not an http or https address"):
        fetch(address, tmp_path / "a")


def test_a_full_disk_is_seen_beforehand(server, tmp_path, monkeypatch):
    server.files["/a"] = Served(CONTENT)
    usage = download.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DownloadFailed, match=r"has 0 MB of free space.*FAIRMF_DATA_CACHE"):
        fetch(f"{server.address}/a", tmp_path / "a")


def test_a_killed_process_is_taken_over(server, tmp_path):
    server.files["/a"] = served = Served(CONTENT, etag='"1"')
    served.gate = threading.Event()
    command = [sys.executable, "-c", FETCH, f"{server.address}/a", str(tmp_path / "a")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    part = tmp_path / "a.part"
    wait_for(lambda: part.exists() and part.stat().st_size >= len(CONTENT) // 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    served.gate.set()
    served.gate = None
    fetch(f"{server.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert server.asked_for("/a")[1] == f"bytes={len(CONTENT) // 2}-"


def test_two_processes_fetch_it_once(server, tmp_path):
    server.files["/a"] = served = Served(CONTENT, etag='"1"')
    served.gate = threading.Event()
    command = [sys.executable, "-c", FETCH, f"{server.address}/a", str(tmp_path / "a")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
    wait_for(lambda: server.requests)
    time.sleep(0.5)  # the other has had its chance to ask too
    served.gate.set()
    answers = [process.communicate(timeout=60)[0].strip() for process in both]
    assert answers == [hashlib.sha256(CONTENT).hexdigest()] * 2
    assert len(server.requests) == 1
    assert left(tmp_path) == ["a", "a.json"]


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.mark.skipif(os.name == "nt", reason="rights are another matter there")
def test_a_folder_that_cannot_be_written(server, tmp_path):
    server.files["/a"] = Served(CONTENT)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadFailed, match=r"cannot be written.*FAIRMF_DATA_CACHE"):
        fetch(f"{server.address}/a", tmp_path / "file" / "a")
