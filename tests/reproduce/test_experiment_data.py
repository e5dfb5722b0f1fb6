"""Data of experiments: .npz files, the folder FAIRMF_DATA, and what is wrong with them."""

import numpy as np
import pytest
from conftest import random_rows

from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.reproduce.data import SOURCES, load_data


def parts(rows, prefix="", columns=30):
    return {f"{prefix}indptr": rows.indptr, f"{prefix}indices": rows.indices, f"{prefix}shape": (rows.count, columns)}


def five_parts():
    names = ("train_", "validation_tr_", "validation_te_", "test_tr_", "test_te_")
    found = {}
    for seed, name in enumerate(names):
        rows = random_rows(20, 15, density=0.3, seed=seed)
        # Targets are other items than those of the history.
        found |= parts(rows._replace(indices=rows.indices + 15 * name.endswith("te_")), name)
    return found


def test_the_parts_of_a_stored_split_are_those_of_the_file(tmp_path):
    arrays = five_parts()
    np.savez(tmp_path / "mine.npz", **arrays)
    data = load_data("ml-1m", from_path=tmp_path / "mine.npz")
    assert (data.name, data.shown) == ("ml-1m", "ml-1m")  # with the settings of ml-1m
    split = data.split
    for part, prefix in (
        (split.train, "train_"), (split.validation.fold_in, "validation_tr_"),
        (split.validation.targets, "validation_te_"),
        (split.test.fold_in, "test_tr_"), (split.test.targets, "test_te_"),
    ):  # fmt: skip
        np.testing.assert_array_equal(part.by_user.indices, arrays[f"{prefix}indices"])
        np.testing.assert_array_equal(part.by_user.indptr, arrays[f"{prefix}indptr"])
        assert part.n_items == 30
    alone = load_data(str(tmp_path / "mine.npz"))
    assert alone.name == "other"
    assert alone.fingerprint == data.fingerprint


def test_a_file_without_parts_is_split_by_user(tmp_path):
    rows = random_rows(120, 30, density=0.4)
    np.savez(tmp_path / "whole.npz", **parts(rows), split=np.arange(rows.nnz) % 2)
    data = load_data(str(tmp_path / "whole.npz"))
    split = data.split
    assert split.test.n_users == split.validation.n_users == 12  # a tenth each
    counted = sum(
        one.nnz
        for one in (
            split.train, split.validation.fold_in, split.validation.targets, split.test.fold_in, split.test.targets
        )
    )  # fmt: skip
    assert counted <= Interactions(rows, 30).nnz
    assert split.test.targets.nnz > 0
    assert load_data(str(tmp_path / "whole.npz")).fingerprint == data.fingerprint  # seeded


def test_a_name_is_looked_for_in_the_folder_of_the_environment(tmp_path, monkeypatch):
    np.savez(tmp_path / "ml-1m-split.npz", **five_parts())
    monkeypatch.setenv("FAIRMF_DATA", str(tmp_path))
    assert load_data("ml-1m").facts["users"] == 20
    (tmp_path / "ml-1m-split.npz").rename(tmp_path / "elsewhere.npz")
    monkeypatch.setenv("FAIRMF_DATA_CACHE", str(tmp_path / "cache"))
    with pytest.raises(Exception, match="ml-1m"):  # neither there nor fetched
        load_data("ml-1m")


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK not at all")
    with pytest.raises(InvalidData, match="is not a file of NumPy arrays"):
        load_data(str(tmp_path / "bad.npz"))
    np.savez(tmp_path / "less.npz", train_indptr=np.array([0, 1]))
    with pytest.raises(InvalidData, match="lacks the arrays validation_tr_indptr"):
        load_data(str(tmp_path / "less.npz"))
    with pytest.raises(InvalidParameter, match="There is no data 'absent'"):
        load_data("absent")
    with pytest.raises(InvalidParameter, match="is synthetic"):
        load_data("synthetic-ml20m-tenth", from_path=tmp_path)


def test_the_tenth_has_the_density_of_the_whole():
    whole, tenth = SOURCES["synthetic-ml20m"], SOURCES["synthetic-ml20m-tenth"]
    assert tenth.items == whole.items
    ratio = whole.interactions / whole.users
    assert tenth.interactions / tenth.users == pytest.approx(ratio, rel=0.01)
