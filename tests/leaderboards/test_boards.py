"""The data of leaderboards: LightGCN's text format, stored arrays, stored splits, and which part chooses settings."""

import itertools
import zipfile

import numpy as np
import pytest

from fairmf import split_by_user, synthetic
from fairmf.data.csr import Rows
from fairmf.errors import InvalidData, InvalidParameter, LicenceNotAccepted
from fairmf.leaderboards import boards
from fairmf.leaderboards.boards import TO_ITEMS, TO_USERS, load_board, marked

TRAIN = {7: [3, 1, 2, 9, 4], 5: [1, 3, 4, 2, 9, 8], 6: [9]}
TEST = {7: [8], 5: [7], 6: [3, 4]}


def lines(parts):
    return "".join(" ".join(map(str, [user, *items])) + "\n" for user, items in parts.items())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.txt").write_text(lines(TRAIN))
    (tmp_path / "mine" / "test.txt").write_text(lines(TEST))
    return tmp_path / "mine"


def pairs(data):
    """The (user, item) positions of a matrix."""
    rows = data.by_user
    users = np.repeat(np.arange(rows.count), np.diff(rows.indptr))
    return set(zip(users.tolist(), rows.indices.tolist(), strict=True))


def test_lightgcn_files_are_read_from_a_folder_and_from_a_zip(folder, tmp_path):
    # Users and items are numbered by their first appearance: users 7, 5, 6; items 3, 1, 2, 9, 4, 8, 7.
    users, items = {7: 0, 5: 1, 6: 2}, {3: 0, 1: 1, 2: 2, 9: 3, 4: 4, 8: 5, 7: 6}
    archive = tmp_path / "mine.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("train.txt", "test.txt"):
            file.write(folder / name, f"deep/{name}")
    for place in (folder, archive):
        board = load_board(str(place))
        for part, wanted in ((board.train, TRAIN), (board.test.targets, TEST)):
            assert pairs(part) == {(users[u], items[i]) for u, some in wanted.items() for i in some}
        assert (board.train.n_users, board.train.n_items, board.protocol) == (3, 7, TO_ITEMS)
        assert board.name == "mine"
        assert board.test.fold_in is board.train


def test_a_fifth_of_each_users_training_items_chooses_settings(folder):
    board = load_board(str(folder))
    hidden, rest = pairs(board.validation.targets), pairs(board.chosen_on)
    assert hidden | rest == pairs(board.train)
    assert not hidden & rest
    assert sorted(user for user, _ in hidden) == [0, 1]  # round(.2 * 5), round(.2 * 6), round(.2 * 1)
    assert board.validation.fold_in is board.chosen_on


def test_a_search_cannot_see_the_test(folder):
    board = load_board(str(folder))
    split = board.for_search()
    assert split.test is split.validation is board.validation
    assert split.train is board.chosen_on


def test_marked_entries_are_the_asked_share_of_each_row_at_random():
    counts = np.array([0, 1, 2, 3, 10, 500])
    indptr = np.concatenate(([0], np.cumsum(counts)))
    rows = Rows(indptr, np.concatenate([np.arange(k) for k in counts]).astype(np.int32), None)
    found = marked(rows, 0.2, 0)
    assert [int(found[a:b].sum()) for a, b in itertools.pairwise(indptr)] == [0, 0, 0, 1, 2, 100]
    assert np.array_equal(found, marked(rows, 0.2, 0))
    assert not np.array_equal(found, marked(rows, 0.2, 1))
    chosen = np.flatnonzero(found[indptr[5] :])  # neither the first nor the last of the row
    assert chosen.min() < 50
    assert chosen.max() > 450


def test_an_item_in_both_files_is_refused(folder):
    (folder / "test.txt").write_text("7 3 8\n")
    with pytest.raises(InvalidData, match="1 interactions are both"):
        load_board(str(folder))


def arrays_of(data, prefix=""):
    rows = data.by_user
    named = {"indptr": rows.indptr, "indices": rows.indices, "shape": np.array([data.n_users, data.n_items])}
    return {prefix + name: value for name, value in named.items()}


