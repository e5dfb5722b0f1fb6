import numpy as np
import pytest

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut, Split
from fairmf.errors import InvalidData


def matrix(rows, n_items=5, users=None, items=None):
    indptr = np.concatenate(([0], np.cumsum([len(r) for r in rows]))).astype(np.int64)
    indices = np.array([j for r in rows for j in r], dtype=np.int32)
    ids = [None if x is None else Ids(x) for x in (users, items)]
    return Interactions(Rows(indptr, indices, None), n_items, *ids)


def held_out(users=None, known=False):
    return HeldOut(matrix([[0, 1], [2]], users=users), matrix([[3], []], users=users), known)


def test_a_good_split_describes_itself():
    split = Split(matrix([[0, 1], [2, 3], [4]], users="abc"), held_out("de"), held_out("fg"))
    assert split.validation.n_users == 2
    assert split.validation.n_scored == 1
    train, validation, test = split.summary()
    assert train == {"part": "train", "users": 3, "scored": 0, "items": 5, "interactions": 5, "targets": 0}
    assert validation == {
        "part": "validation",
        "users": 2,
        "scored": 1,
        "items": 5,
        "interactions": 3,
        "targets": 1,
    }
    assert test["part"] == "test"
    assert "2 users (1 with targets), 3 fold-in + 1 targets" in repr(split)
    assert repr(split).startswith("Split(by_user")


def test_fold_in_and_targets_must_have_the_same_number_of_users():
    with pytest.raises(InvalidData, match="fold_in has 2 users, targets has 1"):
        HeldOut(matrix([[0], [1]]), matrix([[2]]))


def test_fold_in_and_targets_must_have_the_same_users():
    with pytest.raises(InvalidData, match="different user ids"):
        HeldOut(matrix([[0], [1]], users="ab"), matrix([[2], []], users="ba"))


def test_fold_in_and_targets_must_be_disjoint():
    with pytest.raises(InvalidData, match=r"1 interactions are both in fold_in and in targets.*item 2 of user 1"):
        HeldOut(matrix([[0, 1], [2]]), matrix([[3], [2, 4]]))


@pytest.mark.parametrize("other", [{"n_items": 6, "items": "uvwxyz"}, {"items": "vwxzy"}, {"items": None}])
def test_items_must_be_the_same_everywhere(other):
    named = matrix([[0]], items="vwxyz")
    with pytest.raises(InvalidData, match="same items in the same order"):
        HeldOut(named, matrix([[1]], **other))
    part = HeldOut(named, matrix([[1]], items="vwxyz"))
    with pytest.raises(InvalidData, match="same items in the same order"):
        Split(matrix([[0]], **other), part, part)


def test_no_user_may_be_in_two_parts():
    train = matrix([[0], [1]], users="ab")
    with pytest.raises(InvalidData, match="1 users are in two parts: 'b' is in train and in test"):
        Split(train, held_out("cd"), held_out("be"))
    with pytest.raises(InvalidData, match="'d' is in validation and in test"):
        Split(train, held_out("cd"), held_out("de"))
    assert Split(train, held_out("cd"), held_out("de"), "by_time").method == "by_time"
    assert Split(train, held_out(), held_out()).train is train  # without ids nothing can be compared


def test_known_users_have_train_as_their_history():
    train = matrix([[0, 1], [2]])
    good = HeldOut(train, matrix([[3], []]), True)
    also = HeldOut(matrix([[0, 1], [2]]), matrix([[4], []]), True)
    assert Split(train, good, also, "by_interaction").test is also
    with pytest.raises(InvalidData, match="test is marked known_users"):
        Split(train, good, HeldOut(matrix([[0], [2]]), matrix([[3], []]), True), "by_time")


def test_validation_and_test_targets_of_a_split_by_interaction_are_disjoint():
    train = matrix([[0, 1], [2]])
    part = HeldOut(train, matrix([[3], []]), True)
    with pytest.raises(InvalidData, match=r"both in validation\.targets and in test\.targets"):
        Split(train, part, part, "by_interaction")
