"""Writing fails whole: the old file stays, nothing half-written does, and the error says why."""

import errno
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from full_disk import fail_after

from fairmf.errors import CannotWrite
from fairmf.io import atomic, container
from fairmf.io.container import Format

KIND = Format("fairmf test", version=1)
BEFORE, AFTER = "before", "after"


def save(content, path):
    """A file of some 13 kB."""
    container.write(path, KIND, content, {"a": np.arange(1000.0), "b": np.arange(1000, dtype=np.int32)})


def assert_holds(path, content):
    assert container.read(path, KIND)[0] == content


@pytest.fixture
def old(tmp_path):
    """A folder with a file in it."""
    save(BEFORE, tmp_path / "file")
    return tmp_path / "file"


def assert_untouched(old):
    assert [path.name for path in old.parent.iterdir()] == [old.name]
    assert_holds(old, BEFORE)


def test_a_file_is_replaced(old):
    save(AFTER, old)
    assert [path.name for path in old.parent.iterdir()] == ["file"]
    assert_holds(old, AFTER)


@pytest.mark.parametrize("room", [0, 100, 5000])
def test_a_full_disk(old, monkeypatch, room):
    with monkeypatch.context() as patch:
        fail_after(patch, room, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(CannotWrite, match=r"file cannot be written: No space left.*file is unchanged") as error:
            save(AFTER, old)
    assert error.value.errno == errno.ENOSPC
    assert isinstance(error.value, OSError)
    assert_untouched(old)


def test_ctrl_c_while_writing(old, monkeypatch):
    with monkeypatch.context() as patch:
        fail_after(patch, 3000, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            save(AFTER, old)
    assert_untouched(old)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_the_end(old, monkeypatch, step):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if step == "fsync" else (atomic.Path, "replace")), fail)
        with pytest.raises(CannotWrite, match="Input/output error"):
            save(AFTER, old)
    assert_untouched(old)


def test_the_data_are_on_the_disk_before_the_name_is(old, monkeypatch):
    """fsync of the file, then rename, then fsync of the folder: in any other order a power cut may lose both files."""
    steps = []
    real_fsync, real_replace = os.fsync, atomic.Path.replace

    def fsync(handle):
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real_fsync(handle)

    def replace(self, target):
        steps.append("rename")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(atomic.Path, "replace", replace)
    save(AFTER, old)
    assert steps == ["file", "rename", "folder"]


def test_a_limit_on_file_size(old):
    """A real refusal of the operating system, in the middle of the data."""
    code = """
import resource, sys
from pathlib import Path
from fairmf.errors import CannotWrite
from fairmf.io import container
path, kind = Path(sys.argv[1]), container.Format("fairmf test", version=1)
_, arrays = container.read(path, kind)
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
try:
    container.write(path, kind, "after", arrays)
except CannotWrite as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, old], capture_output=True, text=True)
    assert "cannot be written: File too large" in done.stdout, done.stderr
    assert_untouched(old)


def test_where_nothing_can_be_written(old):
    for path, reason in [
        (old.parent / "no folder" / "file", "No such file or directory"),
        (old / "file", "Not a directory"),
        (old.parent, "it is a folder"),
    ]:
        with pytest.raises(CannotWrite, match=f"cannot be written: {reason}"):
            save(AFTER, path)
    assert_untouched(old)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(old):
    old.parent.chmod(0o500)
    try:
        with pytest.raises(CannotWrite, match="Permission denied"):
            save(AFTER, old)
    finally:
        old.parent.chmod(0o700)
    assert_untouched(old)


def test_permissions_and_links(tmp_path):
    umask = os.umask(0o027)
    try:
        save(BEFORE, tmp_path / "file")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    (tmp_path / "file").chmod(0o604)
    (tmp_path / "link").symlink_to("file")
    save(AFTER, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o604
    assert_holds(tmp_path / "file", AFTER)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CannotWrite, match="a device or a pipe"), atomic.replacing(tmp_path / "pipe") as file:
        file.write(b"x")
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 1
