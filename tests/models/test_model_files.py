"""A model's file: a safetensors file that others can read, told from everything else, and replaced whole."""

import errno
import json

import pytest
import safetensors
import safetensors.numpy
from full_disk import fail_after
from small_models import assert_same_model, fitted, same_bits

from fairmf import load_model
from fairmf.errors import BrokenFile, CannotWrite
from fairmf.io import container
from fairmf.io.container import Format


def test_the_safetensors_library_reads_it(tmp_path):
    model = fitted()
    model.save(tmp_path / "model")
    with safetensors.safe_open(tmp_path / "model", framework="np") as file:
        assert file.metadata()["format"] == "fairmf model"
        document = json.loads(file.metadata()["document"])
        assert document["content"]["settings"]["fairness"] == 2.0
        assert same_bits(file.get_tensor("user_factors"), model.user_factors)
    every = safetensors.numpy.load_file(tmp_path / "model")
    assert same_bits(every["interactions.indices"], model.fitted.interactions.by_user.indices)
    assert bytes(every["user_ids.bytes"]).decode() == "".join(model.fitted.user_ids.values)


def test_what_is_no_model_says_what_it_is(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(BrokenFile, match="file cannot be read as a fairmf model: it has only 5 bytes"):
        load_model(path)
    container.write(path, Format("fairmf test", version=1), None, {})
    with pytest.raises(BrokenFile, match="file cannot be read as a fairmf model: it is a fairmf test"):
        load_model(path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(errno.ENOSPC, "No space left"), CannotWrite), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_save_that_fails_leaves_the_old_model(tmp_path, monkeypatch, error, told):
    path = tmp_path / "model"
    fitted().save(path)
    with monkeypatch.context() as patch:
        fail_after(patch, 3000, error)
        with pytest.raises(told):
            fitted("ials").save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert_same_model(load_model(path), fitted())
    fitted("ials").save(path)
    assert_same_model(load_model(path), fitted("ials"))


@pytest.mark.parametrize("mmap", [False, True])
def test_checksums_are_compared_unless_told_otherwise(tmp_path, mmap):
    fitted().save(tmp_path / "model")
    raw = bytearray((tmp_path / "model").read_bytes())
    place = raw.index(fitted().user_factors.tobytes())
    raw[place] ^= 1
    (tmp_path / "model").write_bytes(raw)
    with pytest.raises(BrokenFile, match="array 'user_factors' has another checksum than when it was written"):
        load_model(tmp_path / "model", mmap=mmap, verify=True)
    loaded = load_model(tmp_path / "model", mmap=mmap, verify=False)
    assert (loaded.user_factors != fitted().user_factors).sum() == 1
    if mmap:
        load_model(tmp_path / "model", mmap=True)
    else:
        with pytest.raises(BrokenFile):
            load_model(tmp_path / "model")
