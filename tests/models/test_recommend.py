"""`recommend` and `rank`: ids, exclusions, missing slots, users without history."""

import numpy as np
import pytest
from conftest import random_rows

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter
from fairmf.models import recommend
from fairmf.models.als import IALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.popularity import Popularity

N_USERS, N_ITEMS = 30, 20
ROWS = random_rows(N_USERS, N_ITEMS)
PLAIN = Interactions(ROWS, N_ITEMS)
NAMED = Interactions(ROWS, N_ITEMS, Ids([f"u{i}" for i in range(N_USERS)]), Ids([f"item {j}" for j in range(N_ITEMS)]))
NUMBERED = Interactions(ROWS, N_ITEMS, Ids(np.arange(N_USERS) + 100), Ids(np.arange(N_ITEMS) + 500))


def fitted(data, **settings):
    return IALS(factors=4, epochs=3, **settings).fit(data)


def by_hand(model, i, liked):
    scores = model.item_factors.astype(float) @ model.user_factors[i].astype(float)
    return [j for j in np.argsort(-scores, kind="stable") if j not in set(liked)]


def test_positions_without_ids_names_with_ids():
    plain, named, numbered = fitted(PLAIN), fitted(NAMED), fitted(NUMBERED)
    items, scores = plain.recommend([3, 7], N=5)
    assert items.shape == scores.shape == (2, 5)
    for row, i in zip(items, (3, 7), strict=True):
        assert row.tolist() == by_hand(plain, i, ROWS.row(i)[0])[:5]
    assert (np.diff(scores, axis=1) <= 0).all()
    assert named.recommend(["u3", "u7"], N=5)[0].tolist() == [[f"item {j}" for j in row] for row in items]
    assert numbered.recommend(np.array([103, 107]), N=5)[0].tolist() == (items + 500).tolist()


def test_one_user_gives_flat_arrays():
    model = fitted(NAMED)
    ids, scores = model.recommend("u3", N=4)
    assert ids.shape == scores.shape == (4,)
    assert ids.tolist() == model.recommend(["u3"], N=4)[0][0].tolist()


def test_liked_items_return_only_when_asked_for():
    model = fitted(PLAIN)
    liked = set(ROWS.row(5)[0].tolist())
    assert not liked & set(model.recommend(5, N=N_ITEMS)[0].tolist())
    assert set(model.recommend(5, N=N_ITEMS, filter_already_liked_items=False)[0].tolist()) == set(range(N_ITEMS))


def test_missing_slots_are_minus_one_or_none_and_nan():
    full = N_USERS - 1  # this user has had every item
    ids, scores = fitted(PLAIN).recommend(full, N=3)
    assert ids.tolist() == [-1, -1, -1]
    assert np.isnan(scores).all()
    assert fitted(NUMBERED).recommend(100 + full, N=2)[0].tolist() == [-1, -1]
    assert fitted(NAMED).recommend(f"u{full}", N=2)[0].tolist() == [None, None]
    more_than_there_are = fitted(PLAIN).recommend(3, N=N_ITEMS + 7)[0]
    assert len(more_than_there_are) == N_ITEMS, "a list has no more slots than there are items"


@pytest.mark.parametrize("model", [IALS(factors=4, epochs=2), FiADMM(factors=4, epochs=2), Popularity()])
def test_a_user_without_history_gets_the_most_popular(model):
    model.fit(PLAIN)
    counts = PLAIN.by_item.sums()
    expected = sorted(range(N_ITEMS), key=lambda j: (-counts[j], j))[:6]
    assert model.recommend(0, N=6)[0].tolist() == expected
    assert next(model.rank(PLAIN, 6))[1][0].tolist() == expected


def test_unsigned_ids_can_be_missing_too():
    for highest, kind in ((700, "i"), (2**64 - 1, "O")):
        item_ids = np.arange(500, 500 + N_ITEMS, dtype=np.uint64)
        item_ids[-1] = highest
        model = fitted(Interactions(ROWS, N_ITEMS, None, Ids(item_ids)))
        ids = model.recommend(3, N=N_ITEMS)[0]
        positions = fitted(PLAIN).recommend(3, N=N_ITEMS)[0]
        assert ids.dtype.kind == kind
        missing = -1 if kind == "i" else None
        assert ids.tolist() == [missing if p < 0 else int(item_ids[p]) for p in positions]


