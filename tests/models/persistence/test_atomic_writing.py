"""Writing fails whole: the old file stays, nothing half-written does, and the error says why."""

import errno
import os
import stat
import subprocess
import sys

import pytest
from small_models import assert_same_model, fitted

from fairmf import load_model
from fairmf.errors import CannotWrite
from fairmf.models.persistence import atomic


@pytest.fixture
def old(tmp_path):
    """A folder with a model in it."""
    fitted().save(tmp_path / "model")
    return tmp_path / "model"


def assert_untouched(old):
    assert [path.name for path in old.parent.iterdir()] == [old.name]
    assert_same_model(load_model(old), fitted())


def test_a_file_is_replaced(old):
    fitted("ials").save(old)
    assert [path.name for path in old.parent.iterdir()] == ["model"]
    assert_same_model(load_model(old), fitted("ials"))


class FullDisk:
    """A file that takes some bytes and then no more."""

    def __init__(self, file, room, error):
        self.file, self.room, self.error = file, room, error

    def write(self, piece):
        size = memoryview(piece).nbytes
        if size > self.room:
            self.file.write(memoryview(piece)[: self.room])
            raise self.error
        self.room -= size
        return self.file.write(piece)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


def fail_after(monkeypatch, room, error):
    real = os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda *a, **k: FullDisk(real(*a, **k), room, error))


@pytest.mark.parametrize("room", [0, 100, 5000])
def test_a_full_disk(old, monkeypatch, room):
    with monkeypatch.context() as patch:
        fail_after(patch, room, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(CannotWrite, match=r"model cannot be written: No space left.*before is unchanged") as error:
            fitted("ials").save(old)
    assert error.value.errno == errno.ENOSPC
    assert isinstance(error.value, OSError)
    assert_untouched(old)


def test_ctrl_c_while_writing(old, monkeypatch):
    with monkeypatch.context() as patch:
        fail_after(patch, 3000, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            fitted("ials").save(old)
    assert_untouched(old)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_the_end(old, monkeypatch, step):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if step == "fsync" else (atomic.Path, "replace")), fail)
        with pytest.raises(CannotWrite, match="Input/output error"):
            fitted("ials").save(old)
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
    fitted("ials").save(old)
    assert steps == ["file", "rename", "folder"]


def test_a_limit_on_file_size(old):
    """A real refusal of the operating system, in the middle of the data."""
    code = """
import resource, sys
from fairmf import load_model
from fairmf.errors import CannotWrite
model = load_model(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
try:
    model.save(sys.argv[1])
except CannotWrite as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, old], capture_output=True, text=True)
    assert "cannot be written: File too large" in done.stdout, done.stderr
    assert_untouched(old)


def test_where_nothing_can_be_written(old):
    for path, reason in [
        (old.parent / "no folder" / "model", "No such file or directory"),
        (old / "model", "Not a directory"),
        (old.parent, "it is a folder"),
    ]:
        with pytest.raises(CannotWrite, match=f"cannot be written: {reason}"):
            fitted("ials").save(path)
    assert_untouched(old)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(old):
    old.parent.chmod(0o500)
    try:
        with pytest.raises(CannotWrite, match="Permission denied"):
            fitted("ials").save(old)
    finally:
        old.parent.chmod(0o700)
    assert_untouched(old)


def test_permissions_and_links(tmp_path):
    umask = os.umask(0o027)
    try:
        fitted().save(tmp_path / "model")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o640
    (tmp_path / "model").chmod(0o604)
    (tmp_path / "link").symlink_to("model")
    fitted("ials").save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o604
    assert_same_model(load_model(tmp_path / "model"), fitted("ials"))