def test_stored_arrays_with_a_published_split(tmp_path):
    data = synthetic(40, 30, 500)
    split = np.random.default_rng(0).integers(0, 2, data.nnz)
    np.savez(tmp_path / "own.npz", **arrays_of(data), split=split)
    board = load_board(str(tmp_path / "own.npz"))
    assert board.name == "own"
    assert board.recall == "hits / |T|"
    assert board.test.targets.nnz == split.sum()
    assert pairs(board.train) | pairs(board.test.targets) == pairs(data)


def test_stored_arrays_without_a_split_get_a_random_fifth_as_test(tmp_path):
    data = synthetic(40, 30, 500)
    np.savez(tmp_path / "own.npz", **arrays_of(data))
    board = load_board(str(tmp_path / "own.npz"))
    wanted = np.round(0.2 * np.diff(data.by_user.indptr)).sum()
    assert board.test.targets.nnz == wanted
    assert pairs(board.train) | pairs(board.test.targets) == pairs(data)


def test_a_split_by_user_is_strong_generalisation_as_arrays_and_as_a_folder(tmp_path, monkeypatch):
    split = split_by_user(synthetic(90, 30, 1200), 10, protocol="seeded")
    stored = arrays_of(split.train, "train_")
    for name, part in (("validation", split.validation), ("test", split.test)):
        stored |= arrays_of(part.fold_in, f"{name}_tr_") | arrays_of(part.targets, f"{name}_te_")
    np.savez(tmp_path / "mine-split.npz", **stored)
    split.save(tmp_path / "folder")
    monkeypatch.setenv(boards.VARIABLE, str(tmp_path))
    for board in (load_board("mine"), load_board(str(tmp_path / "folder"))):
        assert board.protocol == TO_USERS
        assert board.recall == "hits / min(K, |T|)"
        assert board.chosen_on is board.train
        assert pairs(board.train) == pairs(split.train)
        assert pairs(board.test.targets) == pairs(split.test.targets)
        assert pairs(board.validation.targets) == pairs(split.validation.targets)
        assert board.metrics == ("recall@20", "ndcg@100", "ndcg@20", "recall@50")


def test_many_validation_users_are_sampled(folder, monkeypatch):
    monkeypatch.setattr(boards, "SCORED", 2)
    board = load_board(str(folder))
    assert board.validation.n_users == 2
    assert not board.validation.known_users
    assert board.test.n_users == 3


def test_a_named_board_is_found_where_the_variable_says(folder, tmp_path, monkeypatch):
    folder.rename(tmp_path / "gowalla")
    monkeypatch.setenv(boards.VARIABLE, str(tmp_path))
    board = load_board("gowalla")
    assert (board.name, board.train.nnz) == ("gowalla", 12)
    assert load_board("yelp2018", tmp_path / "gowalla").name == "yelp2018"


def test_what_is_not_here_says_which_files_to_put_where(tmp_path, monkeypatch):
    monkeypatch.delenv(boards.VARIABLE, raising=False)
    monkeypatch.setenv("FAIRMF_DATA_CACHE", str(tmp_path / "cache"))
    with pytest.raises(LicenceNotAccepted, match=r"train\.txt and test\.txt.*amazon-book in \$FAIRMF_DATA"):
        load_board("amazon-book")
    with pytest.raises(LicenceNotAccepted, match="archive of ml-20m"):
        load_board("ml-20m")
    with pytest.raises(InvalidParameter, match="no leaderboard 'gowala'"):
        load_board("gowala")
    with pytest.raises(InvalidParameter, match=r"absent does not exist.*train\.txt"):
        load_board("gowalla", tmp_path / "absent")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"indptr": [0, 1]}, "lacks the arrays indices, shape"),
        ({"indptr": [0, 1], "indices": [0], "shape": [1, 2], "split": [0, 1]}, "one number per interaction"),
    ],
)
def test_arrays_that_are_no_board_are_named(tmp_path, arrays, told):
    np.savez(tmp_path / "bad.npz", **{name: np.array(value) for name, value in arrays.items()})
    with pytest.raises(InvalidData, match=told):
        load_board(str(tmp_path / "bad.npz"))


def test_files_that_are_no_board_are_named(tmp_path):
    (tmp_path / "bad.npz").write_text("words")
    with pytest.raises(InvalidData, match="not a file of NumPy arrays"):
        load_board(str(tmp_path / "bad.npz"))
    (tmp_path / "plain.csv").write_text("1,2\n")
    with pytest.raises(InvalidData, match="holds no leaderboard"):
        load_board(str(tmp_path / "plain.csv"))