def test_nobody_asked_for_gives_no_rows():
    assert fitted(PLAIN).recommend([], N=3)[0].shape == (0, 3)
    assert fitted(NAMED).recommend([], N=3)[0].shape == (0, 3)


def test_unknown_users():
    with pytest.raises(InvalidData, match=r"1 of 2 users are unknown, the first is 'nobody'"):
        fitted(NAMED).recommend(["u1", "nobody"])
    with pytest.raises(InvalidData, match="rows go from 0 to 29"):
        fitted(PLAIN).recommend(30)
    with pytest.raises(InvalidData, match="Users are named by row number here"):
        fitted(PLAIN).recommend("u1")
    with pytest.raises(InvalidData, match="A user is named by a number, a string or a tuple"):
        fitted(NAMED).recommend([["u1"]])


@pytest.mark.parametrize("N", [0, -1, 2.5, True, "many"])
def test_bad_n(N):
    with pytest.raises(InvalidParameter, match="'N' parameter must be an integer >= 1"):
        fitted(PLAIN).recommend(1, N=N)


def test_popularity_ranks_by_count_without_the_users_own():
    model = Popularity().fit(PLAIN)
    counts = PLAIN.by_item.sums()
    liked = set(ROWS.row(4)[0].tolist())
    expected = [j for j in sorted(range(N_ITEMS), key=lambda j: (-counts[j], j)) if j not in liked][:5]
    assert model.recommend(4, N=5)[0].tolist() == expected


def test_popularity_adds_up_confidences():
    # Items 0 and 1 have two users each, item 2 one that counts for three; the last user has nothing.
    rows = Rows(np.array([0, 2, 4, 5, 5]), np.array([0, 1, 0, 1, 2], np.int32), np.array([1, 1, 1, 1.5, 3], np.float32))
    data = Interactions(rows, 3)
    model = Popularity().fit(data)
    assert model.recommend(0, N=3, filter_already_liked_items=False)[0].tolist() == [2, 1, 0]
    for other in (model, IALS(factors=2, epochs=1).fit(data)):
        assert other.recommend(3, N=3)[0].tolist() == [2, 1, 0]


def test_rank_in_blocks_equals_rank_at_once(monkeypatch):
    model = fitted(PLAIN)
    whole = np.concatenate([items for _, items in model.rank(PLAIN, 5, known_users=True)])
    monkeypatch.setattr(recommend, "USERS_AT_ONCE", 7)
    blocks = list(model.rank(PLAIN, 5, known_users=True))
    assert [start for start, _ in blocks] == [0, 7, 14, 21, 28]
    np.testing.assert_array_equal(np.concatenate([items for _, items in blocks]), whole)


def test_rank_of_known_users_uses_stored_factors_and_folds_in_others():
    model = FiADMM(factors=4, epochs=2).fit(PLAIN)  # two epochs: stored users are far from their fold-in
    known = next(model.rank(PLAIN, 5, known_users=True))[1]
    new = next(model.rank(PLAIN, 5))[1]
    assert known[3].tolist() == by_hand(model, 3, ROWS.row(3)[0])[:5]
    assert not np.array_equal(known, new)


def test_wrong_orientation_is_named():
    with pytest.raises(InvalidData, match="looks transposed: users must be rows"):
        list(fitted(PLAIN).rank(Interactions(PLAIN.by_item, N_USERS), 3))


def test_histories_must_have_the_items_of_training_in_their_order():
    model = fitted(NAMED)
    backwards = Interactions(ROWS, N_ITEMS, None, Ids(NAMED.item_ids.values[::-1]))
    for ask in (lambda data: model.fold_in(data), lambda data: list(model.rank(data, 3))):
        with pytest.raises(InvalidData, match="column j must be item j of training"):
            ask(backwards)
    same = Interactions(ROWS, N_ITEMS, None, Ids(NAMED.item_ids.values.copy()))
    np.testing.assert_array_equal(model.fold_in(same), model.fold_in(PLAIN))


def test_known_users_must_be_all_of_them():
    with pytest.raises(InvalidData, match="needs all 30 training users"):
        list(fitted(PLAIN).rank(PLAIN.take_users(np.arange(4)), 3, known_users=True))
