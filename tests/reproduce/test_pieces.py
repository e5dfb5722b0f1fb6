"""Pieces are stored under everything they depend on, whole or not at all, and believed only if they are whole."""

import json

import pytest
from small_experiment import small

from fairmf.errors import CannotWrite
from fairmf.reproduce import pieces
from fairmf.reproduce.pieces import Piece, Store, seeded

PIECE = Piece("a", "ials", {"factors": 4, "random_state": 1}, {"measure": "points", "metrics": ["ndcg@10"]})


@pytest.mark.parametrize(
    "other",
    [
        Piece("a", "fair-als", PIECE.settings, PIECE.how),
        Piece("a", "ials", {"factors": 5, "random_state": 1}, PIECE.how),
        Piece("a", "ials", {"factors": 4, "random_state": 2}, PIECE.how),
        Piece("a", "ials", {**PIECE.settings, "epochs": 15}, PIECE.how),
        Piece("a", "ials", PIECE.settings, {**PIECE.how, "metrics": ["ndcg@20"]}),
        Piece("a", "ials", PIECE.settings, {**PIECE.how, "dials": [1.0]}),
    ],
)
def test_whatever_changes_a_number_changes_the_key(other):
    assert other.key("data") != PIECE.key("data")


def test_the_key_is_of_data_and_format_too_but_not_of_names_or_who_computes(monkeypatch):
    assert PIECE.key("other data") != PIECE.key("data")
    assert Piece("b", "ials", PIECE.settings, PIECE.how).key("data") == PIECE.key("data")
    assert Piece("a", "ials", {**PIECE.settings, "num_threads": 1}, PIECE.how).key("data") == PIECE.key("data")
    assert Piece("a", "ials", {**PIECE.settings, "engine": "ray"}, PIECE.how).key("data") == PIECE.key("data")
    assert Piece("a", "ials", {**PIECE.settings, "epochs": 16}, PIECE.how).key("data") == PIECE.key("data")  # default
    before = PIECE.key("data")
    monkeypatch.setattr(pieces, "FORMAT", pieces.FORMAT + 1)
    assert PIECE.key("data") != before


def test_stored_and_read_again(tmp_path):
    store = Store(tmp_path / "pieces", "data")
    assert store.read(PIECE) is None
    assert not (tmp_path / "pieces").exists()
    written = store.write(PIECE, {"points": [{"x": 0.1}]}, 1.23456)
    assert store.read(PIECE) == written
    assert written.result == {"points": [{"x": 0.1}]}
    assert Store(tmp_path / "pieces", "other data").read(PIECE) is None


@pytest.mark.parametrize("harm", [lambda t: t[: len(t) // 2], lambda t: "", lambda t: "[]", lambda t: "\x00" + t])
def test_a_damaged_piece_is_not_believed(tmp_path, harm):
    store = Store(tmp_path, "data")
    store.write(PIECE, {"points": []}, 1.0)
    path = next(tmp_path.glob("*.json"))
    path.write_text(harm(path.read_text()))
    assert store.read(PIECE) is None


def test_a_piece_under_anothers_name_is_not_believed(tmp_path):
    store = Store(tmp_path, "data")
    store.write(PIECE, {"points": []}, 1.0)
    path = next(tmp_path.glob("*.json"))
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "key": "0" * 32}))
    assert store.read(PIECE) is None


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite):
        Store(tmp_path / "file" / "pieces", "data").write(PIECE, {}, 1.0)


def test_seeds():
    assert seeded("ials", {"factors": 2}, 2) == [{"factors": 2, "random_state": 0}, {"factors": 2, "random_state": 1}]
    assert seeded("popularity", {}, 5) == [{}]
    assert small("fronts").series[0].combinations == [
        {"factors": 4, "epochs": 3, "fairness": 0.5},
        {"factors": 4, "epochs": 3, "fairness": 2.0},
    ]
